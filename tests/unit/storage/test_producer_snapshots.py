"""Snapshots of producers: Kafka's bytes, and what is done with those that can't be used."""

from struct import pack

import pytest
from crc32c import crc32c

from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.transaction_markers import Marker, encode_marker
from hermes.storage.files import FileLayer
from hermes.storage.producer_snapshots import (
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
)
from hermes.storage.producer_states import (
    EXPIRATION_MS,
    Capture,
    ProducerState,
    ProducerStates,
    StoredBatch,
)

STATE = ProducerState(2, (StoredBatch(41, 1041, 9, 1_700_000_000_000),), 1_700_000_000_000)
NOW_MS = 1_700_000_000_001
# version | crc | 1 producer: id 1000, epoch 2, last sequence 41, offset 1041, delta 9, time,
# no coordinator, no transaction
BYTES = bytes.fromhex(
    "0001 8d0925f6 00000001"
    "00000000000003e8 0002 00000029 0000000000000411 00000009 0000018bcfe56800"
    "ffffffff ffffffffffffffff"
)


def header(sequence, base_offset, producer=1000):
    """As it is read again, with no marker."""
    return BatchHeader(base_offset, 99, 0, 0, 0, 0, 0, NOW_MS, producer, 2, sequence, 1), None


@pytest.fixture
def snapshots(tmp_path):
    return ProducerSnapshots(str(tmp_path), FileLayer())


def replay_none(start):
    return []


def loaded(snapshots, start=0, end=5000, now_ms=NOW_MS, replay=replay_none):
    producers = ProducerStates("clicks-0")
    snapshots.load(producers, start, end, now_ms, replay)
    return producers.states


def test_the_bytes_are_kafkas():
    assert encode_snapshot({1000: STATE}) == BYTES
    assert decode_snapshot(BYTES) == {1000: STATE}
    assert decode_snapshot(encode_snapshot({})) == {}


def test_a_producer_without_a_batch_is_kept_as_kafka_keeps_it():
    state = ProducerState(3, (), 5)

    written = encode_snapshot({7: state})

    assert pack(">qhiq", 7, 3, -1, -1) in written
    assert decode_snapshot(written) == {7: state}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        BYTES[:9],
        BYTES[:-1],
        BYTES + b"\0",
        b"\0\2" + BYTES[2:],
        BYTES[:20] + b"\1" + BYTES[21:],
        pack(">hIi", 1, crc32c(pack(">i", -1)), -1),
        pack(">hIi", 1, crc32c(pack(">i", 2**31 - 1)), 2**31 - 1),
    ],
    ids=["nothing", "short", "cut", "long", "version", "crc", "negative", "huge"],
)
def test_damage_is_noticed(damaged):
    with pytest.raises(ValueError, match="it"):
        decode_snapshot(damaged)


def test_names_are_offsets_in_twenty_digits():
    assert snapshot_name(1050) == "00000000000000001050.snapshot"


def test_the_newest_is_loaded_and_the_batches_after_it_are_read(tmp_path, snapshots):
    (tmp_path / snapshot_name(500)).write_bytes(encode_snapshot({}))
    (tmp_path / snapshot_name(1050)).write_bytes(BYTES)
    asked = []

    def replay(start):
        asked.append(start)
        return [header(42, 1050), header(43, 1051)]

    states = loaded(snapshots, now_ms=NOW_MS + 600_000, replay=replay)

    assert asked == [1050]
    assert [each.last_sequence for each in states[1000].batches] == [42, 43]


def test_of_producers_that_sent_something_lately_the_last_batches_are_read_again(
    tmp_path, snapshots
):
    """A snapshot has the last one only, and five may be repeated after a stop."""
    (tmp_path / snapshot_name(1050)).write_bytes(BYTES)
    asked = []

    def replay(start):
        asked.append(start)
        return [header(39, 1039), header(40, 1040), header(41, 1041)]

    states = loaded(snapshots, replay=replay)

    assert asked == [0], "five batches of two thousand messages before the snapshot"
    assert [each.last_sequence for each in states[1000].batches] == [39, 40, 41]
    assert loaded(snapshots, start=1020, replay=lambda start: asked.append(start) or [])
    assert asked[-1] == 1020


def test_what_is_damaged_or_beyond_the_end_is_removed_and_an_older_one_serves(tmp_path, snapshots):
    (tmp_path / snapshot_name(900)).write_bytes(BYTES)
    (tmp_path / snapshot_name(1050)).write_bytes(BYTES[:-1])
    (tmp_path / snapshot_name(9999)).write_bytes(BYTES)

    assert loaded(snapshots, start=950) == {1000: STATE}
    assert [each.name for each in tmp_path.iterdir()] == [snapshot_name(900)]


def test_without_a_snapshot_all_of_the_log_is_read(snapshots):
    asked = []

    def replay(start):
        asked.append(start)
        return []

    assert loaded(snapshots, start=30, replay=replay) == {}
    assert asked == [30]


def test_what_has_expired_is_not_loaded(tmp_path, snapshots):
    (tmp_path / snapshot_name(1050)).write_bytes(BYTES)

    assert loaded(snapshots, now_ms=STATE.last_timestamp_ms + EXPIRATION_MS) == {}


def test_writing_keeps_the_newest_two(tmp_path, snapshots):
    for offset in (10, 20, 30):
        snapshots.write([Capture(offset, {1000: STATE})])
    snapshots.write([Capture(40, {}), Capture(50, {1000: STATE})])
    snapshots.write([])

    assert sorted(each.name for each in tmp_path.iterdir()) == [
        snapshot_name(30),
        snapshot_name(50),
    ]
    assert (tmp_path / snapshot_name(50)).read_bytes() == BYTES


def test_a_snapshot_that_cannot_be_written_leaves_the_last_one(tmp_path, snapshots):
    class Full(FileLayer):
        def pwritev(self, descriptor, buffers, position):
            raise OSError(28, "No space left on device")

        def pwrite(self, descriptor, buffer, position):
            raise OSError(28, "No space left on device")

    snapshots.write([Capture(10, {1000: STATE})])

    with pytest.raises(OSError, match="No space"):
        ProducerSnapshots(str(tmp_path), Full()).write([Capture(20, {})])

    assert loaded(snapshots) == {1000: STATE}
    assert [each.name for each in tmp_path.iterdir()] == [snapshot_name(10)]


def test_a_marker_that_is_read_again_leaves_the_last_sequence_number(tmp_path, snapshots):
    """Of a transactional producer whose epoch stays the same: it goes on from there."""
    (tmp_path / snapshot_name(1050)).write_bytes(BYTES)
    marker = Marker(1000, 2, True, 0)
    ended, _ = encode_marker(marker, 1060, 0, NOW_MS)

    states = loaded(snapshots, now_ms=NOW_MS + 600_000, replay=lambda _: [(ended, marker)])

    assert states[1000].last_sequence == 41
