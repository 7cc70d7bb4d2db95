"""One wrong bit in a file that `flipped_bits` has none of: each is made and read by itself."""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flipped_bits import Seen, flip
from kafka_logs import append_batch, record
from mirrored_logs import MirroredLog, SourceCopy
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, read_all, settings

from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.snapshots import restore
from hermes.coordination.embedded.store import FILE_NAME, CoordinationStore, snapshot_path
from hermes.coordination.embedded.tree_changes import NodeWritten, SessionOpened
from hermes.errors import ConfigError, StorageError
from hermes.protocol.records import encode_batch
from hermes.registry.home import HomeBroker
from hermes.registry.log_records import LogRecord, encode_record
from hermes.registry.replica import Replica
from hermes.registry.snapshot import SnapshotFile, Snapshots
from hermes.registry.wiring import SNAPSHOT_NAME
from hermes.security.passwords import LEAST_ITERATIONS, verify_password
from hermes.security.users import Users
from hermes.security.users_file import read_users
from hermes.storage import DataDirectory, LogSettings
from hermes.storage.checkpoints import HIGH_WATERMARKS_NAME, RECORD_NAME, RECOVERY_POINTS_NAME
from hermes.storage.layout import CLEAN_SHUTDOWN_MARKER
from hermes.storage.owner import KAFKA_OWNER_NAME
from hermes.storage.source_positions import DAMAGED_NAME, POSITIONS_NAME

__all__ = ["KINDS", "flips"]

PASSWORDS = {"alice": "wonderland", "bob": "builder"}


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        make: makes a directory with one of it.
        look: sees what such a directory comes to.
        name: the file.
    """

    make: Callable[[Path], None]
    look: Callable[[Path], Seen]
    name: str


def _make_coordination(path: Path) -> None:
    store = CoordinationStore(path / FILE_NAME)
    store.open()
    for number in range(1, 60):
        data = b"%d" % number * 9
        node = NodeWritten(f"/n{number}", data, OPEN_ACL, number, number, number, 1, 2, 3, 4, 5, 0)
        store.write([node, SessionOpened(number, b"secret", 6000)], number)
    store.snapshot(NOW_MS)
    store.close()


def _look_at_coordination(path: Path) -> Seen:
    store = CoordinationStore(path / FILE_NAME)
    try:
        stored = store.open(may_create=False)
    except StorageError as error:
        return Seen({}, [str(error)])
    finally:
        store.close()
    nodes, sessions = sorted(stored.nodes), sorted(stored.sessions)
    return Seen({"tree": (nodes, sessions, stored.zxid)}, [])


def _look_at_restored(path: Path) -> Seen:
    target = path / FILE_NAME
    target.unlink()
    try:
        restore(target, snapshot_path(target))
    except StorageError as error:
        return Seen({}, [str(error)])
    return _look_at_coordination(path)


def _make_registry(path: Path) -> None:
    replica = Replica()
    for number in range(1, 4):
        event = {"event": "mode-changed", "subject": f"s{number}", "mode": "READONLY"}
        after = f"r{number - 1}" if number > 1 else ""
        replica.read_message(
            number, number + 1, encode_record(LogRecord(number, after, f"r{number}", event))
        )
    Snapshots(SnapshotFile(path / SNAPSHOT_NAME), replica).write(HomeBroker(2, "localhost", 9092))


def _look_at_registry(path: Path) -> Seen:
    replica = Replica()
    try:
        value = SnapshotFile(path / SNAPSHOT_NAME).read()
        assert value is not None
        replica.restore(value)
    except (StorageError, ValueError) as error:
        return Seen({}, [str(error)])
    return Seen({"registry": (replica.to_json(), value["home"])}, [])


def _make_users(path: Path) -> None:
    users = Users.none()
    for name, password in PASSWORDS.items():
        users = users.with_user(name, password, iterations=LEAST_ITERATIONS)
    (path / "users").write_bytes(users.encode())
    (path / "users").chmod(0o600)


def _look_at_users(path: Path) -> Seen:
    """Who can log in, and who is told that they can't."""
    try:
        users, _ = read_users(path / "users")
    except ConfigError as error:
        return Seen({}, [str(error)])
    entered = {
        name: verify_password(users, name, password) is not None
        for name, password in PASSWORDS.items()
    }
    return Seen(dict(entered), [f"{name} is refused" for name in entered if not entered[name]])


def _copies() -> list[SourceCopy]:
    return [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)]


def _make_mirrored(path: Path, *, is_clean: bool) -> None:
    """A log of two mirrors and a producer, of a broker that was stopped, or killed."""
    log = MirroredLog(path / "clicks-0", UnsyncedFiles(), _copies())
    log.open()
    for number in range(12):
        for each in log.copies:
            log.copy(each, 3)
        log.produce()
        if number % 3 == 2:
            log.flush()
    log.copy(log.copies[0])
    killed = shutil.copytree(path / "clicks-0", path / "killed")
    log.log.close()
    if not is_clean:
        shutil.rmtree(path / "clicks-0")
        killed.rename(path / "clicks-0")


