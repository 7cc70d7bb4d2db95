"""The log's machinery on Kafka's format, as a state machine against a list of batches."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from errno import EIO, EMFILE, ENOSPC
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from example_counts import examples
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kafka_logs import check_indexes, raw_batch, raw_batches
from storage_fakes import OPERATIONS, WRITES, ForgetfulFiles
from storage_logs import NOW_MS
from storage_logs import settings as log_settings

from hermes.errors import DiskFullError, LogOfflineError, OffsetOutOfRangeError
from hermes.storage import DataDirectory, Log, NotInMemoryError


class TemperamentalFiles(ForgetfulFiles):
    """Also fails one call on demand: the next of some, after a few of them that pass."""

    fail_next: tuple[tuple[str, ...], int] | None = None
    passing = 0

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        arguments = super().before(name, arguments)
        if self.fail_next is not None and name in self.fail_next[0]:
            if self.passing:
                self.passing -= 1
                return arguments
            number = self.fail_next[1]
            self.fail_next = None
            raise OSError(number, os.strerror(number))
        return arguments


bodies = st.binary(max_size=40)
counts = st.integers(1, 9)


class BatchLogMachine(RuleBasedStateMachine):
    """One log; `batches` are (base offset, end, bytes) from 0 on, deleted ones included."""

    log: Log
    directory: DataDirectory

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hermes-batches-"))
        self.generation = 0
        self.batches: list[tuple[int, int, bytes]] = []
        self.end = self.flushed = self.earliest = self.cut = 0
        self.now_ms = NOW_MS
        self.is_damaged = False
        self.has_whole_indexes = True

    @initialize(segment_bytes=st.sampled_from([0, 150, 500, 10**6]))
    def begin(self, segment_bytes: int) -> None:
        self.settings = log_settings(segment_bytes, segment_age_ms=5000, format="kafka")
        self.path.mkdir()
        self.files = TemperamentalFiles(str(self.path))
        self.open()
        self.log.flush()  # the first one also puts the small files on disk
        self.topic_id = self.log.topic_id

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.close()
            assert self.files.opened == set()
        shutil.rmtree(self.root)

    @property
    def path(self) -> Path:
        return self.root / str(self.generation)

    def open(self) -> Any:
        self.directory = DataDirectory(self.path, lambda topic: self.settings, self.files)
        report = self.directory.open(self.now_ms)
        self.log = self.directory.create("b", 0)
        return report

    def forget_after(self, end: int) -> None:
        self.batches = [each for each in self.batches if each[1] <= end]
        self.end = end

    def accept_damage(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Blocks that never reached the disk, with valid batches behind them: they are kept."""
        for start, end in ranges:
            if any(start < each[1] and each[0] < end for each in self.batches):
                assert self.flushed <= start < end
                self.batches = [each for each in self.batches if each[1] <= start or each[0] >= end]
                self.is_damaged = True

    # -- writing --------------------------------------------------------------------------------

    @rule(
        sets=st.lists(st.tuples(counts, bodies), min_size=1, max_size=4),
        later_ms=st.integers(-3, 3000),
    )
    def append(self, sets: list[tuple[int, bytes]], later_ms: int) -> None:
        self.now_ms += later_ms
        made, end = [], self.end
        for count, body in sets:
            made.append((end, end + count, raw_batch(end, count, body)))
            end += count
        data = [each for _, _, each in made]
        arguments = data, sum(map(len, data)), end - self.end, self.now_ms
        if self.log.is_offline:
            with pytest.raises(LogOfflineError):
                self.log.append(*arguments)
            return
        assert self.log.append(*arguments) == self.end
        self.batches += made
        self.end = end

    @rule()
    def flush(self) -> None:
        if not self.log.is_offline:
            assert self.log.flush() == self.end
            self.flushed = self.end

    @rule(sets=st.lists(st.tuples(counts, bodies), min_size=1, max_size=4))
    def append_while_a_flush_is_syncing(self, sets: list[tuple[int, bytes]]) -> None:
        if self.log.is_offline:
            return
        end = self.end
        self.files.meanwhile = lambda: self.append(sets, 1)
        assert self.log.flush() == end
        self.files.meanwhile = None
        self.flushed = end

    @rule(count=st.integers(0, 6))
    def delete_oldest(self, count: int) -> None:
        if self.log.is_offline:
            return
        before = {info.base_offset: info.size_bytes for info in self.log.segment_infos()}
        deleted = self.log.delete_oldest(count)
        left = {info.base_offset for info in self.log.segment_infos()}
        assert deleted == sum(size for base, size in before.items() if base not in left) or (
            self.log.size_bytes == 0
        )
        self.earliest = max(self.earliest, self.log.earliest)
        self.flushed = self.log.high_watermark

    @rule(where=st.floats(0, 1.1))
    def delete_records(self, where: float) -> None:
        if self.log.is_offline:
            return
        offset = int(where * self.end)
        if offset > self.flushed:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.delete_records(offset)
            return
        self.earliest = max(self.earliest, offset)
        self.cut = max(self.cut, offset)
        assert self.log.delete_records(offset) == self.earliest

    # -- failing --------------------------------------------------------------------------------

    @rule(body=bodies)
    def append_on_a_full_disk(self, body: bytes) -> None:
        if self.log.is_offline:
            return
        data = raw_batch(self.end, 1, body)
        self.files.fail_next = (WRITES, ENOSPC)
        with pytest.raises(DiskFullError):
            self.log.append([data], len(data), 1, self.now_ms)

    @rule(count=counts, body=bodies, call=st.sampled_from(["write", "sync"]))
    def lose_the_disk(self, count: int, body: bytes, call: str) -> None:
        if self.log.is_offline:
            return
        if call == "sync":
            self.flush()  # leader epochs, which no flush depends on
            self.append([(count, body)], 1)
            self.files.fail_next = (("fdatasync",), EIO)
            with pytest.raises(LogOfflineError):
                self.log.flush()
            return
        data = raw_batch(self.end, count, body)
        self.files.fail_next = (WRITES, EIO)
        with pytest.raises(LogOfflineError):
            self.log.append([data], len(data), count, self.now_ms)

    @rule(passing=st.integers(0, 60), error=st.sampled_from([EIO, ENOSPC, EMFILE]))
    def reopen_on_a_disk_that_fails_once_more(self, passing: int, error: int) -> None:
        """Whatever it did before it failed, the next attempt goes on from there."""
        self.files.fail_next, self.files.passing = (OPERATIONS, error), passing
        try:
            self.log.reopen(self.now_ms)
            if self.files.fail_next is None:
                # What failed without harm was an index.
                self.has_whole_indexes = False
        except LogOfflineError:
            assert self.log.is_offline
        finally:
            self.files.fail_next, self.files.passing = None, 0
        self.reopen()

    @rule()
    def reopen(self) -> None:
        assert self.log.reopen(self.now_ms).dropped_bytes == 0
        assert not self.log.is_offline
        if self.log.high_watermark == self.end:
            self.flushed = self.end

    # -- stopping -------------------------------------------------------------------------------

    @rule()
    def restart_cleanly(self) -> None:
        was_offline = self.log.is_offline
        assert self.directory.close() is not was_offline
        if not was_offline and not self.is_damaged and self.has_whole_indexes:
            for path in sorted((self.path / "b-0").glob("*.log")):
                check_indexes(path)
        assert self.open().was_clean is not was_offline
        assert self.log.high_watermark == self.end
        assert self.log.topic_id == self.topic_id
        self.flushed = self.end

    @rule()
    def kill_the_process(self) -> None:
        self.files.close_all()
        self.open()
        assert self.log.high_watermark == self.end
        self.flushed = self.end
        # Segments whose follower was not on disk yet come back, but not what was cut off.
        assert self.cut <= self.log.earliest <= self.earliest
        self.earliest = self.log.earliest

    @rule(seed=st.none() | st.integers(0, 2**32))
    def cut_the_power(self, seed: int | None) -> None:
        self.files.close_all()
        self.generation += 1
        self.files.disk(str(self.path), None if seed is None else Random(seed))
        self.files = TemperamentalFiles(str(self.path))
        report = self.open()
        assert not report.offline
        note(f"recovered: {report.recovered}")
        for found in report.recovered.values():
            self.accept_damage(found.bad_ranges)
        assert self.cut <= self.log.earliest
        assert self.log.earliest <= self.earliest or seed is not None
        assert self.log.high_watermark >= self.flushed
        self.earliest = self.log.earliest
        self.forget_after(self.log.high_watermark)
        self.flushed = self.end
        assert self.log.topic_id == self.topic_id

    # -- asking ---------------------------------------------------------------------------------

    @rule(where=st.floats(0, 1.1), max_bytes=st.integers(0, 300), whole=st.booleans())
    def read(self, where: float, max_bytes: int, whole: bool) -> None:
        offset = int(where * (self.end + 1))
        if not self.log.earliest <= offset <= self.log.high_watermark:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, max_bytes)
            return
        fetched = [self.fetch(offset, max_bytes, whole)]
        with self.log.read(offset, max_bytes, whole_first=whole) as part:
            expected = [
                each for each in self.batches if each[1] > offset and each[1] <= self.flushed
            ]
            if not expected or (max_bytes == 0 and not whole):
                assert part.length == 0
                return
            content = os.pread(part.fileno(), part.length, part.position) if part.length else b""
            if self.is_damaged:
                return
            first = expected[0][2]
            assert part.length == len(content)
            assert part.length in accumulate((len(each[2]) for each in expected), initial=0)
            assert content == b"".join(each[2] for each in expected)[: part.length]
            fetched.append(self.fetch(offset, max_bytes, whole))
            assert {each for each in fetched if each is not None} <= {content}
            if len(first) <= max_bytes:
                assert len(first) <= part.length <= max_bytes
            else:
                assert part.length == (len(first) if whole else 0)

    def fetch(self, offset: int, max_bytes: int, whole: bool) -> bytes | None:
        """What a response would have; None where it would not be known at once."""
        try:
            part, _ = self.log.fetch(offset, max_bytes, whole, True)
        except NotInMemoryError:
            return None
        if isinstance(part, bytes):
            return part
        with part:
            return os.pread(part.fileno(), part.length, part.position)

    @rule(where=st.floats(0, 1))
    def boundary_before(self, where: float) -> None:
        if self.is_damaged:
            return
        offset = max(self.log.earliest, int(where * self.end))
        visible = min(offset, self.log.high_watermark)
        starts = [base for base, _, _ in self.batches if base <= visible]
        expected = visible if visible == self.log.high_watermark else max(starts)
        assert self.log.boundary_before(offset) == expected

    # -- always ---------------------------------------------------------------------------------

    @invariant()
    def what_was_flushed_is_visible_and_right(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.end_offset, log.high_watermark) == (self.end, self.flushed)
        assert log.earliest == self.earliest
        first = log.segment_infos()[0].base_offset
        kept = [each for each in self.batches if each[1] > first]
        if not self.is_damaged:
            assert log.size_bytes == sum(len(data) for _, _, data in kept)
            assert log.state.tail.unflushed_bytes == sum(
                len(data) for base, _, data in kept if base >= self.flushed
            )
        offset, content = log.earliest, []
        while offset < log.high_watermark:
            with log.read(offset, 1 << 20) as part:
                data = os.pread(part.fileno(), part.length, part.position)
            found = list(raw_batches(data, 0))
            content += [data[each.position : each.end_position] for each in found]
            offset = max(each.end_offset for each in found)
        assert content == [
            data for _, end, data in kept if end > self.earliest and end <= self.flushed
        ]
        assert sum(info.size_bytes for info in log.segment_infos()) == log.size_bytes


TestBatchLogMachine = BatchLogMachine.TestCase
TestBatchLogMachine.settings = settings(max_examples=examples(40), stateful_step_count=30)
