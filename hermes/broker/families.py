"""The broker's metric families: names, meanings, labels. docs/monitoring.md has the same rows."""

from typing import Final

from hermes.metrics import Family

_TOPIC, _PARTITION = ("topic",), ("topic", "partition")


def _table(*families: Family) -> dict[str, Family]:
    return {family.name: family for family in families}


#: Those with a fixed number of series.
FIXED: Final = _table(
    Family(
        "hermes_build_info", "gauge", "Always 1; the labels say what runs.",
        ("version", "core", "broker_id"),
    ),
    Family("hermes_requests_total", "counter", "Requests received.", ("type",)),
    Family(
        "hermes_requests_refused_total", "counter",
        "Requests or entries of one that were not carried out: answered with an error, or the "
        "connection was closed (type connection: before there was a request).",
        ("type", "reason"),
    ),
    Family(
        "hermes_request_seconds", "histogram",
        "From a request being taken to its response being known; waiting fetches wait as long as "
        "they ask for.",
        ("type",),
    ),
    Family(
        "hermes_produce_acknowledged_seconds", "histogram",
        "From a produce with acks=flushed being taken to its flush.",
    ),
    Family("hermes_oversized_sets_total", "counter", "Message sets with too large a message."),
    Family("hermes_fetches_total", "counter", "Fetches answered; each of a multifetch counts."),
    Family("hermes_connections", "gauge", "Open connections."),
    Family("hermes_connections_accepted_total", "counter", "Connections accepted."),
    Family(
        "hermes_connections_refused_total", "counter",
        "Connections closed at once because of `max_connections`.",
    ),
    Family("hermes_connections_closed_by_broker_total", "counter",
           "Connections closed because of what the client sent, or didn't send in time."),
    Family(
        "hermes_connections_unauthenticated", "gauge",
        "Open connections that have not authenticated yet.",
    ),
    Family(
        "hermes_authentications_total", "counter",
        "Authentication attempts by mechanism (`password`: in clear, by HTTP, digest or PLAIN; "
        "`OAUTHBEARER`: tokens, `expired` where one ended a connection).",
        ("mechanism", "result"),
    ),
    Family(
        "hermes_users_current", "gauge",
        "1 unless the current users file can't be used.",
    ),
    Family(
        "hermes_quota_delays_total", "counter",
        "Times that a connection was throttled because its principal was over a quota.",
        ("principal", "quota"),
    ),
    Family(
        "hermes_quota_delayed_seconds_total", "counter",
        "Total time that connections were throttled; counted when a delay is over.",
        ("principal", "quota"),
    ),
    Family(
        "hermes_quota_connections_refused_total", "counter",
        "Connections closed at once because of the principal's quota.",
        ("principal",),
    ),
    Family("hermes_http_connections", "gauge", "Open connections of the HTTP port."),
    Family(
        "hermes_tls_certificate_end_timestamp_seconds", "gauge",
        "When the listener's certificate, or one of its chain, expires.", ("listener",),
    ),
    Family(
        "hermes_tls_handshakes_total", "counter", "Finished TLS handshakes, by outcome.",
        ("listener", "outcome"),
    ),
    Family(
        "hermes_tls_handshakes_in_progress", "gauge", "TLS handshakes under way.", ("listener",),
    ),
    Family(
        "hermes_http_requests_refused_total", "counter",
        "HTTP requests refused: `not_authenticated`, `not_authorized`, or `unavailable` while that "
        "couldn't be decided.",
        ("reason",),
    ),
    Family("hermes_waiting_fetches", "gauge", "Fetches that wait for more messages."),
    Family(
        "hermes_request_memory_bytes", "gauge", "Memory held, by use.", ("use",),
    ),
    Family(
        "hermes_request_memory_limit_bytes", "gauge", "Its limits.", ("use",),
    ),
    Family("hermes_flush_seconds", "histogram", "From a flush being due to its end."),
    Family(
        "hermes_append_visible_seconds", "histogram",
        "Of each flush, from the oldest append that it covers to its being visible.",
    ),
    Family("hermes_flushes_total", "counter", "Flushes started."),
    Family(
        "hermes_flush_failures_total", "counter", "Flushes that failed: their logs went offline.",
    ),
    Family("hermes_flushes_in_progress", "gauge", "Logs being flushed, or waiting for a thread."),
    Family(
        "hermes_first_flushes_waiting", "gauge",
        "Logs that wait for their first flush, which comes one at a time.",
    ),
    Family("hermes_cold_reads_total", "counter", "Windows of segments read from disk by threads."),
    Family("hermes_cold_reads_in_progress", "gauge", "Of these, under way or waiting."),
    Family("hermes_threads_busy", "gauge", "Worker threads at work.", ("pool",)),
    Family("hermes_threads_waiting_calls", "gauge", "Calls that wait for a worker.", ("pool",)),
    Family(
        "hermes_reactor_lag_seconds", "histogram",
        "How late the reactor is with a call, measured twice a second.",
    ),
    Family("hermes_topics", "gauge", "Topics that exist."),
    Family("hermes_logs", "gauge", "Partitions that have a log."),
    Family("hermes_logs_offline", "gauge", "Of these, those that refuse messages."),
    Family("hermes_retention_deletes_total", "counter", "Times that retention deleted segments."),
    Family("hermes_retention_deleted_bytes_total", "counter", "Bytes that it deleted."),
    Family(
        "hermes_retention_failures_total", "counter",
        "Times that a log could not be checked, or its policy failed.",
    ),
    Family("hermes_logs_reopened_total", "counter", "Logs that came back from being offline."),
    Family("hermes_recovery_clean", "gauge", "1 after a clean stop; 0 in a new directory, too."),
    Family("hermes_recovery_seconds", "gauge", "How long opening the logs took at the start."),
    Family("hermes_recovery_logs", "gauge", "Logs that were recovered then."),
    Family("hermes_recovery_dropped_bytes", "gauge", "What was cut off their ends."),
    Family("hermes_recovery_bad_ranges", "gauge", "Damaged ranges that were kept."),
    Family("hermes_logs_damaged", "gauge", "Logs that hold damaged messages, as far as is known."),
    Family("hermes_topic_damaged_segments", "gauge",
           "Segments with damaged messages, for affected topics only (a hundred at most).",
           ("topic",)),
    Family("hermes_damage_check_bytes_total", "counter", "Bytes read to find such messages."),
    Family("hermes_damage_check_rounds_total", "counter", "Times that all logs were checked."),
    Family(
        "hermes_coordination_registered", "gauge",
        "1 while the broker is registered; none without coordination.",
    ),
    Family(
        "hermes_coordination_embedded_serving", "gauge",
        "1 while embedded coordination serves; none unless there is one.",
    ),
    Family(
        "hermes_group_offsets_failures_total", "counter",
        "Times that groups' offsets could not be read completely.",
    ),
    Family(
        "hermes_group_offsets_timestamp_seconds", "gauge",
        "When groups' offsets were last read; none before.",
    ),
    Family(
        "hermes_ready", "gauge",
        "1 if `/health/ready` would say so, by check; free disk space is left to its exporters.",
        ("check",),
    ),
)  # fmt: skip

