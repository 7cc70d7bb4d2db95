"""Recovering the tail of a log: what is kept, what is cut off, and putting on disk what is kept.

The *tail* is what a crash may have damaged: the last `.kafka` segment and the `.unflushed` ones
after it (`hermes.storage.segment` says why nothing else can be).

It is scanned from the last point that is known to be on disk. A bad end is cut off; a segment that
holds something valid keeps all that stands before it, damaged or not. `.unflushed` files that can't
be reached from there are removed: nothing in them was ever visible. What is kept is synced, names
included, and its end is noted as the next recovery point. So the cost follows what was not flushed,
not the size of the log, and doing it again finds nothing to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, read_exactly, write_all
from hermes.storage.recovery import RecoveryReport, scan
from hermes.storage.segment import Segment
from hermes.storage.segment_files import (
    Part,
    count_reached,
    remove_segment,
    settle_names,
    with_torn_index,
)
from hermes.storage.settings import LogSettings

__all__ = ["TailRecovery"]

_COPY_BYTES = 1024 * 1024


class TailRecovery:
    """Recovers the tail of one log.

    Args:
        files: the file layer.
        descriptors: opens the segments.
        settings: the topic's settings.
        now_ms: ms since 1970.
    """

    def __init__(
        self, files: FileLayer, descriptors: DescriptorCache, settings: LogSettings, now_ms: int
    ) -> None:
        self._files = files
        self._descriptors = descriptors
        self._settings = settings
        self._now_ms = now_ms

    def after_stop(self, parts: Sequence[Part]) -> tuple[tuple[Segment, ...], RecoveryReport]:
        """Recover the tail that an unclean stop has left.

        Args:
            parts: the last `.kafka` segment and all `.unflushed` ones behind it, in order.

        Returns:
            (the segments that remain, what was found).

        Raises:
            OSError: the disk failed.
        """
        return self._recover(parts, None, None)

    def mend_indexes(self, parts: Sequence[Part]) -> None:
        """Put right the time indexes of complete segments that a loss of power has torn.

        Args:
            parts: the segments before the tail, in order.
        """
        for part in with_torn_index(parts, lambda part: part.segment.index.ends_at(part.end)):
            segment = part.segment
            with suppress(OSError), self._opened(segment) as descriptor:  # it is a comfort
                segment.index.load(descriptor, part.end - segment.base_offset)
                segment.index.mend()

    def after_failure(
        self,
        segments: Sequence[Segment],
        start: int,
        end: int,
        entries: Sequence[tuple[int, int]],
    ) -> tuple[tuple[Segment, ...], RecoveryReport]:
        """Recover the tail of a log that is in memory, after its disk failed.

        What is valid is written again before it is synced: a failed fsync may have marked pages
        as clean that never reached the disk.

        Args:
            segments: the one that holds `start` and all later ones.
            start: the high watermark: what is before it is on disk.
            end: where the log ended; bytes beyond it belong to appends that were refused.
            entries: (time_ms, end_offset) of appends after `start`, for the time index.

        Returns:
            (the segments that remain, what was found).

        Raises:
            CorruptLogError: a file isn't what it was.
            OSError: the disk still fails.
        """
        parts = [Part.of(segment, self._files) for segment in segments]
        parts[-1].end = min(parts[-1].end, end)
        return self._recover(parts, start, entries)

    def _recover(
        self,
        parts: Sequence[Part],
        start: int | None,
        entries: Sequence[tuple[int, int]] | None,
    ) -> tuple[tuple[Segment, ...], RecoveryReport]:
        reached = parts[: count_reached(parts)]
        for part in reached:
            self._scan(part, start)
            start = None if start is None else part.end
        with_content = [
            number
            for number, part in enumerate(reached, start=1)
            if part.report.valid_end > part.segment.base_offset
        ]
        keep = max(with_content, default=1)
        kept, dropped = reached[:keep], parts[keep:]
        report = _summary(kept, dropped)
        for part in kept:
            self._secure(part, report.valid_end if part is kept[-1] else part.end, entries)
        for part in dropped:
            remove_segment(part.segment, self._files)
        segments = tuple(part.segment for part in kept)
        settle_names(segments, self._files)
        return segments, report

    @contextmanager
    def _opened(self, segment: Segment) -> Iterator[int]:
        descriptor = self._descriptors.acquire(segment.file, writable=True)
        try:
            yield descriptor
        finally:
            self._descriptors.release(segment.file)

    def _scan(self, part: Part, start: int | None) -> None:
        """Scan a segment from `start`, or from the last point that its index can prove."""
        segment = part.segment
        with self._opened(segment) as descriptor:
            segment.index.load(descriptor, part.end - segment.base_offset)
            if start is None:
                with suppress(OSError):  # it is a comfort
                    segment.index.mend()
                last = segment.index.last
                start = segment.base_offset if last is None else last.end_offset
            part.report = scan(
                self._files,
                descriptor,
                start,
                part.end,
                base_offset=segment.base_offset,
                max_message_bytes=self._settings.max_message_bytes,
            )

    def _secure(self, part: Part, end: int, entries: Sequence[tuple[int, int]] | None) -> None:
        """Cut a segment at `end`, put on disk what was scanned, and note the end in its index."""
        start = told_from = part.report.start
        with self._opened(part.segment) as descriptor:
            if entries is not None:
                self._write_again(part, end, descriptor)
            size = end - part.segment.base_offset
            is_longer = self._files.fstat(descriptor).st_size > size
            if is_longer:
                self._files.ftruncate(descriptor, size)
            if is_longer or end > start:
                self._files.fdatasync(descriptor)
            if entries is None:
                # When it was appended is not known, only by when: that makes a gap of all of it.
                entries = [(min(part.modified_ms, self._now_ms), end)]
                told_from = end
            with suppress(OSError):
                fitting = [entry for entry in entries if start < entry[1] <= end]
                part.segment.index.append(fitting, descriptor, start=told_from)

    def _write_again(self, part: Part, end: int, descriptor: int) -> None:
        base = part.segment.base_offset
        for position in range(part.report.start - base, end - base, _COPY_BYTES):
            length = min(_COPY_BYTES, end - base - position)
            data = read_exactly(self._files, descriptor, length, position)
            write_all(self._files, descriptor, [data], position)


def _summary(kept: Sequence[Part], dropped: Sequence[Part]) -> RecoveryReport:
    """Sum up: a bad tail that a kept segment follows is a bad range; what goes is counted."""
    bad_ranges: list[tuple[int, int]] = []
    for part in kept:
        bad_ranges.extend(part.report.bad_ranges)
        if part is not kept[-1] and part.report.dropped_bytes:
            bad_ranges.append((part.report.valid_end, part.end))
    lost = sum(part.end - part.segment.base_offset for part in dropped)
    return RecoveryReport(
        start=kept[0].report.start,
        valid_end=kept[-1].report.valid_end,
        messages=sum(part.report.messages for part in kept),
        bad_ranges=tuple(bad_ranges),
        dropped_bytes=kept[-1].report.dropped_bytes + lost,
    )
