"""Finds the offset from which to read a partition.

Offsets are byte positions, so "the last N messages" can't be computed: messages are counted from
some boundary near the end, further back if they are too few. A compressed set can only be entered
at its start; the reader drops the messages before the wanted ones. Damaged messages don't count.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

import click

from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.place_options import BEGINNING, END, PartitionPlace
from hermes.cli.terminal import note
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.errors import ClientError, InvalidMessageError
from hermes.protocol import DEFAULT_MAX_EXPANDED_BYTES, Codec, Message
from hermes.protocol.expansion import Expansion

_FIRST_SPAN_BYTES: Final = 64 * 1024
_ASSUMED_MESSAGE_BYTES: Final = 256
_SPAN_GROWTH: Final = 4


class Position(NamedTuple):
    """`offset`: where to fetch from; a message, or a compressed set, starts there.

    `drop`: how many messages to leave out first.
    """

    offset: int
    drop: int = 0


def noted_ranges(source: TopicSource) -> tuple[dict[int, OffsetRange], bool]:
    """As `TopicSource.ranges`; stderr says if other brokers have more partitions."""
    ranges, exists = source.ranges()
    if source.share_text:
        note(source.share_text)
    return ranges, exists


def check_one_partition(ranges: Mapping[int, OffsetRange], *places: PartitionPlace) -> None:
    """Refuse an offset for several partitions: it belongs to one."""
    if len(ranges) > 1 and any(each.kind == "offset" for each in places):
        last = len(ranges) - 1
        raise click.UsageError(f"an offset belongs to one partition: give -p, 0 to {last}")


def note_missing(source: TopicSource, *, exit_at_end: bool, quiet: bool) -> None:
    """Say that the topic, which doesn't exist, is waited for; ClientError if it is not to be."""
    if exit_at_end:
        raise ClientError(source.missing_text())
    if not quiet:
        note(f"{source.missing_text()}; waiting for its first message")


def open_readers(
    source: TopicSource,
    ranges: Mapping[int, OffsetRange],
    start: PartitionPlace,
    *,
    to_end: bool,
    skip_corrupt: bool = False,
) -> list[PartitionReader]:
    """Make the readers of a topic's partitions. Raises as `find_position`."""
    readers = []
    for partition, available in ranges.items():
        position = find_position(source, partition, available, start)
        readers.append(
            PartitionReader(
                source,
                partition,
                position.offset,
                end=available.end if to_end else None,
                drop=position.drop,
                skip_corrupt=skip_corrupt,
            )
        )
    return readers


def find_position(
    source: TopicSource, partition: int, available: OffsetRange, start: PartitionPlace
) -> Position:
    """Raises ClientError if there is no such place; the text says what is available."""
    if start == BEGINNING:
        return Position(available.earliest)
    if start == END or start == PartitionPlace("last", 0):
        return Position(available.end)
    if start.kind == "time":
        return Position(_offset_at(source, partition, available, start.value))
    if start.kind == "last":
        return _last_messages(source, partition, available, start.value)
    if not available.earliest <= start.value <= available.end:
        raise source.out_of_range(partition, start.value, available)
    return Position(start.value)


def _offset_at(source: TopicSource, partition: int, available: OffsetRange, time_ms: int) -> int:
    """Where the log ended just before a time: what was appended at that time starts there."""
    before_ms = max(time_ms - 1, 0)
    offsets = source.consumer.get_offsets_before(source.topic, partition, before_ms, 1)
    return max(offsets[0], available.earliest) if offsets else available.earliest


def _last_messages(
    source: TopicSource, partition: int, available: OffsetRange, count: int
) -> Position:
    earliest, end = available
    span = max(_FIRST_SPAN_BYTES, count * _ASSUMED_MESSAGE_BYTES)
    if source.counts_messages:
        span = count
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
            # Damage before the last messages doesn't matter, and reading them will find what is
            # among them.
            skip_corrupt=True,
            report=lambda line: None,
        )
        found = _count_back(source, reader, count)
        if found is not None:
            return found
        if offset <= earliest:
            return Position(earliest)
        span *= _SPAN_GROWTH


def _count_back(source: TopicSource, reader: PartitionReader, count: int) -> Position | None:
    """Read to the end; where the last `count` messages begin, or None when there are fewer."""
    # (offset, how many messages start there): one, or those inside a compressed set.
    places: deque[tuple[int, int]] = deque()
    total = 0
    for chunk in read_partitions(source.consumer, [reader], max_wait_ms=0):
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
    """How many messages it holds: 1, those of a compressed set, 0 if that can't be expanded."""
    if message.codec is Codec.NONE:
        return 1
    try:
        return Expansion(DEFAULT_MAX_EXPANDED_BYTES).count(message)
    except InvalidMessageError:
        return 0
