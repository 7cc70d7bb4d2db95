"""Batches of idempotent producers in a log: once each, through stops, kills, rolls and failures."""

import errno
import os

import pytest
from kafka_logs import open_kafka_log, read_batches
from storage_logs import NOW_MS
from twisted.internet.task import Clock

from hermes.errors import (
    EarlierBatchAwaitedError,
    InvalidTransactionStateError,
    LogOfflineError,
    OutOfOrderSequenceError,
    StorageError,
)
from hermes.partition.awaited_batches import AWAITED_SECONDS, MOST_AWAITED, AwaitedBatches
from hermes.partition.batch_appends import check_and_append
from hermes.protocol.record_batches import (
    TRANSACTIONAL_BIT,
    BatchRules,
    check_batches,
    decode_header,
    with_crc,
)
from hermes.protocol.records import Record, encode_batch
from hermes.storage import FileLayer
from hermes.storage.producer_states import ProducerStates


def batch(sequence, count=2, producer=1000, epoch=0, size=10, time_ms=NOW_MS):
    records = [Record(number, time_ms, None, b"x" * size) for number in range(count)]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def send(log, sequence, append_time_ms=None, now_ms=NOW_MS, **options):
    data = batch(sequence, **options)
    headers = check_batches(data, BatchRules(1 << 20))
    return check_and_append(log, headers, data, now_ms, append_time_ms=append_time_ms)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clicks-0"


def opened(path, files=None, *, clean=False, **options):
    return open_kafka_log(path, FileLayer() if files is None else files, clean=clean, **options)[0]


def snapshots(path):
    return sorted(int(each.stem) for each in path.glob("*.snapshot"))


def test_a_batch_that_is_sent_again_is_answered_with_its_place(path):
    log = opened(path)
    first, second = send(log, 0), send(log, 2)

    again = send(log, 0)

    assert (first.base_offset, second.base_offset, second.end_offset) == (0, 2, 4)
    assert again == (0, NOW_MS, True, 2)
    assert log.end_offset == 4
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 9)
    assert send(log, 0, producer=1001).base_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_who_sends_messages_of_long_ago_is_not_forgotten(path, clean):
    """As a copy of another cluster's topic does: what counts is when it was heard of."""
    long_ago = NOW_MS - 7 * 24 * 3600 * 1000
    log, minutes = opened(path), 60 * 1000
    for number in range(3):
        now_ms = NOW_MS + number * 20 * minutes
        assert send(log, number * 2, time_ms=long_ago, now_ms=now_ms).base_offset == number * 2
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 9, time_ms=long_ago, now_ms=now_ms + 20 * minutes)
    assert send(log, 4, time_ms=long_ago, now_ms=now_ms + 40 * minutes).is_duplicate
    log.flush()
    if clean:
        log.close()
    log = opened(path, clean=clean)
    assert send(log, 4, time_ms=long_ago, now_ms=now_ms).is_duplicate
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 9, time_ms=long_ago, now_ms=now_ms)
    a_day = 24 * 60 * minutes
    assert send(log, 9, time_ms=long_ago, now_ms=now_ms + a_day).base_offset == 6
    log.close()


def test_log_append_time_is_answered_and_remembered(path):
    log = opened(path)

    assert send(log, 0, append_time_ms=NOW_MS + 5) == (0, NOW_MS + 5, False, 2)
    assert send(log, 0, append_time_ms=NOW_MS + 9) == (0, NOW_MS + 5, True, 2)


def test_what_has_no_producer_is_always_appended(path):
    log = opened(path)
    for offset in (0, 1):
        data = encode_batch([Record(0, NOW_MS, None, b"x")])
        assert (
            check_and_append(log, check_batches(data, BatchRules(999)), data, NOW_MS)[0] == offset
        )
    assert len(log.producers) == 0


def test_a_part_of_a_transaction_is_refused(path):
    log = opened(path)
    data = batch(0)
    header = decode_header(data)
    marked = with_crc(header._replace(attributes=TRANSACTIONAL_BIT), data[61:]) + data[61:]

    with pytest.raises(InvalidTransactionStateError):
        check_and_append(log, check_batches(marked, BatchRules(999)), marked, NOW_MS)
    assert log.end_offset == 0


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_all_ten_batches_are_known_after_a_start_and_more_after_a_stop(path, clean):
    log = opened(path)
    places = [send(log, 2 * number).base_offset for number in range(12)]
    log.flush()
    if clean:
        log.close()

    again = opened(path, clean=clean)

    assert snapshots(path) == ([24] if clean else [])
    for number in range(2, 12):
        assert send(again, 2 * number)[:3] == (places[number], NOW_MS, True)
    if clean:
        assert send(again, 2)[:3] == (places[1], NOW_MS, True)
    else:  # a header may be all that is left of an earlier one
        with pytest.raises(OutOfOrderSequenceError):
            send(again, 2)
    assert send(again, 24).base_offset == 24


def test_a_small_last_batch_hides_no_larger_ones_after_a_stop(path):
    log = opened(path)
    for number in range(4):
        send(log, 300 * number, count=300)
    send(log, 1200, count=1)
    log.flush()
    log.close()

    again = opened(path, clean=True)

    assert all(send(again, 300 * number, count=300).is_duplicate for number in range(4))


