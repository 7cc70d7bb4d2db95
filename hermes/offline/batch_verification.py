"""Checks a partition of Kafka's format without changing it, even while a broker is using it.

It does for record batches what `hermes.offline.verification` does for Kafka 0.7's messages. What
Kafka keeps beside segments is checked entry by entry, as by Kafka's own DumpLogSegments; a fault
there costs time and no message, so it is a notice.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from hermes.errors import CorruptLogError
from hermes.offline.batch_inspection import BadBytes, BatchFile, InspectedBatch
from hermes.offline.inspection import APPEND_CHECKS, Limits
from hermes.storage.checkpoints import (
    CLEANED_SUFFIX,
    KAFKA_NAMES,
    RECORD_NAME,
    Checkpoints,
    read_topic_id,
)
from hermes.storage.files import FileLayer
from hermes.storage.kafka_format import KAFKA
from hermes.storage.kafka_index import (
    OFFSET_ENTRY,
    OFFSETS_SUFFIX,
    TIME_ENTRY,
    TIMES_SUFFIX,
)
from hermes.storage.loading import arrange
from hermes.storage.partition_record import PartitionRecord, missing_of, read_record
from hermes.storage.segment import Segment, choose_names, parse_segment_name, segment_name
from hermes.storage.segment_files import LoadingSegment
from hermes.storage.whole_files import read_whole

_ADVANCE_BYTES: Final = 1024 * 1024


class BatchFinding(NamedTuple):
    kind: str
    path: Path
    text: str
    offset: int | None = None
    next_offset: int | None = None


class BatchesCheck:
    """One check of a partition's directory.

    Args:
        files: reads zeros where the disk gives back nothing.
        pause: lets a broker finish an append: waits for some 50 ms.
        advance: called with the number of bytes checked since the last call.

    Attributes:
        segments, messages, size_bytes: how much was checked so far.
    """

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        files: FileLayer,
        pause: Callable[[], None],
        advance: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._pause = pause
        self._advance = advance
        self._files = files
        self.segments = self.messages = self.size_bytes = 0

    def run(self) -> Iterator[BatchFinding]:
        directory = self._directory
        record, damage = self._read_record()
        if damage:
            text = f"is damaged ({damage}); the broker believes Kafka's files, and writes it anew"
            yield BatchFinding("notice", directory / RECORD_NAME, text)
        names = sorted(os.listdir(directory))
        try:
            if read_topic_id(os.fspath(directory), self._files) is None:
                text = "has no partition.metadata: the partition stays offline"
                yield BatchFinding("problem", directory, text)
        except CorruptLogError as error:
            yield BatchFinding("problem", directory, str(error))
        suffixes, others = choose_names(names, KAFKA.suffix)
        for name in others:
            if name not in KAFKA_NAMES and not name.endswith(CLEANED_SUFFIX):
                yield BatchFinding("notice", directory / name, "not a file of this log; left alone")
        for name in names:
            parsed = parse_segment_name(name, KAFKA.suffix)
            # Producers' states may be of any offset.
            if parsed and parsed[0] not in suffixes and parsed[1] != ".snapshot":
                yield BatchFinding("notice", directory / name, "an index without its segment")
        parts = []
        for base, suffix in suffixes.items():
            segment = Segment(self._files, KAFKA, os.fspath(directory), base, suffix)
            try:
                parts.append(LoadingSegment.of(segment, self._files))
            except FileNotFoundError:  # deleted, or renamed by a flush
                continue
            except CorruptLogError as error:
                yield BatchFinding("problem", directory / segment_name(base, suffix), str(error))
        found = arrange(parts)
        for part in (*found.leftovers, *found.unreached):
            text = "a leftover that no segment leads to; nothing in it was visible"
            yield BatchFinding("notice", Path(part.segment.path), text)
        log = [*found.settled, *found.reached]
        if not log:
            yield BatchFinding("notice", directory, "holds no segment; the broker starts it at 0")
        for part, following in pairwise(log):
            if part.end > following.base_offset:
                text = f"ends at {part.end}, but the next segment starts at {following.base_offset}"
                path = Path(part.segment.path)
                yield BatchFinding("problem", path, f"{text}: they overlap", following.base_offset)
        has_bad_tail = False
        for part in log:
            for each in self._check_segment(part, is_last=part is log[-1]):
                has_bad_tail |= part is log[-1] and each.kind == "problem"
                yield each
        if record is None or not log:
            return
        settled = [part.base_offset for part in found.settled]
        # Where damage at the end was said, that is where the log ends.
        end = None if has_bad_tail else log[-1].end
        faults = missing_of(os.fspath(directory), record, settled, end)
        # A running broker may have deleted segments, and written that down, meanwhile.
        if faults and self._read_record() == (record, ""):
            for text in faults:
                yield BatchFinding("problem", directory, text)

    def _read_record(self) -> tuple[PartitionRecord | None, str]:
        directory = os.path.abspath(self._directory)
        checkpoints = Checkpoints(os.path.dirname(directory), self._files)
        try:
            return read_record(directory, self._files, checkpoints), ""
        except ValueError as error:
            return None, str(error)

    def _check_segment(self, part: LoadingSegment, *, is_last: bool) -> Iterator[BatchFinding]:
        opened = None
        for path in (part.segment.path, os.path.splitext(part.segment.path)[0] + KAFKA.suffix):
            with suppress(FileNotFoundError):
                opened = BatchFile(Path(path), self._limits, self._files)
                break
        if opened is None:
            return
        with opened as segment:
            self.segments += 1
            self.size_bytes += segment.size_bytes
            indexes = {
                suffix: self._read(segment.path.with_suffix(suffix))
                for suffix in (OFFSETS_SUFFIX, TIMES_SUFFIX)
            }
            batches: dict[int, tuple[int, int]] = {}  # position -> (last offset, timestamp)
            reported = damaged = 0
            for found in segment.walk():
                if isinstance(found, InspectedBatch):
                    header = found.header
                    self.messages += header.record_count
                    batches[found.position] = header.last_offset, header.max_timestamp_ms
                    if found.problem:
                        yield BatchFinding(
                            "problem",
                            segment.path,
                            found.problem,
                            header.base_offset,
                            header.next_offset,
                        )
                    if found.position - reported >= _ADVANCE_BYTES:
                        self._advance(found.position - reported)
                        reported = found.position
                    continue
                is_tail = is_last and found.next_offset is None
                if is_tail and self._is_being_appended(segment, found):
                    break
                damaged += 1
                text = f"{found.reason}: {found.end_position - found.position} bytes are lost"
                if is_tail:
                    text += "; the broker cuts them off when it recovers"
                yield BatchFinding("problem", segment.path, text, found.offset, found.next_offset)
            self._advance(segment.size_bytes - reported)
            # What is damaged is in the indexes still.
            if not damaged:
                yield from _index_faults(segment, indexes, batches)

    def _is_being_appended(self, segment: BatchFile, tail: BadBytes) -> bool:
        """Whether the tail becomes a batch (or is cut off) during the check."""
        for _ in range(APPEND_CHECKS):
            self._pause()
            if segment.refresh() <= tail.position:
                return True
            found = next(segment.walk(tail.position, tail.offset), None)
            if found is None or isinstance(found, InspectedBatch):
                return True
        return False

    def _read(self, path: Path) -> bytes:
        return read_whole(os.path.realpath(path), sys.maxsize, self._files) or b""


def _index_faults(
    segment: BatchFile, indexes: dict[str, bytes], batches: dict[int, tuple[int, int]]
) -> Iterator[BatchFinding]:
    base = segment.base_offset
    entries = _entries(indexes[OFFSETS_SUFFIX], OFFSET_ENTRY.size)
    pairs = [OFFSET_ENTRY.unpack(each) for each in entries]
    wrong = sum(batches.get(where, (-1, 0))[0] != base + offset for offset, where in pairs)
    if wrong:
        text = f"{wrong} of {len(pairs)} entries lead to no batch; the broker goes around them"
        yield BatchFinding("notice", segment.path.with_suffix(OFFSETS_SUFFIX), text)
    timestamps = dict(batches.values())
    entries = _entries(indexes[TIMES_SUFFIX], TIME_ENTRY.size)
    times = [TIME_ENTRY.unpack(each) for each in entries]
    wrong = sum(timestamps.get(base + offset) != time_ms for time_ms, offset in times)
    wrong += sum(later[0] <= earlier[0] for earlier, later in pairwise(times))
    if wrong:
        text = f"{wrong} of {len(times)} entries are wrong; times may be found inaccurately"
        yield BatchFinding("notice", segment.path.with_suffix(TIMES_SUFFIX), text)


def _entries(data: bytes, size: int) -> list[bytes]:
    """The entries of an index; Kafka fills what it hasn't used with zeros."""
    used = len(data.rstrip(b"\0"))
    count = min((used + size - 1) // size, len(data) // size)
    return [data[number * size : (number + 1) * size] for number in range(count)]
