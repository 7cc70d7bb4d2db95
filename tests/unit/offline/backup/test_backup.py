"""Backups of data directories that a log of this process stands in for a broker of."""

import os
import shutil
from errno import EIO, ENOSPC, EPERM
from pathlib import Path
from types import SimpleNamespace

import pytest
from storage_fakes import FaultyFiles, UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, all_files, append, message, open_log, read_all, settings

from hermes.errors import DataDirectoryLockedError, DiskFullError, StorageError
from hermes.offline.backup import BackupSource, Repository, restore, take_backup, verify
from hermes.offline.backup.manifest import PartitionExtent
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck
from hermes.storage import DataDirectory
from hermes.storage.lock import DirectoryLock

SMALL = settings(segment_bytes=200)


class Broker:
    """The logs of a data directory, held as a broker holds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.logs = {}
        self._lock = DirectoryLock(str(root), UnsyncedFiles())
        self.before_answer = lambda topic: None

    def log(self, name):
        if name not in self.logs:
            self.logs[name] = open_log(self.root / name, log_settings=SMALL)
        return self.logs[name]

    def fill(self, name, count=30, start=0):
        for number in range(start, start + count):
            append(self.log(name), message(f"{name} {number:04}"), now_ms=NOW_MS + number)
        self.log(name).flush()

    def flushed(self, topic):
        self.before_answer(topic)
        return {
            log.partition: log.high_watermark for log in self.logs.values() if log.topic == topic
        }

    def stop(self):
        for log in self.logs.values():
            log.close()
        self._lock.release()


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path / "data")
    yield broker
    broker.stop()


@pytest.fixture
def take(tmp_path, broker):
    """Takes a backup of the broker's directory; the times are a second apart."""
    times = iter(range(NOW_MS, NOW_MS + 1_000_000, 1000))

    def run(flushed=broker.flushed, files=None, **others):
        source = BackupSource(str(broker.root), flushed, SMALL, **others)
        repository = Repository(tmp_path / "backups", files or UnsyncedFiles())
        return take_backup(
            repository,
            source,
            now_ms=next(times),
            version="1",
            pause=lambda: None,
            files=files or UnsyncedFiles(),
        )

    return run


@pytest.fixture
def restored(tmp_path):
    """Restores a backup, checks the directory and opens it: the visible bytes by partition."""
    repository = Repository(tmp_path / "backups", UnsyncedFiles())

    def run(name=None, target=tmp_path / "restored"):
        name = name or repository.latest()
        manifest = repository.read(name)
        assert list(verify(repository.directory(name), manifest)) == []
        restore(repository.directory(name), manifest, str(target), files=UnsyncedFiles())
        check = DirectoryCheck(target, Limits(), pause=lambda: None)
        assert list(check.run()) == []
        directory = DataDirectory(target, lambda topic: SMALL, UnsyncedFiles())
        report = directory.open(NOW_MS)
        found = {log.name: read_all(log) for log in directory.logs.values()}
        earliest = {log.name: log.earliest for log in directory.logs.values()}
        directory.close()
        assert (report.dropped_bytes, dict(report.offline)) == (0, {})
        shutil.rmtree(target)
        return SimpleNamespace(data=found, earliest=earliest, manifest=manifest)

    return run


def test_what_was_flushed_is_in_it_and_nothing_else(broker, take, restored):
    broker.fill("clicks-0")
    broker.fill("views-10", 3)
    append(broker.log("views-10"), message("not flushed"))
    broker.log("empty-0")
    taken = take()
    found = restored()
    assert found.data == {
        "clicks-0": read_all(broker.log("clicks-0")),
        "views-10": read_all(broker.log("views-10")),
        "empty-0": b"",
    }
    assert (taken.manifest.faults, taken.manifest.notes) == ([], [])
    assert taken.manifest.was_running


def test_times_survive(broker, take, tmp_path):
    broker.fill("clicks-0")
    taken = take()
    repository = Repository(tmp_path / "backups")
    target = tmp_path / "restored"
    restore(repository.directory(taken.name), taken.manifest, str(target))
    log = open_log(target / "clicks-0", clean=True)
    for number in (0, 7, 29):
        time_ms = NOW_MS + number
        expected = broker.log("clicks-0").offsets_before(time_ms, 1, NOW_MS)
        assert log.offsets_before(time_ms, 1, NOW_MS) == expected
    log.close()
    (oldest, *_) = sorted((broker.root / "clicks-0").glob("*.kafka"))
    assert (target / "clicks-0" / oldest.name).stat().st_mtime_ns == oldest.stat().st_mtime_ns