def _look_at_mirrored(path: Path, *, is_clean: bool, boot: str = UnsyncedFiles.boot) -> Seen:
    """What the log has, and from where mirrors are to go on."""
    files = UnsyncedFiles()
    files.boot = boot
    log = MirroredLog(path / "clicks-0", files, _copies())
    report = log.log.open(clean=is_clean, now_ms=NOW_MS)
    said = [DAMAGED_NAME] if DAMAGED_NAME in log.log.strange_files else []
    if report is not None and report.dropped_bytes:
        said.append(str(report))
    positions = {each.name: log.log.sources.position(each.name) for each in log.copies}
    content = read_all(log.log)
    log.log.close()
    return Seen({"positions": positions, "content": content}, said)


def _settings_of(_topic: str) -> LogSettings:
    return settings(6000, format="kafka")


def _make_kafkas(path: Path) -> None:
    """A directory that a Kafka has left, killed, after what it says it had put on disk."""
    directory = DataDirectory(path, _settings_of, UnsyncedFiles())
    directory.open(NOW_MS, broker_id=3)
    log = directory.create("k", 0)
    for number in range(200):
        append_batch(log, encode_batch([record(b"%d:" % number + b"v" * 99)]), NOW_MS + number)
        log.flush()
    assert directory.close()
    for each in (*path.glob(".hermes_*"), path / CLEAN_SHUTDOWN_MARKER, path / "k-0" / RECORD_NAME):
        each.unlink(missing_ok=True)
    (path / RECOVERY_POINTS_NAME).write_text("0\n1\nk 0 187\n")
    (path / HIGH_WATERMARKS_NAME).write_text("0\n1\nk 0 187\n")
    (path / KAFKA_OWNER_NAME).write_text("#\nversion=1\nnode.id=3\ncluster.id=YWJjZGVmZ2hpamts\n")


def _look_at_kafkas(path: Path) -> Seen:
    directory = DataDirectory(path, _settings_of, UnsyncedFiles())
    try:
        report = directory.open(NOW_MS, broker_id=3)
    except StorageError as error:
        return Seen({}, [str(error)])
    try:
        said = [*report.offline.values(), *report.lost.values()]
        state = {
            log.name: (log.topic_id, log.earliest, log.end_offset, log.leader_epoch)
            for log in directory.logs.values()
        }
        return Seen(dict(state), said)
    finally:
        directory.close()


KINDS = {
    "sources.positions, stopped": Kind(
        partial(_make_mirrored, is_clean=True),
        partial(_look_at_mirrored, is_clean=True),
        f"clicks-0/{POSITIONS_NAME}",
    ),
    "sources.positions, killed": Kind(
        partial(_make_mirrored, is_clean=False),
        partial(_look_at_mirrored, is_clean=False),
        f"clicks-0/{POSITIONS_NAME}",
    ),
    "sources.positions, after a power loss": Kind(
        partial(_make_mirrored, is_clean=False),
        partial(_look_at_mirrored, is_clean=False, boot="the second start"),
        f"clicks-0/{POSITIONS_NAME}",
    ),
    ".hermes_coordination": Kind(_make_coordination, _look_at_coordination, FILE_NAME),
    "its snapshot": Kind(_make_coordination, _look_at_restored, f"{FILE_NAME}.snapshot"),
    ".hermes_registry": Kind(_make_registry, _look_at_registry, SNAPSHOT_NAME),
    RECOVERY_POINTS_NAME: Kind(_make_kafkas, _look_at_kafkas, RECOVERY_POINTS_NAME),
    "users": Kind(_make_users, _look_at_users, "users"),
    KAFKA_OWNER_NAME: Kind(_make_kafkas, _look_at_kafkas, KAFKA_OWNER_NAME),
}


def flips(work: Path, kind: str, count: int, seed: int) -> Iterator[tuple[str, Seen, Seen]]:
    """Flip bits of a file of one kind, one at a time.

    Args:
        work: where directories are made.
        kind: one of `KINDS`.
        count: how many bits.
        seed: chooses them.

    Yields:
        Which bit it was, what is seen without it, and what was seen then.
    """
    make, look, name = KINDS[kind]
    base, copy = work / "base", work / "copy"
    base.mkdir(parents=True)
    make(base)
    shutil.copytree(base, copy)
    reference = look(copy)
    chance = random.Random(f"{seed} {kind}")
    for _ in range(count):
        shutil.rmtree(copy)
        shutil.copytree(base, copy)
        yield flip(copy / name, chance), reference, look(copy)
