"""Clients of a replicated partition: producers that write each batch once, and readers.

They find the leader by asking around, as clients with stale metadata do, and send what was not
answered again to whoever leads by then. What they did and were told is a `History`.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from histories import Append, History, Look, Poll
from invariants import Batch
from kafka_logs import batches_in
from machines import Machine, Process
from replicas import Cluster, ReplicaBroker

from hermes.errors import StorageError
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import decode_header
from hermes.protocol.records import Record, encode_batch, iterate_records

__all__ = ["Clients", "Producer", "Reader", "read_all"]

#: After which a request is sent again, and how long until it is after a refusal, in µs.
_ANSWER_US, _AGAIN_US = 700_000, 60_000

_POLL_BYTES = 600


class _Under(NamedTuple):
    """A batch under way. `number`: no other of its producer's has it."""

    number: int
    data: bytes
    values: list[int]
    operations: list[Append]


class Clients:
    """What clients of one partition have in common.

    Attributes:
        acknowledged: how many batches were.
        is_over: whether nothing new is begun.
        values_of: what each batch has, by its CRC.
    """

    def __init__(self, cluster: Cluster, chance: Random, values: Iterator[int]) -> None:
        self.cluster = cluster
        self.chance = chance
        self.values = values
        self.history = History()
        self.acknowledged = 0
        self.is_over = False
        self.values_of: dict[int, list[int]] = {}

    def machine(self, name: str) -> Process:
        return Machine(self.cluster.world, name).start()

    def leader(self) -> int:
        """Who leads for all that a client knows; at times somebody else, who may think so."""
        state = self.cluster.invariants.state
        if state is None or state.leader < 0 or self.chance.random() < 0.1:
            return self.chance.choice(list(self.cluster.machines))
        return state.leader

    def lost(self) -> set[tuple[int, int]]:
        """What was lost with leave, and isn't there again: offsets, and what was there."""
        invariants = self.cluster.invariants
        return self._places(invariants.lost) - self._places(invariants.shown)

    def _places(self, batches: Iterable[Batch]) -> set[tuple[int, int]]:
        return {
            (batch.base + place, value)
            for batch in batches
            for place, value in enumerate(self.values_of[batch.crc])
        }

    def is_led_by(self, broker: ReplicaBroker) -> bool:
        """Whether a broker leads, and not only thinks so."""
        state, leading = self.cluster.invariants.state, broker.replica.leading
        return state is not None and leading is not None and leading.epoch == state.epoch