def test_the_second_copies_what_is_new_and_stands_alone(broker, take, restored, tmp_path):
    broker.fill("clicks-0")
    first = take()
    broker.fill("clicks-0", 5, start=30)
    second = take()
    assert second.copied_bytes + second.linked_bytes > first.copied_bytes
    assert second.copied_bytes < first.copied_bytes / 2
    third = take()
    assert (third.copied_bytes, third.manifest.size_bytes) == (0, second.manifest.size_bytes)
    shutil.rmtree(tmp_path / "backups" / first.name)
    assert restored(second.name).data["clicks-0"] == read_all(broker.log("clicks-0"))


def test_a_topic_that_was_deleted_and_created_again_is_not_mistaken(broker, take, restored):
    broker.fill("clicks-0")
    take()
    broker.logs.pop("clicks-0").delete()
    for number in range(30):
        append(broker.log("clicks-0"), message(f"other! {number:04}"), now_ms=NOW_MS + number)
    broker.log("clicks-0").flush()
    take()
    assert b"clicks" not in restored().data["clicks-0"]


def test_where_there_are_no_links_everything_is_copied(broker, take, restored):
    broker.fill("clicks-0")
    take()
    again = take(files=FaultyFiles(0, EPERM, stays=True, only=("link",)))
    assert (again.linked_bytes, again.copied_bytes) == (0, again.manifest.size_bytes)
    assert restored().data["clicks-0"] == read_all(broker.log("clicks-0"))


def test_older_backups_go_as_wanted(broker, take, tmp_path, restored):
    broker.fill("clicks-0")
    names = [take().name for _ in range(4)]
    repository = Repository(tmp_path / "backups")
    assert repository.keep(2) == names[:2]
    assert repository.names() == names[2:]
    restored(names[2])


def test_the_clock_may_be_set_back(broker, take, tmp_path):
    names = []
    for _ in range(3):
        source = BackupSource(str(broker.root), broker.flushed, SMALL)
        repository = Repository(tmp_path / "backups")
        taken = take_backup(repository, source, now_ms=5, version="1", pause=lambda: None)
        names.append(taken.name)
    assert names == ["19700101T000000.005Z", "19700101T000000.006Z", "19700101T000000.007Z"]


@pytest.mark.parametrize("restores", [False, True], ids=["taken", "restored"])
def test_what_only_its_owner_may_read_is_never_open_to_others(
    broker, take, restored, tmp_path, restores
):
    """Not while it is copied either, or if that is interrupted."""
    users = broker.root / ".hermes_users"
    users.write_bytes(b"secret")
    users.chmod(0o600)
    seen = []

    class Watching(WatchedFiles):
        def after(self, name, arguments, result):
            if name == "open_new" and arguments[0].endswith(users.name):
                seen.append(result)
            elif name in ("pwrite", "pwritev") and arguments[0] in seen:
                assert os.fstat(arguments[0]).st_mode & 0o077 == 0

    taken = take(files=None if restores else Watching())
    if restores:
        whole = tmp_path / "backups" / taken.name
        restore(str(whole), taken.manifest, str(tmp_path / "new"), files=Watching())
    assert seen


# -- while it changes ---------------------------------------------------------------------------


class Meanwhile(WatchedFiles):
    """Does something before the nth opening of a file of the data directory."""

    def __init__(self, number, action, part="data/clicks-0/"):
        super().__init__()
        self._left, self._action, self._part = number, action, part

    def before(self, name, arguments):
        if name == "open_read" and self._part in arguments[0]:
            self._left -= 1
            if self._left == 0:
                self._action()
        return arguments


@pytest.mark.parametrize("number", range(1, 20))
def test_retention_deletes_meanwhile(broker, take, restored, number):
    broker.fill("clicks-0", 60)
    before = read_all(broker.log("clicks-0"))
    take(files=Meanwhile(number, lambda: broker.log("clicks-0").delete_oldest(4)))
    found = restored()
    earliest = found.earliest["clicks-0"]
    assert found.data["clicks-0"] == before[earliest:]
    assert earliest <= broker.log("clicks-0").earliest


