"""Verifies a data directory without changing it, also while a broker works on it.

Knows the layout of the disk and what may change under a reader: an active segment grows, may end
in the middle of an append, and is renamed when it has been flushed; retention deletes the oldest
segments. None of that is a finding.

A *problem* means that messages are lost, damaged or unreachable. A *notice* is something odd that
costs nobody a message.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from stat import S_ISREG
from typing import Final

from hermes.cli.index_checks import index_faults
from hermes.cli.segments import BadRange, Limits, SegmentFile, StoredMessage
from hermes.errors import ProtocolError
from hermes.protocol import check_message_set, check_topic_name
from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    OWN_FILES,
    list_partitions,
    partition_directory,
)
from hermes.storage.loading import Arrangement, arrange
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    choose_names,
    parse_segment_name,
    segment_name,
)

__all__ = ["DirectoryCheck", "Finding", "Totals", "data_bytes"]

_OWN_FILES: Final = (CLEAN_SHUTDOWN_MARKER, *OWN_FILES)
_NOT_REGULAR: Final = "is not a regular file (links are not followed)"
# The one that counts first, and again: it may be renamed just between the two looks.
_SUFFIXES: Final = (SEGMENT_SUFFIX, UNFLUSHED_SUFFIX, SEGMENT_SUFFIX)
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
        self._files = FileLayer()
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
        partitions, others = list_partitions(os.fspath(self._root), self._files)
        for topic, partition in partitions:
            yield from self._check_partition(self._root / partition_directory(topic, partition))
        for name in others:
            path = self._root / name
            if path.is_dir():
                yield self._notice(path, f"{_directory_fault(name)}; left alone")
            elif not name.startswith(_OWN_FILES) and os.path.lexists(path):
                yield self._notice(path, "no file of Hermes or Kafka; left alone")

    def _check_partition(self, directory: Path) -> Iterator[Finding]:
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            yield self._notice(directory, "was deleted meanwhile")
            return
        self.totals.partitions += 1
        suffixes, strange = choose_names(names)
        yield from self._check_names(directory, names, suffixes, strange)
        parts = []
        for base in suffixes:
            part = _look(directory, base)
            if part is None:
                yield from self._gone(directory, base)
            elif not part.is_regular:
                yield self._problem(part.path, f"{_NOT_REGULAR}: the partition stays offline")
            else:
                parts.append(part)
        found = arrange(parts)
        yield from self._check_drafts(found)
        if not found.settled:
            yield self._notice(directory, "holds no segment; the broker starts it at 0")
        segments = [*found.settled, *found.reached]
        # What the next start recovers: see `hermes.storage.tail`.
        recovered = (
            len(segments) - len(found.reached) - 1 if _is_unclean(directory) else len(segments)
        )
        for number, part in enumerate(segments, 1):
            following = segments[number].base_offset if number < len(segments) else None
            yield from self._check_segment(
                directory, part.base_offset, following, will_be_mended=number > recovered
            )

    def _check_names(
        self,
        directory: Path,
        names: Sequence[str],
        suffixes: Mapping[int, str],
        strange: Sequence[str],
    ) -> Iterator[Finding]:
        for name in strange:
            path = directory / name
            if parsed := parse_segment_name(name):
                served = segment_name(parsed[0], suffixes[parsed[0]])
                yield self._notice(
                    path, f"a leftover; the broker serves {served} and leaves it alone"
                )
            else:
                yield self._notice(path, "no file of Hermes or Kafka; left alone")
        for name in names:
            parsed = parse_segment_name(name)
            if parsed and parsed[0] not in suffixes:
                yield self._notice(directory / name, "a time index without its segment")

    def _check_drafts(self, found: Arrangement["_Part"]) -> Iterator[Finding]:
        """Name the `.unflushed` files that are no part of the log: nothing in them was visible."""
        for part in found.leftovers:
            text = "a leftover that fits nowhere between the segments; the broker leaves it alone"
            yield self._notice(part.path, text)
        for part in found.unreached:
            text = "a leftover that no segment leads to; the broker removes it when it recovers"
            yield self._notice(part.path, text)

    def _gone(self, directory: Path, base: int) -> Iterator[Finding]:
        """Judge that a segment isn't there any more: retention deletes only the oldest ones."""
        if any(other < base for other in choose_names(os.listdir(directory))[0]):
            path = directory / segment_name(base)
            yield self._problem(path, "was deleted meanwhile, though older segments are there")

    def _check_segment(
        self, directory: Path, base: int, following: int | None, *, will_be_mended: bool
    ) -> Iterator[Finding]:
        index_path = directory / segment_name(base, INDEX_SUFFIX)
        try:
            index = self._read_if_there(index_path)
        except OSError as error:
            if error.errno != EINVAL:
                raise
            index = b""
            yield self._problem(index_path, f"{_NOT_REGULAR}: recovery would stop at it")
        segment = self._open(directory, base)
        if segment is None:
            yield from self._gone(directory, base)
            return
        with segment:
            self.totals.segments += 1
            yield from self._check_messages(segment, is_last=following is None)
            for fault in index_faults(index, segment, will_be_mended=will_be_mended):
                yield Finding(fault.kind, self._relative(index_path), fault.text)
            yield from self._check_joint(segment, following)

    def _open(self, directory: Path, base: int) -> SegmentFile | None:
        """Open a segment under either of its names; it may be renamed at any moment."""
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                return SegmentFile(directory / segment_name(base, suffix), self._limits)
        return None

    def _read_if_there(self, path: Path) -> bytes:
        try:
            descriptor = self._files.open_read(os.fspath(path))
        except FileNotFoundError:
            return b""
        try:
            return read_exactly(self._files, descriptor, self._files.fstat(descriptor).st_size, 0)
        finally:
            self._files.close(descriptor)

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
                    total += os.lstat(os.path.join(directory, name)).st_size
    return total


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment's file as it was when it was looked at."""

    path: Path
    base_offset: int
    end: int
    is_flushed_name: bool
    is_regular: bool


def _look(directory: Path, base: int) -> _Part | None:
    """Look at a segment under the name that it has now; None when it is gone."""
    for suffix in _SUFFIXES:
        path = directory / segment_name(base, suffix)
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            is_regular = S_ISREG(status.st_mode)
            return _Part(path, base, base + status.st_size, suffix == SEGMENT_SUFFIX, is_regular)
    return None


def _is_unclean(partition: Path) -> bool:
    """Whether the data directory of a partition was not stopped in good order, or is in use."""
    return not os.path.lexists(partition.parent / CLEAN_SHUTDOWN_MARKER)


def _directory_fault(name: str) -> str:
    """Say why a directory is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not (partition.isascii() and partition.isdigit()):
        return "no partition's directory (<topic>-<number>), and Kafka 0.7 would not start"
    try:
        check_topic_name(topic)
    except ProtocolError as error:
        return f"{error}, and Kafka 0.7 would not start"
    return "no partition's directory: its number is no partition's, or no file in it is a log's"
