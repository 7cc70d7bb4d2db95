import os
import shutil
from errno import EIO
from functools import partial
from zlib import crc32

import pytest
from storage_logs import read_all, write_segment

from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck, Totals, data_bytes
from hermes.protocol import Codec, encode_message_set
from hermes.storage import DataDirectory, FileLayer, LogSettings
from hermes.storage.index_entries import IndexEntry, encode_entry
from hermes.storage.time_index import SYNC_EVERY_BYTES

PAYLOADS = [b"payload %d" % number for number in range(50)]
DATA = encode_message_set(PAYLOADS)


def verification(root, pause=lambda: None):
    return DirectoryCheck(root, Limits(), pause=pause)


@pytest.fixture
def make_segment(tmp_path):
    """Writes a segment below the data directory; returns its path."""
    return partial(write_segment, tmp_path / "data")


@pytest.fixture
def check(tmp_path):
    """Checks the data directory: (findings, totals)."""

    def run():
        check = verification(tmp_path / "data")
        return list(check.run()), check.totals

    return run


def test_a_good_directory(check, make_segment, tmp_path):
    make_segment(DATA)
    make_segment(encode_message_set(PAYLOADS, Codec.SNAPPY), base=len(DATA))
    make_segment(b"", partition="views-10")
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    (tmp_path / "data" / ".hermes_lock").write_text("123")
    findings, totals = check()
    assert findings == []
    assert totals == Totals(2, 3, 100, data_bytes(tmp_path / "data"))


def test_nothing_is_changed(check, make_segment, tmp_path):
    make_segment(DATA[:-3])
    (tmp_path / "data" / "strange").mkdir()
    before = {path: path.stat() for path in sorted((tmp_path / "data").rglob("*"))}
    check()
    after = {path: path.stat() for path in sorted((tmp_path / "data").rglob("*"))}
    assert list(before) == list(after)
    assert all(before[path].st_mtime_ns == after[path].st_mtime_ns for path in before)
    assert all(before[path].st_size == after[path].st_size for path in before)


