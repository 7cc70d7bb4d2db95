"""The settings of a single topic: what broker.yaml gives, and what applies with all defaults.

`TopicSettings` is the table (how it works: `hermes.config.broker`). Knows neither YAML nor files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Annotated, Any, Final

from hermes.config import kinds
from hermes.config.setting import Setting, table_of
from hermes.errors import ConfigError
from hermes.interfaces import RetentionSettings

#: Whose clock timestamps are from, by Kafka's names: the producer's, or the broker's.
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"


#: The most copies of a partition.
MOST_COPIES: Final = 7

COPY_COUNT: Final = kinds.whole_number(1, MOST_COPIES)
MIN_INSYNC: Final = kinds.optional(COPY_COUNT, "half of the copies, rounded up")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic: its own, and else the broker's.

    None means no limit. What 0.7's format does not know has its default there.
    """

    partitions: Annotated[
        int,
        Setting(
            kinds.PARTITION_COUNT,
            "The number of partitions of the topic on this broker.",
            replaces=("topic.partition.count.map",),
        ),
    ]
    format: Annotated[
        str,
        Setting(
            kinds.LOG_FORMAT,
            "The format of its partitions, fixed when the topic is created: Kafka 0.7's messages, "
            "or Kafka 4's record batches. Topics created by Kafka clients are `kafka`.",
        ),
    ]
    segment_bytes: Annotated[
        int,
        Setting(
            kinds.size(1, kinds.INT32_MAX),  # Kafka's indexes have 31 bits for a place in a file
            "A new segment is started when the current one is larger than this, which is below "
            "2 GiB.",
            replaces=("topic.log.file.size",),
        ),
    ]
    segment_age_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "A new segment is started when the first append to the current one is older than this.",
            replaces=("topic.log.roll.hours",),
        ),
    ]
    cleanup_policy: Annotated[
        str,
        Setting(
            kinds.choice("delete", "compact", "compact,delete"),
            "What happens to old messages, with `format: kafka`: `delete` applies the topic's "
            "retention, `compact` keeps only the latest message of each key. With `compact` "
            "alone, retention has no effect.",
        ),
    ]
    tombstone_retention_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "How long compaction keeps a tombstone: a message without a value, which deletes its "
            "key.",
        ),
    ]
    message_timestamp_type: Annotated[
        str,
        Setting(
            kinds.choice(CREATE_TIME, LOG_APPEND_TIME),
            "Whose clock sets the timestamps, with `format: kafka`: the producer's, or the "
            "broker's at the time of the append.",
        ),
    ]
    max_batch_bytes: Annotated[
        int,
        Setting(
            kinds.size(0, kinds.INT32_MAX),
            "The largest record batch, as sent (compressed), with `format: kafka`; 1,048,588 if "
            "neither this nor the broker's setting is given.",
        ),
    ]
    retention_policy: Annotated[str, Setting(kinds.TEXT, "What deletes old segments.")]
    retention_time_ms: Annotated[
        int | None,
        Setting(
            kinds.RETAINED_TIME,
            "Segments whose last append is older than this are deleted.",
            replaces=("topic.log.retention.hours",),
        ),
    ]
    retention_bytes: Annotated[
        int | None,
        Setting(
            kinds.RETAINED_BYTES,
            "The oldest segments are deleted as long as at least this much remains.",
            replaces=("topic.log.retention.size",),
        ),
    ]
    retention_options: Annotated[
        Mapping[str, Any],
        Setting(
            kinds.OPTIONS,
            "Options for a retention policy plugin; they replace the broker's and aren't merged "
            "with them.",
        ),
    ]
    flush_messages: Annotated[
        int,
        Setting(kinds.COUNT, "A partition is flushed after this many unflushed messages."),
    ]
    flush_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "The longest time before a message is flushed.",
            replaces=("topic.flush.intervals.ms",),
        ),
    ]
    min_insync_replicas: Annotated[
        int | None,
        Setting(
            MIN_INSYNC,
            "How many copies must be in sync for messages to be taken with `acks=all`, and to "
            "become visible, with `format: kafka`; at most as many as there are.",
        ),
    ]
    unclean_leader_election: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether a copy that may lack messages leads when no copy in sync is left, with "
            "`format: kafka`.",
        ),
    ]

    def least_in_sync(self, copies: int) -> int:
        """How many of a partition's copies must be in sync for anything to be committed."""
        wanted = self.min_insync_replicas
        return (copies + 1) // 2 if wanted is None else min(wanted, copies)

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy != DELETE

    @property
    def is_only_compacted(self) -> bool:
        """Whether retention has no effect, whatever is set; it has again under another policy."""
        return self.cleanup_policy == COMPACT

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def retention(self) -> RetentionSettings:
        return RetentionSettings(
            time_ms=self.retention_time_ms,
            size_bytes=self.retention_bytes,
            options=self.retention_options,
        )


