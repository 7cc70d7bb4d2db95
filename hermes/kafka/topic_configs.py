"""A topic's settings under Kafka's names: the one table, and how values are read and shown.

A name either stands for a setting of ours, or for what is always so here: then it can be read, and
set to that value, which changes nothing.

Source of names, types and meanings: Kafka 4's `TopicConfig` and `LogConfig`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.origins import ALTERED, TOPIC_ENTRY, settings_in_force
from hermes.config.topic import DEFAULT_OF, TOPIC_SETTINGS
from hermes.errors import ConfigError


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


_LARGEST: Final = {
    ConfigType.INT: 2**31 - 1,
    ConfigType.SHORT: 2**15 - 1,
    ConfigType.LONG: 2**63 - 1,
}
_UNLIMITED: Final = "unlimited"


class ConfigRow(NamedTuple):
    """One setting.

    Attributes:
        doc: a sentence for people.
        key: our setting of a topic; empty for what is always so.
        broker: what Kafka calls the broker's setting that is the default.
        always: the value of what is always so.
        show: turns our value into Kafka's text.
        read: turns Kafka's text, which has its type, into what broker.yaml would have.
    """

    name: str
    type: ConfigType
    doc: str
    key: str = ""
    broker: str = ""
    always: str = ""
    show: Callable[[Any], str] = str
    read: Callable[[str], str] = str


class ConfigValue(NamedTuple):
    """A setting that is in force.

    Attributes:
        value: as Kafka writes it.
        default: what it would be if nothing were set for the topic, and where that comes from.
        is_read_only: whether it can't be set.
    """

    row: ConfigRow
    value: str
    source: ConfigSource
    default: tuple[str, ConfigSource]
    is_read_only: bool = False


def _show_limit(value: int | None) -> str:
    return "-1" if value is None else str(value)


def _read_bytes_limit(text: str) -> str:
    return _UNLIMITED if text == "-1" else text


def _read_ms_limit(text: str) -> str:
    """`0` is the least there is: at once."""
    return _UNLIMITED if text == "-1" else f"{'1' if text == '0' else text}ms"


def _read_throttled(text: str) -> str:
    """Kafka's lists of what is throttled, which aren't needed: what moves is."""
    if text and text != "*" and not _THROTTLED.fullmatch(text):
        raise ConfigError(
            "", f"Invalid value {text}: expected * or PARTITION:BROKER,PARTITION:BROKER,..."
        )
    return ""


def _read_ms(text: str) -> str:
    return f"{text}ms"


def _show_truth(value: bool) -> str:
    return str(value).lower()


def _read_policies(text: str) -> str:
    # In either order, with spaces: a list.
    return ",".join(sorted({each.strip() for each in text.split(",")}))


_T = ConfigType
_MS: Final[dict[str, Any]] = {"read": _read_ms}
_MS_LIMIT: Final[dict[str, Any]] = {"show": _show_limit, "read": _read_ms_limit}
_BYTES_LIMIT: Final[dict[str, Any]] = {"show": _show_limit, "read": _read_bytes_limit}

_MIN_INSYNC: Final = "min.insync.replicas"

_THROTTLED: Final = re.compile(r"\d+:\d+(, *\d+:\d+)*")

_FOREVER: Final = str(2**63 - 1)

_ROWS: Final = (
    ConfigRow(
        "cleanup.policy",
        _T.LIST,
        "Segments are deleted by age and size, or of each key the latest message stays, or both.",
        "cleanup_policy",
        "log.cleanup.policy",
        read=_read_policies,
    ),
    ConfigRow(
        "compression.type",
        _T.STRING,
        "Batches are kept as producers have compressed them.",
        broker="compression.type",
        always="producer",
    ),
    ConfigRow(
        "delete.retention.ms",
        _T.LONG,
        "How long compaction keeps a message without a value.",
        "tombstone_retention",
        "log.cleaner.delete.retention.ms",
        **_MS,
    ),
    ConfigRow(
        "file.delete.delay.ms",
        _T.LONG,
        "How long the files of deleted segments stay; those that are read do in any case.",
        broker="log.segment.delete.delay.ms",
        always="60000",
    ),
    ConfigRow(
        "flush.messages",
        _T.LONG,
        "A partition is flushed after this many messages.",
        "flush_messages",
        "log.flush.interval.messages",
    ),
    ConfigRow(
        "flush.ms",
        _T.LONG,
        "A message is flushed after this many ms at the latest.",
        "flush_interval",
        "log.flush.interval.ms",
        **_MS,
    ),
    ConfigRow(
        "follower.replication.throttled.replicas",
        _T.LIST,
        "Taken, and not kept: all copies that move are throttled where a broker has a rate.",
        read=_read_throttled,
    ),
    ConfigRow(
        "index.interval.bytes",
        _T.INT,
        "How many bytes lie between two entries of a segment's index.",
        broker="log.index.interval.bytes",
        always="4096",
    ),
    ConfigRow(
        "leader.replication.throttled.replicas",
        _T.LIST,
        "Taken, and not kept: all copies that move are throttled where a broker has a rate.",
        read=_read_throttled,
    ),
    ConfigRow(
        "max.compaction.lag.ms",
        _T.LONG,
        "After how long a message is compacted at the latest.",
        broker="log.cleaner.max.compaction.lag.ms",
        always=_FOREVER,
    ),
    ConfigRow(
        "max.message.bytes",
        _T.INT,
        "The largest record batch that is taken, as it is sent.",
        "max_batch_bytes",
        "message.max.bytes",
    ),
    ConfigRow(
        "message.timestamp.after.max.ms",
        _T.LONG,
        "How far a message's timestamp may be ahead.",
        broker="log.message.timestamp.after.max.ms",
        always=_FOREVER,
    ),
    ConfigRow(
        "message.timestamp.before.max.ms",
        _T.LONG,
        "How far a message's timestamp may be behind.",
        broker="log.message.timestamp.before.max.ms",
        always=_FOREVER,
    ),
    ConfigRow(
        "message.timestamp.type",
        _T.STRING,
        "Whose clock a message's timestamp is from: CreateTime or LogAppendTime.",
        "message_timestamp_type",
        "log.message.timestamp.type",
    ),
    ConfigRow(
        "min.cleanable.dirty.ratio",
        _T.DOUBLE,
        "How much of a log is new when it is compacted.",
        broker="log.cleaner.min.cleanable.ratio",
        always="0.5",
    ),
    ConfigRow(
        "min.compaction.lag.ms",
        _T.LONG,
        "How long a message is not compacted.",
        broker="log.cleaner.min.compaction.lag.ms",
        always="0",
    ),
    ConfigRow(
        _MIN_INSYNC,
        _T.INT,
        "How many copies must be in sync for acks=all; half of them, rounded up, unless set.",
        "min_insync_replicas",
        _MIN_INSYNC,
    ),
    ConfigRow(
        "preallocate",
        _T.BOOLEAN,
        "Whether segments get their size when they begin.",
        broker="log.preallocate",
        always="false",
    ),
    ConfigRow(
        "remote.storage.enable",
        _T.BOOLEAN,
        "Whether old segments are kept elsewhere.",
        always="false",
    ),
    ConfigRow(
        "retention.bytes",
        _T.LONG,
        "The oldest segments are deleted as long as the rest of the partition is larger; -1: none.",
        "retention_bytes",
        "log.retention.bytes",
        **_BYTES_LIMIT,
    ),
    ConfigRow(
        "retention.ms",
        _T.LONG,
        "Segments are deleted this many ms after they were last appended to; -1: never.",
        "retention_time",
        "log.retention.ms",
        **_MS_LIMIT,
    ),
    ConfigRow(
        "segment.bytes",
        _T.INT,
        "A new segment is started when the current one is larger than this.",
        "segment_bytes",
        "log.segment.bytes",
    ),
    ConfigRow(
        "segment.index.bytes",
        _T.INT,
        "How large a segment's index can be.",
        broker="log.index.size.max.bytes",
        always="10485760",
    ),
    ConfigRow(
        "segment.jitter.ms",
        _T.LONG,
        "By how much less than segment.ms a segment may be old when a new one is started.",
        broker="log.roll.jitter.ms",
        always="0",
    ),
    ConfigRow(
        "segment.ms",
        _T.LONG,
        "A new segment is started when the current one is this many ms old.",
        "segment_age",
        "log.roll.ms",
        **_MS,
    ),
    ConfigRow(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "Whether a replica may lead that lacks messages, when no other is left.",
        "unclean_leader_election",
        "unclean.leader.election.enable",
        show=_show_truth,
        read=str.lower,
    ),
)

#: All of them, by Kafka's name.
TOPIC_CONFIGS: Final[Mapping[str, ConfigRow]] = {row.name: row for row in _ROWS}


def topic_configs(config: BrokerConfig, topic: str, copies: int = 1) -> Iterator[ConfigValue]:
    """List a topic's settings in force, by Kafka's names: the defaults if there is no topic.

    `copies`: how many each partition has.
    """
    settings = config.topic(topic)
    origins = {each.name: each.origin for each in settings_in_force(config, topic)}
    defaults = config.topic("")  # which no topic is called
    for row in _ROWS:
        if not row.key:
            always = row.always, ConfigSource.DEFAULT
            yield ConfigValue(row, *always, always)
            continue
        attribute = TOPIC_SETTINGS[row.key].attribute
        shown, usual = (row.show(getattr(each, attribute)) for each in (settings, defaults))
        if row.name == _MIN_INSYNC:
            shown, usual = (str(each.least_in_sync(copies)) for each in (settings, defaults))
        default = usual, _default_source(config, row)
        source = default[1]
        if origins[row.key] in (ALTERED, TOPIC_ENTRY):
            source = ConfigSource.TOPIC
        yield ConfigValue(row, shown, source, default)


def _default_source(config: BrokerConfig, row: ConfigRow) -> ConfigSource:
    setting = BROKER_SETTINGS.get(DEFAULT_OF.get(row.key, row.key))
    if setting is None or setting.attribute not in config.given:
        return ConfigSource.DEFAULT
    return ConfigSource.STATIC_BROKER


def topic_setting(name: str, value: str | None) -> dict[str, str]:
    """Turn a setting under Kafka's name into ours.

    Returns:
        Our setting with its value as broker.yaml has it; nothing for what is so in any case.

    Raises:
        ConfigError: there is no such setting, or it can't have that value.
    """
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise ConfigError("", f"Unknown topic config name: {name}")
    if value is None:
        raise ConfigError("", f"Null value not supported for topic configs: {name}")
    text = value.strip()
    largest = _LARGEST.get(row.type)
    if largest is not None and not _is_number(text, largest):
        raise ConfigError(
            "",
            f"Invalid value {value} for configuration {name}: Not a number of type {row.type.name}",
        )
    if row.key:
        return {row.key: row.read(text)}
    if row.read(text).lower() != row.always.lower():
        raise ConfigError(
            "", f"Invalid value {value} for configuration {name}: here it is always {row.always}"
        )
    return {}


def _is_number(text: str, largest: int) -> bool:
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 20
    return is_number and -largest - 1 <= int(text) <= largest
