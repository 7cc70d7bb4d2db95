"""Backups of partitions of Kafka's format: of a broker that runs, was stopped, or was killed."""

from pathlib import Path

import pytest
from kafka_logs import append_values, check_indexes, read_records
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.offline.backup import BackupSource, Repository, restore, take_backup, verify
from hermes.storage import DataDirectory, Log
from hermes.storage.watermarks import LACKING

SMALL = settings(segment_bytes=3000, format="kafka")


def opened(path: Path) -> DataDirectory:
    directory = DataDirectory(path, lambda topic: SMALL, UnsyncedFiles())
    assert directory.open(NOW_MS).offline == {}
    return directory


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        append_values(log, b"%d" % log.end_offset, b"x" * 300)
    log.flush()


@pytest.mark.parametrize("state", ["running", "stopped", "killed"])
def test_what_is_flushed_is_in_a_backup(tmp_path: Path, state: str) -> None:
    directory = opened(tmp_path / "data")
    log = directory.create("k", 0)
    fill(log, 40)
    log.delete_records(11)
    fill(log, 3)
    end, topic_id = log.high_watermark, log.topic_id
    kept = read_records(log)
    assert log.segment_count > 3
    append_values(log, b"not flushed")
    flushed = None
    if state == "running":
        flushed = lambda topic: {0: end}  # noqa: E731
    elif state == "stopped":
        directory.close()
        end += 1
    else:
        directory._lock.release()  # type: ignore[union-attr]
        end += 1
    repository = Repository(tmp_path / "backups", UnsyncedFiles())
    source = BackupSource(str(tmp_path / "data"), flushed, SMALL)
    for number in range(2):  # the second one links what the first one has
        taken = take_backup(
            repository,
            source,
            now_ms=NOW_MS + 1000 * number,
            version="1",
            pause=lambda: None,
            files=UnsyncedFiles(),
        )
        assert taken.manifest.faults == []
    assert taken.linked_bytes > 0
    assert taken.manifest.partitions[0].end == end
    backup = repository.directory(taken.name)
    assert list(verify(backup, taken.manifest)) == []
    restore(backup, taken.manifest, str(tmp_path / "restored"), files=UnsyncedFiles())
    again = opened(tmp_path / "restored")
    found = again.logs["k", 0]
    assert (found.earliest, found.high_watermark, found.topic_id) == (11, end, topic_id)
    records = read_records(found)
    assert records[: len(kept)] == kept
    assert [each.value for each in records[len(kept) :]] == [b"not flushed"] * (
        end - len(kept) - 11
    )
    fill(found, 20)
    assert len(read_records(found)) == end - 11 + 40
    again.close()
    for path in sorted((tmp_path / "restored" / "k-0").glob("*.log")):
        check_indexes(path)
    if state == "running":
        directory.close()


def test_of_a_copy_what_is_committed_is_in_a_backup(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    log = directory.create("k", 0)
    log.is_sole_copy = False
    fill(log, 20)
    log.replica.begin_epoch(5)
    fill(log, 20)
    directory.own_id()
    directory.watermarks.keep({("k", 0): 24})
    repository = Repository(tmp_path / "backups", UnsyncedFiles())
    told: dict[int, int] = {}  # as by a broker that another one leads
    for end in (24, 30):
        taken = take_backup(
            repository,
            BackupSource(str(tmp_path / "data"), lambda topic: told, SMALL),
            now_ms=NOW_MS + 1000 * end,
            version="1",
            pause=lambda: None,
            files=UnsyncedFiles(),
        )
        assert taken.manifest.faults == []
        assert taken.manifest.partitions[0].end == end
        told[0] = 30
    backup = repository.directory(taken.name)
    restore(backup, taken.manifest, str(tmp_path / "restored"), files=UnsyncedFiles())
    again = opened(tmp_path / "restored")
    found = again.logs["k", 0]
    assert (found.high_watermark, found.end_offset) == (24, 30)
    for each in (log, found):
        each.commit(30)
    assert read_records(found) == read_records(log)
    assert again.watermarks.get("k", 0) == 24
    assert again.own_id() != directory.own_id()
    again.close()
    directory.close()


def test_of_a_copy_that_is_lacking_nothing_is_in_a_backup(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    log = directory.create("k", 0)
    log.is_sole_copy = False
    fill(log, 20)
    directory.watermarks.keep({("k", 0): LACKING})
    taken = take_backup(
        Repository(tmp_path / "backups", UnsyncedFiles()),
        BackupSource(str(tmp_path / "data"), lambda topic: {}, SMALL),
        now_ms=NOW_MS,
        version="1",
        pause=lambda: None,
        files=UnsyncedFiles(),
    )
    assert taken.manifest.faults == []
    assert taken.manifest.partitions[0].end == 0
    directory.close()


@pytest.mark.parametrize("state", ["stopped", "killed"])
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "begins at offset {second}, and began at 0 before"),
        (2, "lacks the segment {gone:020d}.log"),
        (-1, "ends at offset {gone}, and ended at {end} before"),
    ],
    ids=["first", "middle", "last"],
)
def test_a_segment_that_is_missing_is_a_fault(
    tmp_path: Path, state: str, number: int, text: str
) -> None:
    directory = opened(tmp_path / "data")
    log = directory.create("k", 0)
    fill(log, 40)
    end = log.end_offset
    if state == "stopped":
        directory.close()
    else:
        directory._lock.release()  # type: ignore[union-attr]
    segments = sorted((tmp_path / "data" / "k-0").glob("*.log"))
    for path in (tmp_path / "data" / "k-0").glob(f"{segments[number].stem}.*"):
        path.unlink()
    taken = take_backup(
        Repository(tmp_path / "backups", UnsyncedFiles()),
        BackupSource(str(tmp_path / "data"), None, SMALL),
        now_ms=NOW_MS,
        version="1",
        pause=lambda: None,
        files=UnsyncedFiles(),
    )
    (fault,) = taken.manifest.faults
    assert fault.startswith("k-0: ")
    gone, second = int(segments[number].stem), int(segments[1].stem)
    assert text.format(gone=gone, second=second, end=end) in fault
    assert [each.topic for each in taken.manifest.partitions] == ["k"]


def test_a_copy_that_lacks_what_is_committed_keeps_no_other_from_being_saved(
    tmp_path: Path,
) -> None:
    directory = opened(tmp_path / "data")
    for name in ("a", "k", "z"):
        fill(directory.create(name, 0), 20)
    directory.logs["k", 0].is_sole_copy = False
    directory.watermarks.keep({("k", 0): 50})  # its disk has lost the end, and the broker says so
    taken = take_backup(
        Repository(tmp_path / "backups", UnsyncedFiles()),
        BackupSource(str(tmp_path / "data"), lambda name: {} if name == "k" else {0: 40}, SMALL),
        now_ms=NOW_MS,
        version="1",
        pause=lambda: None,
        files=UnsyncedFiles(),
    )
    assert taken.manifest.faults == [
        "k-0 is not in the backup: it ends at offset 40, and is committed up to 50"
    ]
    assert [each.topic for each in taken.manifest.partitions] == ["a", "z"]
    backup = tmp_path / "backups" / taken.name
    assert sorted(each.name for each in (backup / "data").glob("*-0")) == ["a-0", "z-0"]
    directory.close()
