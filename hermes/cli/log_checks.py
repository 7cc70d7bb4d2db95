"""Verifies a data directory without changing it, also while a broker works on it.

Knows the layout of the disk and what may change under a reader: an active segment grows, may end
in the middle of an append, and is renamed when it has been flushed; retention deletes the oldest
segments. None of that is a finding.

A *problem* means that messages are lost, damaged or unreachable. A *notice* is something odd that
costs nobody a message.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes.cli.index_checks import index_faults
from hermes.cli.segments import BadRange, Limits, SegmentFile, StoredMessage
from hermes.errors import ProtocolError
from hermes.protocol import check_message_set, check_topic_name
from hermes.storage.layout import CLEAN_SHUTDOWN_MARKER, LOCK_NAME
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    parse_segment_name,
    segment_name,
)

__all__ = ["DirectoryCheck", "Finding", "Totals", "data_bytes"]

_OWN_FILES: Final = (CLEAN_SHUTDOWN_MARKER, LOCK_NAME)
_WINDOW_BYTES: Final = 1024 * 1024
_APPEND_CHECKS: Final = 10
_APPEND_CHECK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found.

    Attributes:
        kind: `problem` or `notice`.
        path: the file or directory, relative to the data directory.
        text: what is wrong, and what comes of it.
        offset: where in the partition's log; None when that makes no sense.
        next_offset: where the next good message starts; None when none follows.
    """

    kind: str
    path: str
    text: str
    offset: int | None = None
    next_offset: int | None = None


@dataclass(slots=True)
class Totals:
    """What was looked at.

    Attributes:
        partitions, segments, messages: how many; inner messages of compressed sets counted.
        size_bytes: the size of all segments.
        problems, notices: how many findings of each kind.
    """

    partitions: int = 0
    segments: int = 0
    messages: int = 0
    size_bytes: int = 0
    problems: int = 0
    notices: int = 0


