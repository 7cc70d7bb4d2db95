"""The log's machinery on a second format, as a state machine against a list of batches."""

import os
import shutil
import tempfile
from errno import EIO
from pathlib import Path

import pytest
from batch_format import BatchFormat, batch, batches
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_fakes import ForgetfulFiles
from storage_logs import NOW_MS
from storage_logs import settings as log_settings

from hermes.errors import LogOfflineError
from hermes.storage import Log


class Failing(ForgetfulFiles):
    """Fails the next `fdatasync` on demand."""

    fails = False

    def before(self, name, arguments):  # type: ignore[no-untyped-def]
        if name == "fdatasync" and self.fails:
            self.fails = False
            raise OSError(EIO, os.strerror(EIO))
        return super().before(name, arguments)


class BatchLogMachine(RuleBasedStateMachine):
    """One log; `batches` are (base offset, bytes) from 0 on, deleted ones included."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hermes-batches-"))
        self.generation = 0
        self.batches: list[tuple[int, bytes]] = []
        self.end = self.flushed = 0
        self.now_ms = NOW_MS

    @initialize(segment_bytes=st.sampled_from([0, 60, 200, 10**6]))
    def begin(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.path.mkdir()
        (self.path / "b-0").mkdir()
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            assert self.files.opened == set()
        shutil.rmtree(self.root)

    @property
    def path(self) -> Path:
        return self.root / str(self.generation)

    def open(self, *, clean: bool = False) -> None:
        self.files = Failing(str(self.path))
        settings = log_settings(self.segment_bytes, segment_age_ms=5000)
        directory = str(self.path / "b-0")
        self.log = Log("b", 0, directory, settings, self.files, log_format=BatchFormat())
        self.log.open(clean=clean, now_ms=self.now_ms)

    def forget_after(self, end: int) -> None:
        self.batches = [each for each in self.batches if each[0] < end]
        self.end = end

    @rule(count=st.integers(1, 9), body=st.binary(max_size=40), later_ms=st.integers(0, 3000))
    def append(self, count: int, body: bytes, later_ms: int) -> None:
        self.now_ms += later_ms
        data = batch(self.end, count, body)
        if self.log.is_offline:
            with pytest.raises(LogOfflineError):
                self.log.append([data], len(data), count, self.now_ms)
            return
        assert self.log.append([data], len(data), count, self.now_ms) == self.end
        self.batches.append((self.end, data))
        self.end += count

    @rule()
    def flush(self) -> None:
        if not self.log.is_offline:
            assert self.log.flush() == self.end
            self.flushed = self.end

    @rule(count=st.integers(1, 9), body=st.binary(max_size=40))
    def lose_the_disk_and_reopen(self, count: int, body: bytes) -> None:
        if self.log.is_offline:
            return
        self.append(count, body, 1)
        self.files.fails = True
        with pytest.raises(LogOfflineError):
            self.log.flush()
        assert self.log.reopen(self.now_ms).dropped_bytes == 0
        self.flushed = self.end

    @rule(count=st.integers(0, 6))
    def delete_oldest(self, count: int) -> None:
        before = {info.base_offset: info.size_bytes for info in self.log.segment_infos()}
        deleted = self.log.delete_oldest(count)
        earliest = self.log.earliest
        assert deleted == sum(size for base, size in before.items() if base < earliest)
        self.flushed = self.log.high_watermark

    @rule()
    def restart_cleanly(self) -> None:
        self.flush()
        self.log.close()
        self.open(clean=True)

    @rule()
    def kill_the_process(self) -> None:
        self.files.close_all()
        self.open()
        assert self.log.high_watermark == self.end
        self.flushed = self.end

    @rule()
    def cut_the_power(self) -> None:
        """All that was never synced is lost."""
        self.files.close_all()
        self.generation += 1
        self.files.disk(str(self.path))
        self.open()
        assert self.log.high_watermark >= self.flushed
        self.forget_after(self.log.high_watermark)
        self.flushed = self.end

    @rule(where=st.floats(0, 1))
    def boundary_before(self, where: float) -> None:
        offset = max(self.log.earliest, int(where * self.end))
        visible = min(offset, self.log.high_watermark)
        starts = [base for base, _ in self.batches if base <= visible]
        expected = visible if visible == self.log.high_watermark else max(starts)
        assert self.log.boundary_before(offset) == expected

    @invariant()
    def what_was_flushed_is_visible_and_right(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.end_offset, log.high_watermark) == (self.end, self.flushed)
        kept = [(base, data) for base, data in self.batches if base >= log.earliest]
        assert log.size_bytes == sum(len(data) for _, data in kept)
        assert log.unflushed_bytes == sum(len(d) for base, d in kept if base >= self.flushed)
        offset, content = log.earliest, b""
        while offset < log.high_watermark:
            with log.read(offset, 1 << 20) as part:
                data = os.pread(part.fileno(), part.length, part.position)
            content += data
            offset = max(each.end_offset for each in batches(data, offset))
        assert content == b"".join(data for base, data in kept if base < self.flushed)
        assert sum(info.size_bytes for info in log.segment_infos()) == log.size_bytes


TestBatchLogMachine = BatchLogMachine.TestCase
TestBatchLogMachine.settings = settings(max_examples=40, stateful_step_count=30)
