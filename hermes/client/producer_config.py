"""The producer's settings, checked when they are made and not when the first message fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from hermes.client.arguments import (
    check_choice,
    check_least,
    check_seconds,
    check_zookeeper_tls,
    seconds_of,
)
from hermes.config.addresses import BrokerAddress, parse_broker
from hermes.errors import ConfigError
from hermes.keywords import explains_keywords
from hermes.protocol import Acks, Codec
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

_ACKS: Final[Mapping[str, Acks | None]] = {
    "none": None,
    "written": Acks.WRITTEN,
    "flushed": Acks.FLUSHED,
}
_CODECS: Final = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY}
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "acks": tuple(_ACKS),
    "compression": tuple(_CODECS),
    "producer_type": ("sync", "async"),
    "queue_full": ("block", "raise", "drop"),
}


class ListedBroker(NamedTuple):
    """One broker of `broker_list`.

    Attributes:
        broker_id: its number, by which partitions are ordered; None: it says so itself.
        address: where it is.
    """

    broker_id: int | None
    address: BrokerAddress


@explains_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientSecurity):
    """Settings of a `Producer`. `broker_list` or `zookeeper_connect` is required.

    For TLS, certificates, users and passwords, see `ClientSecurity`.

    Durations are strings ("500ms", "2s") or numbers of milliseconds, as in Kafka 0.7; only settings
    named `..._seconds` are numbers of seconds.

    Example:
        ProducerConfig(broker_list="localhost:9092", producer_type="async", acks="flushed")
        ProducerConfig(zookeeper_connect="zk1:2181,zk2:2181/hermes")

    Attributes:
        broker_list: `HOST:PORT` of a broker, or of several with commas between: those that answer
            are asked for the others of their cluster. `ID:HOST:PORT` names all brokers there are,
            with numbers that order the partitions; every producer of a topic must use the same.
        zookeeper_connect: `HOST:PORT,HOST:PORT/CHROOT` of the ZooKeeper where brokers register,
            instead of a list of them.
        zookeeper_tls: None: connect to ZooKeeper with the same settings as to brokers. False:
            without TLS, and therefore without user and password, which its protocol would reveal.
        zookeeper_session_timeout: how long ZooKeeper may be silent before the producer reconnects.
        zookeeper_connection_timeout: how long to wait for the first connection to ZooKeeper.
        producer_type: "sync": `send` returns when the messages have reached what `acks` says.
            "async": it returns at once, and a thread sends in batches.
        acks: "none": no response, as in Kafka 0.7, but to a topic's first message, which shows its
            format, and to records. "written": the broker has written the messages.
            "flushed": they are on its disk. None: "flushed", but "none" with a broker of Kafka 0.7,
            which can't acknowledge.
        delivery_timeout: how long the first attempt to send and all retries may take together,
            above 0. A message whose response was lost may be stored twice.
        num_retries: the largest number of retries of a message set, 0 or more; None for as many as
            `delivery_timeout` allows.
        retry_backoff: how long to wait before the first retry. Each further wait is twice as long,
            up to a second; all are extended at random by up to a half.
        partitioner: a name among the entry points `hermes.partitioners`, or an object that
            provides `IPartitioner`.
        partitioner_options: keyword arguments for the partitioner's factory.
        partition_counts: the number of partitions of each topic on each broker, for brokers of
            Kafka 0.7, which don't report it; the topic "*" stands for all others.
        encoder: a name among `hermes.encoders`, or an object that provides `IEncoder`.
        encoder_options: keyword arguments for the encoder's factory.
        callback_handler: a name among `hermes.callback_handlers`, or an object that provides
            `ICallbackHandler`; for asynchronous producers.
        callback_handler_options: keyword arguments for the callback handler's factory.
        event_handler: a name among `hermes.event_handlers`, or an object that provides
            `IEventHandler`.
        event_handler_options: keyword arguments for the event handler's factory.
        compression: how message sets are compressed: "none", "gzip" or "snappy".
        compressed_topics: the topics to compress; empty for all.
        max_message_bytes: larger payloads are refused, 1 or more; the broker has a limit of its own
            (the same by default).
        timeout_seconds: the longest that one request may take, above 0; each retry may take as
            long, within `delivery_timeout`.
        connect_timeout_seconds: the longest that connecting may take, above 0.
        supports_hermes_requests: whether the brokers answer Hermes' own requests; None finds out.
        metadata_max_age: how long to cache what is known about a topic's partitions.
        queue_time: None: queued messages are sent together as soon as nothing is in flight. A
            duration: as in Kafka 0.7, a batch leaves when it is full, or when its first message has
            waited for this long.
        queue_size: how many messages may be queued, 1 or more.
        queue_bytes: how many bytes of payload may be queued, 1 or more.
        batch_size: how many messages fill a batch, 1 or more; only with `queue_time`.
        queue_full: what `send` does when the queue is full: "block" for up to `enqueue_timeout` and
            then raise QueueFullError, "raise" it at once, or "drop" the messages and count them.
        enqueue_timeout: how long `send` blocks when the queue is full.

    Raises:
        ConfigError: a setting is out of range; the message names it.
    """

    broker_list: str = ""
    zookeeper_connect: str = ""
    zookeeper_tls: Literal[False] | None = None
    zookeeper_session_timeout: str | float = "6s"
    zookeeper_connection_timeout: str | float = "6s"
    producer_type: Literal["sync", "async"] = "sync"
    acks: Literal["none", "written", "flushed"] | None = None
    delivery_timeout: str | float = "2m"
    num_retries: int | None = None
    retry_backoff: str | float = "100ms"
    partitioner: Any = "java-hash"
    partitioner_options: Mapping[str, Any] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    encoder: Any = "bytes"
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    callback_handler: Any = None
    callback_handler_options: Mapping[str, Any] = field(default_factory=dict)
    event_handler: Any = None
    event_handler_options: Mapping[str, Any] = field(default_factory=dict)
    compression: Literal["none", "gzip", "snappy"] = "none"
    compressed_topics: Sequence[str] = ()
    max_message_bytes: int = 1_000_000
    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 5.0
    supports_hermes_requests: bool | None = None
    metadata_max_age: str | float = "5m"
    queue_time: str | float | None = None
    queue_size: int = 10_000
    queue_bytes: int = 64 * 1024 * 1024
    batch_size: int = 200
    queue_full: Literal["block", "raise", "drop"] = "block"
    enqueue_timeout: str | float = "30s"

    def __post_init__(self) -> None:
        ClientSecurity.__post_init__(self)
        check_zookeeper_tls(self.zookeeper_tls)
        for key, choices in _CHOICES.items():
            if key == "acks" and self.acks is None:
                continue
            check_choice(key, getattr(self, key), choices)
        if self.num_retries is not None:
            check_least("num_retries", self.num_retries, 0)
        for key in ("max_message_bytes", "queue_size", "queue_bytes", "batch_size"):
            check_least(key, getattr(self, key), 1)
        for key in ("retry_backoff", "metadata_max_age", "enqueue_timeout"):
            self.seconds(key)
        if self.queue_time is not None:
            self.seconds("queue_time")
        check_seconds("timeout_seconds", self.timeout_seconds)
        check_seconds("connect_timeout_seconds", self.connect_timeout_seconds)
        for key in ("broker_list", "zookeeper_connect"):
            if not isinstance(getattr(self, key), str):
                raise ConfigError(key, f"expected a string, got {quoted(getattr(self, key))}")
        above_0 = ("delivery_timeout", "zookeeper_session_timeout", "zookeeper_connection_timeout")
        for key in above_0:
            if self.seconds(key) <= 0:
                raise ConfigError(key, "expected more than 0")
        for topic, count in self.partition_counts.items():
            if type(count) is not int or count < 1:
                raise ConfigError(
                    f"partition_counts.{topic}", f"expected 1 or more, got {quoted(count)}"
                )
        if isinstance(self.compressed_topics, str):
            raise ConfigError("compressed_topics", "expected a sequence of names, got one string")
        if self.callback_handler is not None and self.producer_type != "async":
            raise ConfigError("callback_handler", "needs producer_type='async'")
        if bool(self.broker_list) == bool(self.zookeeper_connect):
            raise ConfigError("broker_list", "expected exactly one: this or zookeeper_connect")
        self.brokers()

    @property
    def coordination_security(self) -> ClientSecurity:
        """What is brought to ZooKeeper."""
        return self.security if self.zookeeper_tls is None else PLAIN

    def seconds(self, key: str) -> float:
        """One of the durations, in seconds."""
        return seconds_of(key, getattr(self, key))

    def brokers(self) -> tuple[ListedBroker, ...]:
        """The brokers of `broker_list`, ordered by id if they have some; none without a list."""
        if not self.broker_list:
            return ()
        listed = [_listed(text.strip()) for text in self.broker_list.split(",")]
        ids = [each.broker_id for each in listed if each.broker_id is not None]
        if not ids:
            return tuple(dict.fromkeys(listed))
        if len(ids) < len(listed):
            raise ConfigError("broker_list", "give ids (ID:HOST:PORT) to all brokers, or to none")
        for number in ids:
            if ids.count(number) > 1:
                raise ConfigError("broker_list", f"the broker id {number} is listed twice")
        return tuple(sorted(listed, key=lambda each: each.broker_id or 0))

    def required_acks(self) -> Acks | None:
        """The level to ask the broker for, if it can; None for no acknowledgement."""
        return _ACKS[self.acks or "flushed"]

    def codec_of(self, topic: str) -> Codec:
        """How the messages of a topic are compressed."""
        if self.compressed_topics and topic not in self.compressed_topics:
            return Codec.NONE
        return _CODECS[self.compression]


def _listed(text: str) -> ListedBroker:
    broker_id, _, rest = text.partition(":")
    has_id = ":" in rest and broker_id.isascii() and broker_id.isdigit() and len(broker_id) < 11
    try:
        return ListedBroker(
            int(broker_id) if has_id else None, parse_broker(rest if has_id else text)
        )
    except ValueError as error:
        raise ConfigError("broker_list", str(error)) from None
