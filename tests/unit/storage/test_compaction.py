"""Compaction: the latest message of each key stays, at its offset, whatever interrupts it."""

import os
from errno import EIO
from itertools import count
from pathlib import Path
from random import Random

import pytest
from kafka_logs import (
    TOPIC_ID,
    append_batch,
    check_indexes,
    open_kafka_log,
    raw_batches,
    read_batches,
    read_records,
    sent,
)
from storage_fakes import Crash, FaultyFiles, ForgetfulFiles, UnsyncedFiles
from storage_logs import NOW_MS

from hermes.errors import StorageError
from hermes.protocol.record_batches import decode_header, is_intact
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.storage import Log
from hermes.storage.checkpoints import write_topic_id
from hermes.storage.compaction import CompactionReport, compaction, is_due

DAY_MS = 24 * 3600 * 1000


def keyed(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, NOW_MS, key, value, (("h", b"x"),))


def compact(log: Log, compacted_to: int = 0, now_ms: int = NOW_MS) -> CompactionReport:
    report = CompactionReport()
    for _ in compaction(log, compacted_to, now_ms, DAY_MS, report):
        pass
    return report


def filled(path: Path, files=None, segment_bytes: int = 700) -> Log:  # type: ignore[no-untyped-def]
    log, _ = open_kafka_log(path, files, segment_bytes)
    chance = Random(7)
    for number in range(60):
        some = [
            keyed(b"key %d" % chance.randrange(9), b"value %d" % (number * 10 + each))
            for each in range(chance.choice((1, 2, 5)))
        ]
        append_batch(log, sent(some, RecordCodec(number % 5)))
    log.flush()
    return log


def expected_of(records: list[Record], complete_end: int) -> list[Record]:
    """What a reader of everything needs: later messages of a key replace earlier ones."""
    latest = {each.key: each.offset for each in records if each.offset < complete_end}
    return [
        each
        for each in records
        if each.offset >= complete_end or each.key is None or latest[each.key] == each.offset
    ]


def test_the_latest_message_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = filled(tmp_path / "k-0")
    before, size = read_records(log), log.size_bytes
    end = log.complete_end
    expected = expected_of(before, end)
    assert len(expected) < len(before) / 2
    assert is_due(log, 0)
    report = compact(log)
    assert report.end == end
    assert report.freed_bytes == size - log.size_bytes > 0
    assert not is_due(log, report.end)
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log, recovered = open_kafka_log(tmp_path / "k-0", segment_bytes=700, clean=clean)
            assert recovered is None or recovered.dropped_bytes == 0
        assert read_records(log) == expected
        for offset in range(log.end_offset):
            found = read_records(log, offset)
            assert found == [each for each in expected if each.offset >= offset]
        assert all(is_intact(data) for _, data in read_batches(log))
    log.close()
    for path in (tmp_path / "k-0").glob("*.log"):
        check_indexes(path)


def test_compacting_again_goes_on_from_there(tmp_path: Path) -> None:
    log = filled(tmp_path / "k-0")
    report = compact(log)
    assert compact(log, report.end).freed_bytes == 0
    assert compact(log).freed_bytes == 0
    for number in range(20):
        append_batch(log, sent([keyed(b"key %d" % (number % 3), b"new %d" % number)]))
    log.flush()
    before, end = read_records(log), log.complete_end
    report = compact(log, report.end)
    assert report.end == end
    assert read_records(log) == expected_of(before, end)
    log.close()


def test_tombstones_stay_for_their_time(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=100)
    append_batch(log, sent([keyed(b"a", b"1"), keyed(b"b", b"2")]))
    append_batch(log, sent([keyed(b"a", None)]))
    append_batch(log, sent([keyed(None, b"no key"), keyed(b"c", b"3")]))
    append_batch(log, sent([keyed(b"d", b"4")]))
    log.flush()

    def left() -> list[tuple[int, bytes | None]]:
        return [(each.offset, each.value) for each in read_records(log)]

    compact(log)
    assert left() == [(1, b"2"), (2, None), (3, b"no key"), (4, b"3"), (5, b"4")]
    assert {each.timestamp_ms for each in read_records(log)} == {NOW_MS}
    horizons = [header.delete_horizon_ms for header, _ in read_batches(log)]
    assert horizons == [None, NOW_MS + DAY_MS, None, None]
    compact(log, now_ms=NOW_MS + DAY_MS - 1)
    assert len(left()) == 5
    compact(log, now_ms=NOW_MS + DAY_MS)
    assert left() == [(1, b"2"), (3, b"no key"), (4, b"3"), (5, b"4")]
    assert read_records(log, 2)[0].offset == 3
    log.close()


