"""Transactions in a log: up to where all is decided, what was aborted, and what a stop leaves."""

import os
from collections.abc import Callable, Sequence
from errno import EIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kafka_logs import open_kafka_log, read_batches, record
from memory_files import MemoryFiles
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS
from transacted_logs import Writer, committed, transactional

from hermes.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    LogOfflineError,
    NoTransactionError,
)
from hermes.partition.batch_appends import check_and_append
from hermes.protocol.record_batches import (
    BatchRules,
    check_batches,
    decode_header,
    encode_header,
)
from hermes.protocol.records import encode_batch, iterate_records
from hermes.protocol.transaction_markers import Marker, encode_marker, marker_in
from hermes.storage import Log, NotInMemoryError
from hermes.storage.aborted_index import AbortedIndex, AbortedTransaction
from hermes.storage.compaction import CompactionReport, compaction
from hermes.storage.log_transactions import markers_in
from hermes.storage.producer_states import EXPIRATION_MS

INDEX = "00000000000000000000.txnindex"


def opened(path: Path, segment_bytes: int = 1 << 30, **more: bool) -> Writer:
    return Writer(open_kafka_log(path / "clicks-0", segment_bytes=segment_bytes, **more)[0])


def entries(path: Path, name: str = INDEX) -> list[tuple[int, ...]]:
    """What Kafka's index says: its entries, without their versions."""
    data = (path / "clicks-0" / name).read_bytes()
    assert len(data) % 34 == 0
    found = []
    for start in range(0, len(data), 34):
        entry = data[start : start + 34]
        assert entry[:2] == b"\0\0"
        found.append(tuple(int.from_bytes(entry[n : n + 8]) for n in (2, 10, 18, 26)))
    return found