@pytest.mark.parametrize("bit", range(8 * 14))
def test_every_flipped_bit_of_a_header_is_found(check, make_segment, bit):
    start = len(encode_message_set(PAYLOADS[:10]))
    if bit // 8 == 5 and bit % 8 < 6:
        return  # the attributes' free bits mean nothing
    data = bytearray(DATA)
    data[start + bit // 8] ^= 0x80 >> bit % 8
    make_segment(bytes(data))
    findings, totals = check()
    assert totals.problems
    assert [(each.kind, each.offset) for each in findings] == [("problem", start)]
    assert findings[0].next_offset == len(encode_message_set(PAYLOADS[:11]))
    assert totals.messages == 49


def test_a_missing_segment_is_named_with_what_is_lost(check, make_segment):
    make_segment(DATA)
    make_segment(DATA, base=len(DATA) + 1000)
    findings, totals = check()
    assert totals.problems
    assert [each.text for each in findings] == [
        f"ends at {len(DATA)}, but the next segment starts at {len(DATA) + 1000}: "
        "1000 bytes are missing"
    ]
    assert findings[0].path == "clicks-0/00000000000000000000.kafka"


def test_overlapping_segments_are_a_problem(check, make_segment):
    make_segment(DATA)
    make_segment(DATA, base=10)
    findings, totals = check()
    assert totals.problems
    assert findings[0].text.endswith("they overlap")


def test_a_tail_of_an_old_segment_and_one_of_the_last(check, make_segment):
    make_segment(DATA + b"\0\0")
    make_segment(DATA[:-1], base=len(DATA) + 2)
    findings, totals = check()
    assert totals.problems
    assert [each.offset for each in findings] == [len(DATA), 2 * len(DATA) + 2 - 20]
    assert "cuts them off" not in findings[0].text
    assert "the broker cuts them off when it recovers" in findings[1].text
    assert totals.messages == 99


def test_a_segment_that_is_not_flushed_yet_belongs_to_the_log(check, make_segment):
    make_segment(DATA)
    make_segment(DATA, base=len(DATA), suffix=".unflushed")
    assert check()[0] == []


M1, M2, M3 = (encode_message_set([letter * 20]) for letter in (b"a", b"b", b"c"))
END = len(M1)


def spoiled(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("damaged", [False, True])
def test_of_two_files_with_one_base_the_one_that_the_broker_serves_is_checked(
    check, make_segment, damaged, tmp_path
):
    """A Hermes killed just after a roll leaves a draft; Kafka 0.7 then appends there itself."""
    make_segment(M1)
    make_segment(encode_message_set([b"Hermes, killed"]), base=END, suffix=".unflushed")
    make_segment(spoiled(M2) if damaged else M2, base=END)
    make_segment(M3, base=2 * END)
    findings, totals = check()
    assert (totals.problems, totals.segments) == (damaged, 3)
    notices = [found for found in findings if found.kind == "notice"]
    assert [found.path for found in notices] == [f"clicks-0/{END:020d}.unflushed"]
    assert f"the broker serves {END:020d}.kafka" in notices[0].text
    assert served(tmp_path / "data") == (M1 + (spoiled(M2) if damaged else M2) + M3, 1)


@pytest.mark.parametrize(
    ("drafts", "text"),
    [({END: M2}, "fits nowhere between"), ({5 * END: M2}, "no segment leads to")],
)
def test_a_draft_that_is_no_part_of_the_log_is_no_problem(
    check, make_segment, tmp_path, drafts, text
):
    make_segment(M1 + M2)
    make_segment(M3, base=2 * END)
    for base, data in drafts.items():
        make_segment(data, base=base, suffix=".unflushed")
    findings, totals = check()
    assert (totals.problems, len(findings), totals.segments) == (0, 1, 2)
    assert text in findings[0].text
    assert served(tmp_path / "data")[0] == M1 + M2 + M3


def served(directory):
    """What a broker makes of the directory: (the visible bytes, how many files it left alone)."""
    opened = DataDirectory(directory, lambda topic: LogSettings())
    report = opened.open(0)
    visible = read_all(opened.logs["clicks", 0])
    opened.close()
    return visible, len(report.strange)


def test_files_that_are_not_regular_are_named_and_not_waited_for(check, make_segment, tmp_path):
    make_segment(M1)
    make_segment(M1, partition="good-0")
    os.mkfifo(tmp_path / "data" / "clicks-0" / f"{0:020d}.timeindex")
    make_segment(M1, partition="pipe-0").unlink()
    os.mkfifo(tmp_path / "data" / "pipe-0" / f"{0:020d}.kafka")
    (tmp_path / "data" / "link-0").mkdir()
    (tmp_path / "data" / "link-0" / f"{0:020d}.kafka").symlink_to("/dev/zero")
    findings, totals = check()
    problems = {found.path for found in findings if found.kind == "problem"}
    assert totals.problems
    assert problems == {
        f"clicks-0/{0:020d}.timeindex",
        f"link-0/{0:020d}.kafka",
        f"pipe-0/{0:020d}.kafka",
    }
    assert totals.segments == 2


def test_what_embedded_coordination_keeps_is_no_strange_file(check, make_segment, tmp_path):
    make_segment(M1)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / "data" / f".hermes_coordination{suffix}").touch()
    assert check()[0] == []


def test_directories_are_partitions_where_the_broker_takes_them_for_such(check, tmp_path):
    for name, file in (("backup-1763715600", f"{0:020d}.kafka"), ("photos-1", "beach.jpg")):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / file).touch()
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    findings, totals = check()
    assert (totals.problems, totals.partitions) == (0, 0)
    assert [found.path for found in findings] == ["backup-1763715600", "photos-1"]


def test_strange_entries_are_notices_and_no_failure(check, make_segment, tmp_path):
    make_segment(DATA)
    (tmp_path / "data" / "lost+found").mkdir()
    (tmp_path / "data" / "notes.txt").touch()
    (tmp_path / "data" / "clicks-0" / "backup.kafka~").touch()
    (tmp_path / "data" / "clicks-0" / f"{7:020d}.timeindex").touch()
    (tmp_path / "data" / "empty-1").mkdir()
    findings, totals = check()
    assert {each.kind for each in findings} == {"notice"}
    assert sorted(each.path for each in findings) == [
        f"clicks-0/{7:020d}.timeindex",
        "clicks-0/backup.kafka~",
        "empty-1",
        "lost+found",
        "notes.txt",
    ]
    assert (totals.notices, totals.problems) == (5, 0)