def test_what_a_crash_has_taken_may_be_sent_again(path):
    log = opened(path)
    send(log, 0)
    log.flush()
    (segment,) = path.glob("*.log")
    flushed = segment.stat().st_size
    send(log, 2)
    os.truncate(segment, flushed + 7)

    again = opened(path)

    assert send(again, 0).is_duplicate
    assert send(again, 2)[:3] == (2, -1, False)
    again.flush()
    assert [each.base_sequence for each, _ in read_batches(again)] == [0, 2]


def test_each_roll_leaves_a_snapshot_from_which_a_start_goes_on(path):
    log = opened(path, segment_bytes=300)
    for number in range(20):
        send(log, 2 * number)
        log.flush()
    bases = sorted(int(each.stem) for each in path.glob("*.log"))
    assert snapshots(path) == bases[-2:]

    again = opened(path, segment_bytes=300)

    assert send(again, 38).is_duplicate
    assert send(again, 40).base_offset == 40
    assert opened(path).strange_files == ()


def test_old_snapshots_go_with_their_segments_and_all_with_the_log(path):
    log = opened(path, segment_bytes=300)
    for number in range(20):
        send(log, 2 * number)
        log.flush()

    log.delete_oldest(log.segment_count)
    assert send(log, 38).is_duplicate, "what was deleted is known all the same"
    assert send(log, 40).base_offset == 40
    log.delete()
    assert not path.exists()


def test_a_state_without_any_message_left_survives_a_stop(path):
    log = opened(path)
    send(log, 0)
    log.flush()
    log.delete_oldest(1)
    log.close()

    again = opened(path, clean=True)

    assert again.earliest == again.end_offset == 2
    with pytest.raises(OutOfOrderSequenceError):
        send(again, 9)
    assert send(again, 2).base_offset == 2


class Failing(FileLayer):
    """A disk that is full, or fails to sync, while a test wants that."""

    is_full = fails_to_sync = False

    def pwritev(self, descriptor, buffers, position):
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwritev(descriptor, buffers, position)

    def fdatasync(self, descriptor):
        if self.fails_to_sync:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(descriptor)


def test_a_batch_that_could_not_be_appended_is_not_known(path):
    files = Failing()
    log = opened(path, files)
    send(log, 0)
    files.is_full = True
    with pytest.raises(StorageError):
        send(log, 2)
    files.is_full = False

    assert send(log, 2)[:3] == (2, -1, False)


def test_a_log_that_comes_back_knows_what_is_left_of_it(path):
    files = Failing()
    log = opened(path, files)
    send(log, 0)
    log.flush()
    send(log, 2)
    files.fails_to_sync = True
    with pytest.raises(StorageError):
        log.flush()
    files.fails_to_sync = False

    log.reopen(NOW_MS)

    assert [send(log, number).is_duplicate for number in (0, 2, 4)] == [True, True, False]
    assert log.end_offset == 6


def test_a_snapshot_that_cannot_be_written_costs_nothing_but_time(path):
    files = Failing()
    log = opened(path, files, segment_bytes=300)
    for number in range(8):
        send(log, 2 * number)
        log.flush()
    kept = snapshots(path)
    (path / f"{kept[-1]:020d}.snapshot").write_bytes(b"damaged")

    again = opened(path, segment_bytes=300)

    assert send(again, 14).is_duplicate
    assert snapshots(path) == kept[:-1]


def test_batches_are_appended_in_the_epoch_that_kafka_has_left_the_log_in(path):
    opened(path).close()
    (path / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    (path.parent / "replication-offset-checkpoint").touch()  # a Kafka was at work since
    log = opened(path)
    assert log.leader_epoch == 3

    send(log, 0)

    log.flush()
    assert [header.leader_epoch for header, _ in read_batches(log)] == [3]


def headers(sequence, count=2, **options):
    return [decode_header(batch(sequence, count, **options))]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def awaited(clock):
    return AwaitedBatches(clock.seconds)


def test_nothing_later_goes_before_a_batch_that_is_to_come_again(awaited):
    awaited.expect("clicks", 0, headers(4))
    with pytest.raises(EarlierBatchAwaitedError) as refused:
        awaited.check("clicks", 0, headers(6))
    awaited.expect("clicks", 0, headers(6))
    awaited.check("clicks", 0, headers(2))
    awaited.arrived("clicks", 0, headers(2))
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(8))

    awaited.check("clicks", 0, headers(4))
    awaited.arrived("clicks", 0, headers(4))

    assert len(awaited.batches) == 0
    awaited.check("clicks", 0, headers(6))
    assert str(refused.value) == (
        "producer 1000: its batch that begins with sequence number 4 was refused; "
        "send it again before that with 6"
    )


def test_an_earlier_batch_takes_the_place_of_a_later_one(awaited):
    awaited.expect("clicks", 0, headers(6))
    awaited.expect("clicks", 0, headers(4))
    awaited.arrived("clicks", 0, headers(6))
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(6))