def test_readers_of_what_was_committed_stop_where_a_transaction_is_open(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    log = writer.log
    writer.send(1, plain=True)
    writer.send(7, 2)
    writer.send(2, plain=True)
    log.flush()

    assert (log.stable_end, log.high_watermark) == (1, 4)
    assert committed(log) == [(1, 0)]

    writer.end(7, commit=True)
    assert log.stable_end == 1, "the marker isn't committed yet"
    log.flush()
    assert log.stable_end == log.high_watermark == 5
    assert committed(log) == [(1, 0), (7, 1), (2, 3)]
    assert not (tmp_path / "clicks-0" / INDEX).exists()


def test_the_earliest_transaction_counts(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    log = writer.log
    for producer in (7, 8, 9):
        writer.send(producer)
    writer.end(8)
    log.flush()
    assert log.stable_end == 0
    writer.end(7, commit=True)
    log.flush()
    assert log.stable_end == 2
    writer.end(9)
    log.flush()
    assert log.stable_end == 6
    assert committed(log) == [(7, 0)]
    # What was decided once each had ended: up to the earliest of those that were open.
    assert entries(tmp_path) == [(8, 1, 3, 0), (9, 2, 5, 6)]


def test_what_was_aborted_is_told_of_each_part_of_the_log(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment_bytes=400)
    log, expected = writer.log, []
    for number in range(60):
        producer, is_committed = number % 3, number % 2 == 0
        if is_committed:
            expected.append((producer, log.end_offset))
        writer.send(producer, 3)
        writer.end(producer, commit=is_committed)
        log.flush()
    assert log.segment_count > 5
    for max_bytes in (1, 300, 1 << 20):
        assert committed(log, max_bytes=max_bytes) == expected
    # A reader in the middle is told of a transaction that began before.
    assert committed(log, expected[3][1] + 1)[0] == expected[3]


def test_only_a_thread_reads_the_index(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    log = writer.log
    writer.send(7)
    writer.end(7)
    end = writer.send(1, plain=True)
    log.flush()
    found, _ = log.fetch(0, 1000, True, False, True)
    with pytest.raises(NotInMemoryError):
        log.transactions.aborted_in(found, 0, True)
    assert [each.producer_id for each in log.transactions.aborted_in(found, 0)] == [7]
    assert log.transactions.aborted_in(found, end - 1, True) == [], "nothing was aborted so late"


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", ["nothing", "lost", "cut", "too much", "no snapshot"])
def test_a_stop_changes_nothing(tmp_path: Path, is_clean: bool, damage: str) -> None:
    if is_clean and damage in ("lost", "cut", "too much"):
        pytest.skip("of a clean stop everything is on disk")
    writer = opened(tmp_path)
    log = writer.log
    writer.send(7, 2)
    writer.end(7, coordinator=3)
    writer.send(8)
    writer.send(9)
    writer.end(9)
    log.flush()
    before = committed(log), log.stable_end, dict(log.producers.states), entries(tmp_path)
    if is_clean:
        log.close()
    index = tmp_path / "clicks-0" / INDEX
    if damage == "lost":
        index.unlink()
    elif damage == "cut":
        index.write_bytes(index.read_bytes()[:40])
    elif damage == "too much":
        index.write_bytes(index.read_bytes() + index.read_bytes()[-34:])
    elif damage == "no snapshot":
        for each in (tmp_path / "clicks-0").glob("*.snapshot"):
            each.unlink()

    writer.log = log = opened(tmp_path, clean=is_clean).log
    after = committed(log), log.stable_end, dict(log.producers.states), entries(tmp_path)

    assert after == before
    assert log.producers.states[7].coordinator_epoch == 3
    assert log.producers.states[8].transaction_start == 3
    writer.end(8, commit=True)
    log.flush()
    assert committed(log) == [(8, 3)]


class LosingFiles(MemoryFiles):
    """A disk that fails one sync of a file: what was written stays in memory only.

    Attributes:
        failing: the path of that file; empty for none.
    """

    def __init__(self, root: str = "/data") -> None:
        self.failing = ""
        self._lost = set[object]()
        super().__init__(root)

    def fdatasync(self, descriptor: int) -> None:
        """See `FileLayer.fdatasync`."""
        node = self._node(descriptor)
        if self.failing and node is self._find(self.failing):
            self.failing = ""
            self._lost.add(node)
            raise OSError(EIO, os.strerror(EIO))
        if node not in self._lost:
            super().fdatasync(descriptor)


def test_what_was_aborted_stays_so_after_a_sync_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "clicks-0"
    files = LosingFiles(str(path))
    writer = Writer(open_kafka_log(path, files, 300)[0])
    log = writer.log
    writer.send(7)
    log.flush()
    writer.end(7)
    files.failing = str(path / INDEX)
    with pytest.raises(LogOfflineError):
        log.flush()
    log.reopen(NOW_MS)
    for _ in range(12):
        writer.send(1, plain=True)
    log.flush()
    expected = committed(log)
    assert expected[0] == (1, 2)
    # The kernel puts on the disk what nobody has synced: a snapshot, which is believed.
    (name,) = (each for each in files.listdir(str(path)) if each.endswith(".snapshot"))
    files.fdatasync(files.open_append(str(path / name)))
    files.fsync_directory(str(path))
    again, _ = open_kafka_log(path, files.after_power_loss(), 300)
    assert committed(again)[: len(expected)] == expected


def test_what_ends_a_transaction_may_be_cut_off(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    log = writer.log
    log.replica.become_copy(0)
    writer.send(7)
    marker = writer.end(7)
    writer.send(8)
    log.flush()
    log.commit(1)
    assert (log.stable_end, log.high_watermark) == (0, 1)
    log.replica.cut_to(marker, NOW_MS)
    assert not (tmp_path / "clicks-0" / INDEX).exists()
    log.commit(1)
    assert (log.stable_end, log.high_watermark) == (0, 1)
    writer.end(7, commit=True)
    log.flush()
    assert log.commit(2) == log.stable_end == 2
    assert committed(log) == [(7, 0)]


def test_a_copy_indexes_by_itself(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    for producer in (7, 8, 9):
        writer.send(producer, 2)
    writer.end(8, coordinator=4)
    writer.end(7, commit=True)
    writer.log.flush()
    batches = read_batches(writer.log)
    other = open_kafka_log(tmp_path / "copy-0")[0]
    headers, data = zip(*batches, strict=True)
    other.replica.append_placed([b"".join(data)], headers, NOW_MS)
    other.flush()
    assert other.stable_end == writer.log.stable_end == 4
    assert committed(other) == committed(writer.log) == [(7, 0)]
    assert other.producers.states == writer.log.producers.states
    name = tmp_path / "copy-0" / INDEX
    assert name.read_bytes() == (tmp_path / "clicks-0" / INDEX).read_bytes()
    assert markers_in(headers, data)[7].is_commit


def test_a_marker_of_an_older_epoch_or_coordinator_ends_nothing(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.send(7, epoch=3)
    with pytest.raises(InvalidProducerEpochError, match="the epoch 2, expected 3"):
        writer.end(7, epoch=2)
    with pytest.raises(InvalidProducerEpochError, match="the epoch 3, expected 4"):
        writer.end(7, epoch=3, version=2)
    writer.end(7, epoch=4, coordinator=6, version=2)
    with pytest.raises(InvalidProducerEpochError):
        writer.end(7, epoch=4, coordinator=6, version=2)
    with pytest.raises(CoordinatorFencedError, match="of a coordinator of epoch 5"):
        writer.end(7, epoch=5, coordinator=5, version=2)
    assert writer.log.end_offset == 2
    assert writer.end(99, epoch=5, coordinator=6) == 2, "of one that is not known"


def test_a_producer_in_a_transaction_sends_nothing_else(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.send(7)
    with pytest.raises(InvalidTransactionStateError, match="is part of none"):
        writer.send(7, plain=True)
    assert writer.log.end_offset == 1
    numbers = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}
    batch = transactional(encode_batch([record(b"x")], **numbers))
    headers = check_batches(batch, BatchRules(1 << 20))
    with pytest.raises(NoTransactionError):
        check_and_append(writer.log, headers, batch, NOW_MS)
    plain = encode_batch([record(b"x")], **numbers)
    headers = check_batches(plain, BatchRules(1 << 20))
    with pytest.raises(InvalidTransactionStateError, match="isn't part"):
        check_and_append(writer.log, headers, plain, NOW_MS, is_in_transaction=True)


class FullDisk(UnsyncedFiles):
    """Refuses writes while `is_full`."""

    is_full = False

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        self._refuse()
        return super().pwrite(descriptor, data, position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        self._refuse()
        return super().pwritev(descriptor, buffers, position)

    def _refuse(self) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")


def test_what_a_full_disk_refuses_has_neither_begun_nor_ended(tmp_path: Path) -> None:
    files = FullDisk()
    writer = Writer(open_kafka_log(tmp_path / "clicks-0", files)[0])
    log = writer.log
    writer.send(1, plain=True)
    files.is_full = True
    with pytest.raises(Exception, match="No space"):
        writer.send(7)
    files.is_full = False
    log.flush()
    assert log.stable_end == 1
    writer.sequences[7] = 0
    writer.send(7)
    files.is_full = True
    with pytest.raises(Exception, match="No space"):
        writer.end(7)
    files.is_full = False
    log.flush()
    assert (log.stable_end, log.high_watermark) == (1, 2)
    writer.end(7)
    log.flush()
    assert committed(log) == [(1, 0)]
    assert entries(tmp_path) == [(7, 1, 2, 3)]


def test_deleted_records_hide_what_was_open(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    log = writer.log
    writer.send(7, 3)
    writer.send(1, 2, plain=True)
    log.flush()
    assert log.stable_end == 0
    log.delete_records(4)
    assert log.stable_end == 4
    writer.end(7)
    log.flush()
    assert log.stable_end == log.high_watermark == 6


def test_deleted_segments_take_their_index_with_them(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment_bytes=200)
    log = writer.log
    for _ in range(8):
        writer.send(7)
        writer.end(7)
        log.flush()
    writer.send(8)
    log.flush()
    assert len(list((tmp_path / "clicks-0").glob("*.txnindex"))) > 3
    log.delete_oldest(log.segment_count)
    assert not list((tmp_path / "clicks-0").glob("*.txnindex"))
    assert log.stable_end == log.high_watermark == log.earliest == 17
    writer.end(8)
    log.flush()
    assert committed(log, 17) == []


def test_a_producer_in_a_transaction_is_not_forgotten(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    states = writer.log.producers
    writer.send(7)
    writer.send(1, plain=True)
    states.keep(1)
    assert list(states.states) == [7]
    states.look_ms = 0
    states.expire(NOW_MS + 2 * EXPIRATION_MS)
    assert list(states.states) == [7]
    states.forget({0})
    assert states.states[7].transaction_start == 0
    writer.end(7)
    states.look_ms = 0
    states.expire(NOW_MS + 2 * EXPIRATION_MS)
    assert not states.states


def test_the_marker_is_kafkas() -> None:
    marker = Marker(4711, 5, True, 9)
    header, batch = encode_marker(marker, 100, 3, NOW_MS)
    assert marker_in(header, batch) == marker
    assert decode_header(batch) == header._replace(crc=decode_header(batch).crc)
    # length | attributes | time | offset | key: version, commit | value: version, epoch | headers
    assert batch[61:] == bytes.fromhex("20 00 00 00 08 0000 0001 0c 0000 00000009 00")
    assert encode_header(decode_header(batch)) == batch[:61]


def compacted(log: Log, now_ms: int, retention_ms: int = 1000) -> CompactionReport:
    report = CompactionReport()
    for _ in compaction(log, 0, now_ms, retention_ms, report):
        pass
    return report


def filled(writer: Writer, *, start: int = 100) -> None:
    """Complete the active segments, by messages that are in no transaction and have no key."""
    for producer in range(start, start + 4):
        writer.send(producer, 3, plain=True)
        writer.log.flush()


def test_compaction_drops_what_was_aborted_and_then_its_marker(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment_bytes=300)
    log = writer.log
    writer.send(7, 2, key=b"k")
    writer.end(7, commit=True)
    writer.send(8, 2, key=b"k")
    writer.end(8)
    writer.send(7, key=b"other")
    writer.end(7, commit=True)
    writer.send(8, key=b"other still")
    writer.end(8, commit=True)
    filled(writer)
    later_ms = NOW_MS + 3600_000
    expected = [b"7.1", b"7.2", b"8.2"]

    def kept() -> list[bytes | None]:
        """What is committed, of these producers."""
        wanted = [offset for producer, offset in committed(log) if producer in (7, 8)]
        return [
            each.value
            for header, data in read_batches(log)
            if header.base_offset in wanted
            for each in iterate_records(data, header)
        ]

    compacted(log, later_ms)
    assert kept() == expected, "what was aborted has replaced nothing"
    assert [each[0] for each in entries(tmp_path)] == [8]
    compacted(log, later_ms + 1)
    assert [each[0] for each in entries(tmp_path)] == [8], "its marker stays for a while"
    compacted(log, later_ms + 2000)
    assert not (tmp_path / "clicks-0" / INDEX).exists()
    assert kept() == expected
    held = {h.base_offset for h, _ in read_batches(log)}
    assert 5 not in held, "the marker"
    again = opened(tmp_path).log
    assert again.stable_end == again.high_watermark
    assert committed(again) == committed(log)


def test_compaction_stops_where_a_transaction_is_open(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment_bytes=300)
    log = writer.log
    for _ in range(4):
        writer.send(7, key=b"k")
        writer.end(7, commit=True)
    writer.send(9, key=b"k")
    open_from = log.end_offset - 1
    for _ in range(4):
        writer.send(7, key=b"k")
        writer.end(7, commit=True)
        log.flush()
    filled(writer)
    later_ms = NOW_MS + 3600_000
    before = [h.base_offset for h, _ in read_batches(log) if h.base_offset >= open_from]
    assert compacted(log, later_ms).end <= open_from
    assert [h.base_offset for h, _ in read_batches(log) if h.base_offset >= open_from] == before
    writer.end(9)
    log.flush()
    filled(writer, start=200)
    assert compacted(log, later_ms).end > open_from
    assert [value for producer, value in committed(log) if producer == 7][-1] > open_from


def test_a_producer_goes_on_behind_its_marker_after_a_stop(tmp_path: Path) -> None:
    """Its epoch stays the same; others have written much between its last batch and the marker."""
    writer = opened(tmp_path)
    writer.send(7, 3)
    for _ in range(30):
        writer.send(1, 2000, plain=True)
    writer.end(7, commit=True)
    writer.log.flush()
    writer.log.close()
    again = Writer(open_kafka_log(tmp_path / "clicks-0", clean=True)[0])
    again.sequences = writer.sequences
    again.send(7)


class LookedAt(UnsyncedFiles):
    """Files of which somebody reads while a directory is synced."""

    look: Callable[[], None] | None = None

    def fsync_directory(self, path: str) -> None:
        if self.look is not None:
            self.look()
        super().fsync_directory(path)


@pytest.mark.parametrize("is_noted", [False, True])
def test_who_reads_while_compaction_forgets_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    files = LookedAt()
    index = AbortedIndex(str(tmp_path), files)
    gone = [AbortedTransaction(7, n, n + 1, n + 2) for n in range(0, 20, 2)]
    kept = AbortedTransaction(8, 100, 105, 106)
    index.append(0, [*gone, kept])
    note, found, reader = AbortedIndex._note, list[Any](), Thread()

    def look() -> None:
        nonlocal reader
        reader = Thread(target=lambda: found.append(index.find(0, 90, 200)))
        reader.start()
        reader.join(0.2)  # or it waits

    def looked_at(self: AbortedIndex, *args: Any) -> None:
        look()
        note(self, *args)

    if is_noted:
        monkeypatch.setattr(AbortedIndex, "_note", looked_at)
    else:
        files.look = look
    index.forget(0, lambda each: each.last_offset < 100)
    reader.join()
    assert found == [[kept]]


def test_what_retention_has_deleted_with_its_marker_is_open_no_more_after_a_crash(
    tmp_path: Path,
) -> None:
    writer = opened(tmp_path)
    writer.send(7, 3)
    writer.log.flush()
    writer.log.close()  # with a snapshot, in which the transaction is open
    writer.log = log = open_kafka_log(tmp_path / "clicks-0", clean=True)[0]
    writer.end(7, commit=True)
    writer.send(7, 4)
    writer.end(7, commit=True)
    log.flush()
    assert log.stable_end == log.high_watermark == 9
    log.delete_oldest(log.segment_count, up_to=log.end_offset)
    assert log.earliest == 9
    writer.send(1, plain=True)
    log.flush()
    assert log.stable_end == 10
    again = open_kafka_log(tmp_path / "clicks-0")[0]  # after a crash
    assert again.transactions is not None
    assert (again.earliest, again.high_watermark, again.stable_end) == (9, 10, 10)
    writer.log = again
    writer.send(7)
