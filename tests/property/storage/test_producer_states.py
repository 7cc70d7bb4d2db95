"""What a log knows of producers, against Kafka's own classes written down once more.

`KafkaModel` is `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of Kafka 4
with their names, transactions left out.
"""

from dataclasses import dataclass, field

import pytest
from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from hermes.protocol.record_batches import BatchHeader
from hermes.storage.producer_snapshots import decode_snapshot, encode_snapshot
from hermes.storage.producer_states import (
    EXPIRATION_MS,
    REMEMBERED_BATCHES,
    ProducerStates,
    unexpired,
)

MAX_VALUE = 2**31 - 1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


def increment_sequence(sequence: int, increment: int) -> int:
    if sequence > MAX_VALUE - increment:
        return increment - (MAX_VALUE - sequence) - 1
    return sequence + increment


def decrement_sequence(sequence: int, decrement: int) -> int:
    if sequence < decrement:
        return MAX_VALUE - (decrement - sequence) + 1
    return sequence - decrement


@dataclass
class BatchMetadata:
    last_seq: int
    last_offset: int
    offset_delta: int
    timestamp: int

    def first_seq(self) -> int:
        return decrement_sequence(self.last_seq, self.offset_delta)

    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass
class ProducerStateEntry:
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_timestamp: int = -1
    batch_metadata: list[BatchMetadata] = field(default_factory=list)

    def is_empty(self) -> bool:
        return not self.batch_metadata

    def last_seq(self) -> int:
        return NO_SEQUENCE if self.is_empty() else self.batch_metadata[-1].last_seq

    def add_batch(self, epoch, last_seq, last_offset, offset_delta, timestamp) -> None:
        self.maybe_update_producer_epoch(epoch)
        self.add_batch_metadata(BatchMetadata(last_seq, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

    def maybe_update_producer_epoch(self, epoch) -> None:
        if self.producer_epoch != epoch:
            self.batch_metadata.clear()
            self.producer_epoch = epoch

    def add_batch_metadata(self, batch) -> None:
        if len(self.batch_metadata) == REMEMBERED_BATCHES:
            self.batch_metadata.pop(0)
        self.batch_metadata.append(batch)

    def update(self, next_entry) -> None:
        self.maybe_update_producer_epoch(next_entry.producer_epoch)
        while next_entry.batch_metadata:
            self.add_batch_metadata(next_entry.batch_metadata.pop(0))
        self.last_timestamp = next_entry.last_timestamp

    def find_duplicate_batch(self, batch) -> BatchMetadata | None:
        if batch.producer_epoch != self.producer_epoch:
            return None
        first_seq = batch.base_sequence
        last_seq = increment_sequence(batch.base_sequence, batch.last_offset_delta)
        for each in self.batch_metadata:
            if first_seq == each.first_seq() and last_seq == each.last_seq:
                return each
        return None


class ProducerAppendInfo:
    def __init__(self, current_entry: ProducerStateEntry) -> None:
        self.current_entry = current_entry
        self.updated_entry = ProducerStateEntry(
            current_entry.producer_epoch, current_entry.last_timestamp
        )

    def append(self, batch: BatchHeader, first_offset: int) -> None:
        last_offset = first_offset + batch.last_offset_delta
        last_seq = increment_sequence(batch.base_sequence, batch.last_offset_delta)
        self.check_producer_epoch(batch.producer_epoch)
        self.check_sequence(batch.producer_epoch, batch.base_sequence)
        self.updated_entry.add_batch(
            batch.producer_epoch,
            last_seq,
            last_offset,
            last_offset - first_offset,
            batch.max_timestamp_ms,
        )

    def check_producer_epoch(self, producer_epoch: int) -> None:
        if producer_epoch < self.updated_entry.producer_epoch:
            raise InvalidProducerEpochError("")

    def check_sequence(self, producer_epoch: int, append_first_seq: int) -> None:
        if producer_epoch != self.updated_entry.producer_epoch:
            if append_first_seq != 0 and self.updated_entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError("")
            return
        if not self.updated_entry.is_empty():
            current_last_seq = self.updated_entry.last_seq()
        elif producer_epoch == self.current_entry.producer_epoch:
            current_last_seq = self.current_entry.last_seq()
        else:
            current_last_seq = NO_SEQUENCE
        if not (
            self.current_entry.producer_epoch == NO_PRODUCER_EPOCH
            or self.in_sequence(current_last_seq, append_first_seq)
        ):
            raise OutOfOrderSequenceError("")

    def in_sequence(self, last_seq: int, next_seq: int) -> bool:
        return next_seq == last_seq + 1 or (next_seq == 0 and last_seq == MAX_VALUE)


class KafkaModel:
    def __init__(self) -> None:
        self.producers: dict[int, ProducerStateEntry] = {}

    def analyze_and_validate(self, batches, first_offset):
        updated: dict[int, ProducerAppendInfo] = {}
        for batch in batches:
            if batch.producer_id >= 0:
                last_entry = self.producers.get(batch.producer_id)
                duplicate = last_entry and last_entry.find_duplicate_batch(batch)
                if duplicate:
                    return None, duplicate
                info = updated.setdefault(
                    batch.producer_id, ProducerAppendInfo(last_entry or ProducerStateEntry())
                )
                info.append(batch, first_offset)
            first_offset += batch.last_offset_delta + 1
        return updated, None

    def update(self, updated) -> None:
        for producer_id, info in updated.items():
            if producer_id in self.producers:
                self.producers[producer_id].update(info.updated_entry)
            else:
                self.producers[producer_id] = info.updated_entry

    def remove_expired_producers(self, now: int) -> None:
        self.producers = {
            key: each
            for key, each in self.producers.items()
            if now - each.last_timestamp < EXPIRATION_MS
        }

    def through_a_snapshot(self) -> None:
        for each in self.producers.values():
            del each.batch_metadata[:-1]


def batch(producer, epoch, sequence, count, timestamp) -> BatchHeader:
    return BatchHeader(0, 99, 0, 0, 0, count - 1, 0, timestamp, producer, epoch, sequence, count)


class Producers(RuleBasedStateMachine):
    """Whatever arrives, in whatever order: the same answer, and the same is known afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.now_ms = 10 * EXPIRATION_MS
        self.model = KafkaModel()
        self.states = ProducerStates("clicks-0")
        self.sent: list[BatchHeader] = []

    def append(self, batches) -> None:
        try:
            updated, known = self.model.analyze_and_validate(batches, self.end)
        except (OutOfOrderSequenceError, InvalidProducerEpochError) as error:
            with pytest.raises(type(error)):
                self.states.check(batches, self.end)
            return
        found = self.states.check(batches, self.end)
        if known is None:
            assert found is None
            self.model.update(updated)
            self.states.note(batches, self.end)
            self.end += sum(each.record_count for each in batches)
            self.sent += batches
        else:
            assert found is not None
            assert (found.base_offset, found.last_offset, found.timestamp_ms) == (
                known.first_offset(),
                known.last_offset,
                known.timestamp,
            )

    @rule(
        producer=st.integers(-1, 2),
        epoch=st.integers(0, 2),
        sequence=st.one_of(st.integers(0, 12), st.integers(MAX_VALUE - 4, MAX_VALUE)),
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        age_ms=st.integers(0, 2 * EXPIRATION_MS),
    )
    def send_anything(self, producer, epoch, sequence, counts, age_ms) -> None:
        batches = []
        for count in counts:
            first = -1 if producer < 0 else sequence
            batches.append(batch(producer, epoch, first, count, self.now_ms - age_ms))
            sequence = increment_sequence(sequence, count)
        self.append(batches)

    @rule(producer=st.integers(0, 2), count=st.integers(1, 4))
    def go_on(self, producer, count) -> None:
        """As a producer does that loses nothing."""
        known = self.model.producers.get(producer)
        epoch = 0 if known is None else known.producer_epoch
        last = NO_SEQUENCE if known is None else known.last_seq()
        first = 0 if last == MAX_VALUE else last + 1
        self.append([batch(producer, epoch, first, count, self.now_ms)])

    @rule(back=st.integers(1, 8))
    def send_again(self, back) -> None:
        if len(self.sent) >= back:
            self.append([self.sent[-back]])

    @rule()
    def start_again_from_a_snapshot(self) -> None:
        self.model.through_a_snapshot()
        loaded = decode_snapshot(encode_snapshot(self.states.states))
        self.states = ProducerStates("clicks-0")
        self.states.replace(loaded)

    @rule(hours=st.integers(1, 30))
    def let_time_pass(self, hours) -> None:
        self.now_ms += hours * 3_600_000
        self.model.remove_expired_producers(self.now_ms)
        self.states.expire(self.now_ms)

    @invariant()
    def the_same_is_known(self) -> None:
        assert {
            key: (each.epoch, each.last_timestamp_ms, [tuple(one) for one in each.batches])
            for key, each in self.states.states.items()
        } == {
            key: (
                each.producer_epoch,
                each.last_timestamp,
                [
                    (one.last_seq, one.last_offset, one.offset_delta, one.timestamp)
                    for one in each.batch_metadata
                ],
            )
            for key, each in self.model.producers.items()
        }


TestProducers = Producers.TestCase
TestProducers.settings = settings(max_examples=examples(100), stateful_step_count=40)


def test_what_a_snapshot_holds_has_expired_as_in_a_running_log() -> None:
    states = ProducerStates("clicks-0")
    states.note([batch(1, 0, 0, 1, 0), batch(2, 0, 0, 1, 1)], 0)

    assert list(unexpired(states.states, EXPIRATION_MS)) == [2]