class DirectoryCheck:
    """One check of a data directory, or of a single partition's directory.

    Args:
        root: the directory; only read.
        limits: what is believed of damaged and compressed messages.
        advance: called with the number of bytes checked since the last call.
        pause: called to let a broker finish an append; sleeps for a moment unless replaced.

    Attributes:
        totals: what was looked at so far.
    """

    def __init__(
        self,
        root: Path,
        limits: Limits,
        advance: Callable[[int], None] = lambda size_bytes: None,
        pause: Callable[[], None] = lambda: time.sleep(_APPEND_CHECK_SECONDS),
    ) -> None:
        self._root = root
        self._limits = limits
        self._advance = advance
        self._pause = pause
        self.totals = Totals()

    def run(self) -> Iterator[Finding]:
        """Check everything.

        Yields:
            Findings, as they are found.

        Raises:
            OSError: the directory or a file in it can't be read.
        """
        for finding in self._check_root():
            if finding.kind == "problem":
                self.totals.problems += 1
            else:
                self.totals.notices += 1
            yield finding

    def _check_root(self) -> Iterator[Finding]:
        if any(parse_segment_name(name) for name in os.listdir(self._root)):
            yield from self._check_partition(self._root)
            return
        for name in sorted(os.listdir(self._root)):
            path = self._root / name
            if path.is_dir():
                if fault := _partition_name_fault(name):
                    yield self._notice(path, f"{fault}; left alone (Kafka 0.7 would not start)")
                else:
                    yield from self._check_partition(path)
            elif name not in _OWN_FILES and path.exists():
                yield self._notice(path, "no file of Hermes or Kafka; left alone")

    def _check_partition(self, directory: Path) -> Iterator[Finding]:
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            yield self._notice(directory, "was deleted meanwhile")
            return
        self.totals.partitions += 1
        bases = _segment_bases(names)
        for name in names:
            parsed = parse_segment_name(name)
            if parsed is None:
                yield self._notice(directory / name, "no file of Hermes or Kafka; left alone")
            elif parsed[0] not in bases:
                yield self._notice(directory / name, "a time index without its segment")
        if not bases:
            yield self._notice(directory, "holds no segment; the broker starts it anew at 0")
        for number, base in enumerate(bases, 1):
            following = bases[number] if number < len(bases) else None
            yield from self._check_segment(directory, base, following)

    def _check_segment(
        self, directory: Path, base: int, following: int | None
    ) -> Iterator[Finding]:
        index = _read_if_there(directory / segment_name(base, INDEX_SUFFIX))
        segment = self._open(directory, base)
        if segment is None:
            # Retention deletes the oldest ones; anything else is a hole.
            if any(other < base for other in _segment_bases(os.listdir(directory))):
                path = directory / segment_name(base)
                yield self._problem(path, "was deleted meanwhile, though older segments are there")
            return
        with segment:
            self.totals.segments += 1
            yield from self._check_messages(segment, is_last=following is None)
            for fault in index_faults(index, segment):
                path = directory / segment_name(base, INDEX_SUFFIX)
                yield Finding(fault.kind, self._relative(path), fault.text)
            yield from self._check_joint(segment, following)

    def _open(self, directory: Path, base: int) -> SegmentFile | None:
        """Open a segment under either of its names; it may be renamed at any moment."""
        for suffix in (UNFLUSHED_SUFFIX, SEGMENT_SUFFIX):
            with suppress(FileNotFoundError):
                return SegmentFile(directory / segment_name(base, suffix), self._limits)
        return None

    def _check_joint(self, segment: SegmentFile, following: int | None) -> Iterator[Finding]:
        end = segment.end_offset
        if following is not None and end < following:
            text = f"ends at {end}, but the next segment starts at {following}: {following - end} "
            yield self._problem(segment.path, text + "bytes are missing", end, following)
        elif following is not None and end > following:
            text = f"ends at {end}, but the next segment starts at {following}: they overlap"
            yield self._problem(segment.path, text, following)

    # -- messages -------------------------------------------------------------------------------

    def _check_messages(self, segment: SegmentFile, *, is_last: bool) -> Iterator[Finding]:
        offset = segment.base_offset
        self.totals.size_bytes += segment.end_offset - offset
        while offset < segment.end_offset:
            start = offset
            offset = self._skip_good(segment, offset)
            if offset == start:
                # Something is unusual in this window: a large message, or a bad one.
                for found in segment.walk(offset):
                    yield from self._judge(segment, found, is_last=is_last)
                    offset = found.end_offset
                    if offset - start >= _WINDOW_BYTES:
                        break
            self._advance(offset - start)

    def _skip_good(self, segment: SegmentFile, offset: int) -> int:
        """Check a window at once; the offset up to which all is well."""
        try:
            checked = check_message_set(
                segment.read(offset, _WINDOW_BYTES),
                max_message_bytes=_WINDOW_BYTES,
                max_expanded_bytes=self._limits.max_expanded_bytes,
            )
        except ProtocolError:
            return offset
        self.totals.messages += checked.message_count
        return offset + checked.valid_bytes

    def _judge(
        self, segment: SegmentFile, found: StoredMessage | BadRange, *, is_last: bool
    ) -> Iterator[Finding]:
        if isinstance(found, StoredMessage):
            self.totals.messages += found.message_count
            if found.problem:
                yield self._problem(segment.path, found.problem, found.offset, found.end_offset)
        elif not (is_last and found.is_tail and self._is_being_appended(segment, found)):
            size = found.end_offset - found.offset
            text = f"{found.reason}: {size} bytes are lost"
            if found.is_tail and is_last:
                text += "; the broker cuts them off when it recovers"
            yield self._problem(segment.path, text, found.offset, found.next_offset)

    def _is_being_appended(self, segment: SegmentFile, tail: BadRange) -> bool:
        """Whether the tail turns into a message (or goes away) while we look."""
        end = segment.end_offset
        for _ in range(_APPEND_CHECKS):
            self._pause()
            if segment.refresh() <= tail.offset:
                return True
            if segment.end_offset == end:
                continue
            end = segment.end_offset
            if isinstance(next(segment.walk(tail.offset)), StoredMessage):
                # What follows was appended after this check had begun.
                segment.end_offset = tail.offset
                return True
        return False

    # -- findings -------------------------------------------------------------------------------

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self._root)

    def _notice(self, path: Path, text: str) -> Finding:
        return Finding("notice", self._relative(path), text)

    def _problem(
        self, path: Path, text: str, offset: int | None = None, next_offset: int | None = None
    ) -> Finding:
        return Finding("problem", self._relative(path), text, offset, next_offset)


def data_bytes(root: Path) -> int:
    """The size of all segments below a directory, for a progress bar.

    Args:
        root: a data directory or a partition's directory.
    """
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            if name.endswith((SEGMENT_SUFFIX, UNFLUSHED_SUFFIX)):
                with suppress(FileNotFoundError):
                    total += os.stat(os.path.join(directory, name)).st_size
    return total


def _segment_bases(names: list[str]) -> list[int]:
    parsed = [parse_segment_name(name) for name in names]
    return sorted({each[0] for each in parsed if each and each[1] != INDEX_SUFFIX})


def _partition_name_fault(name: str) -> str:
    """What keeps a directory's name from being a partition's; "" when nothing does."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not (partition.isascii() and partition.isdigit()):
        return "no partition's directory (<topic>-<number>)"
    try:
        check_topic_name(topic)
    except ProtocolError as error:
        return str(error)
    return ""


def _read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
