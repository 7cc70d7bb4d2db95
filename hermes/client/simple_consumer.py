"""The consumer of one broker, without state: callers keep their own offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self, TypeVar

from hermes.client import admin, conversations
from hermes.client.admin import ReloadedConfig
from hermes.client.append_times import AppendTime, append_times
from hermes.client.arguments import check_choice, check_least, check_number
from hermes.client.connection import DEFAULT_MAX_RESPONSE_BYTES, BrokerConnection, Channel
from hermes.client.conversations import Conversation
from hermes.client.fetching import (
    DEFAULT_MAX_FETCH_BYTES,
    FetchedSet,
    FetchResult,
    FetchRules,
    counted,
    fetch,
    multifetch,
    waiting_fetch,
)
from hermes.client.metrics import ConsumerCounters, ConsumerMetrics
from hermes.errors import ClientError, ConfigError, NoCoordinationError
from hermes.keywords import explains_keywords
from hermes.protocol import (
    DEFAULT_MAX_EXPANDED_BYTES,
    BrokerMetadata,
    ClusterBroker,
    FetchRequest,
    LogLines,
    PartitionDescription,
    SettingDescription,
)
from hermes.security import ClientSecurity

_Fetched = TypeVar("_Fetched", FetchedSet, list[FetchResult])


@explains_keywords
class SimpleConsumer:
    """Reads partitions of one broker: Hermes or Kafka 0.7.

    Connects on first use, and again after failures. Requests change nothing on a broker (except
    `delete_topic`), so they are repeated once if the connection breaks. Threads may share it.

    Every method raises, besides the errors that it documents: BrokerUnavailableError,
    BrokerTimeoutError, RemoteProtocolError (a malformed response), and the BrokerError of the code
    that the broker responded with. A Kafka 0.7 fetches and lists offsets; whatever else it is asked
    raises UnsupportedRequestVersionError.

    Example:
        with SimpleConsumer("localhost:9092") as consumer:
            (offset,) = consumer.get_offsets_before("clicks", 0, EARLIEST, max_offsets=1)
            for message, offset in consumer.fetch(FetchRequest("clicks", 0, offset, 1 << 20)):
                print(message.payload)

    Args:
        host: the broker's name or address, or both as in `localhost:9092`.
        port: its port; None for the one in `host`, or else 9092.
        timeout_seconds: the longest that one request may take, above 0; a fetch that waits may
            take its wait longer.
        connect_timeout_seconds: the longest that connecting may take, above 0.
        max_fetch_bytes: how far a fetch may grow to hold a message larger than
            its max_size; 1 or more.
        on_corrupt: what iterating over fetched messages does at a damaged one: "raise"
            InvalidMessageError, or "skip" to the next good one and count it.
        max_expanded_bytes: what one compressed message may expand to.
        supports_hermes_requests: whether the broker answers Hermes' own requests. None asks it
            when that first matters; False for a Kafka 0.7, which would log the unknown request.
        poll_interval_ms: how often `fetch_waiting` polls a broker without long polls, above 0.
        tls: see `ClientSecurity` for this and the others.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        max_fetch_bytes: int = DEFAULT_MAX_FETCH_BYTES,
        on_corrupt: Literal["raise", "skip"] = "raise",
        max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
        supports_hermes_requests: bool | None = None,
        poll_interval_ms: int = 100,
        tls: bool | None = None,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        check_least("max_fetch_bytes", max_fetch_bytes, 1)
        check_least("poll_interval_ms", poll_interval_ms, 1)
        check_choice("on_corrupt", on_corrupt, ("raise", "skip"))
        connection = BrokerConnection(
            host,
            port,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            max_response_bytes=max(2 * max_fetch_bytes, DEFAULT_MAX_RESPONSE_BYTES),
            security=ClientSecurity(
                tls=tls,
                tls_ca=tls_ca,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                user=user,
                password=password,
            ),
        )
        self._channel = Channel(connection, supports_hermes_requests=supports_hermes_requests)
        self._poll_interval_ms = poll_interval_ms
        self.counters = ConsumerCounters()
        self._rules = FetchRules(
            max_fetch_bytes,
            on_corrupt,
            max_expanded_bytes,
            self._count_skipped,
            self._channel.refused,
            self._channel.broker_versions,
        )

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return self._channel.connection.address

    @property
    def skipped_count(self) -> int:
        """How many damaged ranges iterations over this consumer's sets have skipped."""
        return self.counters.snapshot().skipped

    def metrics(self) -> ConsumerMetrics:
        """A snapshot of the counters."""
        return self.counters.snapshot()

    def supports(self, request_type: int) -> bool:
        """Whether the broker supports a request type; requested once."""
        return request_type in self._channel.versions()

    def fetch(self, request: FetchRequest) -> FetchedSet:
        """Fetch messages from one partition.

        Args:
            request: `offset` is where a message starts: a `next_offset` seen before, or one of
                `get_offsets_before`. `max_size` is in bytes; when the first message is larger,
                more is fetched, up to `max_fetch_bytes`.

        Returns:
            Pairs of a `Message` and the offset to resume at; none at the end of the partition, and
            in partitions that were never written to. A damaged message raises InvalidMessageError
            while iterating, with its `offset` and the `next_offset` after it.

        Raises:
            OffsetOutOfRangeBrokerError: below the earliest or beyond the latest offset.
            MessageLargerThanFetchError: the first message does not fit into max_fetch_bytes.
            InvalidMessageError: no message starts at the offset, or its length is damaged.
            WrongPartitionError: the topic has no such partition.
            UnknownTopicError: there is no such topic (which Kafka 0.7 doesn't say).
            UnknownBrokerError: the topic's name is not allowed.
        """
        return self._fetched(fetch(request, self._rules))

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[FetchResult]:
        """Fetch from several partitions, up to 32,767, with one request; see `fetch`.

        Example:
            requests = [FetchRequest("clicks", number, 0, 1 << 20) for number in range(4)]
            for result in consumer.multifetch(requests):
                for message, next_offset in result:
                    print(message.payload)

        Returns:
            A result for each, in their order. Iterating over one gives its messages or raises its
            error; a failure of one doesn't affect the others.
        """
        return self._fetched(multifetch(requests, self._rules))

    def fetch_waiting(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int = 1
    ) -> list[FetchResult]:
        """Fetch from several partitions, waiting for messages when there are none yet.

        A Hermes broker responds within milliseconds of a message becoming readable; one of Kafka
        0.7 is polled every `poll_interval_ms`.

        Args:
            max_wait_ms: how long to wait at most; 0 returns at once.
            min_bytes: how many bytes of messages, over all requests, end the wait.

        Returns:
            As `multifetch`, with each partition's `high_watermark` if the broker reports it.
        """
        self._channel.versions()  # a failure of this is none of a fetch
        return self._fetched(
            waiting_fetch(requests, max_wait_ms, min_bytes, self._rules, self._poll_interval_ms)
        )

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int = 1
    ) -> list[int]:
        """List offsets from which one can read, newest first; empty when none are before the time.

        Example:
            (earliest,) = consumer.get_offsets_before("clicks", 0, EARLIEST)
            an_hour_ago = int(time.time() * 1000) - 3_600_000
            offsets = consumer.get_offsets_before("clicks", 0, an_hour_ago, max_offsets=10)

        Args:
            time: LATEST (-1): the end, then the starts of segments; EARLIEST (-2): the first
                offset; else ms since 1970: offsets of what was appended before.
            max_offsets: how many at most; 0 or more.

        Raises:
            ConfigError: max_offsets is negative, for which a 0.7 broker would close.
            BrokerUnavailableError: also for a wrong partition or an illegal name, where 0.7
                closes the connection instead of answering.
        """
        check_number("max_offsets", max_offsets)
        if max_offsets < 0:
            raise ConfigError("max_offsets", f"expected 0 or more, got {max_offsets}")
        return self._channel.run(conversations.offsets_before(topic, partition, time, max_offsets))

    def metadata(self, topics: Sequence[str] | None = None) -> BrokerMetadata:
        """Request the broker's id, version, limits, and topics (None: all) with partitions."""
        return self._channel.ask(conversations.metadata, topics)

    def boundary_before(self, topic: str, partition: int, offset: int) -> int:
        """Find the largest offset, not after the given one, at which a message starts.

        It lies between the earliest offset and the high watermark.
        """
        return self._channel.ask(conversations.boundary_before, topic, partition, offset)

    def append_times(
        self, topic: str, partition: int, start: int, end: int, interval_ms: int = 1
    ) -> list[AppendTime]:
        """Look up when the messages of a range were appended, without fetching them.

        Example:
            hour_ms = 3_600_000
            for stretch in consumer.append_times("clicks", 0, earliest, latest, hour_ms):
                print(stretch.start_offset, stretch.end_offset, stretch.time_ms)

        Args:
            start: where the range begins, from the earliest offset to the high watermark.
            end: the offset after its last byte; clamped to the high watermark.
            interval_ms: what times are rounded down to multiples of (in UTC), 1 or more: the
                coarser, the fewer stretches there are.

        Returns:
            The whole range, in order and without holes; neighbours differ in time. Stretches begin
            and end where messages do, if the range does. Their time is that of the broker's clock;
            None where it is not known: for data from Kafka, or when a crash lost it.

        Raises:
            OffsetOutOfRangeBrokerError: the start is out of range, or became so meanwhile.
            WrongPartitionError: the topic has no such partition.
            ConfigError: interval_ms is below 1.
        """
        return self._channel.ask(append_times, topic, partition, start, end, interval_ms)

    def coordination(self) -> str:
        """Return the address of this broker's coordination, as `zookeeper_connect` takes it.

        Raises:
            NoCoordinationError: the broker has no coordination.
            ClientError: it is reachable only on the broker's own machine, which is not this one.
        """
        connect = self._channel.ask(conversations.coordination)
        host = self.address.rpartition(":")[0]
        if not connect:
            raise NoCoordinationError(
                f"broker {self.address} takes no part in coordination: it is none"
            )
        if connect.startswith(":"):
            return host + connect
        if _is_loopback(connect) and not _is_loopback(host):
            raise ClientError(
                f"broker {self.address} has its coordination at {connect}, on its own machine "
                "only: run this there, or let coordination_listen be an address for others"
            )
        return connect

    # -- for operators --------------------------------------------------------------------------

    def create_topic(self, topic: str, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic, with its own settings.

        Example:
            consumer.create_topic("clicks", {"partitions": 8, "retention_time": "30d"})

        Args:
            settings: values by name, as in a topic's part of broker.yaml, which they override. They
                are stored in the broker's data directory. `replicas` is how many brokers have a
                copy of each partition, with `format: kafka`.

        Raises:
            TopicExistsError: the topic exists.
            SettingRefusedError: a setting is unknown or wrong.
            InvalidTopicBrokerError: the name is not allowed.
            TooManyTopicsError: the broker has reached its limit of topics or partitions.
            StorageUnavailableError: the broker's disk failed; nothing was created.
        """
        self._channel.ask(admin.create_topic, topic, settings or {})

    def alter_topic(
        self,
        topic: str,
        settings: Mapping[str, object] | None = None,
        reset: Iterable[str] | None = (),
    ) -> None:
        """Change settings of a topic while the broker runs.

        Example:
            consumer.alter_topic("clicks", {"retention_time": "7d"}, reset=["flush_messages"])

        Args:
            settings: what to set, as for `create_topic`; partitions can only be raised.
            reset: the settings that revert to broker.yaml; None for all but partitions, which a
                topic never loses.

        Raises:
            UnknownTopicError: the topic doesn't exist.
            SettingRefusedError: a setting is unknown or wrong; nothing was changed.
            StorageUnavailableError: the broker's disk failed; nothing was changed.
        """
        self._channel.ask(admin.alter_topic, topic, settings or {}, reset)

    def reload_config(self) -> ReloadedConfig:
        """Make the broker reread its broker.yaml, like SIGHUP.

        Raises:
            SettingRefusedError: the file is invalid or missing; nothing was changed.
        """
        return self._channel.ask(admin.reload_config)

    def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        """Return the settings in force with their origins, in the order of docs/configuration.md.

        They are those of a topic, or the broker's own.

        Example:
            for setting in consumer.describe_settings("clicks"):
                print(setting.name, setting.value, setting.origin)

        Raises:
            UnknownTopicError: the topic doesn't exist.
        """
        return self._channel.ask(admin.describe_settings, topic)

    def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """Describe the partitions of a topic that were written to, by number.

        Raises:
            UnknownTopicError: the topic doesn't exist.
        """
        return self._channel.ask(admin.describe_partitions, topic)

    def cluster_id(self) -> str:
        """Return the UUID of the broker's cluster; empty until it has reached its coordination."""
        return self._channel.ask(conversations.cluster_id)

    def brokers(self) -> list[ClusterBroker]:
        """List the brokers of the cluster by id, with addresses for clients like this one.

        A broker may have listeners with and without TLS: this is the one of each that matches the
        one that this consumer uses. Brokers without such a listener are omitted.

        Example:
            for broker in consumer.brokers():
                print(broker.broker_id, broker.host, broker.port)
        """
        return self._channel.ask(conversations.cluster_brokers)

    def recent_log_lines(self, first: int | None = None, max_lines: int = 100) -> LogLines:
        """Read the last lines of the broker's log; it keeps a thousand in memory.

        Example:
            read = consumer.recent_log_lines()
            while True:
                for line in read.lines:
                    print(line.level, line.message)
                time.sleep(1.0)
                read = consumer.recent_log_lines(read.next)

        Args:
            first: the number of the first line wanted; None for the last lines there are.
            max_lines: how many at most, 0 to 32,767.

        Raises:
            ConfigError: a number is out of range.
        """
        return self._channel.ask(admin.recent_log_lines, first, max_lines)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic on this broker, with all its messages.

        Raises:
            UnknownTopicError: the topic doesn't exist (any more).
        """
        self._channel.ask(conversations.delete_topic, topic)

    def close(self) -> None:
        """Close the connection; calls of other threads end with an error. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fetched(self, conversation: Conversation[_Fetched]) -> _Fetched:
        return self._channel.run(counted(conversation, self.counters))

    def _count_skipped(self, count: int) -> None:
        self.counters.count_skipped(count)


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost", "[::1]", "::1"))
