"""A broker looks for damage by itself: what it finds and forgets, and how it keeps away."""

import os
import threading
from collections.abc import Callable, Iterator
from errno import EIO, EMFILE
from pathlib import Path
from typing import Any

import pytest
from broker_bench import log_lines
from kafka_logs import append_batch, append_values, sent
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, append, message, settings
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from hermes.partition.damage_check import (
    FIRST_ROUND_SECONDS,
    ROUND_SECONDS,
    SUSPECTS_RATE,
    SUSPECTS_SECONDS,
    DamageCheck,
    by_topic,
    damage_text,
)
from hermes.protocol.records import Record
from hermes.storage import DataDirectory, FileLayer, Log
from hermes.storage.compaction import CompactionReport, compaction
from hermes.storage.damage import Damage, read_damaged
from hermes.storage.files import AsideFiles, NotInMemoryError
from hermes.storage.layout import DAMAGE_NAME
from hermes.storage.segment import Segment

FORMATS = ("0.7", "kafka")
PAYLOAD = b"x" * 300
MESSAGE_BYTES = len(message(PAYLOAD))


class HookedFiles(UnsyncedFiles):
    """Calls something before each read.

    Attributes:
        has_descriptors: whether there is one for a further file.
    """

    has_descriptors = True

    def __init__(self) -> None:
        self.before: Callable[[int, int, int], None] = lambda descriptor, length, position: None

    def open_read(self, path: str) -> int:
        """See `FileLayer.open_read`."""
        if not self.has_descriptors:
            raise OSError(EMFILE, os.strerror(EMFILE), path)
        return super().open_read(path)

    def read_resident(self, descriptor: int, length: int, position: int) -> bytes:
        self.before(descriptor, length, position)
        return os.pread(descriptor, length, position)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:  # type: ignore[override]
        return os.pread(descriptor, length, position)


class Checked:
    """A data directory and who looks for damage in it, in the test's thread."""

    def __init__(self, path: Path, log_format: str) -> None:
        self.files = HookedFiles()
        self.directory = self.opened(path, log_format)
        self.clock = Clock()
        self.rate = 10**15
        self.is_disk_wanted: Callable[[], bool] = lambda: False
        self.check = DamageCheck(
            self.directory,
            maybeDeferred,
            self.clock.seconds,
            lambda: self.rate,
            self._is_disk_wanted,
            self.files,
        )

    def _is_disk_wanted(self) -> bool:
        return self.is_disk_wanted()

    def opened(self, path: Path, log_format: str) -> DataDirectory:
        directory = DataDirectory(
            path, lambda topic: settings(segment_bytes=2000, format=log_format), self.files
        )
        directory.open(NOW_MS)
        return directory

    def fill(self, topic: str = "x", count: int = 40) -> Log:
        log = self.directory.create(topic, 0)
        for _ in range(count):
            if log.counts_messages:
                append_values(log, PAYLOAD)
            else:
                append(log, message(PAYLOAD))
        log.flush()
        return log

    def round(self) -> list[str]:
        """Look at everything; gives what was logged."""
        self.clock.advance(ROUND_SECONDS)
        rounds = self.check.rounds
        found = self.look()
        assert self.check.rounds == rounds + 1
        return found

    def look(self) -> list[str]:
        with log_lines() as lines:
            self.check.look()
        return list(lines)


@pytest.fixture(params=FORMATS)
def checked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Checked]:
    checked = Checked(tmp_path / "logs", request.param)
    yield checked
    checked.directory.close()


def flip(segment: Segment, position: int = 500) -> None:
    with open(segment.path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 4]))


def second_message(log: Log, segment: Segment) -> Damage:
    size = 1 if log.counts_messages else MESSAGE_BYTES
    return Damage(segment.base_offset + size, segment.base_offset + 2 * size)


@pytest.mark.parametrize("place", [0, 2, -1], ids=["first", "middle", "active"])
def test_damage_is_found_and_said_once(checked: Checked, place: int) -> None:
    log, other = checked.fill(), checked.fill("y")
    assert log.segment_count > 4
    assert checked.round() == []
    segment = log.flushed_segments()[place][0]
    flip(segment)
    damage = second_message(log, segment)
    (line,) = checked.round()
    assert f"x-0 is damaged at offsets {damage.start} to {damage.end}, in {segment.path}" in line
    assert log.damage == {segment: [damage]}
    assert damage_text(log) == f"damaged at offsets {damage.start} to {damage.end}"
    assert (by_topic([log, other]), checked.check.damaged()) == ({"x": 1}, [log])
    assert checked.round() == []
    assert checked.check.damaged() == [log]


