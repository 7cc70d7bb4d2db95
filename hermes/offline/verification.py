"""Checks a data directory without changing it, even while a broker is using it.

Which files make up a log is decided by the loader's rules (`choose_names`, `arrange`), and which
bytes are messages by recovery's. Here is what may change under a reader: an active segment grows,
may end in the middle of an append, and is renamed when it has been flushed; retention deletes the
oldest segments. None of that is a finding.

A *problem*: messages are lost, damaged or unreachable. A *notice*: an oddity that costs no message.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from stat import S_ISREG
from typing import Final

from hermes.errors import CorruptEntriesError, ProtocolError
from hermes.offline.batch_verification import BatchesCheck
from hermes.offline.inspection import (
    APPEND_CHECKS,
    BadRange,
    InspectedMessage,
    Limits,
    SegmentFile,
    index_faults,
)
from hermes.offline.source_check import set_aside_fault, source_faults
from hermes.protocol import check_message_set, check_topic_name
from hermes.storage.checkpoints import METADATA_NAME
from hermes.storage.damage import ReadableFiles
from hermes.storage.files import identity, read_exactly
from hermes.storage.formats import is_leftover
from hermes.storage.kafka_format import SEGMENT_SUFFIX as KAFKA_SUFFIX
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    OWN_FILES,
    RESTORE_MARKER,
    is_own_name,
    list_partitions,
    partition_directory,
)
from hermes.storage.loading import Arrangement, arrange
from hermes.storage.requested_file import REQUESTED_NAME, USERS_NAME, read_requested
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    choose_names,
    parse_segment_name,
    segment_name,
)
from hermes.storage.segment_files import with_torn_index
from hermes.storage.source_positions import DAMAGED_NAME, POSITIONS_NAME, POSITIONS_NAMES
from hermes.storage.time_index import TimeIndex
from hermes.storage.topic_entries import ENTRIES_NAME, read_entries

_OWN_FILES: Final = (CLEAN_SHUTDOWN_MARKER, *OWN_FILES)
_DELETED: Final = "was deleted during the check"
_LEFTOVER: Final = "holds no message, but what a deletion has left; its topic may be made again"
_UNRECOGNIZED: Final = "not a file of Hermes or Kafka; left alone"
_NO_LOGS: Final = "holds no partition, so nothing was checked: is it a broker's log_dir?"
_NOT_REGULAR: Final = "is not a regular file (links are not followed)"
# The one that counts comes first, and again: a rename may fall between the two attempts.
_SUFFIXES: Final = (SEGMENT_SUFFIX, UNFLUSHED_SUFFIX, SEGMENT_SUFFIX)
_WINDOW_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """A `problem` or `notice`.

    Attributes:
        path: the file or directory, relative to the data directory.
        text: what is wrong, and what the consequence is.
        offset: where in the partition's log; None when it isn't about a place there.
        next_offset: where the next valid message starts; None when none follows.
    """

    kind: str
    path: str
    text: str
    offset: int | None = None
    next_offset: int | None = None


@dataclass(slots=True)
class Totals:
    """What was checked; `messages` counts those inside compressed sets, too."""

    partitions: int = 0
    segments: int = 0
    messages: int = 0
    size_bytes: int = 0
    problems: int = 0
    notices: int = 0


class DirectoryCheck:
    """One check of a data directory, or of a single partition's directory.

    Args:
        pause: lets a broker finish an append, up to ten times per torn tail: waits for some 50 ms,
            unless no broker can be running.
        advance: called with the number of bytes checked since the last call.
    """

    def __init__(
        self,
        root: Path,
        limits: Limits,
        *,
        pause: Callable[[], None],
        advance: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        self._root = root
        self._limits = limits
        self._advance = advance
        self._pause = pause
        self._files = ReadableFiles()
        self.totals = Totals()

    def run(self) -> Iterator[Finding]:
        for finding in self._check_root():
            if finding.kind == "problem":
                self.totals.problems += 1
            else:
                self.totals.notices += 1
            yield finding

    def _check_root(self) -> Iterator[Finding]:
        if any(is_own_name(name) for name in os.listdir(self._root)):
            yield from self._checked(self._root)
            return
        try:
            read_entries(os.fspath(self._root), self._files)
        except CorruptEntriesError as error:
            yield self._problem(self._root / ENTRIES_NAME, str(error))
        for name in (REQUESTED_NAME, USERS_NAME):
            try:
                read_requested(os.fspath(self._root), self._files, name)
            except CorruptEntriesError as error:
                yield self._problem(self._root / name, str(error))
        partitions, others = list_partitions(os.fspath(self._root), self._files)
        # What its broker wrote shows that it is one's, which has no topic yet.
        if not partitions and not any(name.startswith(_OWN_FILES) for name in others):
            yield self._problem(self._root, _NO_LOGS)
        for topic, partition in partitions:
            yield from self._checked(self._root / partition_directory(topic, partition))
        for name in others:
            path = self._root / name
            if path.is_dir():
                yield self._notice(path, f"{_directory_fault(name)}; left alone")
            elif name == RESTORE_MARKER:
                yield self._problem(path, "a restore was not finished: restore again elsewhere")
            elif not name.startswith(_OWN_FILES) and os.path.lexists(path):
                yield self._notice(path, _UNRECOGNIZED)
        yield from self._check_readable(self._root)

    def _checked(self, directory: Path) -> Iterator[Finding]:
        """Check a partition; what keeps it from being checked hides none of the others."""
        try:
            yield from self._check_partition(directory)
            yield from self._check_readable(directory)
        except OSError as error:
            if not os.path.lexists(directory):
                yield self._notice(directory, _DELETED)
                return
            path = Path(os.fsdecode(error.filename)) if error.filename else directory
            yield self._problem(path, f"can't be checked: {error.strerror}")

    def _check_readable(self, directory: Path) -> Iterator[Finding]:
        """Name the files of a directory of which the disk hasn't given back all."""
        lost = self._files.lost
        for path in sorted(directory.iterdir()) if lost else ():
            with suppress(FileNotFoundError):
                if sectors := lost.pop(identity(os.lstat(path)), None):
                    size = sum(sectors.values())
                    yield self._problem(path, f"the disk doesn't give back {size} bytes")

    def _check_partition(self, directory: Path) -> Iterator[Finding]:
        try:
            names = sorted(os.listdir(directory))
            is_left = is_leftover(os.fspath(directory), self._files)
        except FileNotFoundError:
            yield self._notice(directory, _DELETED)
            return
        self.totals.partitions += 1
        if is_left:
            yield self._notice(directory, _LEFTOVER)
            return
        if METADATA_NAME in names or any(name.endswith(KAFKA_SUFFIX) for name in names):
            yield from self._check_batches(directory, names)
            return
        sources = self._read(directory / POSITIONS_NAME)
        suffixes, unrecognized = choose_names(names)
        yield from self._check_names(directory, names, suffixes, unrecognized)
        listed = []
        for base in suffixes:
            entry = _look_up(directory, base)
            if entry is None:
                yield from self._check_deleted(directory, base)
            elif not entry.is_regular:
                yield self._problem(entry.path, f"{_NOT_REGULAR}: the partition stays offline")
            else:
                listed.append(entry)
        found = arrange(listed)
        yield from self._check_leftovers(found)
        if not found.settled:
            yield self._notice(directory, "holds no segment; the broker starts it at 0")
        segments = [*found.settled, *found.reached]
        # Up to here the next start mends nothing: see `hermes.storage.recovery`.
        sound = len(segments)
        if segments and _is_unclean(directory):
            before = with_torn_index(found.settled[:-1], self._index_ends_whole)
            sound -= len(found.reached) + 1 + sum(1 for _ in before)
        for number, entry in enumerate(segments, 1):
            following = segments[number].base_offset if number < len(segments) else None
            yield from self._check_segment(
                directory, entry.base_offset, following, will_be_recovered=number > sound
            )
        if sources and segments:
            end = max(map(_end_now, segments))
            is_unclean = _is_unclean(directory)
            for fault in source_faults(sources, end, will_be_recovered=is_unclean):
                yield Finding(fault.kind, self._relative(directory / POSITIONS_NAME), fault.text)

    def _check_batches(self, directory: Path, names: Sequence[str]) -> Iterator[Finding]:
        if any(map(_is_0_7_segment, names)):
            text = "holds segments of Kafka 0.7 beside Kafka's record batches: it stays offline"
            yield self._problem(directory, text)
            return
        check = BatchesCheck(directory, self._limits, self._files, self._pause, self._advance)
        for found in check.run():
            path = self._relative(found.path)
            yield Finding(found.kind, path, found.text, found.offset, found.next_offset)
        self.totals.segments += check.segments
        self.totals.messages += check.messages
        self.totals.size_bytes += check.size_bytes

    def _check_names(
        self,
        directory: Path,
        names: Sequence[str],
        suffixes: Mapping[int, str],
        unrecognized: Sequence[str],
    ) -> Iterator[Finding]:
        for name in unrecognized:
            path = directory / name
            if name in POSITIONS_NAMES:
                continue
            if name == DAMAGED_NAME:
                yield self._problem(path, set_aside_fault().text)
            elif parsed := parse_segment_name(name):
                served = segment_name(parsed[0], suffixes[parsed[0]])
                text = f"a leftover; the broker serves {served} and leaves it alone"
                yield self._notice(path, text)
            else:
                yield self._notice(path, _UNRECOGNIZED)
        for name in names:
            parsed = parse_segment_name(name)
            if parsed and parsed[0] not in suffixes:
                yield self._notice(directory / name, "a time index without its segment")

    def _check_leftovers(self, found: Arrangement["_ListedSegment"]) -> Iterator[Finding]:
        """Name the `.unflushed` files that the log leaves out: nothing in them was visible."""
        for entry in found.leftovers:
            text = "a leftover that fits nowhere between the segments; the broker leaves it alone"
            yield self._notice(entry.path, text)
        for entry in found.unreached:
            text = "a leftover that no segment leads to; the broker removes it when it recovers"
            yield self._notice(entry.path, text)

    def _check_deleted(self, directory: Path, base: int) -> Iterator[Finding]:
        """Judge a segment that has vanished: retention deletes only the oldest ones."""
        if any(other < base for other in choose_names(os.listdir(directory))[0]):
            path = directory / segment_name(base)
            yield self._problem(path, "was deleted during the check, though older segments exist")

    def _check_segment(
        self, directory: Path, base: int, following: int | None, *, will_be_recovered: bool
    ) -> Iterator[Finding]:
        index_path = directory / segment_name(base, INDEX_SUFFIX)
        try:
            index = self._read(index_path)
        except OSError as error:
            if error.errno != EINVAL:
                raise
            index = b""
            yield self._problem(index_path, f"{_NOT_REGULAR}: recovery would stop at it")
        segment = self._open(directory, base)
        if segment is None:
            yield from self._check_deleted(directory, base)
            return
        with segment:
            self.totals.segments += 1
            yield from self._check_messages(segment, is_last=following is None)
            for fault in index_faults(index, segment, will_be_recovered=will_be_recovered):
                yield Finding(fault.kind, self._relative(index_path), fault.text)
            yield from self._check_joint(segment, following)

    def _open(self, directory: Path, base: int) -> SegmentFile | None:
        """Open a segment under either of its names; it may be renamed at any moment."""
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                path = directory / segment_name(base, suffix)
                return SegmentFile(path, self._limits, self._files)
        return None

    def _index_ends_whole(self, entry: "_ListedSegment") -> bool:
        index = TimeIndex(self._files, f"{entry.path.with_suffix(INDEX_SUFFIX)}", entry.base_offset)
        with suppress(OSError), open(entry.path, "rb") as file:
            index.load(file.fileno(), entry.end)
        return index.ends_at(entry.end)

    def _read(self, path: Path) -> bytes:
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
            offset = self._skip_valid(segment, offset)
            if offset == start:
                # This window begins with something unusual: a large message, or a bad one.
                for found in segment.walk(offset):
                    yield from self._judge(segment, found, is_last=is_last)
                    offset = found.end_offset
                    if offset - start >= _WINDOW_BYTES:
                        break
            self._advance(offset - start)

    def _skip_valid(self, segment: SegmentFile, offset: int) -> int:
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
        self, segment: SegmentFile, found: InspectedMessage | BadRange, *, is_last: bool
    ) -> Iterator[Finding]:
        if isinstance(found, InspectedMessage):
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
        """Whether the tail becomes a message (or is cut off) during the check."""
        end = segment.end_offset
        for _ in range(APPEND_CHECKS):
            self._pause()
            if segment.refresh() <= tail.offset:
                return True
            if segment.end_offset == end:
                continue
            end = segment.end_offset
            if isinstance(next(segment.walk(tail.offset)), InspectedMessage):
                # What follows was appended after this check began.
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
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            if name.endswith((SEGMENT_SUFFIX, KAFKA_SUFFIX, UNFLUSHED_SUFFIX)):
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(directory, name)).st_size
    return total