@pytest.mark.parametrize("number", range(1, 12))
def test_retention_deletes_everything_meanwhile(broker, take, restored, number):
    broker.fill("clicks-0", 40)
    before = read_all(broker.log("clicks-0"))
    log = broker.log("clicks-0")
    take(files=Meanwhile(number, lambda: log.delete_oldest(len(log.segment_infos()))))
    found = restored()
    assert found.earliest["clicks-0"] == len(before) or found.data["clicks-0"]
    assert before.endswith(found.data["clicks-0"])


def test_retention_overtakes_what_the_broker_said_of_a_later_partition(broker, take, restored):
    for name in ("clicks-0", "clicks-1"):
        broker.fill(name, 40)
    log = broker.log("clicks-1")

    def overtake():
        broker.fill("clicks-1", 40, start=40)
        log.delete_oldest(log.segment_count - 1)

    taken = take(files=Meanwhile(1, overtake))
    assert taken.manifest.faults == []
    assert restored().data == {
        name: read_all(broker.log(name)) for name in ("clicks-0", "clicks-1")
    }


@pytest.mark.parametrize("number", range(1, 12))
def test_rolls_and_appends_meanwhile(broker, take, restored, number):
    broker.fill("clicks-0", 40)
    before = read_all(broker.log("clicks-0"))

    def grow():
        for each in range(50):
            append(broker.log("clicks-0"), message(f"more {each}"))
            if each == 30:
                broker.log("clicks-0").flush()

    take(files=Meanwhile(number, grow))
    found = restored().data["clicks-0"]
    assert found.startswith(before)
    assert read_all(broker.log("clicks-0")).startswith(found)


def test_what_was_rolled_and_not_flushed_is_left_out(broker, take, restored):
    broker.fill("clicks-0", 10)
    visible = read_all(broker.log("clicks-0"))
    for number in range(50):
        append(broker.log("clicks-0"), message(f"not flushed {number}"))
    assert list((broker.root / "clicks-0").glob("*.unflushed"))
    take()
    assert restored().data["clicks-0"] == visible


@pytest.mark.parametrize("number", range(1, 12))
def test_a_topic_is_deleted_meanwhile(broker, take, restored, number):
    broker.fill("clicks-0", 40)
    broker.fill("views-0")
    taken = take(files=Meanwhile(number, lambda: broker.logs.pop("clicks-0").delete()))
    assert restored().data == {"views-0": read_all(broker.log("views-0"))}
    assert taken.manifest.notes == ["clicks-0 was deleted meanwhile: left out"]


@pytest.mark.parametrize("number", range(1, 12))
def test_a_topic_is_deleted_and_created_again_meanwhile(broker, take, restored, number):
    broker.fill("clicks-0", 40)

    def replace():
        broker.logs.pop("clicks-0").delete()
        broker.fill("clicks-0", 20)

    take(files=Meanwhile(number, replace))
    assert restored().data["clicks-0"] == read_all(broker.log("clicks-0"))


def test_a_partition_that_the_broker_does_not_serve_is_a_fault(broker, take, restored):
    broker.fill("clicks-0")
    broker.fill("views-0")
    broker.logs.pop("views-0").close()
    assert take().manifest.faults == ["views-0 is not in the backup: the broker doesn't serve it"]
    assert list(restored().data) == ["clicks-0"]


