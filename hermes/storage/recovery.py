"""Recovering the tail of a log: what is kept, what is cut off, and putting on disk what is kept.

The *tail* is what a crash may have damaged: the last `.kafka` segment and the `.unflushed` ones
after it (`hermes.storage.segment` says why nothing else can be).

It is scanned from the last point that is known to be on disk. A bad end is cut off; a segment that
holds something valid keeps everything before it, damaged or not. `.unflushed` files that can't
be reached from there are removed: nothing in them was ever visible. What is kept is synced, names
included, and its end is noted as the next recovery point. So the cost follows what was not flushed,
not the size of the log, and doing it again finds nothing to do.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain

from hermes.errors import CorruptLogError
from hermes.storage.append_times import believed_ms
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, read_exactly, write_all
from hermes.storage.kafka_0_7 import SegmentReader, scan_messages
from hermes.storage.log_format import OpenSegment
from hermes.storage.segment import Segment
from hermes.storage.segment_files import (
    LoadingSegment,
    count_contiguous,
    finalize_names,
    remove_segment,
    with_torn_index,
)
from hermes.storage.settings import LogSettings

_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """`has_cut_damage`: whether what was cut off are damage and something valid after it."""

    start: int
    valid_end: int
    messages: int = 0
    bad_ranges: tuple[tuple[int, int], ...] = ()
    dropped_bytes: int = 0
    has_cut_damage: bool = False


def scan(
    files: FileLayer,
    descriptor: int,
    start: int,
    end: int,
    *,
    base_offset: int = 0,
    max_message_bytes: int,
) -> RecoveryReport:
    """Check every message in a range of a segment of Kafka 0.7's format.

    Args:
        start: the offset to begin at: a message boundary, >= base_offset.
        end: the offset after the last byte to look at, >= start.
        max_message_bytes: the largest payload to believe in where a size can't be trusted. A
            valid message may be larger.
    """
    reader = SegmentReader(files, descriptor, base_offset, end)
    found = scan_messages(reader, start, max_message_bytes)
    bad_ranges, dropped_bytes = tuple(found.bad_ranges), end - found.valid_end
    return RecoveryReport(start, found.valid_end, found.messages, bad_ranges, dropped_bytes)


class TailRecovery:
    """Recovers the tail of one log.

    Args:
        end_for: says where the log must end, if that is before where it could: given where the
            scan began, where it could end, and the bad ranges.
        known_end: up to where complete segments are on disk, besides what their indexes say.
        until_damage: whether nothing is kept that follows damage.
    """

    def __init__(
        self,
        files: FileLayer,
        descriptors: DescriptorCache,
        settings: LogSettings,
        now_ms: int,
        end_for: Callable[[int, int, Sequence[tuple[int, int]]], int] | None = None,
        known_end: int = 0,
        *,
        until_damage: bool = False,
    ) -> None:
        self._until_damage = until_damage
        self._end_for = end_for
        self._known_end = known_end
        self._files = files
        self._descriptors = descriptors
        self._settings = settings
        self._now_ms = now_ms

    def after_stop(
        self, parts: Sequence[LoadingSegment]
    ) -> tuple[tuple[Segment, ...], RecoveryReport]:
        """Recover the tail that an unclean stop has left.

        Args:
            parts: the last `.kafka` segment and all `.unflushed` ones after it, in order.

        Returns:
            (the segments that remain, what was found).
        """
        return self._recover(parts, None, None)

    def is_intact(self, part: LoadingSegment) -> bool:
        """Whether all of a segment is what was written: reads it."""
        with self._opened(part.segment) as opened:
            limit = self._settings.max_message_bytes
            found = part.segment.format.scan(opened, (part.base_offset, 0), part.size_bytes, limit)
        return found.valid_bytes == part.size_bytes and not found.bad_ranges

    def count_proven(self, parts: Sequence[LoadingSegment]) -> int:
        """Count the segments before the tail that need not be scanned, where names say nothing.

        Returns how many of the first ones are on disk: those up to the last one whose index says
        so. The others may be Kafka's, which puts segments on disk at its leisure.
        """
        proven = len(parts)
        while proven:
            part = parts[proven - 1]
            with self._opened(part.segment) as opened:
                part.segment.index.load(opened.descriptor, part.end)
            if part.end <= self._known_end or part.segment.index.ends_at(part.end):
                break
            proven -= 1
        return proven

    def mend_indexes(
        self, parts: Sequence[LoadingSegment], bare: Sequence[LoadingSegment] = ()
    ) -> None:
        """Repair time indexes of complete segments that a power loss has torn; `bare` lack one."""
        torn = with_torn_index(parts, lambda part: part.segment.index.ends_at(part.end))
        # One by one: whether the one before is torn is asked when this one is mended.
        for part in chain(torn, bare):
            index = part.segment.index
            with (
                suppress(OSError),
                self._opened(part.segment) as opened,
            ):  # no message depends on it
                index.load(opened.descriptor, part.end)
                index.mend()
                index.settle(opened.descriptor, part.end, part.end, complete=True)

    def after_failure(
        self,
        segments: Sequence[Segment],
        start: int,
        end: int,
        unflushed_bytes: int,
        entries: Sequence[tuple[int, int]],
    ) -> tuple[tuple[Segment, ...], RecoveryReport]:
        """Recover the tail of a log that is in memory, after its disk failed.

        What is valid is written again before it is synced: a failed fsync may have marked pages as
        clean that never reached the disk.

        Args:
            segments: the one that holds `start` and all later ones.
            start: the high watermark: what is before it is on disk.
            end: where the log ended; bytes beyond it belong to appends that were refused.
            unflushed_bytes: how many bytes there were from `start` to `end`.
            entries: (time_ms, end_offset) of appends after `start`, for the time index.

        Returns:
            (the segments that remain, what was found). Its `dropped_bytes` are those of the
            `unflushed_bytes` that do not remain.

        Raises:
            CorruptLogError: a file isn't what it was, or is damaged before `start`.
            OSError: the disk still fails.
        """
        parts = [LoadingSegment.of(segment, self._files) for segment in segments]
        last = parts[-1]
        with self._opened(last.segment) as opened:
            reached, size_bytes = last.segment.format.reach(opened, end)
        if reached == end:
            last.size_bytes, last.end = size_bytes, end
        kept, report = self._recover(parts, start, entries)
        kept_bytes = sum(part.size_bytes - part.start_position for part in parts[: len(kept)])
        return kept, replace(report, dropped_bytes=unflushed_bytes - kept_bytes)

    def _recover(
        self,
        parts: Sequence[LoadingSegment],
        start: int | None,
        entries: Sequence[tuple[int, int]] | None,
    ) -> tuple[tuple[Segment, ...], RecoveryReport]:
        reached = parts[: count_contiguous(parts)]
        for part in reached:
            self._scan(part, start)
            if entries is not None and part.start < (start or 0):
                raise CorruptLogError(
                    f"{part.segment.path} is damaged from offset {part.start} on, and was flushed "
                    f"up to {start}: restart the broker to go on with what is left"
                )
            start = None if start is None else part.end
        wanted = [
            number
            for number, part in enumerate(reached, start=1)
            if part.report.valid_bytes or part.is_flushed_name
        ]
        keep = max(wanted, default=1)
        kept, dropped = reached[:keep], parts[keep:]
        report = _summary(kept, dropped)
        end, bad_ranges = report.valid_end, report.bad_ranges
        if self._until_damage and bad_ranges:
            end, report = bad_ranges[0][0], replace(report, has_cut_damage=True)
        if self._end_for is not None:
            end = self._end_for(report.start, end, bad_ranges)
        if end < report.valid_end:
            kept, dropped, report = self._cut(parts, kept, end, report)
        kept[-1].end, kept[-1].size_bytes = report.valid_end, kept[-1].report.valid_bytes
        for part in kept:
            self._secure(part, entries, is_complete=part is not kept[-1])
        for part in reversed(dropped):  # each for certain, or what is left may have a gap
            remove_segment(part.segment, self._files)
            self._files.fsync_directory(part.segment.directory)
        segments = tuple(part.segment for part in kept)
        finalize_names(segments, self._files)
        return segments, report

    def _cut(
        self,
        parts: Sequence[LoadingSegment],
        kept: Sequence[LoadingSegment],
        end: int,
        report: RecoveryReport,
    ) -> tuple[Sequence[LoadingSegment], Sequence[LoadingSegment], RecoveryReport]:
        keep = max(1, sum(part.base_offset < end for part in kept))
        last, sizes = parts[keep - 1], sum(part.size_bytes for part in parts[: keep - 1])
        with self._opened(last.segment) as opened:
            end, size = last.segment.format.reach(opened, end)
        last.report = last.report._replace(valid_end=end, valid_bytes=size)
        dropped_bytes = sum(part.size_bytes for part in parts) - sizes - size
        bad_ranges = tuple(each for each in report.bad_ranges if each[0] < end)
        return (
            parts[:keep],
            parts[keep:],
            replace(report, valid_end=end, bad_ranges=bad_ranges, dropped_bytes=dropped_bytes),
        )

    @contextmanager
    def _opened(self, segment: Segment) -> Iterator[OpenSegment]:
        descriptor = self._descriptors.acquire(segment.file, writable=True)
        try:
            yield OpenSegment(segment, self._files, descriptor)
        finally:
            self._descriptors.release(segment.file)

    def _scan(self, part: LoadingSegment, start: int | None) -> None:
        segment = part.segment
        with self._opened(segment) as opened:
            segment.index.load(opened.descriptor, part.end)
            if start is None:
                with suppress(OSError):  # no message depends on it
                    segment.index.mend()
                last = segment.index.last
                start = segment.base_offset if last is None else last.end_offset
            place = part.start, part.start_position = segment.format.reach(opened, start)
            limit = self._settings.max_message_bytes
            part.report = segment.format.scan(opened, place, part.size_bytes, limit)

    def _secure(
        self,
        part: LoadingSegment,
        entries: Sequence[tuple[int, int]] | None,
        *,
        is_complete: bool,
    ) -> None:
        start, end, size = part.start, part.end, part.size_bytes
        told_from = start
        segment = part.segment
        with self._opened(segment) as (_, _, descriptor):
            if entries is not None:
                self._write_again(part, descriptor)
            is_longer = self._files.fstat(descriptor).st_size > size
            if is_longer:
                self._files.ftruncate(descriptor, size)
            if is_longer or end > start:
                self._files.fdatasync(descriptor)
            if entries is None:
                # When it was appended is not known, only by when: that makes a gap of all of it.
                entries = [(believed_ms(part.modified_ms, self._now_ms, self._now_ms), end)]
                told_from = end
            with suppress(OSError):
                segment.index.settle(descriptor, start, end, complete=is_complete)
                fitting = [entry for entry in entries if start < entry[1] <= end]
                segment.index.append(fitting, descriptor, start=told_from, complete=is_complete)
            segment.size_bytes = size

    def _write_again(self, part: LoadingSegment, descriptor: int) -> None:
        for position in range(part.start_position, part.size_bytes, _COPY_BYTES):
            length = min(_COPY_BYTES, part.size_bytes - position)
            data = read_exactly(self._files, descriptor, length, position)
            write_all(self._files, descriptor, [data], position)


def _summary(kept: Sequence[LoadingSegment], dropped: Sequence[LoadingSegment]) -> RecoveryReport:
    """Sum up: a bad tail that a kept segment follows is a bad range; what goes is counted."""
    bad_ranges: list[tuple[int, int]] = []
    for part in kept:
        bad_ranges.extend(part.report.bad_ranges)
        if part is not kept[-1] and part.report.valid_bytes < part.size_bytes:
            bad_ranges.append((part.report.valid_end, part.end))
    last = kept[-1]
    lost = sum(part.size_bytes for part in dropped)
    return RecoveryReport(
        start=kept[0].start,
        valid_end=last.report.valid_end,
        messages=sum(part.report.messages for part in kept),
        bad_ranges=tuple(bad_ranges),
        dropped_bytes=last.size_bytes - last.report.valid_bytes + lost,
    )
