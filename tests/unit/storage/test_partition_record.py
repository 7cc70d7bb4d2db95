"""What Hermes keeps beside Kafka's small files: damage is mended or stops, and is said."""

import re
import shutil
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from uuid import UUID

import pytest
from kafka_logs import append_batch, append_values, read_records, record, sent
from storage_fakes import FaultyFiles, UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.errors import StorageError
from hermes.storage import DataDirectory, FileLayer, Log, OpenReport
from hermes.storage.checkpoints import read_topic_id, write_topic_id
from hermes.storage.compaction import CompactionReport, compaction

OTHER_ID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
KAFKAS_SIGN = "replication-offset-checkpoint"


def opened(path: Path, files: FileLayer | None = None) -> tuple[DataDirectory, OpenReport]:
    directory = DataDirectory(
        path, lambda topic: settings(100, format="kafka"), files or UnsyncedFiles()
    )
    return directory, directory.open(NOW_MS)


def only_log(directory: DataDirectory) -> Log:
    (log,) = directory.logs.values()
    return log


def ended(directory: DataDirectory, *, is_clean: bool = True) -> None:
    if is_clean:
        assert directory.close()
    else:
        directory._lock.release()  # type: ignore[union-attr]


@pytest.fixture(params=[True, False], ids=["stopped", "killed"])
def is_clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def data(tmp_path: Path, is_clean: bool) -> Path:
    """A log of ten segments, of which DeleteRecords has cut one and a half."""
    path = tmp_path / "data"
    directory, _ = opened(path)
    log = directory.create("k", 0)
    for number in range(10):
        append_values(log, b"x" * 50, b"%d" % number)
        log.flush()
    log.delete_records(3)
    ended(directory, is_clean=is_clean)
    return path


def segments(data: Path) -> list[Path]:
    return sorted((data / "k-0").glob("*.log"))


# -- a partition of another topic ----------------------------------------------------------------


def test_a_partition_of_another_topic_with_its_name_is_told(tmp_path: Path) -> None:
    ids = []
    for place in ("here", "elsewhere"):
        directory, _ = opened(tmp_path / place)
        ids.append(directory.create("k", 0).topic_id)
        directory.create("k", 1)
        directory.create("other", 0)
        ended(directory)
        directory, report = opened(tmp_path / place)
        assert report.foreign == ()
        ended(directory)
    shutil.rmtree(tmp_path / "here" / "k-1")
    shutil.copytree(tmp_path / "elsewhere" / "k-1", tmp_path / "here" / "k-1")
    for _ in range(2):
        directory, report = opened(tmp_path / "here")
        assert report.foreign == (f"k-1 has the topic id {ids[1]}, and k-0 has {ids[0]}",)
        ended(directory)


# -- a missing segment --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 4, 7])
def test_a_missing_segment_in_the_middle_stops_the_partition(
    data: Path, tmp_path: Path, number: int
) -> None:
    path = segments(data)[number]
    path.rename(tmp_path / "away")
    directory, report = opened(data)
    log = only_log(directory)
    assert f"lacks the segment {path.name}" in report.offline["k", 0]
    assert log.is_offline
    (tmp_path / "away").rename(path)
    directory.reopen(log, NOW_MS)
    assert (log.earliest, log.end_offset) == (3, 20)
    directory.close()


def test_who_cannot_put_it_back_goes_on_without(data: Path) -> None:
    segments(data)[4].unlink()
    directory, report = opened(data)
    (path,) = re.findall(r"remove (.+) and restart", report.offline["k", 0])
    directory.close()
    Path(path).unlink()
    directory, report = opened(data)
    assert report.offline == {}
    assert len(read_records(only_log(directory))) == 15
    directory.close()


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (0, "it begins at offset 4, and began at 3 before"),
        (-1, "it ends at offset 18, and ended at "),
    ],
)
def test_a_missing_segment_at_an_end_is_said(data: Path, number: int, lost: str) -> None:
    ended(opened(data)[0])
    segments(data)[number].unlink()
    directory, report = opened(data)
    assert report.offline == {}
    assert report.lost["k", 0].startswith(lost)
    ended(directory)
    directory, report = opened(data)
    assert report.lost == {}, "once"
    ended(directory)


def test_a_segment_that_is_cut_short_is_said(data: Path) -> None:
    ended(opened(data)[0])
    path = segments(data)[-1]
    path.write_bytes(path.read_bytes()[:-5])
    directory, report = opened(data)
    assert report.lost["k", 0] == "it ends at offset 18, and ended at 20 before"
    assert report.recovered["k", 0].dropped_bytes > 0
    log = only_log(directory)
    assert append_values(log, b"next") == 18
    log.flush()
    assert read_records(log)[-1].value == b"next"
    ended(directory)


