"""Recovering the tail of a log: what is kept, what is cut off, and putting on disk what is kept.

The *tail* is what a crash may have damaged: the last `.kafka` segment and the `.unflushed` ones
after it (see `hermes.storage.segment` for why nothing else can be).

It is scanned from the last point that is known to be on disk. A bad end is cut off; a segment that
holds something valid keeps all that stands before it, damaged or not. `.unflushed` files that can't
be reached from there are removed: nothing in them was ever visible. What is kept is synced, names
included, and its end is noted as the next recovery point. So the cost follows what was not flushed,
not the size of the log, and doing it again finds nothing to do.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EEXIST
from stat import S_ISREG
from typing import Protocol

from hermes.errors import CorruptLogError
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, identity, read_exactly, write_all
from hermes.storage.recovery import RecoveryReport, scan
from hermes.storage.segment import SEGMENT_SUFFIX, Segment, SegmentView, segment_name
from hermes.storage.settings import LogSettings

__all__ = [
    "Extent",
    "Part",
    "TailRecovery",
    "count_reached",
    "exists",
    "find_again",
    "promise",
    "remove_segment",
    "settle_names",
]

_LOST = (
    "so consumers would miss what they have been told of; put back what was there, or restart the "
    "broker to go on with what is there now"
)
_COPY_BYTES = 1024 * 1024


@dataclass(slots=True)
class Part:
    """A segment while it is loaded; positions are offsets in the log.

    Attributes:
        segment: the segment.
        end: the offset after its last byte.
        modified_ms: its file's modification time, in ms since 1970.
        report: what the scan found; set by `TailRecovery`.
    """

    segment: Segment
    end: int
    modified_ms: int
    report: RecoveryReport = field(init=False)

    @property
    def base_offset(self) -> int:
        """The offset of its first byte."""
        return self.segment.base_offset

    @property
    def is_flushed_name(self) -> bool:
        """Whether it is called `.kafka`."""
        return self.segment.is_flushed_name

    @classmethod
    def of(cls, segment: Segment, files: FileLayer) -> "Part":
        """Look at a segment's file.

        Args:
            segment: the segment.
            files: the file layer.

        Returns:
            What its status says.

        Raises:
            CorruptLogError: it isn't a regular file.
            OSError: it can't be looked at.
        """
        status = files.lstat(segment.path)
        if not S_ISREG(status.st_mode):
            raise CorruptLogError(f"{segment.path} is not a regular file (links are not followed)")
        end = segment.base_offset + status.st_size
        return cls(segment, end, status.st_mtime_ns // 1_000_000)


class Extent(Protocol):
    """What the rules about a log's files need to know of one."""

    @property
    def base_offset(self) -> int:
        """The offset of its first byte, by its name."""

    @property
    def end(self) -> int:
        """The offset after its last byte, by its size."""

    @property
    def is_flushed_name(self) -> bool:
        """Whether it is called `.kafka`."""


def count_reached(parts: Sequence[Extent]) -> int:
    """Count the files that follow each other without a gap, from the first one on.

    Args:
        parts: at least one, in order.
    """
    for number in range(1, len(parts)):
        if parts[number].base_offset != parts[number - 1].end:
            return number
    return len(parts)


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
        descriptor = self._descriptors.acquire(segment, writable=True)
        try:
            yield descriptor
        finally:
            self._descriptors.release(segment)

    def _scan(self, part: Part, start: int | None) -> None:
        """Scan a segment from `start`, or from the last point that its index can prove."""
        segment = part.segment
        with self._opened(segment) as descriptor:
            segment.index.load(descriptor, part.end - segment.base_offset)
            if start is None:
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


