"""The log as a state machine, against a plain list of messages.

Appends, flushes, reads anywhere, questions, deletes, full and failing disks, power cuts with any
mixture of lost writes, kills, clean restarts, in any order that hypothesis thinks of.
"""

import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable
from errno import EIO, EMFILE, ENOSPC
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from example_counts import examples
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_fakes import OPERATIONS, WRITES, ForgetfulFiles
from storage_logs import NOW_MS, message, read_all
from storage_logs import settings as log_settings

from hermes.errors import DiskFullError, LogOfflineError, OffsetOutOfRangeError
from hermes.protocol import Codec, encode_message_set
from hermes.storage import DataDirectory, Log


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


messages = st.one_of(
    st.binary(max_size=30).map(message),
    st.lists(st.binary(max_size=12), min_size=1, max_size=3).map(
        lambda payloads: encode_message_set(payloads, Codec.SNAPPY)
    ),
    st.binary(max_size=12).map(lambda payload: message(message(payload))),
)


class LogMachine(RuleBasedStateMachine):
    """One log, and what it should be.

    `ends` are the offsets at which messages end, from 0 on; `data` the bytes from 0 on, deleted
    ones included; `times` pairs of (time, end) of appends whose time is known to the ms.
    """

    log: Log
    directory: DataDirectory
    files: TemperamentalFiles

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hermes-log-"))
        self.generation = 0
        self.data = b""
        self.ends = [0]
        self.flushed = 0
        self.now_ms = NOW_MS
        self.times: list[tuple[int, int]] = []
        self.knows_times = True
        self.damaged: set[tuple[int, int]] = set()

    @initialize(segment_bytes=st.sampled_from([0, 50, 200, 10**6]))
    def begin(self, segment_bytes: int) -> None:
        self.settings = log_settings(segment_bytes, segment_age_ms=5000)
        self.path.mkdir()
        self.files = TemperamentalFiles(str(self.path))
        self.open()

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
        self.log = self.directory.create("clicks", 0)
        return report

    def stop_without_closing(self) -> None:
        self.files.close_all()  # the lock among them

    def forget_after(self, end: int) -> None:
        assert end in self.ends
        self.data = self.data[:end]
        self.ends = self.ends[: self.ends.index(end) + 1]

    def accept_damage(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Blocks that never reached the disk, with valid messages behind them: they are kept.

        What is found behind such a block may have stood inside a message that lost its head.
        """
        visible = self.log.high_watermark
        for start, end in ranges:
            if (start, end) in self.damaged:
                continue
            assert self.flushed <= start < end < visible
            assert start in self.ends
            self.damaged.add((start, end))
            self.data = self.data[:start] + read_all(self.log, start)
            self.ends = [each for each in self.ends if each <= start]
            position = end
            while position < visible:
                self.ends.append(position)
                position += 4 + int.from_bytes(self.data[position : position + 4], "big")
            self.ends.append(visible)

    # -- writing --------------------------------------------------------------------------------

    @rule(sets=st.lists(messages, min_size=1, max_size=5), later_ms=st.integers(-3, 3000))
    def append(self, sets: list[bytes], later_ms: int) -> None:
        self.now_ms += later_ms
        size = sum(map(len, sets))
        if self.log.is_offline:
            with pytest.raises(LogOfflineError):
                self.log.append(sets, size, len(sets), self.now_ms)
            return
        assert self.log.append(sets, size, len(sets), self.now_ms) == len(self.data)
        for each in sets:
            self.data += each
            self.ends.append(len(self.data))
        self.times.append((self.now_ms, len(self.data)))

    @rule()
    def flush(self) -> None:
        if self.log.is_offline:
            with pytest.raises(LogOfflineError):
                self.log.flush()
        else:
            assert self.log.flush() == len(self.data)
            self.flushed = len(self.data)

    @rule(batches=st.lists(st.lists(messages, min_size=1, max_size=3), min_size=1, max_size=4))
    def append_while_a_flush_is_syncing(self, batches: list[list[bytes]]) -> None:
        if self.log.is_offline:
            return

        def append_all() -> None:
            for sets in batches:
                self.append(sets, 1)

        end = len(self.data)
        self.files.meanwhile = append_all
        assert self.log.flush() == end
        self.files.meanwhile = None
        self.flushed = end

    @rule(count=st.integers(0, 6))
    def delete_oldest(self, count: int) -> None:
        if self.log.is_offline:
            return
        infos = self.log.segment_infos()
        earliest = self.log.earliest
        assert self.log.delete_oldest(count) == self.log.earliest - earliest
        if count >= len(infos) and infos[-1].size_bytes:
            assert self.log.earliest == len(self.data)
        self.flushed = self.log.high_watermark

    # -- failing --------------------------------------------------------------------------------

    @rule(each=messages)
    def append_on_a_full_disk(self, each: bytes) -> None:
        if self.log.is_offline:
            return
        self.files.fail_next = (WRITES, ENOSPC)
        with pytest.raises(DiskFullError):
            self.log.append([each], len(each), 1, self.now_ms)

    @rule(each=messages, call=st.sampled_from(["write", "sync"]))
    def lose_the_disk(self, each: bytes, call: str) -> None:
        if self.log.is_offline:
            return
        if call == "sync":
            self.append([each], 1)
            self.files.fail_next = (("fdatasync",), EIO)
            with pytest.raises(LogOfflineError):
                self.log.flush()
        else:
            self.files.fail_next = (WRITES, EIO)
            with pytest.raises(LogOfflineError):
                self.log.append([each], len(each), 1, self.now_ms)

    @rule(each=messages, what=st.sampled_from(["directory", "segment"]))
    def take_files_away_for_a_while(self, each: bytes, what: str) -> None:
        if self.log.is_offline:
            return
        self.append([each], 1)
        place = Path(self.log.directory)
        if what == "segment":
            place = max(place.glob("*[ad]"))  # .kafka or .unflushed
        place.rename(self.root / "away")
        try:
            with pytest.raises(LogOfflineError, match="removed, replaced or unmounted"):
                self.log.flush()
        finally:
            (self.root / "away").rename(place)

    @rule(passing=st.integers(0, 40), error=st.sampled_from([EIO, ENOSPC, EMFILE]))
    def reopen_on_a_disk_that_fails_once_more(self, passing: int, error: int) -> None:
        """Whatever it did before it failed, the next attempt goes on from there."""
        self.files.fail_next, self.files.passing = (OPERATIONS, error), passing
        try:
            self.log.reopen(self.now_ms)
            if self.files.fail_next is None:
                # What failed without harm was the time index.
                self.knows_times = False
        except LogOfflineError:
            assert self.log.is_offline
        finally:
            self.files.fail_next, self.files.passing = None, 0
        self.reopen()

    @rule()
    def reopen(self) -> None:
        assert self.log.reopen(self.now_ms).dropped_bytes == 0
        assert not self.log.is_offline
        if self.log.high_watermark == len(self.data):
            self.flushed = len(self.data)

    # -- stopping -------------------------------------------------------------------------------

    @rule()
    def restart_cleanly(self) -> None:
        was_offline = self.log.is_offline
        assert self.directory.close() is not was_offline
        assert self.open().was_clean is not was_offline
        if was_offline:
            self.knows_times = False
        assert self.log.high_watermark == len(self.data)
        self.flushed = len(self.data)

    @rule()
    def kill_the_process(self) -> None:
        self.knows_times &= self.flushed == len(self.data)
        self.stop_without_closing()
        self.open()
        assert self.log.high_watermark == len(self.data)
        self.flushed = len(self.data)

    @rule(seed=st.none() | st.integers(0, 2**32))
    def cut_the_power(self, seed: int | None) -> None:
        earliest = self.log.earliest
        self.stop_without_closing()
        self.generation += 1
        self.files.disk(str(self.path), None if seed is None else Random(seed))
        self.files = TemperamentalFiles(str(self.path))
        self.knows_times = False
        report = self.open()
        assert not report.offline
        note(f"recovered: {report.recovered}")
        for found in report.recovered.values():
            self.accept_damage(found.bad_ranges)
        assert self.log.earliest <= earliest
        assert self.log.high_watermark >= self.flushed
        self.forget_after(self.log.high_watermark)
        self.flushed = len(self.data)

    # -- asking ---------------------------------------------------------------------------------

    @rule(where=st.floats(-0.1, 1.1), max_bytes=st.integers(0, 300))
    def read(self, where: float, max_bytes: int) -> None:
        offset = int(where * (len(self.data) + 1))
        earliest, visible = self.log.earliest, self.log.high_watermark
        if not earliest <= offset <= visible:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, max_bytes)
            return
        with self.log.read(offset, max_bytes) as part:
            assert part.length <= max_bytes
            assert (part.length == 0) == (max_bytes == 0 or offset == visible)
            if part.length:
                content = os.pread(part.fileno(), part.length, part.position)
                assert content == self.data[offset : offset + part.length]

    @rule(where=st.floats(0, 1.1))
    def boundary_before(self, where: float) -> None:
        offset = max(self.log.earliest, int(where * len(self.data)))
        visible = min(offset, self.log.high_watermark)
        expected = self.ends[bisect_right(self.ends, visible) - 1]
        found = self.log.boundary_before(offset)
        # Inside damage the headers that are left may lead to places that are none.
        assert found == expected or any(
            start <= found <= visible < end for start, end in self.damaged
        )

    @rule(back_ms=st.integers(0, 20_000), count=st.integers(1, 5))
    def offsets_before(self, back_ms: int, count: int) -> None:
        time_ms = self.now_ms - back_ms
        offsets = self.log.offsets_before(time_ms, count, self.now_ms + 10)
        starts = [info.base_offset for info in self.log.segment_infos()]
        assert len(offsets) <= count
        assert offsets == sorted(set(offsets), reverse=True)
        assert set(offsets[1:]) <= set(starts)
        for offset in offsets[:1]:
            assert self.log.earliest <= offset <= self.log.high_watermark
            assert offset in self.ends or offset in starts

    @precondition(lambda self: self.knows_times and self.times)
    @rule(number=st.integers(0, 10**6))
    def the_end_at_a_time(self, number: int) -> None:
        """Exact while every append was flushed in the process that made it, at rising times."""
        times = self.times
        if any(a[0] > b[0] for a, b in pairwise(times)):
            return
        time_ms = times[number % len(times)][0]
        expected = max(end for time, end in times if time <= time_ms)
        if self.log.earliest < expected <= self.flushed and expected <= self.log.high_watermark:
            assert self.log.offsets_before(time_ms, 1, self.now_ms + 10) == [expected]

    # -- always ---------------------------------------------------------------------------------

    @invariant()
    def what_was_flushed_is_visible_and_right(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.end_offset == len(self.data)
        assert self.flushed == log.high_watermark <= log.end_offset
        assert log.earliest in self.ends
        assert read_all(log) == self.data[log.earliest : log.high_watermark]
        infos = log.segment_infos()
        assert sum(info.size_bytes for info in infos) == log.end_offset - log.earliest
        assert [info.active for info in infos] == [False] * (len(infos) - 1) + [True]

    @invariant()
    def kafka_would_see_a_whole_log(self) -> None:
        """Each `.kafka` segment starts where the one before ends."""
        if not hasattr(self, "log"):
            return
        files = sorted(Path(self.log.directory).glob("*.kafka"))
        end = int(files[0].stem)
        for path in files:
            assert int(path.stem) == end
            end += path.stat().st_size
        assert end >= self.log.high_watermark


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(60), stateful_step_count=40)