# -- while a broker is at work ------------------------------------------------------------------


def test_an_append_that_is_under_way_is_waited_for(make_segment, tmp_path):
    path = make_segment(DATA[:-5])
    steps = iter([DATA[-5:-3], b"", DATA[-3:] + DATA + b"\0\0"])

    def pause():
        with path.open("ab") as file:
            file.write(next(steps))

    check = verification(tmp_path / "data", pause)
    assert list(check.run()) == []
    assert check.totals.messages == 49  # the last one was not there when the check began
    assert next(steps, None) is None


def test_a_failed_append_that_is_cut_off_is_no_problem(make_segment, tmp_path):
    path = make_segment(DATA + b"\0\0")
    check = verification(tmp_path / "data", lambda: path.write_bytes(DATA))
    assert list(check.run()) == []
    assert check.totals.messages == 50


def test_a_tail_that_stays_torn_is_a_problem_after_a_bounded_wait(make_segment, tmp_path):
    make_segment(DATA[:-5])
    pauses = []
    check = verification(tmp_path / "data", lambda: pauses.append(1))
    assert [finding.kind for finding in check.run()] == ["problem"]
    assert 0 < len(pauses) < 100


def test_retention_may_delete_the_oldest_segments_meanwhile(make_segment, tmp_path):
    make_segment(DATA, partition="a-0")
    torn = make_segment(DATA + b"\0", partition="a-1")
    first = make_segment(DATA, partition="b-0")
    make_segment(DATA, partition="b-0", base=len(DATA))
    check = verification(tmp_path / "data", lambda: None)
    findings = check.run()
    assert next(findings).path == f"a-1/{torn.name}"
    first.unlink()  # before its partition was looked at
    assert list(findings) == []
    assert check.totals.segments == 3


# -- the time index -----------------------------------------------------------------------------


def entry(time_ms, end_offset):
    return encode_entry(
        IndexEntry(time_ms, end_offset, crc32(DATA[max(0, end_offset - 64) : end_offset]))
    )


GOOD_ENTRIES = [entry(1000 + number, 17 * number) for number in range(1, 11)]


@pytest.mark.parametrize(
    ("index", "kinds"),
    [
        (b"".join(GOOD_ENTRIES), []),
        (b"", []),
        (b"".join(GOOD_ENTRIES) + b"torn", ["notice"]),
        (b"".join(GOOD_ENTRIES) + bytes(24), ["notice"]),
        (GOOD_ENTRIES[0] + bytes(24) + GOOD_ENTRIES[1], ["problem"]),
        (GOOD_ENTRIES[1] + GOOD_ENTRIES[0], ["problem"]),
        (encode_entry(IndexEntry(1, 100, 0)), ["notice"]),  # Kafka rewrote the segment
        (encode_entry(IndexEntry(1, 10**9, 0)), ["notice"]),
    ],
)
def test_the_time_index_is_compared_with_its_segment(check, make_segment, tmp_path, index, kinds):
    make_segment(DATA)
    make_segment(index, suffix=".timeindex")
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    findings, _ = check()
    assert [each.kind for each in findings] == kinds
    assert all(each.path.endswith(".timeindex") for each in findings)


@pytest.mark.parametrize(
    "index",
    [GOOD_ENTRIES[0] + bytes(24) + GOOD_ENTRIES[1], GOOD_ENTRIES[1] + GOOD_ENTRIES[0]],
    ids=["damaged", "out of order"],
)
def test_what_a_power_loss_tore_is_a_problem_only_where_no_recovery_comes(
    check, make_segment, tmp_path, index
):
    """Only after an unclean stop, and not before an index that is written to its end."""
    size = len(DATA)
    make_segment(DATA)
    make_segment(DATA, base=size)
    make_segment(DATA, base=2 * size)
    make_segment(DATA, base=3 * size, suffix=".unflushed")
    for base, end in ((size, size), (2 * size, 17)):
        shifted = encode_entry(IndexEntry(1, base + end, crc32(DATA[:end][-64:])))
        make_segment(shifted + bytes(24) + shifted, base=base, suffix=".timeindex")
    make_segment(index, suffix=".timeindex")
    found, totals = check()
    assert totals.problems
    assert [(each.kind, each.path) for each in found] == [
        ("problem", f"clicks-0/{0:020d}.timeindex"),
        ("notice", f"clicks-0/{size:020d}.timeindex"),
        ("notice", f"clicks-0/{2 * size:020d}.timeindex"),
    ]
    directory = DataDirectory(tmp_path / "data", lambda topic: LogSettings())
    directory.open(0)
    directory.close(clean=False)
    assert [each.path for each in check()[0]] == [f"clicks-0/{0:020d}.timeindex"]


