"""From where a reader wants to start to byte positions, a partition at a time.

Offsets are positions, so that "the last N messages" can't be computed: the messages are counted
from some boundary near the end, further back if they are too few. A compressed set can only be
entered at its start; the messages before the wanted ones are dropped by the reader. Damaged
messages don't count.
"""

from collections import deque
from typing import Final, NamedTuple

from hermes.cli.reading import PartitionReader, read_partitions
from hermes.cli.starts import AtOffset, AtTime, Beginning, Last, Start
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.client import SimpleConsumer
from hermes.errors import ClientError, InvalidMessageError
from hermes.protocol import DEFAULT_MAX_EXPANDED_BYTES, Codec, Message
from hermes.protocol.expansion import Expansion

__all__ = ["Position", "find_position"]

_FIRST_SPAN_BYTES: Final = 64 * 1024
_ASSUMED_MESSAGE_BYTES: Final = 256
_SPAN_GROWTH: Final = 4


class Position(NamedTuple):
    """Where to begin.

    Attributes:
        offset: where to fetch from; a message, maybe a compressed set, starts there.
        drop: how many messages to leave out first.
    """

    offset: int
    drop: int = 0


def find_position(
    consumer: SimpleConsumer,
    source: TopicSource,
    partition: int,
    available: OffsetRange,
    start: Start,
) -> Position:
    """Find where to begin in one partition.

    Args:
        consumer: talks to the broker.
        source: the topic.
        partition: its number.
        available: what the partition holds.
        start: what is wanted.

    Raises:
        ClientError: there is no such place; the text says which there are.
    """
    if isinstance(start, Beginning):
        return Position(available.earliest)
    if isinstance(start, AtOffset):
        if not available.earliest <= start.offset <= available.end:
            raise ClientError(
                f"topic {source.topic!r} partition {partition}: offset {start.offset} is not "
                f"there: it holds {available.earliest} to {available.end}"
            )
        return Position(start.offset)
    if isinstance(start, AtTime):
        return Position(_offset_at(consumer, source, partition, available, start.time_ms))
    if isinstance(start, Last) and start.count:
        return _last_messages(consumer, source, partition, available, start.count)
    return Position(available.end)


def _offset_at(
    consumer: SimpleConsumer,
    source: TopicSource,
    partition: int,
    available: OffsetRange,
    time_ms: int,
) -> int:
    """Where the log ended just before a time: what was appended at that time starts there."""
    before_ms = max(time_ms - 1, 0)
    offsets = consumer.get_offsets_before(source.topic, partition, before_ms, 1)
    return max(offsets[0], available.earliest) if offsets else available.earliest


def _last_messages(
    consumer: SimpleConsumer,
    source: TopicSource,
    partition: int,
    available: OffsetRange,
    count: int,
) -> Position:
    earliest, end = available
    span = max(_FIRST_SPAN_BYTES, count * _ASSUMED_MESSAGE_BYTES)
    while True:
        offset = earliest
        if end - span > earliest:
            offset = source.boundary_before(partition, end - span)
        reader = PartitionReader(
            source,
            partition,
            offset,
            end=end,
            deep=False,
            # Damage before the last messages is nobody's concern, and whoever reads them will
            # find what is among them.
            skip_corrupt=True,
            report=lambda line: None,
        )
        found = _count_back(consumer, reader, count)
        if found is not None:
            return found
        if offset <= earliest:
            return Position(earliest)
        span *= _SPAN_GROWTH


def _count_back(consumer: SimpleConsumer, reader: PartitionReader, count: int) -> Position | None:
    """Read to the end; where the last `count` messages begin, or None when there are fewer."""
    # (offset, how many messages start there): one, or those inside a compressed one.
    places: deque[tuple[int, int]] = deque()
    total = 0
    for chunk in read_partitions(consumer, [reader], max_wait_ms=0):
        offset = chunk.offset
        for message, following in chunk.messages:
            inside = _message_count(message)
            places.append((offset, inside))
            total += inside
            while total - places[0][1] >= count:
                total -= places.popleft()[1]
            offset = following
    if total < count:
        return None
    return Position(places[0][0], total - count)


def _message_count(message: Message) -> int:
    """How many messages a message stands for; none if what is inside can't be read."""
    if message.codec is Codec.NONE:
        return 1
    try:
        return Expansion(DEFAULT_MAX_EXPANDED_BYTES).count(message)
    except InvalidMessageError:
        return 0
