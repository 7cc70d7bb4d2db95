"""A broker's settings under Kafka's names, for clients that ask; they change in broker.yaml only.

Source of names and types: Kafka 4's `KafkaConfig`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.coordination.listeners import ListenerNode
from hermes.kafka.topic_configs import ConfigRow, ConfigSource, ConfigType, ConfigValue

_T = ConfigType


class _BrokerRow(NamedTuple):
    """Attributes: Kafka's name, its type, our setting, and how our value is shown."""

    name: str
    type: ConfigType
    key: str
    show: Callable[[Any], str] = str


def _limit(value: int | None) -> str:
    return "-1" if value is None else str(value)


def _truth(value: bool) -> str:
    return str(value).lower()


def _places(listeners: Iterable[ListenerNode]) -> str:
    return ",".join(f"{_protocol(each)}://{each.host}:{each.port}" for each in listeners)


def _protocol(listener: ListenerNode) -> str:
    secured = "SSL" if listener.tls else "PLAINTEXT"
    return f"SASL_{secured}" if listener.authentication in ("scram", "token") else secured


_ROWS: Final = (
    _BrokerRow("broker.id", _T.INT, "broker_id"),
    _BrokerRow("node.id", _T.INT, "broker_id"),
    _BrokerRow("log.dirs", _T.STRING, "log_dir"),
    _BrokerRow("num.partitions", _T.INT, "num_partitions"),
    _BrokerRow("auto.create.topics.enable", _T.BOOLEAN, "auto_create_topics", _truth),
    _BrokerRow("message.max.bytes", _T.INT, "max_message_bytes"),
    _BrokerRow("socket.request.max.bytes", _T.INT, "max_request_bytes"),
    _BrokerRow("connections.max.idle.ms", _T.LONG, "idle_timeout"),
    _BrokerRow("max.connections", _T.INT, "max_connections"),
    _BrokerRow("num.io.threads", _T.INT, "io_threads"),
    _BrokerRow("default.replication.factor", _T.INT, "default_replication_factor"),
    _BrokerRow("min.insync.replicas", _T.INT, "default_min_insync_replicas"),
    _BrokerRow("unclean.leader.election.enable", _T.BOOLEAN, "unclean_leader_election", _truth),
    _BrokerRow("replica.lag.time.max.ms", _T.LONG, "replica_lag_time"),
    _BrokerRow("broker.rack", _T.STRING, "rack", lambda value: value or ""),
    _BrokerRow("log.segment.bytes", _T.INT, "segment_bytes"),
    _BrokerRow("log.roll.ms", _T.LONG, "segment_age"),
    _BrokerRow("log.retention.ms", _T.LONG, "retention_time", _limit),
    _BrokerRow("log.retention.bytes", _T.LONG, "retention_bytes", _limit),
    _BrokerRow("log.flush.interval.messages", _T.LONG, "flush_messages"),
    _BrokerRow("log.flush.interval.ms", _T.LONG, "flush_interval"),
)

#: What is so for every broker here.
_ALWAYS: Final = (
    ("compression.type", _T.STRING, "producer"),
    ("log.cleanup.policy", _T.LIST, "delete"),
    ("log.message.timestamp.type", _T.STRING, "CreateTime"),
    ("delete.topic.enable", _T.BOOLEAN, "true"),
    # By which consoles tell what they may ask for: that of the oldest schemas that are served.
    ("inter.broker.protocol.version", _T.STRING, "4.0"),
)


def broker_configs(
    config: BrokerConfig, listeners: Sequence[ListenerNode]
) -> Iterator[ConfigValue]:
    for name, kind, key, show in _ROWS:
        setting = BROKER_SETTINGS[key]
        is_given = setting.attribute in config.given
        source = ConfigSource.STATIC_BROKER if is_given else ConfigSource.DEFAULT
        value = show(getattr(config, setting.attribute))
        if key == "max_message_bytes":  # which of batches is another unless it is given
            value = show(config.topic("").max_batch_bytes)
        if key == "default_min_insync_replicas":
            value = show(config.topic("").least_in_sync(config.default_replication_factor))
        row = ConfigRow(name, kind, setting.doc, key)
        yield ConfigValue(row, value, source, (value, source), is_read_only=True)
    # It has no listener of Kafka's protocol unless broker.yaml says so.
    for name in ("listeners", "advertised.listeners"):
        setting = BROKER_SETTINGS["kafka_listen"]
        value, source = _places(listeners), ConfigSource.STATIC_BROKER
        row = ConfigRow(name, _T.LIST, setting.doc, setting.key)
        yield ConfigValue(row, value, source, (value, source), is_read_only=True)
    for name, kind, value in _ALWAYS:
        place = value, ConfigSource.DEFAULT
        yield ConfigValue(ConfigRow(name, kind, "", always=value), *place, place, is_read_only=True)