def test_only_the_same_producer_of_the_same_partition_and_epoch_waits(awaited):
    awaited.expect("clicks", 0, headers(4, epoch=3))
    awaited.expect("clicks", 0, [decode_header(encode_batch([Record(0, NOW_MS, None, b"x")]))])

    awaited.check("clicks", 1, headers(6, epoch=3))
    awaited.check("views", 0, headers(6, epoch=3))
    awaited.check("clicks", 0, headers(6, epoch=3, producer=1001))
    awaited.check("clicks", 0, headers(6, epoch=2))
    awaited.check("clicks", 0, headers(6, epoch=4))
    assert len(awaited.batches) == 1

    awaited.expect("clicks", 0, headers(0, epoch=2))
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(6, epoch=3))
    awaited.arrived("clicks", 0, headers(0, epoch=4))
    assert len(awaited.batches) == 0


def test_numbers_begin_anew_after_the_largest_one(awaited):
    awaited.expect("clicks", 0, headers(2**31 - 1))
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(1))
    awaited.check("clicks", 0, headers(2**31 - 3))
    awaited.arrived("clicks", 0, headers(2**31 - 1))
    assert len(awaited.batches) == 0


def test_what_another_leader_got_meanwhile_is_not_awaited(awaited):
    awaited.expect("clicks", 0, headers(4))
    states = ProducerStates("clicks-0")
    states.note(headers(0) + headers(2), 0)
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(6), states.states)
    states.note(headers(4), 4)
    awaited.check("clicks", 0, headers(6), states.states)
    assert len(awaited.batches) == 0


def test_what_never_comes_is_not_awaited_for_ever(awaited, clock):
    awaited.expect("clicks", 0, headers(4))
    clock.advance(AWAITED_SECONDS - 1)
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(6))
    clock.advance(1)
    awaited.check("clicks", 0, headers(6))
    assert len(awaited.batches) == 0


def test_what_is_refused_behind_a_batch_does_not_keep_it_awaited(awaited, clock):
    """It was stored by a leader whose log was lost, say: its producer goes on, and tries again."""
    awaited.expect("clicks", 0, headers(4), seconds=5)
    for _ in range(5):
        for sequence in (8, 6, 10):
            with pytest.raises(EarlierBatchAwaitedError):
                awaited.check("clicks", 0, headers(sequence))
            awaited.expect("clicks", 0, headers(sequence), seconds=5)
        clock.advance(1)
    # Now it is the next one without which nothing goes on.
    for sequence in (8, 10):
        with pytest.raises(EarlierBatchAwaitedError, match="number 6 was refused"):
            awaited.check("clicks", 0, headers(sequence))
        awaited.expect("clicks", 0, headers(sequence), seconds=5)
    awaited.check("clicks", 0, headers(6))
    clock.advance(4)
    with pytest.raises(EarlierBatchAwaitedError, match="number 8 was refused"):
        awaited.check("clicks", 0, headers(10))
    clock.advance(1)
    awaited.check("clicks", 0, headers(10))
    assert len(awaited.batches) == 0


def test_a_batch_that_is_refused_once_more_is_awaited_for_longer(awaited, clock):
    for _ in range(3):
        for sequence in (4, 6):
            awaited.expect("clicks", 0, headers(sequence), seconds=5)
        clock.advance(4)
        with pytest.raises(EarlierBatchAwaitedError, match="number 4 was refused"):
            awaited.check("clicks", 0, headers(6))
    awaited.expect("clicks", 0, headers(2), seconds=5)
    clock.advance(3)  # 4 and 6 had less time left, and none now
    with pytest.raises(EarlierBatchAwaitedError, match="number 2 was refused"):
        awaited.check("clicks", 0, headers(6))
    clock.advance(2)
    awaited.check("clicks", 0, headers(6))


def test_no_more_are_awaited_than_there_is_memory_for(awaited):
    for producer in range(MOST_AWAITED + 5):
        awaited.expect("clicks", 0, headers(4, producer=producer))
    assert len(awaited.batches) == MOST_AWAITED
    awaited.check("clicks", 0, headers(6, producer=4))
    with pytest.raises(EarlierBatchAwaitedError):
        awaited.check("clicks", 0, headers(6, producer=5))


def test_an_offline_log_says_nothing_about_order(path):
    """What it knows of producers is being read again, perhaps."""
    files = Failing()
    log = opened(path, files)
    send(log, 0)
    files.fails_to_sync = True
    with pytest.raises(StorageError):
        log.flush()
    log.producers.replace({})
    for sequence in (0, 2, 9):
        with pytest.raises(LogOfflineError):
            send(log, sequence)


def test_what_is_known_of_producers_is_exchanged_at_once_when_a_log_comes_back(path):
    files = Failing()
    log = opened(path, files)
    for number in range(3):
        send(log, 2 * number)
    files.fails_to_sync = True
    with pytest.raises(StorageError):
        log.flush()
    files.fails_to_sync = False
    seen = []
    replace = log.producers.replace
    log.producers.replace = lambda states: (seen.append(log.producers.states), replace(states))
    before = log.producers.states

    log.reopen(NOW_MS)

    assert seen == [before]
    assert log.producers.states[1000].last_sequence == 5
