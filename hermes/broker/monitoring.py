"""A broker's metrics: where each number is kept, and `/metrics`; `families` has their names.

A fixed number of series goes through `prometheus_client`. What grows with topics, partitions and
groups is written by `hermes.metrics` a piece at a time, so that ten thousand partitions neither
hold up the reactor nor have to fit into memory as text. Nothing here runs in the hot path: counters
are attributes of whoever counts, and are read by a scrape.

Groups' offsets are read from coordination in a worker thread, at most every `_OFFSETS_SECONDS` and
only while somebody scrapes. A scrape waits at most `_OFFSETS_WAIT_SECONDS`, else shows the last.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed

from hermes._version import __version__
from hermes.broker.families import BY_PARTITION, BY_TOPIC, FIXED, LAG, LAG_IN_MESSAGES
from hermes.broker.health import health_resource, readiness
from hermes.broker.periodic import PeriodicTask
from hermes.broker.serving import ServingBroker
from hermes.coordination.group_state import lag_between
from hermes.errors import HermesError
from hermes.listening.tls_metrics import tls_values
from hermes.metrics import (
    OPENMETRICS,
    FamiliesCollector,
    Family,
    Histogram,
    Series,
    generate,
    write_series,
)
from hermes.metrics.exposition import label_text
from hermes.partition.damage_check import by_topic
from hermes.protocol.core import KIND
from hermes.security import CLUSTER, Operation
from hermes.storage import Log
from hermes.web import MetricsResource, Rule, WebServer

#: How often the reactor's lag is measured.
_LAG_INTERVAL_SECONDS = 0.5

#: How old groups' offsets may be before a scrape reads them again.
_OFFSETS_SECONDS = 5.0

#: How long a scrape waits for them.
_OFFSETS_WAIT_SECONDS = 2.0

#: How many offsets of groups are read at the most.
MAX_GROUP_OFFSETS = 20_000

#: How many topics have a series for their damage at the most.
_MOST_DAMAGED_TOPICS = 100

#: How many logs are read in one turn, for what needs all of them.
_LOGS_AT_ONCE = 256

_LAG_BOUNDS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)

_LOG_LABELS: Final = BY_PARTITION["hermes_log_size_bytes"].labels

# A series that begins with its first failure would hide that one from a rate.
_NO_ATTEMPTS: Final = {
    (how, result): 0
    for how in ("SCRAM-SHA-256", "password")
    for result in ("accepted", "wrong", "too_many")
}

_Sample = tuple[str, float]

# What groups have stored, by group, topic and partition.
GroupOffsets = dict[tuple[str, str, int], int]


def add_resources(web: WebServer, run: ServingBroker) -> None:
    monitoring = Monitoring(run)
    web.root.add("health", health_resource(run), any_host=True, rule=Rule(is_open=True))
    web.root.add(
        "metrics",
        MetricsResource(monitoring.reactor, monitoring.scrape),
        any_host=True,
        rule=web.guard.rule(Operation.DESCRIBE, CLUSTER),
    )
    web.on_stop.append(monitoring.stop)


class Monitoring:
    """Reads a broker's numbers. Lives in the reactor's thread."""

    def __init__(self, run: ServingBroker) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self.reactor = run.reactor
        self._run = run
        self._lag = Histogram(_LAG_BOUNDS)
        self._due = run.reactor.seconds() + _LAG_INTERVAL_SECONDS
        self._watch = PeriodicTask(
            run.reactor, self._measure_lag, _LAG_INTERVAL_SECONDS, _LAG_INTERVAL_SECONDS
        )
        # Reading what the process holds lists its open files, of which there may be very many:
        # a piece of its own.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._offsets: GroupOffsets = {}
        self._offsets_seconds: float | None = None  # when they were read, by the wall clock
        self._offsets_read = float("-inf")  # the same by the reactor's
        self._offsets_failures = 0
        self._reading: Deferred[Any] | None = None

    def stop(self) -> None:
        self._watch.stop()

    def scrape(self, format_: str) -> "Deferred[Iterator[bytes]]":
        """Make the exposition in a format of `hermes.metrics`.

        Returns a Deferred of its pieces, each some milliseconds' work; read while they are taken.
        """
        return self._refresh_offsets().addCallback(lambda _: self.pieces(format_))

    def pieces(self, format_: str) -> Iterator[bytes]:
        logs = list(self._run.directory.logs.values())
        yield generate(FamiliesCollector(self._fixed), format_)
        for more in self._run.more_series:
            yield generate(FamiliesCollector(more), format_)
        yield generate(self._process, format_)
        yield from self._by_topic(format_)
        if self._run.config.metrics_per_partition:
            yield from self._by_partition(logs, format_)
            offsets = self._offsets | self._offsets_here()
            for family in (LAG, LAG_IN_MESSAGES):
                yield from write_series(family, self._lags(family, offsets), format_)
        if format_ == OPENMETRICS:
            yield b"# EOF\n"

    # -- a fixed number of series -----------------------------------------------------------------

    def _fixed(self) -> Iterator[Series]:
        values = dict(self._plain_values())
        labelled = dict(self._labelled_values())
        for name, family in FIXED.items():
            if name in values:
                yield family, [((), values[name])]
            elif name in labelled:
                yield family, labelled[name]

    def _plain_values(self) -> Iterator[tuple[str, float | Histogram]]:
        run, metrics = self._run, self._run.broker.metrics
        flusher, pages, maintenance = run.flusher, run.connections.pages, run.maintenance
        yield "hermes_produce_acknowledged_seconds", metrics.acknowledged
        yield "hermes_oversized_sets_total", metrics.oversized_sets
        yield "hermes_fetches_total", metrics.fetches
        yield "hermes_connections", metrics.connections
        yield "hermes_connections_accepted_total", metrics.connections_accepted
        yield "hermes_connections_refused_total", metrics.connections_refused
        yield "hermes_connections_closed_by_broker_total", metrics.requests_refused
        yield "hermes_connections_unauthenticated", len(run.connections.waiting)
        yield "hermes_users_current", int(run.authentication.is_current)
        yield "hermes_http_connections", 0 if run.web is None else run.web.connections
        yield "hermes_waiting_fetches", len(run.broker.waiting)
        yield "hermes_flush_seconds", flusher.seconds
        yield "hermes_append_visible_seconds", flusher.visible_seconds
        yield "hermes_flushes_total", flusher.flushes
        yield "hermes_flush_failures_total", flusher.failures
        yield "hermes_flushes_in_progress", flusher.running
        yield "hermes_first_flushes_waiting", flusher.queued
        yield "hermes_cold_reads_total", pages.warmed
        yield "hermes_cold_reads_in_progress", pages.warming
        yield "hermes_reactor_lag_seconds", self._lag
        yield "hermes_topics", len(run.broker.topics)
        logs = run.directory.logs.values()
        yield "hermes_logs", len(logs)
        yield "hermes_logs_offline", sum(log.is_offline for log in logs)
        yield "hermes_retention_deletes_total", maintenance.retention_deletes
        yield "hermes_retention_deleted_bytes_total", maintenance.retention_deleted_bytes
        yield "hermes_retention_failures_total", maintenance.retention_failures
        yield "hermes_logs_reopened_total", maintenance.reopened
        opened = run.opened
        yield "hermes_recovery_clean", int(opened.was_clean)
        yield "hermes_recovery_seconds", run.opening_seconds
        yield "hermes_recovery_logs", len(opened.recovered)
        yield "hermes_recovery_dropped_bytes", opened.dropped_bytes
        bad_ranges = sum(len(report.bad_ranges) for report in opened.recovered.values())
        yield "hermes_recovery_bad_ranges", bad_ranges
        yield "hermes_logs_damaged", len(run.damage.damaged())
        yield "hermes_damage_check_bytes_total", run.damage.read_bytes
        yield "hermes_damage_check_rounds_total", run.damage.rounds
        if run.coordination.is_enabled:
            yield "hermes_coordination_registered", int(run.coordination.is_registered)
        if run.config.coordination == "embedded":
            yield "hermes_coordination_embedded_serving", int(run.coordination.is_serving)
        yield "hermes_group_offsets_failures_total", self._offsets_failures
        if self._offsets_seconds is not None:
            yield "hermes_group_offsets_timestamp_seconds", self._offsets_seconds

    def _labelled_values(
        self,
    ) -> Iterator[tuple[str, list[tuple[tuple[str, ...], float | Histogram]]]]:
        run, metrics = self._run, self._run.broker.metrics
        build = (__version__, KIND, str(run.config.broker_id))
        yield "hermes_build_info", [(build, 1)]
        kinds = metrics.requests.items()
        yield "hermes_requests_total", [((name,), kind.taken) for name, kind in kinds]
        yield "hermes_request_seconds", [((name,), kind.seconds) for name, kind in kinds]
        attempts = {**_NO_ATTEMPTS, **run.authentication.counts}
        yield "hermes_authentications_total", list(attempts.items())
        yield "hermes_requests_refused_total", list(metrics.refusals.items())
        quotas = run.connections.quotas
        yield "hermes_quota_delays_total", list(quotas.delays.items())
        yield "hermes_quota_delayed_seconds_total", list(quotas.delayed_seconds.items())
        yield (
            "hermes_quota_connections_refused_total",
            [((who,), count) for who, count in quotas.refused.items()],
        )
        yield from tls_values(run.tls_listeners)
        if run.web is not None:
            refused = run.web.guard.refused.items()
            yield (
                "hermes_http_requests_refused_total",
                [((reason,), count) for reason, count in refused],
            )
        memories: dict[str, Any] = {
            "requests": run.connections.memory,
            "large_responses": run.broker.large_responses,
            "waiting_fetches": run.broker.waiting,
        }
        yield (
            "hermes_request_memory_bytes",
            [((use,), memory.used_bytes) for use, memory in memories.items()],
        )
        yield (
            "hermes_request_memory_limit_bytes",
            [((use,), memory.limit_bytes) for use, memory in memories.items()],
        )
        io, flush = run.io_threads, run.flush_threads
        yield "hermes_threads_busy", [(("io",), len(io.working)), (("flush",), run.flusher.busy)]
        yield (
            "hermes_threads_waiting_calls",
            [(("io",), io._queue.qsize()), (("flush",), flush.waiting)],
        )
        damaged = sorted(by_topic(run.damage.damaged()).items())[:_MOST_DAMAGED_TOPICS]
        yield "hermes_topic_damaged_segments", [((topic,), count) for topic, count in damaged]
        yield "hermes_ready", [((each.name,), int(each.is_ok)) for each in readiness(run)]

    # -- what grows with topics -------------------------------------------------------------------

    def _by_topic(self, format_: str) -> Iterator[bytes]:
        topics = sorted(self._run.broker.metrics.topics.items())
        numbers: dict[str, Callable[[Any], float]] = {
            "hermes_topic_messages_in_total": lambda counts: counts.messages_in,
            "hermes_topic_bytes_in_total": lambda counts: counts.bytes_in,
            "hermes_topic_bytes_out_total": lambda counts: counts.bytes_out,
        }
        for name, family in BY_TOPIC.items():
            number = numbers[name]
            samples = (
                (label_text(family.labels, (topic,)), number(counts)) for topic, counts in topics
            )
            yield from write_series(family, samples, format_)

    def _by_partition(self, logs: list[Log], format_: str) -> Iterator[bytes]:
        labelled = []
        for log in logs:
            labelled.append((label_text(_LOG_LABELS, (log.topic, str(log.partition))), log))
            if not len(labelled) % _LOGS_AT_ONCE:
                yield b""
        numbers: dict[str, Callable[[Log], float]] = {
            "hermes_log_size_bytes": lambda log: log.size_bytes,
            "hermes_log_segments": lambda log: log.segment_count,
            "hermes_log_earliest_offset": lambda log: log.earliest,
            "hermes_log_high_watermark": lambda log: log.high_watermark,
            "hermes_log_end_offset": lambda log: log.end_offset,
        }
        for name, number in numbers.items():
            samples = ((labels, number(log)) for labels, log in labelled)
            yield from write_series(BY_PARTITION[name], samples, format_)
        family = BY_PARTITION["hermes_log_last_append_timestamp_seconds"]
        yield from write_series(family, _append_times(labelled), format_)

    def _lags(self, family: Family, offsets: GroupOffsets) -> Iterator[_Sample]:
        find = self._run.directory.get
        for (group, topic, partition), offset in sorted(offsets.items()):
            log = find(topic, partition)
            if log is not None and log.counts_messages == (family is LAG_IN_MESSAGES):
                lag = lag_between(offset, log.high_watermark)
                if lag is not None:
                    yield label_text(family.labels, (group, topic, str(partition))), lag

    def _offsets_here(self) -> GroupOffsets:
        """Those of groups that the broker keeps itself, without coordination."""
        found = (each for source in self._run.group_offsets for each in source())
        return dict(islice(found, MAX_GROUP_OFFSETS))

    # -- groups' offsets --------------------------------------------------------------------------

    def _refresh_offsets(self) -> "Deferred[None]":
        """Read groups' offsets, if they are old; fires then, or after a while."""
        run, reactor = self._run, self.reactor
        too_soon = reactor.seconds() - self._offsets_read < _OFFSETS_SECONDS
        if too_soon or not (run.config.metrics_per_partition and run.coordination.is_registered):
            return succeed(None)
        reading = self._reading
        if reading is None:
            reading = self._reading = run.coordination.stored_offsets(MAX_GROUP_OFFSETS)
            # Perhaps at once: the broker may not be registered any more.
            reading.addCallbacks(self._offsets_known, self._offsets_unknown)
        waited: Deferred[None] = Deferred()

        def go_on(_: Any = None) -> None:
            if patience.active():
                patience.cancel()
            if not waited.called:
                waited.callback(None)

        patience = reactor.callLater(_OFFSETS_WAIT_SECONDS, go_on)
        reading.addCallback(go_on)
        return waited

    def _offsets_known(self, found: tuple[GroupOffsets, bool]) -> None:
        self._offsets, are_all = found
        self._offsets_seconds = self._run.now_ms() / 1000
        self._offsets_failures += not are_all
        self._offsets_ended()

    def _offsets_unknown(self, failure: Any) -> None:
        self._offsets_failures += 1
        self._offsets_ended()
        failure.trap(HermesError)

    def _offsets_ended(self) -> None:
        self._reading = None
        self._offsets_read = self.reactor.seconds()

    def _measure_lag(self) -> None:
        now = self.reactor.seconds()
        self._lag.observe(max(0.0, now - self._due))
        self._due = now + _LAG_INTERVAL_SECONDS


def _append_times(labelled: Iterable[tuple[str, Log]]) -> Iterator[_Sample]:
    for labels, log in labelled:
        if log.last_append_ms is not None:
            yield labels, log.last_append_ms / 1000
