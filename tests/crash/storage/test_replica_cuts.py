"""A replica's log is cut, or begins again; the machine stops, or the disk fails, at any call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EIO, ENOSPC
from itertools import count
from pathlib import Path
from random import Random

import pytest
from kafka_logs import batches_in, check_indexes, read_records, record
from storage_fakes import Crash, FaultyFiles, ForgetfulFiles, UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.errors import StorageError
from hermes.protocol.record_batches import placed
from hermes.protocol.records import encode_batch
from hermes.storage import DataDirectory, FileLayer, Log

OLD = [b"old %02d" % number for number in range(12)]
NEW = [b"new %02d" % number for number in range(3)]

#: Up to where the life is flushed and committed before it is cut, and where that is.
FLUSHED, COMMITTED, CUT = 9, 2, 4

#: Where the log begins again.
START = 40


class Life:
    """A follower's: it appends, is cut below what it has flushed, and goes on otherwise.

    Attributes:
        cut, flushed: whether the cut, and the flush after it, have returned.
    """

    def __init__(
        self, path: Path, files: FileLayer, *, restarts: bool = False, is_forced: bool = False
    ) -> None:
        self.directory = DataDirectory(path, lambda topic: settings(180, format="kafka"), files)
        self.restarts = restarts
        self.is_forced = is_forced
        self.cut = self.flushed = False
        self.offset = START if restarts else CUT

    @property
    def log(self) -> Log:
        return self.directory.logs["k", 0]

    def begin(self) -> None:
        """Live up to the cut."""
        self.directory.open(NOW_MS)
        # So the next start knows, too, that there are other copies.
        self.directory.watermarks.keep({("k", 0): 0})
        log = self.directory.create("k", 0, is_sole_copy=False)
        for number, value in enumerate(OLD):
            if number == FLUSHED:
                log.flush()
            append(log, value, number, 1)
        log.commit(FLUSHED if self.is_forced else COMMITTED)

    def change(self) -> None:
        if self.restarts:
            self.log.replica.restart_at(START)
        else:
            self.log.replica.cut_to(CUT, NOW_MS, is_forced=self.is_forced)
        self.cut = True

    def go_on(self) -> None:
        for number, value in enumerate(NEW):
            append(self.log, value, self.offset + number, 2)
        self.log.flush()
        self.flushed = True

    def check(self, log: Log) -> None:
        """What is there is the old history, cut at most where it was to be, or the new one."""
        log.commit(1 << 40)
        found = {each.offset: each.value for each in read_records(log)}
        offsets = list(found)
        if not self.restarts:
            assert offsets == list(range(len(offsets)))
            least = CUT + len(NEW) if self.flushed else CUT
            assert log.high_watermark >= min(least, FLUSHED)
        elif log.end_offset >= START:
            assert log.earliest == START
        old = {offset: value for offset, value in found.items() if value.startswith(b"old")}
        assert old == {offset: OLD[offset] for offset in old}
        assert len(old) >= (0 if self.restarts else CUT)
        new = {offset: value for offset, value in found.items() if offset not in old}
        assert new == {self.offset + number: NEW[number] for number in range(len(new))}
        if self.cut or new:
            assert len(old) == (0 if self.restarts else CUT)
        if self.flushed:
            assert len(new) == len(NEW)


def append(log: Log, value: bytes, offset: int, epoch: int) -> None:
    data = encode_batch([record(value)])
    ((header, _),) = batches_in(data)
    buffers = placed(data, [header], offset, epoch)
    log.replica.append_placed(buffers, [header._replace(base_offset=offset, leader_epoch=epoch)], 0)


@contextmanager
def opened(path: Path) -> Iterator[Log]:
    directory = DataDirectory(path, lambda topic: settings(180, format="kafka"), UnsyncedFiles())
    report = directory.open(NOW_MS)
    try:
        assert not report.offline
        yield directory.logs["k", 0]
    finally:
        directory.close()


@pytest.mark.parametrize("change", ["cut", "cut below the watermark", "begun again"])
@pytest.mark.parametrize("mode", ["all lost", "some lost", "killed"])
def test_the_machine_stops_at_every_call(tmp_path: Path, mode: str, change: str) -> None:
    for number in count():
        root = tmp_path / str(number)
        (root / "logs").mkdir(parents=True)
        files = ForgetfulFiles(str(root / "logs"))
        restarts, is_forced = change == "begun again", change == "cut below the watermark"
        life = Life(root / "logs", files, restarts=restarts, is_forced=is_forced)
        life.begin()
        files.crash_at = len(files.calls) + number
        try:
            life.change()
            life.go_on()
        except Crash:
            pass
        found = root / "logs"
        files.close_all()
        if mode != "killed":
            found = root / "disk"
            files.disk(str(found), None if mode == "all lost" else Random(number))
        with opened(found) as log:
            life.check(log)
            append(log, b"later", log.end_offset, 3)
            log.flush()
        if life.flushed:
            break
    assert number > 40


@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("is_late", [False, True], ids=["undone", "done all the same"])
def test_a_cut_that_the_disk_refuses_is_ended_by_a_reopening(
    tmp_path: Path, error: int, is_late: bool
) -> None:
    """Every call fails, and the fourth one of the reopening, too."""
    for number in count():
        files = FaultyFiles(None, error)
        files.is_late = is_late
        path = tmp_path / str(number)
        path.mkdir()
        life = Life(path, files)
        life.begin()
        files.fail_at = files.counted + number
        has_failed = fails(life.change)
        if not files.failed:
            life.directory.close()
            assert number > 20
            return
        if has_failed:
            files.fail_at = files.counted + 3
            if fails(lambda life=life: life.log.reopen(NOW_MS)):
                files.fail_at = None
                life.log.reopen(NOW_MS)
        files.fail_at = None
        if life.log.end_offset > CUT:  # it failed before anything was done
            life.change()
        assert life.log.end_offset == CUT
        life.cut = True
        life.go_on()
        life.check(life.log)
        for each in (path / "k-0").glob("*.log"):
            check_indexes(each, may_lack=True)
        life.directory.close()


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except StorageError:
        return True
    return False