def test_what_is_unflushed_is_nobody_s_concern(checked: Checked) -> None:
    log = checked.fill(count=3)
    segment, end = log.flushed_segments()[-1]
    append_values(log, PAYLOAD) if log.counts_messages else append(log, message(PAYLOAD))
    with open(segment.path, "ab") as file:
        file.write(b"torn")
    flip(segment, os.stat(segment.path).st_size - 10)
    assert checked.round() == []
    assert log.flushed_segments()[-1][1] == end


def test_the_end_of_a_segment_may_be_missing(tmp_path: Path) -> None:
    checked = Checked(tmp_path, "0.7")
    log = checked.fill()
    (segment, end), _ = log.flushed_segments()[1:3]
    os.truncate(segment.path, MESSAGE_BYTES)
    assert len(checked.round()) == 1
    assert log.damage == {segment: [Damage(segment.base_offset + MESSAGE_BYTES, end)]}


def test_what_was_mended_is_noticed_soon(checked: Checked) -> None:
    log = checked.fill()
    (segment, _), (other, _) = log.flushed_segments()[1:3]
    flip(segment)
    flip(other)
    assert len(checked.round()) == 2
    assert checked.look() == []
    flip(segment)
    (line,) = checked.look()  # no round is due
    assert f"x-0 is damaged no more in {segment.path}" in line
    assert list(log.damage) == [other]


def test_what_was_deleted_is_forgotten(checked: Checked) -> None:
    log, other = checked.fill(), checked.fill("y")
    for each in (log, other):
        flip(each.flushed_segments()[0][0])
    assert len(checked.round()) == 2
    log.delete_oldest(1)
    checked.directory.delete_topic("y")
    assert checked.look() == []
    assert (log.damage, checked.check.damaged()) == ({}, [])


def test_a_segment_that_is_deleted_meanwhile_is_not_told_of(checked: Checked) -> None:
    log = checked.fill()
    first = log.flushed_segments()[0][0]
    flip(first)

    def delete(descriptor: int, length: int, position: int) -> None:
        if os.fstat(descriptor).st_ino == os.stat(first.path).st_ino:
            checked.files.before = lambda *arguments: None
            log.delete_oldest(1)

    checked.files.before = delete
    assert checked.round() == []
    assert log.flushed_segments()[0][0] is not first
    assert log.damage == {}


def test_records_that_were_deleted_are_nobody_s_concern(tmp_path: Path) -> None:
    checked = Checked(tmp_path, "kafka")
    log = checked.fill()
    segment = log.flushed_segments()[0][0]
    flip(segment)
    log.delete_records(second_message(log, segment).end)
    assert checked.round() == []


