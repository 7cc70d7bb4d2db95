"""A log that is made the same as another copy: cut, begun again, appended to in place."""

import os
from contextlib import suppress
from errno import EIO, EMFILE
from pathlib import Path

import pytest
from kafka_logs import (
    TOPIC_ID,
    append_values,
    batches_in,
    check_indexes,
    open_kafka_log,
    read_batches,
    read_records,
    record,
)
from memory_files import MemoryFiles
from storage_fakes import FaultyFiles, UnsyncedFiles
from storage_logs import NOW_MS, append, message, open_log, read_all, settings
from transacted_logs import Writer

from hermes.errors import (
    InvalidBatchError,
    LogOfflineError,
    OffsetOutOfRangeError,
    StorageError,
)
from hermes.protocol.record_batches import LENGTH_END, decode_header, placed
from hermes.protocol.records import encode_batch
from hermes.replication.following import check_batches
from hermes.storage import Log, LogSlice
from hermes.storage.checkpoints import RECORD_NAME
from hermes.storage.kafka_format import KAFKA
from hermes.storage.producer_snapshots import snapshot_name

SIZE = len(message("0"))


def batch(number: int, *, producer: int = -1, sequence: int = -1) -> bytes:
    """One message, as a producer sends it."""
    epoch = 0 if producer >= 0 else -1
    return encode_batch(
        [record(b"value %d" % number)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def place(log: Log, data: bytes, offset: int, epoch: int = 0) -> None:
    """Append a batch where it lies in another log."""
    ((header, _),) = batches_in(data)
    buffers = placed(data, [header], offset, epoch)
    ((header, _),) = batches_in(b"".join(buffers))
    log.replica.append_placed(buffers, [header], NOW_MS)


def follower(path: Path, segment_bytes: int = 200) -> Log:
    """A log of Kafka's format with other copies, of ten flushed messages in some segments."""
    log, _ = open_kafka_log(path, segment_bytes=segment_bytes)
    log.is_sole_copy = False
    for number in range(10):
        place(log, batch(number), number)
    log.flush()
    return log


def appended(log: Log) -> bytes:
    """All that the log has, committed or not."""
    offset, found = log.earliest, b""
    while offset < log.end_offset:
        with log.replica.read_appended(offset, 1 << 20) as part:
            data = os.pread(part.fileno(), part.length, part.position)
        found += data
        offset = batches_in(data)[-1][0].next_offset if log.counts_messages else offset + len(data)
    return found


# -- cut ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_flushed", [True, False], ids=["flushed", "not flushed"])
def test_a_log_of_messages_is_cut_at_every_byte(tmp_path: Path, is_flushed: bool) -> None:
    texts = [message(str(number)) for number in range(6)]
    for offset in range(SIZE, 6 * SIZE + 1):
        log = open_log(tmp_path / f"c-{offset}", log_settings=settings(SIZE))
        log.is_sole_copy = False
        for number, text in enumerate(texts):
            append(log, text, now_ms=NOW_MS + number)
            if is_flushed or not number:
                log.flush()
        log.commit(SIZE)
        openings = log.openings
        end = log.replica.cut_to(offset, NOW_MS).valid_end
        assert end == log.end_offset == log.flushed_end == offset // SIZE * SIZE
        assert (log.openings, log.high_watermark) == (openings + 1, SIZE)
        append(log, message("x"), now_ms=NOW_MS + 9)
        log.flush()
        log.commit(1 << 40)
        expected = b"".join(texts)[:end] + message("x")
        assert read_all(log) == expected
        log.close()
        again = open_log(tmp_path / f"c-{offset}", clean=True)
        assert read_all(again) == expected
        assert again.offsets_before(NOW_MS + 10, 1, NOW_MS + 20) == [end + SIZE]
        again.close()


@pytest.mark.parametrize("unflushed", [0, 3])
def test_a_log_of_batches_is_cut_at_every_offset(tmp_path: Path, unflushed: int) -> None:
    for offset in range(2, 11 + unflushed):
        path = tmp_path / f"k-{offset}"
        log = follower(path)
        for number in range(10, 10 + unflushed):
            place(log, batch(number), number)
        log.commit(2)
        expected = batches_in(appended(log))[:offset]
        assert log.replica.cut_to(offset, NOW_MS).valid_end == offset
        assert (log.end_offset, log.flushed_end, log.high_watermark) == (offset, offset, 2)
        assert batches_in(appended(log)) == expected
        place(log, batch(99), offset)
        log.flush()
        log.commit(offset + 1)
        found = read_batches(log)
        assert found[:-1] == expected
        log.close()
        again, _ = open_kafka_log(path, clean=True)
        assert read_batches(again) == found
        again.close()
        for each in path.glob("*.log"):
            check_indexes(each)


def test_a_batch_is_cut_as_a_whole(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    log.is_sole_copy = False
    append_values(log, b"a", b"b", b"c")
    append_values(log, b"d", b"e", b"f")
    log.flush()
    log.replica.cut_to(4, NOW_MS)
    assert log.end_offset == 3


def test_what_is_committed_is_not_cut(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.commit(5)
    for offset in (4, 11):
        with pytest.raises(OffsetOutOfRangeError):
            log.replica.cut_to(offset, NOW_MS)
    assert (log.end_offset, log.is_offline) == (10, False)


@pytest.mark.parametrize("start", [0, 3])
def test_what_is_committed_is_cut_where_that_is_forced(tmp_path: Path, start: int) -> None:
    for offset in range(start, 11):
        path = tmp_path / f"k-{offset}"
        log = follower(path)
        log.commit(7)
        if start:
            log.delete_records(start)
        expected = batches_in(appended(log))[: offset - start]
        assert log.replica.cut_to(offset, NOW_MS, is_forced=True).valid_end == offset
        assert (log.earliest, log.end_offset) == (start, offset)
        assert log.high_watermark == min(7, offset)
        assert read_batches(log) == expected[: 7 - start]
        place(log, batch(99), offset, 4)
        log.flush()
        log.commit(offset + 1)
        assert read_batches(log)[:-1] == expected
        found = read_batches(log)
        log.close()
        again, _ = open_kafka_log(path, clean=True)
        assert read_batches(again) == found
        again.close()
        for each in path.glob("*.log"):
            check_indexes(each)


def test_even_a_forced_cut_is_of_what_the_log_has(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.commit(7)
    log.delete_records(3)
    for offset in (2, 11):
        with pytest.raises(OffsetOutOfRangeError):
            log.replica.cut_to(offset, NOW_MS, is_forced=True)
    assert (log.end_offset, log.high_watermark, log.is_offline) == (10, 7, False)


def test_a_cut_takes_what_was_known_of_producers_and_epochs(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=100)
    log.is_sole_copy = False
    for number in range(6):
        place(log, batch(number, producer=7, sequence=number), number, 3 if number < 4 else 5)
        log.flush()
    assert log.producers is not None
    assert log.producers.states[7].last_sequence == 5
    assert (log.replica.epoch_before(log.end_offset), log.end_of_epoch(3)) == (5, (3, 4))
    log.replica.cut_to(3, NOW_MS)
    assert log.producers.states[7].last_sequence == 2
    assert log.replica.epoch_before(log.end_offset) == 3
    # Another history, in an epoch before what was cut.
    place(log, batch(3, producer=7, sequence=3), 3, 4)
    assert log.leader_epoch == log.replica.epoch_before(log.end_offset) == 4
    log.flush()
    log.close()
    again, _ = open_kafka_log(tmp_path / "k-0", clean=True)
    assert again.leader_epoch == 4
    assert again.end_of_epoch(3) == (3, 3)


def test_what_a_cut_has_taken_is_not_missed_after_a_kill(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.replica.cut_to(5, NOW_MS)
    again, _ = open_kafka_log(tmp_path / "k-0")
    assert again.sidecar.lost == ""


def test_what_a_cut_has_taken_is_not_missed_after_a_loss_of_power(tmp_path: Path) -> None:
    """What is known of segments is synced with the cut; what a flush writes of it may be lost."""
    log = follower(tmp_path / "k-0")
    log.replica.cut_to(4, NOW_MS)
    known = (tmp_path / "k-0" / RECORD_NAME).read_bytes()
    place(log, encode_batch([record(b"x" * 200)]), 4)
    for number in range(5, 12):
        place(log, batch(number), number)
    log.flush()
    expected = appended(log)
    assert [each.base_offset for each in log.view.segments] == [0, 3, 5, 8, 11]
    (tmp_path / "k-0" / RECORD_NAME).write_bytes(known)
    again, _ = open_kafka_log(tmp_path / "k-0")
    assert appended(again) == expected


def test_an_epoch_that_begins_while_records_are_deleted_begins_where_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = follower(tmp_path / "k-0")
    log.commit(10)
    sidecar, cut = log.sidecar, log.sidecar.cut

    def append() -> None:
        place(log, batch(10), 10)
        log.replica.begin_epoch(7)
        place(log, batch(11), 11, 7)

    def cut_late(earliest: int, end: int) -> None:
        if not log.state.lock.locked():  # so the reactor's thread comes in between
            append()
        cut(earliest, end)

    monkeypatch.setattr(sidecar, "cut", cut_late)
    log.delete_records(4)
    if log.end_offset == 10:
        append()
    assert (log.replica.epoch_before(11), log.replica.epoch_before(12)) == (0, 7)


# -- appends in place -----------------------------------------------------------------------------


def test_holes_stay_and_reading_goes_over_them(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=200)
    for offset in (3, 4, 9, 20, 21):
        place(log, batch(offset), offset, 2)
    log.flush()
    assert [each.offset for each in read_records(log)] == [3, 4, 9, 20, 21]
    assert [each.offset for each in read_records(log, 5)] == [9, 20, 21]
    assert (log.end_offset, log.leader_epoch) == (22, 2)
    log.close()
    again, report = open_kafka_log(tmp_path / "k-0")
    assert report is not None
    assert [each.offset for each in read_records(again)] == [3, 4, 9, 20, 21]


@pytest.mark.parametrize("first", [0, 5])
def test_a_hole_of_more_than_an_index_has_bits_for(tmp_path: Path, first: int) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    offsets = [*range(first), first + 2**32, first + 2**32 + 1]
    for offset in offsets:
        place(log, batch(offset), offset)
    log.flush()
    assert [each.offset for each in read_records(log)] == offsets
    log.close()
    again, _ = open_kafka_log(tmp_path / "k-0")
    assert [each.offset for each in read_records(again)] == offsets
    for each in (tmp_path / "k-0").glob("*.log"):
        check_indexes(each)


@pytest.mark.parametrize(("offset", "epoch"), [(9, 3), (10, 2)], ids=["an offset", "an epoch"])
def test_what_does_not_follow_is_refused(tmp_path: Path, offset: int, epoch: int) -> None:
    log = follower(tmp_path / "k-0")
    place(log, batch(10), 10, 3)
    log.replica.cut_to(11, NOW_MS)
    place(log, batch(11), 11, 3)
    log.replica.cut_to(11, NOW_MS)
    with pytest.raises(StorageError, match="doesn't follow"):
        place(log, batch(0), offset, epoch)
    place(log, batch(11), 11, 3)


def test_a_log_whose_offsets_count_bytes_takes_none(tmp_path: Path) -> None:
    log = open_log(tmp_path / "c-0")
    with pytest.raises(StorageError, match=r"format 0\.7"):
        log.replica.append_placed([b""], [], NOW_MS)
    with pytest.raises(StorageError, match=r"format 0\.7"):
        log.replica.restart_at(100)


def test_an_append_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(None, 28, only=("pwrite", "pwritev"))
    log, _ = open_kafka_log(tmp_path / "k-0", files)
    place(log, batch(0), 0)
    files.fail_at = files.counted
    with pytest.raises(StorageError):
        place(log, batch(1), 1)
    place(log, batch(1), 1)
    log.flush()
    assert [each.offset for each in read_records(log)] == [0, 1]


def test_an_epoch_begins_without_a_message(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.replica.begin_epoch(8)
    assert (log.leader_epoch, log.replica.epoch_before(log.end_offset)) == (8, 0)
    log.flush()
    assert log.end_of_epoch(0) == (0, 10)
    assert "8 10" in (tmp_path / "k-0" / "leader-epoch-checkpoint").read_text()


def test_epochs_that_can_not_be_written_are_counted(tmp_path: Path) -> None:
    files = FaultyFiles(None, 28, stays=True, only=("open_new",), path_part=".new")
    log, _ = open_kafka_log(tmp_path / "k-0", files)
    place(log, batch(0), 0)
    log.flush()
    before = log.index_failures
    files.fail_at = files.counted
    log.replica.begin_epoch(1)
    log.flush()
    assert log.index_failures > before
    files.fail_at = None
    log.flush()
    assert "1 1" in (tmp_path / "k-0" / "leader-epoch-checkpoint").read_text()


def test_epochs_of_segments_that_were_never_flushed_are_found(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=80)
    for offset in range(6):
        place(log, batch(offset), offset, 1 if offset < 5 else 3)
    assert log.segment_count > 2
    again, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=80)  # the broker was killed
    assert [again.replica.epoch_before(offset) for offset in range(7)] == [-1, 1, 1, 1, 1, 1, 3]


# -- a new start ----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [10, 11, 2**33])
def test_a_log_begins_again_elsewhere(tmp_path: Path, offset: int) -> None:
    log = follower(tmp_path / "k-0")
    log.commit(4)
    openings = log.openings
    with log.read(0, 1000) as held:
        log.replica.restart_at(offset)
        assert len(os.pread(held.fileno(), held.length, held.position)) == held.length
    assert (log.earliest, log.end_offset, log.flushed_end) == (offset,) * 3
    assert (log.high_watermark, log.openings) == (offset, openings + 1)
    assert len(list((tmp_path / "k-0").glob("*.log"))) == 1
    place(log, batch(1), offset + 5)
    log.flush()
    log.commit(offset + 6)
    assert [each.offset for each in read_records(log)] == [offset + 5]
    log.close()
    again, _ = open_kafka_log(tmp_path / "k-0")
    assert again.earliest == offset
    assert [each.offset for each in read_records(again)] == [offset + 5]


def test_a_log_begins_again_where_an_empty_segment_does_already(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    bases = sorted(int(each.stem) for each in (tmp_path / "k-0").glob("*.log"))
    log.replica.cut_to(bases[-1], NOW_MS)
    log.replica.restart_at(log.end_offset)
    place(log, batch(1), log.end_offset)
    log.flush()
    assert (log.earliest, log.end_offset) == (bases[-1], bases[-1] + 1)
    assert [each.name for each in (tmp_path / "k-0").glob("*.log")] == [f"{bases[-1]:020d}.log"]


@pytest.mark.parametrize("place", range(6))
def test_a_log_that_begins_again_has_no_transaction_left_whatever_fails(
    tmp_path: Path, place: int
) -> None:
    """There is no descriptor for a while, from one sync of names or the next on."""
    files = FaultyFiles(None, EMFILE, stays=True, only=("fsync_directory",))
    writer = Writer(open_kafka_log(tmp_path / "k-0", files)[0])
    log = writer.log
    log.replica.become_copy(0)
    writer.send(7)
    log.flush()
    files.fail_at, files.counted = place, 0
    with pytest.raises(StorageError):
        log.replica.restart_at(100)
    files.fail_at = None
    if log.end_offset < 100:
        log.replica.restart_at(100)
    writer.send(1, plain=True)
    log.flush()
    log.commit(101)
    assert (log.earliest, log.stable_end, log.high_watermark) == (100, 101, 101)
    assert log.producers is not None
    assert list(log.producers.states) == [1]


def test_a_log_does_not_begin_again_before_its_end(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    with pytest.raises(OffsetOutOfRangeError):
        log.replica.restart_at(9)
    assert log.earliest == 0


# -- reading what isn't committed -----------------------------------------------------------------


def test_other_copies_read_to_the_end(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.commit(2)
    place(log, batch(10), 10)
    assert [each[0].base_offset for each in batches_in(appended(log))] == list(range(11))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100)
    with pytest.raises(OffsetOutOfRangeError):
        log.replica.read_appended(12, 100)
    with log.replica.read_appended(11, 100) as part:
        assert part.length == 0


def test_a_log_that_is_offline_is_not_cut(tmp_path: Path) -> None:
    log = follower(tmp_path / "k-0")
    log.state.go_offline("the disk failed")
    with pytest.raises(LogOfflineError):
        log.replica.cut_to(10, NOW_MS)


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "killed before"])
def test_a_log_goes_on_in_an_epoch_that_it_had_left(tmp_path: Path, is_written: bool) -> None:
    """A follower had been in a later one than its leader was there."""
    log, _ = open_kafka_log(tmp_path / "e-0")
    log.is_sole_copy = False
    for number, epoch in enumerate((4, 5, 7, 7)):
        place(log, batch(number), number, epoch)
    log.flush()
    log.replica.cut_to(2, NOW_MS)
    log.flush()
    name = tmp_path / "e-0" / "leader-epoch-checkpoint"
    before = name.read_bytes()
    place(log, batch(2), 2, 5)
    place(log, batch(3), 3, 8)

    def check(log: Log) -> None:
        assert [log.replica.epoch_before(offset) for offset in range(1, 5)] == [4, 5, 5, 8]
        assert log.replica.end_of_epoch(7) == (5, 3)

    check(log)
    if is_written:
        log.flush()
    else:
        name.write_bytes(before)
    check(open_kafka_log(tmp_path / "e-0")[0])


def test_another_copy_begins_with_the_batch_that_a_log_begins_inside_of(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "f-0")
    append_values(log, b"a", b"b", b"c")
    append_values(log, b"d", b"e")
    log.flush()
    assert log.replica.first_base() == 0
    for start, base in ((2, 0), (3, 3), (4, 3), (5, 5)):
        assert log.delete_records(start) == start
        assert log.replica.first_base() == base
    append_values(log, b"f")
    assert log.replica.first_base() == 5


def test_a_log_begins_where_it_says_if_its_first_batch_cannot_be_read(tmp_path: Path) -> None:
    class Refusing(UnsyncedFiles):
        refused = 0

        def pread(self, *_: int) -> bytes:  # type: ignore[override]
            self.refused += 1
            raise OSError(EIO, os.strerror(EIO))

    files = UnsyncedFiles()
    log, _ = open_kafka_log(tmp_path / "f-0", files)
    append_values(log, b"a", b"b", b"c")
    log.flush()
    log.delete_records(2)
    refusing = Refusing()
    files.pread = refusing.pread  # type: ignore[method-assign]
    assert (log.replica.first_base(), refusing.refused > 0) == (2, True)
    del files.pread
    assert log.replica.first_base() == 0


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "killed"])
def test_what_a_producer_sent_is_known_though_it_was_deleted(tmp_path: Path, is_cut: bool) -> None:
    """Inside of a segment: else its next batch would be taken for one after a lost one."""
    log, _ = open_kafka_log(tmp_path / "g-0")
    log.is_sole_copy = False
    for number in range(6):
        place(log, batch(number, producer=7, sequence=number), number)
    log.flush()
    log.commit(5 if is_cut else 6)
    log.delete_records(5 if is_cut else 6)
    if is_cut:
        log.replica.cut_to(5, NOW_MS)
    else:
        log, _ = open_kafka_log(tmp_path / "g-0")
    assert log.producers is not None
    (last, *_) = reversed(log.producers.states[7].batches)
    assert last.base_offset == (4 if is_cut else 5)


def test_what_a_killed_process_left_in_a_new_directory_is_on_disk_once_it_counts_as_flushed() -> (
    None
):
    files = MemoryFiles("/data")
    files.mkdir("/data/h-0")

    def opened() -> Log:
        log = Log(
            "h", 0, "/data/h-0", settings(1 << 20), files, log_format=KAFKA, topic_id=TOPIC_ID
        )
        log.open(clean=False, now_ms=NOW_MS, is_new_directory=True)
        return log

    append_values(opened(), b"a", b"b")  # and is killed
    log = opened()
    assert log.flushed_end == 2
    assert "h-0" in files.after_power_loss(None).listdir("/data")


def opened_again(files: MemoryFiles, segment_bytes: int = 200) -> Log:
    """A log with other copies after a stop."""
    sizes = settings(segment_bytes)
    log = Log("k", 0, "/data/k-0", sizes, files, log_format=KAFKA, topic_id=TOPIC_ID)
    log.is_sole_copy = False
    log.open(clean=False, now_ms=NOW_MS)
    return log


class KilledError(Exception):
    """The process ends here."""


def written() -> MemoryFiles:
    """A log of ten messages in segments, flushed."""
    files = MemoryFiles("/data")
    files.mkdir("/data/k-0")
    log = opened_again(files)
    for number in range(10):
        place(log, batch(number), number)
    log.flush()
    return files


def test_what_a_cut_takes_of_producers_does_not_come_back_with_a_loss_of_power() -> None:
    """Once others' messages have its place, who repeats it would be told that it is there."""
    files = written()
    log = opened_again(files, 1 << 20)
    place(log, batch(10, producer=7, sequence=0), 10)
    place(log, batch(11), 11)
    log.producers.capture(log.end_offset)
    log.flush()
    assert snapshot_name(12) in files.listdir("/data/k-0")
    files.fsync_directory("/data/k-0")
    files.fsync_directory("/data")
    log.replica.cut_to(10, NOW_MS)
    assert snapshot_name(12) not in files.after_power_loss().listdir("/data/k-0")


def test_nothing_is_kept_beyond_damage_that_other_copies_can_fill() -> None:
    files = MemoryFiles("/data")
    files.mkdir("/data/k-0")
    log = opened_again(files)
    log.settings = settings(1 << 20)
    for number in range(10):
        place(log, batch(number), number)
    (path,) = (f"/data/k-0/{each}" for each in files.listdir("/data/k-0") if each.endswith(".log"))
    files.pwrite(files.open_append(path), bytes(20), 4 * len(batch(0)) + 30)
    log = opened_again(files)
    assert log.end_offset == 4
    assert len(batches_in(appended_in(log))) == 4


def test_what_a_recovery_drops_goes_from_its_end() -> None:
    """A second loss of power in between would leave a gap, with which no log can be opened."""
    files = MemoryFiles("/data")
    files.mkdir("/data/k-0")
    log = opened_again(files)
    for number in range(10):
        place(log, batch(number), number)
    names = sorted(each for each in files.listdir("/data/k-0") if each.endswith((".log", "ed")))
    assert len(names) > 3
    files.pwrite(files.open_append(f"/data/k-0/{names[1]}"), bytes(20), 30)
    gone: list[str] = []
    unlink, sync = files.unlink, files.fsync_directory
    files.unlink = lambda path: (gone.append(path), unlink(path))  # type: ignore[assignment]
    files.fsync_directory = lambda path: (gone.append(""), sync(path))  # type: ignore[assignment]
    opened_again(files)
    segments = [each.rpartition("/")[2] for each in gone]
    dropped = [each for each in segments if each in names[2:]]
    assert dropped == names[:1:-1]
    assert all("" in segments[segments.index(each) :] for each in dropped)


def appended_in(log: Log) -> bytes:
    with log.replica.read_appended(0, 1 << 20) as part:
        return log.files.pread(part.fileno(), part.length, part.position)


def fetched(log: Log, offset: int, max_bytes: int, *, resident: bool) -> tuple[bytes, int]:
    found, until = log.replica.fetch_appended(offset, max_bytes, resident=resident)
    return bytes_of(found), until


def bytes_of(found: LogSlice | bytes) -> bytes:
    if isinstance(found, bytes):
        return found
    with found:
        return os.pread(found.fileno(), found.length, found.position)


def test_a_few_bytes_that_were_just_appended_are_read_at_once(tmp_path: Path) -> None:
    log = follower(tmp_path / "l-0", segment_bytes=1 << 20)
    end = log.end_offset
    for number in range(3):
        place(log, batch(end + number), end + number)
    fetched(log, 0, 1, resident=False)  # by which the index is loaded
    for offset in range(end, end + 3):
        found, until = log.replica.fetch_appended(offset, 1 << 20, resident=True)
        assert isinstance(found, bytes)
        assert (found, until) == fetched(log, offset, 1 << 20, resident=False)
        assert [each.base_offset for each, _ in batches_in(found)] == [*range(offset, end + 3)]


def test_of_a_copy_whose_deletion_is_cut_short_its_beginning_is_left() -> None:
    files = written()
    log = opened_again(files)
    unlink, seen = files.unlink, list[str]()

    def killed_at_the_second(path: str) -> None:
        seen.extend([path] if path.endswith(".log") else [])
        if len(seen) == 2:
            raise KilledError
        unlink(path)

    files.unlink = killed_at_the_second  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        log.delete()
    files.unlink = unlink  # type: ignore[method-assign]
    log = opened_again(files)
    assert log.earliest == 0
    assert 0 < log.end_offset < 10


@pytest.mark.parametrize("resident", [False, True])
def test_a_log_with_holes_is_copied_and_says_where_its_parts_end(
    tmp_path: Path, *, resident: bool
) -> None:
    leader, copy = follower(tmp_path / "l-0"), follower(tmp_path / "f-0")
    offsets = [12, 13, 20, 30, 31, 55]
    for offset in offsets:
        place(leader, batch(offset), offset)
    while copy.end_offset < leader.end_offset:
        end = copy.end_offset
        data, until = fetched(leader, end, 250, resident=resident)
        headers = check_batches(data, end, 0, 0, until)
        size = sum(each.size_bytes for each in headers)
        copy.replica.append_placed([data[:size]], headers, NOW_MS)
    assert until == leader.end_offset == 56
    assert appended(copy) == appended(leader)
    assert [each.base_offset for each, _ in batches_in(appended(copy))] == [*range(10), *offsets]


@pytest.mark.parametrize("resident", [False, True])
def test_what_is_damaged_does_not_pass_for_a_hole(tmp_path: Path, *, resident: bool) -> None:
    """A copy that went over it would be taken for whole; and consumers wait for who has it."""
    leader = follower(tmp_path / "l-0")
    leader.commit(10)
    size = len(batch(0))
    paths = sorted((tmp_path / "l-0").glob("*.log"))
    sound = {each: each.read_bytes() for each in paths}
    for path, before in sound.items():
        for position in range(len(before)):
            with path.open("r+b") as file:
                file.seek(position)
                file.write(bytes([before[position] ^ 0x10]))
            first = int(path.stem)
            for offset in range(first, min(first + 3, 10)):
                with suppress(InvalidBatchError, StorageError):
                    data, until = fetched(leader, offset, 1 << 20, resident=resident)
                    headers = check_batches(data, offset, 0, 0, until)
                    found = [each.base_offset for each in headers]
                    assert found == [*range(offset, offset + len(found))]
                if position % size < 8:
                    continue  # a batch's own offset, which its checksum doesn't cover
                with suppress(InvalidBatchError, StorageError):
                    read, _ = leader.fetch(offset, 1 << 20, True, resident)
                    assert decode_header(bytes_of(read)).base_offset == offset
            path.write_bytes(before)


@pytest.mark.parametrize("is_sole_copy", [True, False])
def test_a_damaged_batch_hides_none_behind_it(tmp_path: Path, *, is_sole_copy: bool) -> None:
    """Its last offset, or its length, may seem to reach beyond them."""
    log = follower(tmp_path / "k-0", segment_bytes=600)
    log.is_sole_copy = is_sole_copy
    log.commit(10)
    (path, *_) = sorted((tmp_path / "k-0").glob("*.log"))
    before, size = path.read_bytes(), len(batch(0))
    for place_in_batch in (*range(8, LENGTH_END), LENGTH_END + 4, *range(23, 27)):
        position = 3 * size + place_in_batch
        for bit in range(8):
            log.close()
            data = bytearray(before)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            log, _ = open_kafka_log(tmp_path / "k-0", clean=True, is_sole_copy=is_sole_copy)
            log.commit(10)
            for offset in range(4, 10):
                with suppress(StorageError):
                    read, _ = log.fetch(offset, 1 << 20, True, False)
                    assert decode_header(bytes_of(read)).base_offset == offset
    log.close()
