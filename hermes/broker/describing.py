"""The answer to a metadata request, made in turns and within a bound.

A topic takes microseconds, and so does each of its partitions; but there may be ten thousand of
both, and a request may name what isn't there 32,767 times.
"""

from collections.abc import Iterable, Sequence

from twisted.internet.defer import Deferred

from hermes.broker.topics import TopicRegistry
from hermes.broker.turns import SharedTurns, in_turns
from hermes.errors import AnswerTooLargeError, InvalidTopicError
from hermes.protocol import (
    BrokerMetadata,
    ErrorCode,
    PartitionMetadata,
    check_topic_name,
    encode_partitions_metadata,
    encode_topic_metadata,
    frame,
    metadata_response_header,
)
from hermes.storage import Log

__all__ = ["MAX_ANSWER_BYTES", "describe"]

#: The largest answer: half a million partitions, or sixty thousand topics of the longest names.
MAX_ANSWER_BYTES = 16 * 1024 * 1024

#: How many partitions are described at a time.
_CHUNK = 256

_PARTITION_BYTES = 28


def describe(
    turns: SharedTurns,
    broker: BrokerMetadata,
    topics: TopicRegistry,
    names: Iterable[str],
    max_name_length: int,
) -> "bytes | Deferred[bytes]":
    """Encode what there is to say about topics.

    Args:
        turns: whom further turns are shared with.
        broker: what the broker says of itself; its topics are not used.
        topics: those there are.
        names: what was asked for; a name that comes twice is answered once.
        max_name_length: the longest name allowed.

    Returns:
        The answer, or a Deferred of it. Raises, or fails with, `AnswerTooLargeError`, and
        `LocalProtocolError` for a name that does not fit the wire.
    """
    description = _Description(topics, max_name_length)
    unique = list(dict.fromkeys(names))

    def fill(_: object) -> "list[None] | Deferred[list[None]]":
        return in_turns(turns, description.chunks, description.fill)

    def finish(_: object) -> bytes:
        return frame(metadata_response_header(broker, len(unique)), *description.parts)

    added = in_turns(turns, unique, description.add)
    if not isinstance(added, Deferred):
        filled = fill(added)
        if not isinstance(filled, Deferred):
            return finish(filled)
        return filled.addCallback(finish)
    return added.addCallback(fill).addCallback(finish)


class _Description:
    """The parts of an answer: every topic's beginning, and room for its partitions."""

    def __init__(self, topics: TopicRegistry, max_name_length: int) -> None:
        self.parts: list[bytes] = []
        self.chunks: list[tuple[int, Sequence[Log]]] = []  # which part, and of which logs
        self._topics = topics
        self._max_name_length = max_name_length
        self._size_bytes = 0

    def add(self, name: str) -> None:
        """Begin a topic."""
        code, count, logs = self._look_up(name)
        beginning = encode_topic_metadata(name, code, count, len(logs))
        self._size_bytes += len(beginning) + _PARTITION_BYTES * len(logs)
        if self._size_bytes > MAX_ANSWER_BYTES:
            raise AnswerTooLargeError(f"it would be larger than {MAX_ANSWER_BYTES} bytes")
        self.parts.append(beginning)
        for first in range(0, len(logs), _CHUNK):
            self.chunks.append((len(self.parts), logs[first : first + _CHUNK]))
            self.parts.append(b"")

    def fill(self, chunk: tuple[int, Sequence[Log]]) -> None:
        """Describe some partitions of a topic."""
        part, logs = chunk
        self.parts[part] = encode_partitions_metadata(
            [
                PartitionMetadata(
                    log.partition, log.earliest, log.high_watermark, log.end_offset - log.earliest
                )
                for log in logs
            ]
        )

    def _look_up(self, name: str) -> tuple[ErrorCode, int, Sequence[Log]]:
        try:
            check_topic_name(name, self._max_name_length)
        except InvalidTopicError:
            return ErrorCode.INVALID_TOPIC, 0, ()
        code = ErrorCode.NONE if self._topics.exists(name) else ErrorCode.UNKNOWN_TOPIC
        return code, self._topics.partition_count(name), self._topics.partitions(name)
