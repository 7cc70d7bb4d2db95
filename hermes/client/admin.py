"""What operators ask of a broker: create, alter, reload; what is in force, what it holds and logs.

The conversations are shared with the asynchronous clients; `Administration` holds them blocking.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from hermes.client.arguments import check_number, check_topic
from hermes.client.connection import Channel
from hermes.client.conversations import Conversation, Exchange, cluster_brokers, cluster_id
from hermes.config.kinds import MAX_PARTITIONS
from hermes.errors import ConfigError, RemoteProtocolError
from hermes.protocol import (
    AlterTopicRequest,
    Buffer,
    ClusterBroker,
    ClusterBrokersRequest,
    ClusterIdRequest,
    ConfigChange,
    CreateTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    LogLines,
    PartitionDescription,
    PartitionDescriptions,
    RecentLogLinesRequest,
    ReloadConfigRequest,
    SettingDescription,
    decode_log_lines_response,
    decode_partitions_response,
    decode_refusable_response,
    decode_reload_response,
    decode_settings_response,
)


class ReloadedConfig(NamedTuple):
    """What reading broker.yaml again has led to.

    Attributes:
        changed: what is in force now.
        left: what could not change, each with the reason.
        untold: how many more changes there are, which the broker has left out.
    """

    changed: list[ConfigChange]
    left: list[ConfigChange]
    untold: int


#: The most lines that a request can ask for; a broker keeps a thousand.
MAX_LOG_LINES: Final = 32_767


def create_topic(topic: str, settings: Mapping[str, object]) -> Conversation[None]:
    """Not repeated: the second time it exists."""
    check_topic(topic)
    request = CreateTopicRequest(topic, _texts(settings))
    yield Exchange(request.encode(), _decode_nothing, repeatable=False, changes=True)


def alter_topic(
    topic: str, settings: Mapping[str, object], reset: Iterable[str] | None
) -> Conversation[None]:
    """Not repeated: others may have altered it meanwhile."""
    check_topic(topic)
    names = None if reset is None else tuple(reset)
    request = AlterTopicRequest(topic, _texts(settings), names)
    yield Exchange(request.encode(), _decode_nothing, repeatable=False, changes=True)


def _texts(settings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    for name, value in settings.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ConfigError(name, f"expected a text or a number, got {value!r}")
    return tuple((name, str(value)) for name, value in settings.items())


def _decode_nothing(body: Buffer) -> None:
    decode_refusable_response(body)


def reload_config() -> Conversation[ReloadedConfig]:
    exchange = Exchange(ReloadConfigRequest().encode(), decode_reload_response, changes=True)
    total, changes = yield exchange
    return ReloadedConfig(
        [each for each in changes if not each.left_because],
        [each for each in changes if each.left_because],
        total - len(changes),
    )


def describe_settings(topic: str | None) -> Conversation[list[SettingDescription]]:
    if topic is not None:
        check_topic(topic)
    decode = partial(decode_settings_response, detail=_named(topic))
    settings: list[SettingDescription] = yield Exchange(
        DescribeSettingsRequest(topic or "").encode(), decode
    )
    return settings


def describe_partitions(topic: str) -> Conversation[list[PartitionDescription]]:
    """A response has some; the next continues there."""
    check_topic(topic)
    decode = partial(decode_partitions_response, detail=_named(topic))
    partitions: list[PartitionDescription] = []
    first = 0
    while first >= 0:
        request = DescribePartitionsRequest(topic, first).encode()
        answer: PartitionDescriptions = yield Exchange(request, decode)
        numbers = [first - 1, *(each.partition for each in answer.partitions)]
        following = answer.next_partition
        if numbers != sorted(set(numbers)) or numbers[-1] >= MAX_PARTITIONS:
            raise RemoteProtocolError(f"partitions of topic {topic!r} from {first} on: {numbers}")
        if 0 <= following <= numbers[-1] or (following >= 0 and not answer.partitions):
            raise RemoteProtocolError(f"partitions of topic {topic!r} go on at {following}")
        partitions += answer.partitions
        first = following
    return partitions


def recent_log_lines(first: int | None, max_lines: int) -> Conversation[LogLines]:
    check_number("max_lines", max_lines)
    if not 0 <= max_lines <= MAX_LOG_LINES:
        raise ConfigError("max_lines", f"expected 0 to {MAX_LOG_LINES}, got {max_lines}")
    if first is not None:
        check_number("first", first)
    request = RecentLogLinesRequest(-1 if first is None else max(first, 0), max_lines)
    lines: LogLines = yield Exchange(request.encode(), decode_log_lines_response)
    return lines


def _named(topic: str | None) -> str:
    return "" if topic is None else f"topic {topic!r}"


class Administration:
    """The part of a `SimpleConsumer` that operators use.

    Every method raises UnsupportedRequestVersionError with a Kafka 0.7 or an older Hermes.
    """

    _channel: Channel

    def create_topic(self, topic: str, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic, with its own settings.

        Example:
            consumer.create_topic("clicks", {"partitions": 8, "retention_time": "30d"})

        Args:
            settings: values by name, as in a topic's part of broker.yaml, which they override. They
                are stored in the broker's data directory.

        Raises:
            TopicExistsError: the topic exists.
            SettingRefusedError: a setting is unknown or wrong.
            InvalidTopicBrokerError: the name is not allowed.
            TooManyTopicsError: the broker has reached its limit of topics or partitions.
            StorageUnavailableError: the broker's disk failed; nothing was created.
        """
        self._channel.require(CreateTopicRequest.TYPE, "creating a topic")
        self._channel.run(create_topic(topic, settings or {}))

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
        self._channel.require(AlterTopicRequest.TYPE, "altering a topic")
        self._channel.run(alter_topic(topic, settings or {}, reset))

    def reload_config(self) -> ReloadedConfig:
        """Make the broker reread its broker.yaml, like SIGHUP.

        Raises:
            SettingRefusedError: the file is invalid or missing; nothing was changed.
        """
        self._channel.require(ReloadConfigRequest.TYPE, "reading broker.yaml again")
        return self._channel.run(reload_config())

    def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        """Return the settings in force with their origins, in the order of docs/configuration.md.

        They are those of a topic, or the broker's own.

        Example:
            for setting in consumer.describe_settings("clicks"):
                print(setting.name, setting.value, setting.origin)

        Raises:
            UnknownTopicError: the topic doesn't exist.
        """
        self._channel.require(DescribeSettingsRequest.TYPE, "describing settings")
        return self._channel.run(describe_settings(topic))

    def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """Describe the partitions of a topic that were written to, by number.

        Raises:
            UnknownTopicError: the topic doesn't exist.
        """
        self._channel.require(DescribePartitionsRequest.TYPE, "describing partitions")
        return self._channel.run(describe_partitions(topic))

    def cluster_id(self) -> str:
        """Return the UUID of the broker's cluster; empty until it has reached its coordination."""
        self._channel.require(ClusterIdRequest.TYPE, "telling the cluster's id")
        return self._channel.run(cluster_id())

    def brokers(self) -> list[ClusterBroker]:
        """List the brokers of the cluster by id, with addresses for clients like this one.

        A broker may have listeners with and without TLS: this is the one of each that matches the
        one that this consumer uses. Brokers without such a listener are omitted.

        Example:
            for broker in consumer.brokers():
                print(broker.broker_id, broker.host, broker.port)
        """
        self._channel.require(ClusterBrokersRequest.TYPE, "telling the cluster's brokers")
        return self._channel.run(cluster_brokers())

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
        self._channel.require(RecentLogLinesRequest.TYPE, "reading the log")
        return self._channel.run(recent_log_lines(first, max_lines))