def test_of_producers_that_are_forgotten_nothing_is_kept(tmp_path: Path) -> None:
    """Of short-lived ones there may be as many as messages."""
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=50)
    assert log.producers is not None
    for number in range(12):
        batch = encode_batch(
            [keyed(b"k", b"%d" % number)], producer_id=number, producer_epoch=0, base_sequence=0
        )
        append_batch(log, batch)
        log.producers.note([decode_header(batch)], number)
    append_batch(log, sent([keyed(b"x", b"active")]))
    log.flush()

    def places() -> list[tuple[int, int]]:
        return [(each.base_offset, each.record_count) for each, _ in read_batches(log)]

    compact(log)
    assert places() == [*((offset, 0) for offset in range(11)), (11, 1), (12, 1)]
    log.producers.expire(NOW_MS + 2 * DAY_MS)
    compact(log)
    assert places() == [(11, 1), (12, 1)]


def test_batches_that_a_producer_may_repeat_keep_their_places(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=50)

    def send(sequence: int) -> bytes:
        record = keyed(b"k", b"%d" % sequence)
        return encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)

    assert log.producers is not None
    for sequence in range(12):
        append_batch(log, send(sequence))
        log.producers.note([decode_header(send(sequence))], sequence)
    append_batch(log, sent([keyed(b"k", b"last")]))
    append_batch(log, sent([keyed(b"x", b"active")]))
    log.flush()
    compact(log)
    headers = [header for header, _ in read_batches(log)]
    counts = [(each.base_offset, each.record_count) for each in headers]
    assert counts == [*((offset, 0) for offset in range(2, 12)), (12, 1), (13, 1)]
    assert (headers[-3].producer_id, headers[-3].base_sequence) == (7, 11)
    assert [each.value for each in read_records(log)] == [b"last", b"active"]
    log.close()
    for path in (tmp_path / "k-0").glob("*.log"):
        check_indexes(path)
    log, _ = open_kafka_log(tmp_path / "k-0", clean=False, segment_bytes=50)
    assert log.producers is not None
    repeated = log.producers.check([decode_header(send(2))], log.end_offset)
    assert repeated is not None
    assert repeated.base_offset == 2
    # Nobody repeats what is older; of the producer the last one tells.
    compact(log, now_ms=NOW_MS + DAY_MS)
    headers = [header for header, _ in read_batches(log)]
    assert [each.base_offset for each in headers] == [11, 12, 13]
    log.close()


def test_readers_go_on_while_segments_are_replaced(tmp_path: Path) -> None:
    log = filled(tmp_path / "k-0")
    part = log.read(0, 1 << 20)
    content = os.pread(part.fileno(), part.length, part.position)
    compact(log)
    assert os.pread(part.fileno(), part.length, part.position) == content
    part.release()
    log.delete()
    assert not (tmp_path / "k-0").exists()


def test_a_disk_that_fails_at_any_call_costs_nothing(tmp_path: Path) -> None:
    failures = 0
    for number in count(0, 13):
        path = tmp_path / str(number)
        path.mkdir()
        files = FaultyFiles(None)
        log = filled(path / "k-0", files)
        expected = expected_of(read_records(log), log.complete_end)
        files.fail_at, files.error = files.counted + number, EIO
        try:
            compact(log)
        except StorageError:
            failures += 1
        reached = files.failed
        files.fail_at = None
        if log.is_offline:
            assert log.reopen(NOW_MS).dropped_bytes == 0
        latest = {each.key: each for each in read_records(log)}
        assert latest == {each.key: each for each in expected}
        compact(log)
        assert read_records(log) == expected
        log.close()
        assert files.opened == set()
        if not reached:
            break
    assert failures > 3