def test_what_compaction_leaves_out_is_not_missing(tmp_path: Path, is_clean: bool) -> None:
    directory, _ = opened(tmp_path)
    log = directory.create("k", 0)
    for number in range(12):
        append_batch(log, sent([record(b"v" * 50, key=b"%d" % (number // 8))]))
        log.flush()
    before = len(segments(tmp_path))
    for _ in compaction(log, 0, NOW_MS, 0, CompactionReport()):
        pass
    assert 2 < len(segments(tmp_path)) < before
    values = read_records(log)
    ended(directory, is_clean=is_clean)
    directory, report = opened(tmp_path)
    assert (report.offline, report.lost, report.healed) == ({}, {}, ())
    assert read_records(only_log(directory)) == values
    ended(directory)
    segments(tmp_path)[1].unlink()
    directory, report = opened(tmp_path)
    assert "lacks the segment" in report.offline["k", 0], "a gap like any other"
    directory.close()


def test_what_retention_deletes_is_not_missing(data: Path, is_clean: bool) -> None:
    directory, _ = opened(data)
    log = only_log(directory)
    log.delete_oldest(4)
    earliest = log.earliest
    ended(directory, is_clean=is_clean)
    for path in segments(data)[:2]:
        assert int(path.stem) >= earliest
    directory, report = opened(data)
    assert (report.offline, report.lost, report.healed) == ({}, {}, ())
    assert only_log(directory).earliest == earliest
    ended(directory)


def test_a_full_disk_keeps_no_segment_from_going(data: Path) -> None:
    files = FaultyFiles(0, 28, stays=True, only=("open_new",), path_part=".new")
    directory, _ = opened(data, files)
    log = only_log(directory)
    log.delete_oldest(4)
    assert files.failed
    assert len(segments(data)) == log.segment_count
    ended(directory)
    directory, report = opened(data)
    assert (report.offline, report.lost, report.healed) == ({}, {}, ())
    ended(directory)


# -- Kafka's files ------------------------------------------------------------------------------


def another_id(data: Path) -> None:
    write_topic_id(str(data / "k-0"), OTHER_ID, UnsyncedFiles())


def no_start(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n0\n")


def earlier_start(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nk 0 2\n")


def later_start(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nk 0 7\n")


def other_epochs(data: Path) -> None:
    (data / "k-0" / "leader-epoch-checkpoint").write_text("0\n1\n4 3\n")


def without(name: str) -> Callable[[Path], None]:
    def remove(data: Path) -> None:
        (data / name).unlink()

    return remove


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (another_id, "k-0/partition.metadata, which had another topic's id, "),
        (without("k-0/partition.metadata"), "k-0/partition.metadata, which was missing: "),
        (no_start, "log-start-offset-checkpoint, which said otherwise: k-0 begins at 3"),
        (earlier_start, "log-start-offset-checkpoint, which said otherwise: k-0 begins at 3"),
        (later_start, "log-start-offset-checkpoint, which said otherwise: k-0 begins at 3"),
        (
            without("log-start-offset-checkpoint"),
            "log-start-offset-checkpoint, which said otherwise: k-0 begins at 3",
        ),
        (other_epochs, "k-0/leader-epoch-checkpoint, which said otherwise: "),
    ],
)
def test_what_they_say_wrongly_is_mended_and_said(
    data: Path, change: Callable[[Path], None], told: str
) -> None:
    topic_id = read_topic_id(str(data / "k-0"), UnsyncedFiles())
    change(data)
    directory, report = opened(data)
    log = only_log(directory)
    (text,) = report.healed
    assert text.startswith(told)
    assert (report.offline, report.lost) == ({}, {})
    assert (log.topic_id, log.earliest, log.end_offset, log.leader_epoch) == (topic_id, 3, 20, 0)
    append_values(log, b"next")
    log.flush()
    ended(directory)
    assert read_topic_id(str(data / "k-0"), UnsyncedFiles()) == topic_id
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\nk 0 3\n"
    directory, report = opened(data)
    assert report.healed == ()
    ended(directory)


@pytest.mark.parametrize("what", ["another id", "a later start", "segments"])
def test_what_a_kafka_has_changed_since_counts(data: Path, what: str) -> None:
    """Also what damage would look like."""
    if what == "another id":
        another_id(data)
    elif what == "a later start":
        later_start(data)
    else:
        segments(data)[4].unlink()
    (data / KAFKAS_SIGN).write_text("0\n1\nk 0 20\n")
    directory, report = opened(data)
    assert (report.offline, report.lost, report.healed) == ({}, {}, ())
    log = only_log(directory)
    assert (log.topic_id == OTHER_ID) == (what == "another id")
    assert log.earliest == (7 if what == "a later start" else 3)
    assert len(read_records(log)) == log.end_offset - log.earliest - (
        2 if what == "segments" else 0
    )
    ended(directory)
    if what == "another id":
        (data / "k-0" / "partition.metadata").unlink()
        directory, report = opened(data)
        assert only_log(directory).topic_id == OTHER_ID, "it is known from then on"
        ended(directory)


def test_the_record_itself_may_be_damaged_or_missing(data: Path) -> None:
    path = data / "k-0" / "partition.hermes"
    ended(opened(data)[0])
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        directory, report = opened(data)
        (text,) = report.healed
        assert text.startswith("k-0/partition.hermes, which was damaged (")
        assert only_log(directory).earliest == 3
        ended(directory)
        assert path.read_bytes() == whole
    path.unlink()
    directory, report = opened(data)
    assert report.healed == ()
    ended(directory)
    assert path.read_bytes() == whole


def test_a_record_that_the_disk_has_lost_keeps_no_partition_offline(data: Path) -> None:
    files = FaultyFiles(0, stays=True, only=("open_read",), path_part="partition.hermes")
    directory, report = opened(data, files)
    assert files.failed
    assert report.offline == {}
    text = "k-0/partition.hermes, which could not be read: Kafka's files were believed"
    assert report.healed == (text,)
    assert only_log(directory).earliest == 3
    ended(directory)


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "partition.metadata",
        ".snapshot",
    ],
)
def test_another_small_file_that_the_disk_has_lost_does_not_either(data: Path, name: str) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    log = only_log(opened(data)[0])
    expected = log.earliest, log.leader_epoch, log.topic_id, read_records(log)
    (data / "k-0" / f"{log.end_offset:020d}.snapshot").write_bytes(b"")
    shutil.copytree(data, data.parent / "again")
    is_written_again = name == "partition.metadata"
    files = FaultyFiles(0, stays=not is_written_again, only=("pread",), path_part=name)
    directory, report = opened(data.parent / "again", files)
    assert files.failed or name == "recovery-point-offset-checkpoint"  # where nothing is scanned
    assert report.offline == {}
    log = only_log(directory)
    assert (log.earliest, log.leader_epoch, log.topic_id, read_records(log)) == expected
    ended(directory)


def test_a_full_disk_is_not_written_to_with_each_flush(tmp_path: Path) -> None:
    files = FaultyFiles(None, ENOSPC, stays=True, only=("open_new",), path_part=".new")
    directory, _ = opened(tmp_path / "data", files)
    log = directory.create("k", 0)
    append_values(log, b"1")
    log.flush()
    files.fail_at = files.counted
    for number in range(20):
        append_values(log, b"x" * 50, b"%d" % number)  # which begins segments
        log.flush()
    refused = files.failed
    assert refused
    assert log.index_failures == refused
    for _ in range(20):
        append_values(log, b"1")  # which doesn't
        log.flush()
    assert files.failed < refused + 20
    files.fail_at = None
    ended(directory)
    assert opened(tmp_path / "data")[1].lost == {}


def test_a_topic_that_is_made_again_has_nothing_of_the_last_one(data: Path) -> None:
    directory, _ = opened(data)
    directory.delete_topic("k")
    log = directory.create("k", 0)
    append_values(log, b"new")
    log.flush()
    topic_id = log.topic_id
    ended(directory)
    directory, report = opened(data)
    assert (report.offline, report.lost, report.healed) == ({}, {}, ())
    assert (only_log(directory).topic_id, only_log(directory).earliest) == (topic_id, 0)
    ended(directory)


def test_deleted_records_stay_deleted_whichever_of_the_two_files_is_written(data: Path) -> None:
    """A start is known before it is told, by one of them at least."""
    for number in range(12):
        files = FaultyFiles(number, 5, stays=True, only=("open_new", "pwrite", "rename"))
        directory, _ = opened(data)
        log = only_log(directory)
        log.sidecar._files = log.sidecar._checkpoints._files = files  # type: ignore[attr-defined]
        wanted = log.earliest + 1
        try:
            log.delete_records(wanted)
        except StorageError:
            wanted -= 1
        directory._lock.release()  # type: ignore[union-attr]
        directory, _ = opened(data)
        assert only_log(directory).earliest >= wanted
        ended(directory)


# -- a full disk ----------------------------------------------------------------------------------


class FullFiles(FaultyFiles):
    """A disk that is full until the segment of a log is deleted."""

    def after(self, name, arguments, result):  # type: ignore[no-untyped-def]
        if name == "unlink" and arguments[0].endswith(".log"):
            self.fail_at = None


def test_a_full_disk_keeps_nothing_from_being_read_after_a_start(data: Path) -> None:
    files = FaultyFiles(0, ENOSPC, stays=True, only=("pwrite", "pwritev", "open_new", "mkdir"))
    directory, report = opened(data, files)
    assert (report.offline, report.lost) == ({}, {})
    assert [each.offset for each in read_records(only_log(directory))] == [*range(3, 20)]


def test_deleting_a_topic_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    """Also one of which DeleteRecords has deleted something."""
    files = FullFiles(None, ENOSPC, stays=True, only=("pwrite", "pwritev"))
    directory, _ = opened(tmp_path, files)
    log = directory.create("k", 0)
    append_values(log, b"a", b"b")
    log.flush()
    log.delete_records(1)
    files.fail_at = files.counted
    assert directory.delete_topic("k") > 0
    log = directory.create("k", 0)
    append_values(log, b"c", b"d")
    log.flush()
    ended(directory, is_clean=False)
    assert [each.value for each in read_records(only_log(opened(tmp_path)[0]))] == [b"c", b"d"]