def find_again(
    view: SegmentView, high_watermark: int, end: int, files: FileLayer
) -> tuple[Segment, ...]:
    """Find the files of a log that is in memory, under the names that they have now.

    What was visible must be there, whether it is in the same files (a disk that failed, or was away
    for a while) or in others (a copy that was put back): nobody's offset may come to nothing.

    Args:
        view: the segments as they were.
        high_watermark: where what was visible ended.
        end: where the log ended.
        files: the file layer.

    Returns:
        New segments in the order of the view; some behind the high watermark may be missing.

    Raises:
        CorruptLogError: something that was visible is missing.
        OSError: the disk still fails.
    """
    first = bisect_right(view.bases, high_watermark) - 1
    found = []
    for number, old in enumerate(view.segments):
        segment = _named_as_now(old, files)
        if number <= first:
            if segment is None:
                raise CorruptLogError(f"{old.path} is missing, {_LOST}")
            limit = view.end_of(number, end)
            least = high_watermark if number == first else limit
            _check_is_whole(old, segment, least, limit, files)
            found.append(segment)
        elif segment is not None and segment.identity == old.identity:
            found.append(segment)
    return tuple(found)


def _named_as_now(old: Segment, files: FileLayer) -> Segment | None:
    """Look which of its names a segment has, preferring the file that it was."""
    there = []
    for is_flushed_name in (True, False):
        segment = Segment(files, old.directory, old.base_offset, is_flushed_name=is_flushed_name)
        try:
            segment.identity = identity(files.lstat(segment.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if segment.identity == old.identity:
            return segment
        there.append(segment)
    return there[0] if there else None


def _check_is_whole(
    old: Segment, segment: Segment, least: int, limit: int, files: FileLayer
) -> None:
    """Refuse a file that doesn't hold a segment up to `least`, or is of another log."""
    end = Part.of(segment, files).end
    if end < least:
        raise CorruptLogError(f"{segment.path} ends at offset {end}, not {least}, {_LOST}")
    if old.identity in (None, segment.identity):
        return
    last = old.index.last
    descriptor = files.open_read(segment.path)
    try:
        is_copy = last is None or last.tail_crc == segment.index.tail_crc(
            descriptor, last.end_offset
        )
    finally:
        files.close(descriptor)
    if end > limit or not is_copy:
        raise CorruptLogError(f"{segment.path} holds other messages than it did, {_LOST}")


def remove_segment(segment: Segment, files: FileLayer) -> None:
    """Delete a segment's files, its index first: what a crash leaves is a segment or nothing.

    Args:
        segment: one that no view holds.
        files: the file layer; the caller syncs the directory afterwards.

    Raises:
        OSError: a file can't be deleted.
    """
    with suppress(FileNotFoundError):
        files.unlink(segment.index.path)
    with suppress(FileNotFoundError):
        files.unlink(segment.path)


def promise(segment: Segment, files: FileLayer) -> None:
    """Call a segment `.kafka`, now that everything before it is on disk.

    Args:
        segment: one called `.unflushed`.
        files: the file layer; the caller syncs the directory afterwards.

    Raises:
        FileExistsError: something of that name is there; it was not touched.
        OSError: the disk failed; the name may have changed all the same.
    """
    final = os.path.join(segment.directory, segment_name(segment.base_offset, SEGMENT_SUFFIX))
    if exists(final, files):
        raise FileExistsError(EEXIST, f"{final} exists already", final)
    files.rename(segment.path, final)
    segment.is_flushed_name = True


def exists(path: str, files: FileLayer) -> bool:
    """Whether something of this name is there, whatever it is.

    Args:
        path: the name.
        files: the file layer.

    Raises:
        OSError: that can't be found out.
    """
    try:
        files.lstat(path)
    except FileNotFoundError:
        return False
    return True


def settle_names(segments: Sequence[Segment], files: FileLayer) -> None:
    """Call segments `.kafka` whose bytes are on disk, and put all names of their directory there.

    Args:
        segments: of one log, at least one, in order.
        files: the file layer.

    Raises:
        OSError: the disk failed.
    """
    for segment in segments:
        if not segment.is_flushed_name:
            promise(segment, files)
    # Also when nothing changed here: the names that were found may be in memory only.
    files.fsync_directory(segments[0].directory)


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