@pytest.mark.parametrize("seed", [None, 1])
def test_power_lost_at_any_call_leaves_a_whole_log(tmp_path: Path, seed: int | None) -> None:
    total = None
    for number in count(0, 29):
        path = tmp_path / str(number)
        (path / "k-0").mkdir(parents=True)
        write_topic_id(str(path / "k-0"), TOPIC_ID, UnsyncedFiles())
        files = ForgetfulFiles(str(path))
        log = filled(path / "k-0", files)
        expected = expected_of(read_records(log), log.complete_end)
        start = len(files.calls)
        files.crash_at = start + number
        try:
            compact(log)
            total = number
        except Crash:
            pass
        files.crash_at = None
        files.close_all()
        disk = tmp_path / f"disk-{number}"
        files.disk(str(disk), None if seed is None else Random(number * 100 + seed))
        log, report = open_kafka_log(disk / "k-0", segment_bytes=700)
        assert report is None or not report.bad_ranges
        latest = {each.key: each for each in read_records(log)}
        assert latest == {each.key: each for each in expected}
        assert not list((disk / "k-0").glob("*.cleaned"))
        compact(log)
        assert read_records(log) == expected
        log.close()
        if total is not None:
            break
    assert total is not None
    assert total > 50


def test_no_segment_has_the_indexes_of_the_one_before_it_when_power_is_lost(
    tmp_path: Path,
) -> None:
    """The first segment becomes an empty one, and the index of the next one proves it."""
    for number in count():
        path = tmp_path / str(number)
        (path / "k-0").mkdir(parents=True)
        write_topic_id(str(path / "k-0"), TOPIC_ID, UnsyncedFiles())
        files = ForgetfulFiles(str(path))
        log, _ = open_kafka_log(path / "k-0", files, segment_bytes=200)
        for key in (*[b"a"] * 4, b"b", *[b"a"] * 2):
            append_batch(log, sent([keyed(key, b"value")], RecordCodec.NONE))
        log.flush()
        assert log.segment_count == 3
        files.crash_at = len(files.calls) + number
        try:
            compact(log)
            break
        except Crash:
            files.close_all()
        for seed in range(8):
            disk = tmp_path / f"disk-{number}-{seed}"
            files.disk(str(disk), Random(seed))
            log, _ = open_kafka_log(disk / "k-0", segment_bytes=200)
            log.close()
            for each in (disk / "k-0").glob("*.log"):
                check_indexes(each)
    assert number > 30


@pytest.mark.parametrize("place", ["value", "header"])
def test_what_is_damaged_is_not_made_to_look_whole(tmp_path: Path, place: str) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=500)
    damaged = sent([keyed(b"a", b"old"), keyed(b"b", b"damaged")])
    first = sent([keyed(b"a", b"older"), keyed(b"b", b"good")])
    for each in (first, damaged):
        append_batch(log, each)
    for _ in range(9):
        append_batch(log, sent([keyed(b"a", b"new"), keyed(b"c", b"x" * 100)]))
    log.flush()
    path = tmp_path / "k-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    begin, end = len(first), len(first) + len(damaged)
    content[content.index(b"damaged") if place == "value" else begin + 16] ^= 0xFF
    path.write_bytes(content)
    assert compact(log).freed_bytes > 0
    after = path.read_bytes()
    assert bytes(content[begin:end]) in after
    kept = [
        (each.key, each.value)
        for place in raw_batches(after, 0)
        for data in [after[place.position : place.end_position]]
        for each in iterate_records(data, decode_header(data, 0))
    ]
    # What nobody can read has replaced nothing.
    assert (b"b", b"good") in kept
    assert (b"a", b"older") not in kept
    log.close()


def test_what_retention_deletes_meanwhile_does_not_end_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.storage.compaction.STEP_BYTES", 1)
    met = 0
    for number in count(0, 11):
        log = filled(tmp_path / f"k-{number}")
        expected, end = expected_of(read_records(log), log.complete_end), log.complete_end
        report = CompactionReport()
        steps = compaction(log, 0, NOW_MS, DAY_MS, report)
        if len([None for _, _ in zip(range(number), steps, strict=False)]) < number:
            break
        log.delete_oldest(4)
        for _ in steps:
            met += 1
        assert report.end == end
        assert read_records(log) == [each for each in expected if each.offset >= log.earliest]
        assert not list((tmp_path / f"k-{number}").glob("*.cleaned"))
        log.close()
    assert met