#: One or more series for each topic.
BY_TOPIC: Final = _table(
    Family("hermes_topic_messages_in_total", "counter",
           "Messages appended; those inside compressed sets count.", _TOPIC),
    Family("hermes_topic_bytes_in_total", "counter", "Bytes appended.", _TOPIC),
    Family("hermes_topic_bytes_out_total", "counter", "Bytes handed to fetches.", _TOPIC),
)  # fmt: skip

#: One for each partition.
BY_PARTITION: Final = _table(
    Family("hermes_log_size_bytes", "gauge", "What a log holds.", _PARTITION),
    Family("hermes_log_segments", "gauge", "Its segments.", _PARTITION),
    Family("hermes_log_earliest_offset", "gauge", "Its first offset.", _PARTITION),
    Family("hermes_log_high_watermark", "gauge", "Its latest visible offset.", _PARTITION),
    Family("hermes_log_end_offset", "gauge", "Its end, flushed or not.", _PARTITION),
    Family("hermes_log_last_append_timestamp_seconds", "gauge",
           "When something was last appended; none before the first append since the start.",
           _PARTITION),
)  # fmt: skip

_GROUP: Final = ("group", "topic", "partition")

LAG: Final = Family(
    "hermes_group_lag_bytes", "gauge",
    "From the offset that a group has stored to the high watermark, where offsets count bytes. "
    "None for an offset beyond it.",
    _GROUP,
)  # fmt: skip
LAG_IN_MESSAGES: Final = Family(
    "hermes_group_lag_messages", "gauge",
    "The same where offsets count messages, as Kafka's do.",
    _GROUP,
)  # fmt: skip

#: Everything, by name.
FAMILIES: Final = {
    **FIXED,
    **BY_TOPIC,
    **BY_PARTITION,
    LAG.name: LAG,
    LAG_IN_MESSAGES.name: LAG_IN_MESSAGES,
}
