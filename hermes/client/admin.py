"""What operators ask of a broker: which settings are in force, what its partitions hold.

The conversations are shared with the asynchronous clients; `Administration` holds them blocking.
"""

from functools import partial

from hermes.client.arguments import check_topic
from hermes.client.channel import Channel
from hermes.client.conversations import Conversation, Exchange
from hermes.config.kinds import MAX_PARTITIONS
from hermes.errors import RemoteProtocolError
from hermes.protocol import (
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    PartitionDescription,
    PartitionDescriptions,
    SettingDescription,
    decode_partitions_response,
    decode_settings_response,
)

__all__ = ["Administration", "describe_partitions", "describe_settings"]


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