class Producer:
    """An idempotent producer: one batch after the other, each sent until it is acknowledged."""

    def __init__(self, clients: Clients, number: int, pause_us: int) -> None:
        self.clients = clients
        self.number = number
        self.process = clients.machine(f"producer {number}")
        self._pause_us = pause_us
        self._under: _Under | None = None
        self._epoch = self._sequence = self._made = self._tries = 0

    def next(self) -> None:
        """Begin the next batch some time from now."""
        pause_us = int(self._pause_us * self.clients.chance.expovariate(1.0)) + 1
        self.process.at(pause_us, self._begin)

    def _begin(self) -> None:
        clients = self.clients
        if clients.is_over:
            return
        now_us = clients.cluster.world.now_us
        values = [next(clients.values) for _ in range(clients.chance.choice((1, 1, 1, 2, 3)))]
        self._made += 1
        operations = [clients.history.append(self.number, now_us, each) for each in values]
        self._under = _Under(self._made, self._encoded(values), values, operations)
        self._send()

    def _encoded(self, values: list[int]) -> bytes:
        """As the next batch of the producer's epoch."""
        now_ms = self.clients.cluster.world.now_us // 1000
        data = encode_batch(
            [Record(offset, now_ms, None, b"%d" % each) for offset, each in enumerate(values)],
            producer_id=self.number,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        self._sequence += len(values)
        self.clients.values_of[decode_header(data).crc] = values
        return data

    def _send(self) -> None:
        """Send the batch under way; again, unless it is answered soon."""
        under, cluster = self._under, self.clients.cluster
        if under is None:
            return
        self._tries += 1
        self.process.at(_ANSWER_US, self._send_again, self._tries)
        target = self.clients.leader()
        machine = cluster.machines[target]
        cluster.network.send(self.process, machine, self._arrive, target, under, self._tries)

    def _send_again(self, tries: int) -> None:
        if tries == self._tries:
            self._send()

    def _arrive(self, target: int, under: _Under, tries: int) -> None:
        """At the broker."""
        cluster = self.clients.cluster
        broker = cluster.brokers[target]
        offsets: list[int] = []

        def answer(code: Code) -> None:
            offset = None
            if code is Code.NONE:
                offset = offsets[0]
                if offset >= broker.log.earliest:  # else deleted since
                    cluster.invariants.acknowledged(broker, _batch_at(broker, offset))
            elif code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and tries == self._tries:
                self._check_is_lost(broker, under)
            network, machine = cluster.network, self.process.machine
            network.send(broker.process, machine, self._answered, under, tries, code, offset)

        done = broker.produce(under.data, answer)
        if done is not None:
            offsets.append(done.base_offset)

    def _check_is_lost(self, broker: ReplicaBroker, under: _Under) -> None:
        """Each batch is sent once the one before it is acknowledged: whoever leads has that."""
        invariants = self.clients.cluster.invariants
        if under is self._under and not invariants.is_excused:
            invariants.world.breaks(
                f"{broker.process} tells a producer that a batch before is lost"
            )

    def _answered(self, under: _Under, tries: int, code: Code, offset: int | None) -> None:
        if self._under is None or under.number != self._under.number:
            return
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and tries == self._tries:
            self._begin_epoch(self._under)
        if offset is None:
            self.process.at(_AGAIN_US, self._send_again, tries)
            return
        now_us = self.clients.cluster.world.now_us
        for place, operation in enumerate(under.operations):
            operation.acknowledged(now_us, offset + place)
        self.clients.acknowledged += 1
        self._under = None
        self._tries += 1
        self.next()

    def _begin_epoch(self, under: _Under) -> None:
        """As clients do who are out of step: what is under way is written anew, maybe twice."""
        self._epoch, self._sequence = self._epoch + 1, 0
        for each in under.operations:
            each.is_idempotent = False
        self._under = under._replace(data=self._encoded(under.values))


class Reader:
    """Reads on from where it was, or from some earlier offset, and asks for the end at times."""

    def __init__(self, clients: Clients, number: int, pause_us: int) -> None:
        self.clients = clients
        self.number = number
        self.process = clients.machine(f"reader {number}")
        self._pause_us = pause_us
        self._next = 0

    def next(self) -> None:
        clients = self.clients
        if clients.is_over:
            return
        self.process.at(int(self._pause_us * clients.chance.expovariate(1.0)) + 1, self.next)
        cluster, now_us = clients.cluster, clients.cluster.world.now_us
        target = clients.leader()
        machine = cluster.machines[target]
        if clients.chance.random() < 0.3:
            look = clients.history.look(self.number, now_us)
            cluster.network.send(self.process, machine, self._look, target, look)
        else:
            is_rewound = clients.chance.random() < 0.2
            offset = clients.chance.randrange(self._next + 1) if is_rewound else self._next
            poll = clients.history.poll(self.number, now_us, offset)
            cluster.network.send(self.process, machine, self._poll, target, poll)

    def _look(self, target: int, look: Look) -> None:
        """At the broker."""
        broker = self.clients.cluster.brokers[target]
        end = broker.end_for_readers()
        # Who was suspected wrongly may know an older end, for as long as it trusts what it knows;
        # the scene looks at that.
        if end is not None and self.clients.is_led_by(broker):
            self._reply(broker, look, end)

    def _poll(self, target: int, poll: Poll) -> None:
        """At the broker."""
        broker = self.clients.cluster.brokers[target]
        if broker.shows(poll.offset):
            self._reply(broker, poll, _read(broker, poll.offset))

    def _reply(self, broker: ReplicaBroker, asked: Look | Poll, found: object) -> None:
        network, machine = self.clients.cluster.network, self.process.machine
        network.send(broker.process, machine, self._replied, asked, found)

    def _replied(self, asked: Look | Poll, found: Any) -> None:
        if asked.returned_us is None:
            asked.answered(self.clients.cluster.world.now_us, found)
            if isinstance(asked, Poll):
                self._next = max([self._next, *(offset + 1 for offset in found)])


def read_all(broker: ReplicaBroker) -> dict[int, int]:
    """What is committed, by offset; outside of the broker."""
    found: dict[int, int] = {}
    broker.process.run(_read_on, broker, found)
    return found


def _read_on(broker: ReplicaBroker, found: dict[int, int]) -> None:
    offset, end = broker.log.earliest, broker.log.high_watermark
    while offset < end:
        found |= _read(broker, offset)
        offset = max(found) + 1


def _read(broker: ReplicaBroker, offset: int) -> Mapping[int, int]:
    log = broker.log
    try:
        with log.read(offset, _POLL_BYTES, whole_first=True) as part:
            data = part.length and log.files.pread(part.fileno(), part.length, part.position)
    except StorageError:
        return {}
    found = {}
    for header, batch in batches_in(data or b""):
        for record in iterate_records(batch, header):
            if record.offset >= offset and record.value is not None:
                found[record.offset] = int(record.value)
    return found


def _batch_at(broker: ReplicaBroker, offset: int) -> Batch:
    batches = broker.cluster.invariants.copies[broker.broker_id].batches
    return next(each for each in reversed(batches) if each.base == offset)