def test_damage_that_no_power_loss_can_have_done_is_a_problem(check, make_segment):
    """An index is synced every 64 MiB of log."""
    far = SYNC_EVERY_BYTES + 17
    make_segment(encode_message_set([bytes(far)]) + DATA)
    entries = [IndexEntry(1, end, 0) for end in (5, 6, far + 20, far + 30)]
    one, two, three, four = map(encode_entry, entries)
    make_segment(one + bytes(24) + two + three + bytes(24) + four, suffix=".timeindex")
    texts = {(each.kind, each.text[:11]) for each in check()[0] if "damaged" in each.text}
    assert texts == {("problem", "1 of 6 entr"), ("notice", "1 of 6 entr")}


# -- what the disk doesn't give back --------------------------------------------------------------


@pytest.fixture
def lose_sector(monkeypatch):
    """Lets the disk give a file's first so many bytes no more."""

    def lose(path, size=10):
        file, pread = path.stat().st_ino, os.pread

        def reading(descriptor, length, position):
            if os.fstat(descriptor).st_ino == file and position < size:
                raise OSError(EIO, os.strerror(EIO))
            return pread(descriptor, length, position)

        monkeypatch.setattr(FileLayer, "pread", staticmethod(reading))

    return lose


def test_an_unreadable_sector_is_a_problem_of_its_file_alone(check, make_segment, lose_sector):
    lost = make_segment(DATA * 10)
    make_segment(DATA, partition="views-0")
    lose_sector(lost, 4096)
    findings, totals = check()
    assert [(each.kind, each.path) for each in findings] == [
        ("problem", f"clicks-0/{lost.name}"),
        ("problem", f"clicks-0/{lost.name}"),
    ]
    assert findings[0].offset == 0
    assert findings[0].next_offset > 4000
    assert findings[1].text == "the disk doesn't give back 4096 bytes"
    assert totals.partitions == 2
    assert totals.messages > 50


def test_an_unreadable_index_is_a_problem_of_its_own(check, make_segment, lose_sector):
    make_segment(DATA)
    index = make_segment(GOOD_ENTRIES[0], suffix=".timeindex")
    lose_sector(index)
    findings, totals = check()
    assert [(each.path, each.text) for each in findings] == [
        (f"clicks-0/{index.name}", "its end is torn; the broker ignores that"),
        (f"clicks-0/{index.name}", "the disk doesn't give back 24 bytes"),
    ]
    assert totals.messages == 50


def test_a_directory_that_can_not_be_listed_hides_no_other(check, make_segment, monkeypatch):
    make_segment(DATA)
    make_segment(DATA, partition="views-0")
    listdir = os.listdir

    def listing(path):
        if os.fspath(path).endswith("clicks-0"):
            raise OSError(EIO, os.strerror(EIO))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", listing)
    findings, totals = check()
    assert [(each.kind, each.path, each.text) for each in findings] == [
        ("problem", "clicks-0", "can't be checked: Input/output error")
    ]
    assert totals.messages == 50


def test_a_topic_may_be_deleted_during_the_check(make_segment, tmp_path):
    first = make_segment(DATA)
    make_segment(DATA, base=len(DATA))
    make_segment(DATA, partition="views-0")

    def delete(size_bytes):
        if first.exists():
            shutil.rmtree(first.parent)

    check = DirectoryCheck(tmp_path / "data", Limits(), pause=lambda: None, advance=delete)
    assert [(each.kind, each.path, each.text) for each in check.run()] == [
        ("notice", "clicks-0", "was deleted during the check")
    ]
    assert check.totals.messages == 100
