"""An idempotent producer that has five requests of each partition under way, without sockets.

It draws the conclusions that librdkafka draws from answers, which are the boldest of Kafka's
clients. Its messages are numbered from 0 on in each partition, and say so.

Source: librdkafka 2 (`rd_kafka_handle_Produce_error`, `rd_kafka_handle_idempotent_Produce_success`,
`rd_kafka_idemp_drain_epoch_bump`).
"""

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from hermes.protocol.kafka_errors import Code
from hermes.protocol.records import Record, encode_batch

__all__ = ["PipeliningProducer", "decode_codes", "encode_produce", "sent_record"]

#: How many requests of a partition are under way at most.
_IN_FLIGHT = 5
_VERSION = 3
_TIMEOUT_MS = 30_000
#: When all messages were sent, by their timestamps: what a bench's clock says.
_SENT_MS = 1_800_000_000_000

#: Of these the batch is sent again as it was, when nothing of its partition is under way any more.
_RETRIED = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.KAFKA_STORAGE_ERROR,
    }
)


class _Batch(NamedTuple):
    partition: int
    numbers: tuple[int, ...]


@dataclass
class _Partition:
    """What the producer knows of one partition.

    Attributes:
        queue: what is to be sent, by number.
        base: the number of the message that is the first one of the epoch.
        acked: the offset of each message that was acknowledged; None where a later one's
            acknowledgement was taken for it.
        in_flight: how many requests are under way.
        is_draining: whether nothing is sent before they are answered.
    """

    queue: deque[_Batch] = field(default_factory=deque)
    base: int = 0
    acked: dict[int, int | None] = field(default_factory=dict)
    in_flight: int = 0
    is_draining: bool = False

    @property
    def next_ack(self) -> int:
        return len(self.acked)

    def retry(self, batch: _Batch) -> None:
        self.queue.append(batch)
        self.queue = deque(sorted(self.queue, key=lambda each: each.numbers))

    def acknowledge(self, batch: _Batch, offset: int) -> None:
        for number in range(self.next_ack, batch.numbers[0]):
            self.acked[number] = None
        for place, number in enumerate(batch.numbers):
            self.acked[number] = offset + place
        self.queue = deque(each for each in self.queue if each.numbers[-1] >= self.next_ack)


class PipeliningProducer:
    """Sends so many messages to each partition of a topic.

    Args:
        producer_id: its id.
        topic: the topic.
        partitions: how many it has.
        count: how many messages go to each.
        random: decides how large batches are.

    Attributes:
        epoch: its epoch; above 0 it was told to number anew what it had not heard of.
    """

    def __init__(
        self, producer_id: int, topic: str, partitions: int, count: int, random: Random
    ) -> None:
        self.producer_id = producer_id
        self.topic = topic
        self.epoch = 0
        self._is_bumping = False
        self._partitions = [_Partition() for _ in range(partitions)]
        self._in_flight: deque[_Batch] = deque()
        for number, partition in enumerate(self._partitions):
            first = 0
            while first < count:
                end = min(count, first + random.randint(1, 3))
                partition.queue.append(_Batch(number, tuple(range(first, end))))
                first = end

    @property
    def is_done(self) -> bool:
        """Whether all was acknowledged."""
        return not self._in_flight and not any(each.queue for each in self._partitions)

    @property
    def acked(self) -> Sequence[dict[int, int | None]]:
        """For each partition the offsets of the messages, by number."""
        return [each.acked for each in self._partitions]

    def next_request(self) -> bytes | None:
        """What it sends now; None when it waits for answers, or is done."""
        if self._is_bumping and not self._in_flight:
            self._bump()
        for partition in self._partitions:
            if not partition.in_flight:
                partition.is_draining = False
            is_held = self._is_bumping or partition.is_draining
            if partition.queue and not is_held and partition.in_flight < _IN_FLIGHT:
                return self._sent(partition, partition.queue.popleft())
        return None

    def answered(self, code: int, offset: int) -> None:
        """The oldest request was answered.

        Raises:
            AssertionError: the producer would give up, or stop for good.
        """
        batch = self._in_flight.popleft()
        partition = self._partitions[batch.partition]
        partition.in_flight -= 1
        if code == Code.NONE:
            partition.acknowledge(batch, offset)
        elif code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert batch.numbers[0] > partition.next_ack, "sequence desynchronization with broker"
            partition.retry(batch)
            self._is_bumping = True
        else:
            assert code in _RETRIED, f"{batch} failed: {Code(code).name}"
            partition.retry(batch)
            partition.is_draining = True

    def disconnected(self) -> None:
        """What is under way is never answered."""
        while self._in_flight:
            self.answered(Code.REQUEST_TIMED_OUT, -1)

    def _bump(self) -> None:
        """Number all anew that was not acknowledged."""
        self.epoch += 1
        self._is_bumping = False
        for partition in self._partitions:
            partition.base = partition.next_ack

    def _sent(self, partition: _Partition, batch: _Batch) -> bytes:
        self._in_flight.append(batch)
        partition.in_flight += 1
        records = [
            sent_record(self.producer_id, batch.partition, number)._replace(offset=place)
            for place, number in enumerate(batch.numbers)
        ]
        data = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=batch.numbers[0] - partition.base,
        )
        return encode_produce(self.topic, batch.partition, data)


def sent_record(producer_id: int, partition: int, number: int) -> Record:
    """A message of a producer, at offset 0."""
    return Record(0, _SENT_MS, None, b"%d:%d:%d" % (producer_id, partition, number))


def encode_produce(topic: str, partition: int, records: bytes) -> bytes:
    """Encode a Produce with acks=all for one partition, its size included."""
    name = topic.encode()
    body = b"".join(
        (
            struct.pack(">hhih", 0, _VERSION, 0, -1),
            struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1),
            struct.pack(f">h{len(name)}sii", len(name), name, 1, partition),
            struct.pack(">i", len(records)),
            records,
        )
    )
    return struct.pack(">i", len(body)) + body


def decode_codes(topic: str, answer: bytes) -> tuple[int, int]:
    """The error code and the base offset of an answer, without its size."""
    return struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