def test_what_a_deletion_has_left_is_left_out(broker, take, restored):
    broker.fill("clicks-0")
    (broker.root / "views-0").mkdir()
    (broker.root / "views-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    taken = take()
    assert list(restored().data) == ["clicks-0"]
    assert taken.manifest.faults == []
    assert taken.manifest.notes == ["views-0 is only what a deletion has left: left out"]


# -- without a broker ---------------------------------------------------------------------------


def test_a_stopped_broker_and_its_marker(broker, take, restored, tmp_path):
    broker.fill("clicks-0")
    data = read_all(broker.log("clicks-0"))
    broker.stop()
    directory = DataDirectory(broker.root, lambda topic: SMALL)
    directory.open(NOW_MS)
    assert directory.close()
    before = all_files(broker.root)
    taken = take(None)
    assert not taken.manifest.was_running
    assert restored().data["clicks-0"] == data
    after = all_files(broker.root)
    assert {**before, ".hermes_lock": b""} == {**after, ".hermes_lock": b""}
    assert take(None).copied_bytes == 0


def test_what_an_unclean_stop_leaves_is_recovered_in_the_copy(broker, take, restored):
    broker.fill("clicks-0", 40)
    visible = read_all(broker.log("clicks-0"))
    for number in range(50):
        append(broker.log("clicks-0"), message(f"not flushed {number}"))
    broker.stop()
    last = max(path for path in (broker.root / "clicks-0").glob("*.unflushed"))
    with last.open("ab") as file:
        file.write(message("torn")[:-1])
    before = all_files(broker.root)
    first = take(None)
    assert [note.partition(":")[0] for note in first.manifest.notes] == ["clicks-0"]
    assert restored().data["clicks-0"].startswith(visible)
    second = take(None)
    assert second.linked_bytes
    assert restored(first.name).data == restored(second.name).data
    after = all_files(broker.root)
    assert {**before, ".hermes_lock": b""} == {**after, ".hermes_lock": b""}


def test_a_broker_is_not_to_be_overlooked(broker, take):
    with pytest.raises(StorageError, match=r"is in use by process .*: name that broker"):
        take(None)


def test_damage_does_not_keep_the_rest_from_being_saved(broker, take, tmp_path):
    broker.fill("clicks-0")
    broker.fill("views-0")
    broker.stop()
    middle = sorted((broker.root / "clicks-0").glob("*.kafka"))[1]
    os.truncate(middle, 7)
    taken = take(None)
    assert len(taken.manifest.faults) == 2
    assert f"the segment at {int(middle.stem)} has 7 bytes" in taken.manifest.faults[0]
    assert {each.topic for each in taken.manifest.partitions} == {"clicks", "views"}


# -- other files --------------------------------------------------------------------------------


def test_files_of_the_broker_itself(broker, take, tmp_path):
    broker.fill("clicks-0", 1)
    for name in (".hermes_coordination", ".hermes_coordination.snapshot", ".hermes_topics"):
        (broker.root / name).write_text(name)
        (broker.root / name).chmod(0o600)
    (broker.root / "notes.txt").touch()
    (broker.root / ".hermes_link").symlink_to("/etc/passwd")
    taken = take(live_names=(".hermes_coordination",))
    target = tmp_path / "restored"
    repository = Repository(tmp_path / "backups")
    restore(repository.directory(taken.name), taken.manifest, str(target))
    names = {".hermes_coordination.snapshot", ".hermes_topics", ".hermes_lock", "clicks-0"}
    assert set(os.listdir(target)) == names
    assert (target / ".hermes_topics").read_text() == ".hermes_topics"
    assert (target / ".hermes_topics").stat().st_mode & 0o777 == 0o600
    assert taken.manifest.notes == [
        "the file '.hermes_link' is none of Hermes': left out",
        "the file 'notes.txt' is none of Hermes': left out",
    ]


# -- what can't be ------------------------------------------------------------------------------


@pytest.mark.parametrize("high_watermark", [10**6, -1])
def test_another_broker_is_noticed(broker, take, high_watermark, tmp_path):
    broker.fill("clicks-0")
    broker.log("clicks-0").delete_oldest(1)
    with pytest.raises(StorageError, match="is it the broker that uses this directory"):
        take(lambda topic: {0: high_watermark})
    assert os.listdir(tmp_path / "backups") == [".hermes_lock"]


def test_a_broker_that_knows_less_than_the_index_hides_nothing(broker, take, restored):
    broker.fill("clicks-0")
    take(lambda topic: {0: 16})
    assert restored().data["clicks-0"] == read_all(broker.log("clicks-0"))


def test_a_broker_that_knows_nothing_is_noticed(broker, take):
    broker.fill("clicks-0")
    with pytest.raises(StorageError, match="nothing could be backed up: clicks-0 is not in"):
        take(lambda topic: {})


def test_directories_that_hold_something_else(broker, take, tmp_path):
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "letters").mkdir()
    with pytest.raises(StorageError, match="holds 'letters', which is no backup"):
        take()
    source = BackupSource(str(broker.root), broker.flushed, SMALL)
    for place in (broker.root / "backups", tmp_path):
        with pytest.raises(StorageError, match="lie in one another"):
            take_backup(Repository(place), source, now_ms=1, version="1", pause=lambda: None)


def test_one_at_a_time(broker, take, tmp_path):
    lock = Repository(tmp_path / "backups").lock()
    with pytest.raises(DataDirectoryLockedError):
        take()
    lock.release()


def test_a_full_disk_leaves_nothing_behind(broker, take, tmp_path):
    broker.fill("clicks-0")
    take()
    before = all_files(tmp_path / "backups")
    broker.fill("clicks-0", 30, start=30)
    with pytest.raises(DiskFullError):
        take(files=FaultyFiles(5, ENOSPC, only=("pwrite", "pwritev")))
    assert all_files(tmp_path / "backups") == before