@dataclass(frozen=True, slots=True)
class _ListedSegment:
    """A segment's file as it was when its directory was listed."""

    path: Path
    base_offset: int
    end: int
    is_flushed_name: bool
    is_regular: bool


def _look_up(directory: Path, base: int) -> _ListedSegment | None:
    for suffix in _SUFFIXES:
        path = directory / segment_name(base, suffix)
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            return _ListedSegment(
                path,
                base,
                base + status.st_size,
                is_flushed_name=suffix == SEGMENT_SUFFIX,
                is_regular=S_ISREG(status.st_mode),
            )
    return None


def _end_now(entry: _ListedSegment) -> int:
    """Where a segment ends now: it may have grown since it was listed."""
    with suppress(OSError):
        return entry.base_offset + max(os.lstat(entry.path).st_size, entry.end - entry.base_offset)
    return entry.end


def _is_0_7_segment(name: str) -> bool:
    parsed = parse_segment_name(name)
    return parsed is not None and parsed[1] == SEGMENT_SUFFIX


def _is_unclean(partition: Path) -> bool:
    """Whether the last stop of a partition's broker was unclean, or it is still running."""
    return not os.path.lexists(partition.parent / CLEAN_SHUTDOWN_MARKER)


def _directory_fault(name: str) -> str:
    topic, dash, partition = name.rpartition("-")
    if not dash or not (partition.isascii() and partition.isdigit()):
        return "not a partition's directory (<topic>-<number>), and Kafka 0.7 would not start"
    try:
        check_topic_name(topic)
    except ProtocolError as error:
        return f"{error}, and Kafka 0.7 would not start"
    return "not a partition's directory: its number is out of range, or it holds no file of a log"
