"""The settings of a consumer in a group, checked when they are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes.client.arguments import check_choice, check_least, check_zookeeper_tls, seconds_of
from hermes.config.addresses import BrokerAddress, parse_brokers
from hermes.coordination.layout import check_node_name
from hermes.errors import ConfigError
from hermes.keywords import explains_keywords
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

_DURATIONS = (
    "auto_commit_interval",
    "connect_timeout",
    "fetch_backoff",
    "fetch_wait",
    "rebalance_backoff",
    "release_wait",
    "timeout",
    "zookeeper_connection_timeout",
    "zookeeper_session_timeout",
)


@explains_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientSecurity):
    """Settings of a group consumer. `group`, and `brokers` or `zookeeper_connect`, are required.

    For TLS, certificates, users and passwords, see `ClientSecurity`.

    Example:
        ConsumerConfig(group="search", brokers="localhost:9092")
        ConsumerConfig(group="search", zookeeper_connect="zk1:2181,zk2:2181/hermes")

    Attributes:
        group: the group's name. Consumers in one group share the messages of a topic; different
            groups each get all of them.
        brokers: `HOST:PORT` of a broker, or of several with commas between: the first that answers
            is asked once for the address of its coordination.
        zookeeper_connect: `HOST:PORT,HOST:PORT/CHROOT` of the ZooKeeper, or of a broker's embedded
            coordination, instead.
        zookeeper_tls: None: connect to ZooKeeper with the same settings as to brokers. False:
            without TLS, and therefore without user and password, which its protocol would reveal.
        consumer_id: this consumer's id; by default it is generated from host name, time and a
            random number.
        auto_commit: whether offsets are committed periodically, and when partitions are released.
        auto_commit_interval: how often offsets are committed.
        auto_offset_reset: where to start without an offset, or with one out of range: "smallest",
            "largest", or "fail", which raises OffsetResetError from the stream.
        consumer_timeout: how long a stream waits for a message before it raises
            ConsumerTimeoutError; None: forever.
        decoder: a name among the entry points `hermes.encoders`, or an object that provides
            `IDecoder`.
        decoder_options: keyword arguments for the decoder's factory.
        prefetch_bytes: how much is fetched ahead of the application, over all partitions, in equal
            shares. A message larger than a share is fetched anyway.
        fetch_bytes: the most bytes one fetch requests from a partition, 1 or more.
        max_fetch_bytes: how far a fetch may grow to hold one message.
        on_corrupt: what to do with a damaged message: "raise" an error, or "skip" to the next good
            one.
        fetch_wait: how long a broker may hold a fetch without new messages.
        fetch_backoff: how long to wait after a broker has failed.
        rebalance_backoff: how long to wait before trying again to take partitions that another
            consumer hasn't released. (A watch usually ends the wait.)
        release_wait: how long a rebalance waits for the application to finish the message that it
            is processing. After that, the next owner gets it again.
        timeout: the longest that one request to a broker may take.
        connect_timeout: the longest that connecting may take.
        zookeeper_session_timeout: how long a member may be out of contact before others take over
            its partitions.
        zookeeper_connection_timeout: how long to wait for the first connection to ZooKeeper.
        supports_hermes_requests: whether brokers answer Hermes' own requests; None asks them.

    Durations are strings ("500ms", "2s") or numbers of milliseconds, as in Kafka 0.7.

    Raises:
        ConfigError: a setting is out of range; the text names it.
    """

    group: str
    brokers: str = ""
    zookeeper_connect: str = ""
    zookeeper_tls: Literal[False] | None = None
    consumer_id: str = ""
    auto_commit: bool = True
    auto_commit_interval: str | float = "1s"
    auto_offset_reset: Literal["smallest", "largest", "fail"] = "smallest"
    consumer_timeout: str | float | None = None
    decoder: Any = "bytes"
    decoder_options: Mapping[str, Any] = field(default_factory=dict)
    prefetch_bytes: int = 32 * 1024 * 1024
    fetch_bytes: int = 1024 * 1024
    max_fetch_bytes: int = 64 * 1024 * 1024
    on_corrupt: Literal["raise", "skip"] = "raise"
    fetch_wait: str | float = "250ms"
    fetch_backoff: str | float = "200ms"
    rebalance_backoff: str | float = "200ms"
    release_wait: str | float = "1s"
    timeout: str | float = "30s"
    connect_timeout: str | float = "5s"
    zookeeper_session_timeout: str | float = "6s"
    zookeeper_connection_timeout: str | float = "6s"
    supports_hermes_requests: bool | None = None

    def __post_init__(self) -> None:
        ClientSecurity.__post_init__(self)
        check_zookeeper_tls(self.zookeeper_tls)
        check_node_name("group", self.group)
        if self.consumer_id:
            check_node_name("consumer_id", self.consumer_id)
        for key in ("brokers", "zookeeper_connect"):
            if not isinstance(getattr(self, key), str):
                raise ConfigError(key, f"expected a string, got {quoted(getattr(self, key))}")
        if bool(self.brokers) == bool(self.zookeeper_connect):
            raise ConfigError("brokers", "expected exactly one: this or zookeeper_connect")
        self.broker_addresses()
        check_choice("auto_offset_reset", self.auto_offset_reset, ("smallest", "largest", "fail"))
        check_choice("on_corrupt", self.on_corrupt, ("raise", "skip"))
        for key in ("prefetch_bytes", "fetch_bytes", "max_fetch_bytes"):
            check_least(key, getattr(self, key), 1)
        for key in _DURATIONS:
            if self.seconds(key) <= 0:
                raise ConfigError(key, "expected more than 0")
        if self.consumer_timeout is not None:
            self.seconds("consumer_timeout")

    @property
    def coordination_security(self) -> ClientSecurity:
        """What is brought to ZooKeeper."""
        return self.security if self.zookeeper_tls is None else PLAIN

    def broker_addresses(self) -> tuple[BrokerAddress, ...]:
        """The brokers to ask where groups are coordinated; none where that is given."""
        try:
            return parse_brokers(self.brokers) if self.brokers else ()
        except ValueError as error:
            raise ConfigError("brokers", str(error)) from None

    def of_cluster(self) -> dict[str, Any]:
        """The settings of a `ProducerConfig` by which it sends to the same cluster."""
        if self.brokers:
            return {"broker_list": self.brokers, **self.settings()}
        return {
            "zookeeper_connect": self.zookeeper_connect,
            "zookeeper_tls": self.zookeeper_tls,
            "zookeeper_session_timeout": self.zookeeper_session_timeout,
            "zookeeper_connection_timeout": self.zookeeper_connection_timeout,
            **self.settings(),
        }

    def seconds(self, key: str) -> float:
        """One of the durations, in seconds."""
        return seconds_of(key, getattr(self, key))
