"""`check-log`'s view of partitions of Kafka's format."""

import os
from errno import EIO
from pathlib import Path

import pytest
from kafka_logs import append_batch, append_values, batches_in, open_kafka_log, sent
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, all_files, settings, write_segment

from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck, Finding, Totals, data_bytes
from hermes.protocol.record_batches import HEADER_BYTES, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.storage import DataDirectory, FileLayer
from hermes.storage.checkpoints import write_topic_id


def checked(root: Path) -> tuple[list[Finding], Totals]:
    advanced: list[int] = []
    check = DirectoryCheck(root, Limits(), pause=lambda: None, advance=advanced.append)
    before = all_files(root)
    found = list(check.run())
    assert all_files(root) == before
    assert sum(advanced) in (0, data_bytes(root))
    return found, check.totals


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a partition of three segments, stopped well."""
    directory = DataDirectory(
        tmp_path / "data", lambda topic: settings(10_500, format="kafka"), UnsyncedFiles()
    )
    directory.open(NOW_MS)
    log = directory.create("k", 0)
    for number in range(30):
        append_batch(log, sent([b"x" * 900, b"%d" % number], RecordCodec.NONE))
    append_batch(log, sent([b"z" * 50] * 3, RecordCodec.ZSTD))
    log.flush()
    assert log.segment_count == 3
    directory.close()
    return tmp_path / "data"


def segments(data: Path) -> list[Path]:
    return sorted((data / "k-0").glob("*.log"))


def texts(found: list[Finding]) -> list[str]:
    return [f"{each.kind}: {each.text}" for each in found]


def test_a_sound_partition(data: Path) -> None:
    found, totals = checked(data)
    assert found == []
    assert (totals.partitions, totals.segments, totals.messages) == (1, 3, 63)
    assert totals.size_bytes == sum(path.stat().st_size for path in segments(data))
    found, totals = checked(data / "k-0")
    assert (found, totals.messages) == ([], 63)


def test_a_damaged_record_of_the_log_is_said(data: Path) -> None:
    path = data / "k-0" / "partition.hermes"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    found, _ = checked(data)
    (only,) = found
    assert (only.kind, only.path) == ("notice", "k-0/partition.hermes")
    assert only.text.startswith("is damaged (")


@pytest.mark.parametrize(
    ("place", "said"),
    [(0, "begins at offset "), (1, "lacks the segment "), (2, "ends at offset ")],
)
def test_a_lost_segment_is_said(data: Path, place: int, said: str) -> None:
    path = segments(data)[place]
    for each in path.parent.glob(f"{path.stem}.*"):
        each.unlink()
    found, _ = checked(data)
    (only,) = [each for each in found if each.kind == "problem"]
    assert said in only.text
    assert only.path == "k-0"


def test_damage_is_named_with_the_way_on(data: Path) -> None:
    path = segments(data)[1]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    found, totals = checked(data)
    base = int(path.stem)
    (only,) = found
    assert (only.kind, only.offset, only.next_offset) == ("problem", base, base + 2)
    assert "its CRC is not" in only.text
    assert totals.messages == 61


def test_a_torn_tail_and_a_tail_that_is_being_written(data: Path) -> None:
    path = segments(data)[-1]
    os.truncate(path, path.stat().st_size - 1)
    found, _ = checked(data)
    # What was torn off is in the indexes still, or not: that costs no message.
    assert [text for text in texts(found) if text.startswith("problem")] == [
        f"problem: its length is {_last_size(path)}, which is 1 bytes beyond the "
        f"end: {_last_size(path) - 1} bytes are lost; the broker cuts them off when it recovers"
    ]


def _last_size(path: Path) -> int:
    content = path.read_bytes()
    position = sum(header.size_bytes for header, _ in batches_in(content))
    return decode_header(content, position).size_bytes


def test_a_batch_whose_messages_are_not_what_it_says(data: Path) -> None:
    path = segments(data)[-1]
    content = path.read_bytes()
    header = decode_header(content)
    changed = header._replace(record_count=1, last_offset_delta=1)
    body = content[HEADER_BYTES : header.size_bytes]
    path.write_bytes(with_crc(changed, body) + body + content[header.size_bytes :])
    found, _ = checked(data)
    (only,) = (each.text for each in found if each.kind == "problem")
    assert "CRC" not in only


def test_wrong_index_entries_are_notices(data: Path) -> None:
    path = segments(data)[0]
    index = path.with_suffix(".index")
    index.write_bytes(b"\0\0\0\1" + index.read_bytes()[4:])
    times = path.with_suffix(".timeindex")
    times.write_bytes(b"\0\0\0\0\0\0\0\1" + times.read_bytes()[8:])
    found, _ = checked(data)
    assert sorted(Path(each.path).suffix for each in found) == [".index", ".timeindex"]
    assert {each.kind for each in found} == {"notice"}


def test_what_makes_no_partition_of_kafkas(data: Path) -> None:
    (data / "k-0" / "partition.metadata").write_text("version: 0\ntopic_id: x")
    found, _ = checked(data)
    assert "partition.metadata is damaged" in found[0].text
    (data / "k-0" / "partition.metadata").unlink()
    found, _ = checked(data)
    assert "has no partition.metadata" in found[0].text
    write_segment(data, b"", partition="k-0", base=500)
    found, _ = checked(data)
    assert "it stays offline" in found[0].text
    (data / "k-0" / "partition.hermes").unlink()  # from which a start would mend it
    directory = DataDirectory(data, lambda topic: settings(), UnsyncedFiles())
    report = directory.open(NOW_MS)
    assert "which is no file of the format 0.7" in report.offline["k", 0]
    directory.close()


def test_what_a_deletion_has_left_is_no_problem(data: Path) -> None:
    for each in (data / "k-0").iterdir():
        if each.name != "leader-epoch-checkpoint" and each.suffix != ".snapshot":
            each.unlink()
    found, totals = checked(data)
    text = "notice: holds no message, but what a deletion has left; its topic may be made again"
    assert (texts(found), totals.partitions, totals.problems) == ([text], 1, 0)
    assert texts(checked(data / "k-0")[0]) == [text]


def test_a_directory_of_both_kinds_is_refused_by_name(data: Path) -> None:
    write_segment(data, b"", partition="k-0", base=500)
    before = all_files(data)
    directory = DataDirectory(data, lambda topic: settings(), UnsyncedFiles())
    report = directory.open(NOW_MS)
    assert (
        "00000000000000000500.kafka, which is no file of the format kafka"
        in (report.offline["k", 0])
    )
    directory.close()
    (data / ".hermes_lock").unlink()
    before.pop(".hermes_lock", None)
    before.pop(".kafka_cleanshutdown", None)
    after = all_files(data)
    after.pop(".kafka_cleanshutdown", None)
    after.pop(".hermes_lock", None)
    assert after == before


def test_a_broker_may_be_writing(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_values(log, b"a")
    log.flush()
    assert log.topic_id is not None
    write_topic_id(str(tmp_path / "k-0"), log.topic_id, UnsyncedFiles())
    batch = sent([b"b"])
    path = tmp_path / "k-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    placed = batch[:7] + b"\1" + batch[8:]
    path.write_bytes(whole + placed[:50])
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(1)
        if len(pauses) == 3:
            path.write_bytes(whole + placed)

    check = DirectoryCheck(tmp_path / "k-0", Limits(), pause=pause)
    assert list(check.run()) == []
    assert len(pauses) == 3
    log.close()


def test_an_unreadable_sector_is_a_problem_of_its_file_alone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = segments(data)[1]
    file, pread = lost.stat().st_ino, os.pread

    def reading(descriptor: int, length: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino == file and position < 4096:
            raise OSError(EIO, os.strerror(EIO))
        return pread(descriptor, length, position)

    monkeypatch.setattr(FileLayer, "pread", staticmethod(reading))
    found, totals = checked(data)
    assert {(each.kind, each.path) for each in found} == {("problem", f"k-0/{lost.name}")}
    assert "the disk doesn't give back 4096 bytes" in {each.text for each in found}
    assert any(each.offset == int(lost.stem) for each in found)
    assert totals.segments == 3
    assert totals.messages > 50
