"""From messages' own timestamps to offsets, in logs of record batches. Blocks; for worker threads.

A segment whose largest timestamp is too early is passed over by its time index, and so are the
batches before the one that the index leads to. Of the batch that is left the messages are read:
each has a timestamp of its own, in any order.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from hermes.errors import InvalidMessageError
from hermes.protocol.records import iterate_records
from hermes.storage.batch_walk import BatchReader, Place, walk
from hermes.storage.kafka_index import NO_TIME_MS, KafkaIndex
from hermes.storage.log_format import OpenSegment
from hermes.storage.segment import LogView

#: Opens the segment at a place in a view, its index loaded.
OpenAt = Callable[[LogView, int], AbstractContextManager[OpenSegment]]


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp_ms: int


def offset_at_time(view: LogView, time_ms: int, open_at: OpenAt) -> TimestampedOffset | None:
    """Find the first visible message whose timestamp is not before a time; None if there is none.

    Raises SegmentRetiredError: a segment was deleted meanwhile.
    """
    for position in range(len(view.bases)):
        with open_at(view, position) as opened:
            index = opened.segment.index
            assert isinstance(index, KafkaIndex)
            end = view.visible_end_of(position)
            if index.newest[0] < time_ms and position < len(view.bases) - 1:
                continue
            _, start = index.time_entry(time_ms)
            for place in _batches(opened, index, max(start, view.earliest), end):
                if place.header.max_timestamp_ms < time_ms:
                    continue
                for found in _messages(opened, place):
                    if found.timestamp_ms >= time_ms and view.earliest <= found.offset < end:
                        return found
    return None


def latest_timestamp(view: LogView, open_at: OpenAt) -> TimestampedOffset | None:
    """Find the first of the visible messages with the largest timestamp, as `offset_at_time`."""
    newest_ms = NO_TIME_MS
    for position, base in enumerate(view.bases):
        with open_at(view, position) as opened:
            segment, index = opened.segment, opened.segment.index
            assert isinstance(index, KafkaIndex)
            if position < len(view.bases) - 1 and base == segment.base_offset:
                newest_ms = max(newest_ms, index.newest[0])
                continue
            # More may be in the index than is visible: what isn't committed, or was deleted.
            for place in _batches(opened, index, base, view.visible_end_of(position)):
                times = [place.header.max_timestamp_ms]
                if place.header.base_offset < base:
                    found = _messages(opened, place)
                    times = [each.timestamp_ms for each in found if each.offset >= base]
                newest_ms = max((newest_ms, *times))
    return None if newest_ms < 0 else offset_at_time(view, newest_ms, open_at)


def _batches(opened: OpenSegment, index: KafkaIndex, start: int, end: int) -> Iterator[Place]:
    segment, files, descriptor = opened
    _, stop, _ = index.find(descriptor, end)
    position, *_ = index.find(descriptor, start)
    reader = BatchReader(files, descriptor, segment.base_offset, stop)
    return walk(reader, position, segment.base_offset, known_end=end)


def _messages(opened: OpenSegment, place: Place) -> Iterator[TimestampedOffset]:
    segment, files, descriptor = opened
    reader = BatchReader(files, descriptor, segment.base_offset, place.end_position)
    batch = reader.read(place.position, place.header.size_bytes)
    # What is damaged, or expands to more than is allowed, has no messages for anybody.
    with suppress(InvalidMessageError):
        for record in iterate_records(batch, place.header):
            yield TimestampedOffset(record.offset, record.timestamp_ms)