# -- restoring ----------------------------------------------------------------------------------


def test_damage_in_a_backup_is_noticed(broker, take, tmp_path):
    broker.fill("clicks-0")
    taken = take()
    repository = Repository(tmp_path / "backups")
    directory = Path(repository.directory(taken.name))
    victim = sorted((directory / "data/clicks-0").glob("*.kafka"))[1]
    data = bytearray(victim.read_bytes())
    data[9] ^= 1
    victim.write_bytes(data)
    (fault,) = verify(str(directory), taken.manifest)
    assert fault == f"{victim} is damaged: its checksum is wrong"
    target = tmp_path / "restored"
    with pytest.raises(StorageError, match="is damaged: choose another backup"):
        restore(str(directory), taken.manifest, str(target))
    with pytest.raises(StorageError, match="holds a restore that was not finished"):
        DataDirectory(target, lambda topic: SMALL).open(NOW_MS)
    with pytest.raises(StorageError, match="a restore that was not finished: delete it"):
        restore(str(directory), taken.manifest, str(target))
    found = DirectoryCheck(target, Limits(), pause=lambda: None).run()
    assert ("problem", ".hermes_restoring") in [(each.kind, each.path) for each in found]
    victim.unlink()
    assert list(verify(str(directory), taken.manifest)) == [f"{victim}: No such file or directory"]


def test_a_manifest_is_believed_only_whole(broker, take, tmp_path):
    name = take().name
    repository = Repository(tmp_path / "backups")
    path = Path(repository.directory(name, "manifest.json"))
    good = path.read_bytes()
    for bad in (
        b"",
        b"{}",
        b"[1]",
        good[:-20],
        good.replace(b"was_running", b"was_runninG"),
        b"\xff",
    ):
        path.write_bytes(bad)
        with pytest.raises(
            StorageError, match=r"can't be used: it is damaged|its checksum is wrong"
        ):
            repository.read(name)
    path.write_bytes(good.replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(StorageError, match="it has format 2"):
        repository.read(name)


@pytest.mark.parametrize("path", ["data/../../x", "/etc/passwd", "data", "other/x", "data/a/b/c"])
def test_no_path_leads_out_of_a_backup(broker, take, tmp_path, path):
    broker.fill("clicks-0", 1)
    taken = take()
    first = taken.manifest.files[0]
    forged = type(taken.manifest)(
        "1", 1, "x", True, taken.manifest.partitions, [first._replace(path=path)]
    )
    with pytest.raises(StorageError, match="is no file of a backup"):
        type(forged).decode(forged.encode())


@pytest.mark.parametrize(
    "topic", ["../../x", "/tmp/x", "a/b", "", ".."], ids=["up", "root", "below", "none", "dots"]
)
def test_no_topic_leads_out_of_a_backup(take, topic):
    partitions = [PartitionExtent(topic, 0, 0, 0)]
    forged = type(take().manifest)("1", 1, "x", True, partitions, [])
    with pytest.raises(StorageError, match="is no partition of a backup"):
        type(forged).decode(forged.encode())


def test_only_an_empty_directory_is_restored_to(broker, take, tmp_path):
    broker.fill("clicks-0", 1)
    taken = take()
    target = tmp_path / "restored"
    target.mkdir()
    (target / "lost+found").mkdir()
    repository = Repository(tmp_path / "backups")
    for _ in range(2):
        restore(repository.directory(taken.name), taken.manifest, str(target))
        with pytest.raises(StorageError, match="is not empty: give a new directory"):
            restore(repository.directory(taken.name), taken.manifest, str(target))
        break


def test_names_that_are_no_backups(tmp_path, take):
    repository = Repository(tmp_path / "backups")
    name = take().name
    with pytest.raises(StorageError, match=f"'../x' is not a backup's name .there are {name}"):
        repository.read("../x")
    with pytest.raises(StorageError, match=r"no whole backup 19700101T000000\.000Z"):
        repository.read("19700101T000000.000Z")
    with pytest.raises(StorageError, match="read the backups in"):
        Repository(tmp_path / "none").latest()


def test_a_failing_disk_is_an_error_of_ours(broker, take):
    broker.fill("clicks-0", 1)
    with pytest.raises(StorageError, match=r"back up .*: Input/output error"):
        take(files=FaultyFiles(0, EIO, only=("fdatasync",)))