UNSET: Final = object()


class TopicConfig(SimpleNamespace):
    """What broker.yaml gives for one topic, by attribute; the others are `UNSET`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**dict.fromkeys((each.name for each in fields(TopicSettings)), UNSET))
        vars(self).update(given)

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not UNSET}


#: The cleanup policy by which nothing is compacted.
DELETE: Final = "delete"

#: The one by which nothing else is done.
COMPACT: Final = "compact"

#: The topic with the events of the schema registry.
SCHEMAS_TOPIC: Final = "hermes-schemas"

#: The topic with what the parts of a pipeline report for the audit.
AUDIT_TOPIC: Final = "hermes-audit"

#: What reads and writes these takes messages of 0.7.
OWN_TOPICS: Final = (SCHEMAS_TOPIC, AUDIT_TOPIC)


def untrimmed(settings: TopicSettings) -> TopicSettings:
    """The same settings, but nothing is ever deleted."""
    return replace(
        settings,
        retention_policy="time",
        retention_time_ms=None,
        retention_bytes=None,
        retention_options={},
    )


def check_format(entry: TopicConfig, settings: TopicSettings) -> None:
    """Refuse (ConfigError) what 0.7's messages can't have, given in `entry` or by the defaults."""
    if settings.format == kinds.FORMAT_KAFKA:
        return
    needs = f"needs `format: {kinds.FORMAT_KAFKA}`: messages of Kafka {settings.format}"
    if settings.is_compacted:
        raise ConfigError("cleanup_policy", f"{settings.cleanup_policy} {needs} have no keys")
    if settings.is_log_append_time:
        raise ConfigError("message_timestamp_type", f"{LOG_APPEND_TIME} {needs} have no timestamps")
    if entry.max_batch_bytes is not UNSET:
        raise ConfigError("max_batch_bytes", f"it {needs} come in no batches")
    if entry.min_insync_replicas not in (UNSET, None, 1):
        raise ConfigError("min_insync_replicas", f"it {needs} have one copy")
    if entry.unclean_leader_election is True:
        raise ConfigError("unclean_leader_election", f"it {needs} have one copy")


def check_untrimmed(topic: str, entry: TopicConfig) -> None:
    """Refuse a retention for the topic of the schema registry, where it would have no effect.

    Raises a ConfigError that names the setting.
    """
    if topic != SCHEMAS_TOPIC:
        return
    for name, setting in TOPIC_SETTINGS.items():
        if name.startswith("retention") and setting.attribute in entry.given():
            raise ConfigError(
                name, f"{SCHEMAS_TOPIC} holds the registry's schemas and is never trimmed"
            )


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = table_of(TopicSettings)

# A topic's setting has the name of the broker's setting that is its default, except for these.
DEFAULT_OF: Final[Mapping[str, str]] = {
    "partitions": "num_partitions",
    "max_batch_bytes": "max_message_bytes",
    "min_insync_replicas": "default_min_insync_replicas",
}

#: The largest batch of a topic for which nothing else is set, neither for the broker: Kafka's
#: default, which its clients rely on.
MAX_BATCH_BYTES: Final = 1_048_588

# By attribute, where the broker has no such setting: what applies unless the topic's is given.
TOPIC_ONLY: Final[Mapping[str, Any]] = {
    "cleanup_policy": DELETE,
    "tombstone_retention_ms": 24 * 60 * 60 * 1000,
    "message_timestamp_type": CREATE_TIME,
}