def test_what_the_disk_does_not_give_back_is_damage(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.storage.damage._SECTOR_BYTES", 16)
    log = checked.fill()
    segment = log.flushed_segments()[2][0]
    inode = os.stat(segment.path).st_ino

    def fail(descriptor: int, length: int, position: int) -> None:
        if os.fstat(descriptor).st_ino == inode and position < 505 and position + length > 500:
            raise OSError(EIO, os.strerror(EIO))

    checked.files.before = fail
    assert len(checked.round()) == 1
    assert log.damage == {segment: [second_message(log, segment)]}


def test_who_meets_damage_has_it_looked_at_at_once(tmp_path: Path) -> None:
    checked = Checked(tmp_path, "kafka")
    checked.rate = 0  # this is for rounds
    log = checked.directory.create("x", 0)
    for number in range(40):
        append_batch(log, sent([Record(0, NOW_MS, b"k%d" % (number % 3), PAYLOAD)]))
    log.flush()
    segment = log.flushed_segments()[1][0]
    flip(segment)
    checked.clock.advance(ROUND_SECONDS)
    assert checked.look() == []
    for _ in compaction(log, 0, NOW_MS, 1000, CompactionReport()):
        pass
    (line,) = checked.look()
    assert "x-0 is damaged at offsets" in line
    assert (checked.check.rounds, log.is_suspect) == (0, False)


def test_a_log_that_is_suspect_all_the_time_is_not_read_all_the_time(checked: Checked) -> None:
    checked.rate = 0
    log = checked.fill()
    for seconds, looks in ((0, 1), (1, 1), (SUSPECTS_SECONDS - 2, 1), (1, 2)):
        checked.clock.advance(seconds)
        log.is_suspect = True
        checked.look()
        assert checked.check.read_bytes == looks * log.size_bytes


class CountedDirectory:
    """A data directory that counts how often somebody goes through all its logs."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self.walks = 0

    @property
    def logs(self) -> Any:
        self.walks += 1
        return self._directory.logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


def test_a_round_does_not_go_through_all_logs_for_each_of_them(tmp_path: Path) -> None:
    checked = Checked(tmp_path / "logs", "0.7")
    counted = CountedDirectory(checked.directory)
    check = DamageCheck(counted, maybeDeferred, checked.clock.seconds, lambda: 10**15)  # type: ignore[arg-type]
    walks = []
    for topics in (5, 40):
        for number in range(topics):
            checked.fill(f"x{number}" if topics == 5 else f"y{number}", count=1)
        checked.clock.advance(ROUND_SECONDS)
        counted.walks = 0
        check.look()
        walks.append(counted.walks)
    assert check.rounds == 2
    # The first round has read besides what was noted, and found that nothing is.
    assert walks[1] <= walks[0]
    checked.directory.close()


def test_a_recovery_has_it_looked_at_at_once(checked: Checked, tmp_path: Path) -> None:
    log = checked.fill(count=3)
    flip(log.flushed_segments()[0][0])
    log.flushed_segments()[0][0].index.close()
    for path in (tmp_path / "logs" / "x-0").iterdir():  # what would say that it was on disk
        if path.suffix in (".timeindex", ".appends", ".index"):
            path.unlink()
    checked.directory._lock.release()  # type: ignore[union-attr]
    again = Checked(tmp_path / "logs", "kafka" if log.counts_messages else "0.7")
    (line,) = again.look()
    assert "x-0 is damaged at offsets" in line
    again.directory.close()


def test_a_start_looks_first_at_what_was_damaged(checked: Checked, tmp_path: Path) -> None:
    log = checked.fill()
    segment = log.flushed_segments()[1][0]
    flip(segment)
    (line,) = checked.round()
    checked.directory.close()
    log_format = "kafka" if log.counts_messages else "0.7"
    again = Checked(tmp_path / "logs", log_format)
    assert again.look() == [line]
    assert again.check.read_bytes == os.stat(segment.path).st_size
    flip(segment)
    assert len(again.look()) == 1
    again.directory.close()
    last = Checked(tmp_path / "logs", log_format)
    assert last.look() == []
    assert last.check.read_bytes == 0
    last.directory.close()


@pytest.mark.parametrize("is_read", [False, True])
def test_what_was_damaged_before_is_looked_at_once_that_can_be_done(
    checked: Checked, tmp_path: Path, is_read: bool
) -> None:
    log = checked.fill()
    flip(log.flushed_segments()[1][0])
    (line,) = checked.round()
    checked.directory.close()
    log_format = "kafka" if log.counts_messages else "0.7"
    again = Checked(tmp_path / "logs", log_format)
    again.files.has_descriptors = False
    if is_read:
        noted = read_damaged(str(tmp_path / "logs"), UnsyncedFiles())
        again.check._noted = again.check._left = noted
        assert again.look() == []
    else:
        assert "looking for damage failed" in again.look()[0]
    again.files.has_descriptors = True
    assert again.look() == [line]
    again.directory.close()


def test_what_was_damaged_before_stays_noted_while_the_log_can_not_be_opened(
    checked: Checked, tmp_path: Path
) -> None:
    log = checked.fill()
    flip(log.flushed_segments()[1][0])
    (line,) = checked.round()
    missing = Path(log.flushed_segments()[2][0].path)
    checked.directory.close()
    log_format = "kafka" if log.counts_messages else "0.7"
    missing.rename(tmp_path / "aside")
    again = Checked(tmp_path / "logs", log_format)
    (found,) = again.directory.logs.values()
    assert (found.is_offline, again.look()) == (True, [])
    (tmp_path / "aside").rename(missing)
    again.directory.reopen(found, NOW_MS)
    assert again.look() == [line]
    again.directory.close()


def test_who_is_suspect_stays_so_until_it_could_be_looked_at(checked: Checked) -> None:
    checked.rate = 0
    log = checked.fill()
    assert checked.look() == []
    flip(log.flushed_segments()[1][0])
    log.is_suspect, checked.files.has_descriptors = True, False
    assert checked.look() == []
    checked.files.has_descriptors = True
    checked.clock.advance(SUSPECTS_SECONDS)
    (line,) = checked.look()
    assert "x-0 is damaged" in line
    assert not log.is_suspect


@pytest.mark.parametrize("noted", [b"", b"[[", b"{}", b"7", b'[["x"]]', b'[["x", 0, []]]', b"\xff"])
def test_what_is_noted_may_be_damaged_too(tmp_path: Path, noted: bytes) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / DAMAGE_NAME).write_bytes(noted)
    checked = Checked(tmp_path / "logs", "0.7")
    log = checked.fill()
    flip(log.flushed_segments()[1][0])
    assert checked.look() == []
    assert len(checked.round()) == 1
    assert (tmp_path / "logs" / DAMAGE_NAME).read_bytes().startswith(b'[["x", 0, ')
    checked.directory.close()


def test_a_round_begins_a_while_after_the_start_and_once_a_day(checked: Checked) -> None:
    checked.fill()
    for seconds, rounds in (
        (FIRST_ROUND_SECONDS - 1, 0),
        (1, 1),
        (ROUND_SECONDS - 1, 1),
        (1, 2),
    ):
        checked.clock.advance(seconds)
        checked.look()
        assert checked.check.rounds == rounds
    checked.rate = 0
    checked.clock.advance(2 * ROUND_SECONDS)
    checked.look()
    assert checked.check.rounds == 2


class Waits(threading.Event):
    """Notes for how long somebody waited, who doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.then: Callable[[], None] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        self.then()
        return self.is_set()


def test_it_reads_as_fast_as_is_said(checked: Checked) -> None:
    log = checked.fill(count=1000)
    checked.rate = 100_000
    checked.check._pace.is_over = waits = Waits()
    checked.round()
    assert sum(waits.seconds) == pytest.approx(log.size_bytes / checked.rate)
    assert checked.check.read_bytes == log.size_bytes
    assert max(waits.seconds) <= 1.0


def test_clients_that_wait_for_the_disk_come_first(checked: Checked) -> None:
    log = checked.fill(count=2)
    checked.check._pace.is_over = waits = Waits()
    answers = iter([True, True, False])
    checked.is_disk_wanted = lambda: next(answers)
    checked.round()
    assert len(waits.seconds) == 3
    checked.is_disk_wanted = lambda: True  # but not for ever
    checked.round()
    assert checked.check.read_bytes == 2 * log.size_bytes


def test_it_ends_when_it_is_not_wanted_any_more(checked: Checked) -> None:
    checked.fill()
    checked.check._pace.is_over = waits = Waits()

    def turn_off() -> None:
        checked.rate = 0
        checked.check.look()

    waits.then = turn_off
    checked.clock.advance(ROUND_SECONDS)
    checked.look()
    assert (checked.check.rounds, len(waits.seconds)) == (0, 1)
    checked.check.look()
    assert checked.check._pace.rate == SUSPECTS_RATE


def test_a_stop_waits_for_no_pace(tmp_path: Path) -> None:
    checked = Checked(tmp_path, "0.7")
    checked.fill()
    checked.rate = 1  # it takes days
    reading, ended = threading.Event(), threading.Event()
    done: Deferred[Any] = Deferred()

    def in_thread(function: Callable[..., Any], *arguments: Any) -> "Deferred[Any]":
        def run() -> None:
            reading.set()
            outcome.append(maybeDeferred(function, *arguments))
            ended.set()

        outcome: list[Any] = []
        threading.Thread(target=run).start()
        return done.addCallback(lambda _: outcome[0])

    checked.check._in_thread = in_thread
    checked.clock.advance(FIRST_ROUND_SECONDS)
    checked.check.look()
    assert reading.wait(60)
    stopped = checked.check.stop()
    assert ended.wait(60)
    assert not stopped.called
    done.callback(None)
    assert stopped.called
    checked.check.look()
    assert checked.check.stop().called
    checked.directory.close()


def test_what_was_not_in_memory_is_not_kept_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    advice: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *given: advice.append(given))

    class PartlyCold(FileLayer):
        def read_resident(self, descriptor: int, length: int, position: int) -> bytes:
            if position >= 50:
                raise NotInMemoryError
            return os.pread(descriptor, min(length, 50 - position), position)

    files = AsideFiles(PartlyCold())
    descriptor = files.open_read(str(path))
    assert files.pread(descriptor, 20, 10) == bytes(range(10, 30))
    assert advice == [(0, 0, os.POSIX_FADV_RANDOM)]  # nothing is read ahead
    assert files.pread(descriptor, 20, 40) == bytes(range(40, 60))
    assert files.pread(descriptor, 60, 60) == bytes(range(60, 100))
    assert advice[1:] == [(50, 10, os.POSIX_FADV_DONTNEED), (60, 40, os.POSIX_FADV_DONTNEED)]
    files.close(descriptor)
