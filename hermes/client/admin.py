"""What operators ask of a broker: which settings are in force, what its partitions hold.

The conversations are shared with the asynchronous clients; `Administration` holds them blocking.
"""

from functools import partial
from typing import Final

from hermes.client.arguments import check_number, check_topic
from hermes.client.channel import Channel
from hermes.client.conversations import Conversation, Exchange
from hermes.config.kinds import MAX_PARTITIONS
from hermes.errors import ConfigError, RemoteProtocolError
from hermes.protocol import (
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    LogLines,
    PartitionDescription,
    PartitionDescriptions,
    RecentLogLinesRequest,
    SettingDescription,
    decode_log_lines_response,
    decode_partitions_response,
    decode_settings_response,
)

#: The most lines that a request can ask for; a broker keeps a thousand.
MAX_LOG_LINES: Final = 32_767


def describe_settings(topic: str | None) -> Conversation[list[SettingDescription]]:
    """See `Administration.describe_settings`."""
    if topic is not None:
        check_topic(topic)
    decode = partial(decode_settings_response, detail=_named(topic))
    settings: list[SettingDescription] = yield Exchange(
        DescribeSettingsRequest(topic or "").encode(), decode
    )
    return settings


def describe_partitions(topic: str) -> Conversation[list[PartitionDescription]]:
    """See `Administration.describe_partitions`. An answer has some; the next goes on from there."""
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
    """See `Administration.recent_log_lines`."""
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
    """The part of a `SimpleConsumer` that operators use."""

    _channel: Channel

    def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        """Find out which settings are in force, and where each comes from.

        Example:
            for setting in consumer.describe_settings("clicks"):
                print(setting.name, setting.value, setting.origin)

        Args:
            topic: a topic, for its settings; None for the broker's own.

        Returns:
            The settings in the order of docs/configuration.md.

        Raises:
            UnknownTopicError: the topic doesn't exist.
            UnsupportedRequestVersionError: it is a broker of Kafka 0.7, or an older Hermes.
        """
        self._channel.require(DescribeSettingsRequest.TYPE, "describing settings")
        return self._channel.run(describe_settings(topic))

    def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """Find out what there is of a topic's partitions: segments, append times, what is offline.

        Args:
            topic: the topic's name.

        Returns:
            The partitions that were written to, by number.

        Raises:
            UnknownTopicError: the topic doesn't exist.
            UnsupportedRequestVersionError: it is a broker of Kafka 0.7, or an older Hermes.
        """
        self._channel.require(DescribePartitionsRequest.TYPE, "describing partitions")
        return self._channel.run(describe_partitions(topic))

    def recent_log_lines(self, first: int | None = None, max_lines: int = 100) -> LogLines:
        """Read the last lines of the broker's log, of which it keeps a thousand in memory.

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
            UnsupportedRequestVersionError: it is a broker of Kafka 0.7, or an older Hermes.
        """
        self._channel.require(RecentLogLinesRequest.TYPE, "reading the log")
        return self._channel.run(recent_log_lines(first, max_lines))
