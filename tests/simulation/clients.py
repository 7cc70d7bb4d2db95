"""Clients of simulated brokers: producers that retry, readers, and an administrator.

They do what Kafka's own do as far as it matters to brokers: an idempotent producer sends what was
not acknowledged again, in order and with the same numbers, until it is, or until it must begin anew
as somebody else; then what was under way is given up, and may be there or not.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import requests
from invariants_today import Books, Partition, value_of
from requests import Client, LostError, RefusedError, Topic
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.protocol.kafka_errors import MAY_BE_STORED, Code
from hermes.protocol.records import Record, encode_batch

__all__ = ["AGAIN", "KEPT", "KEYS", "NOT_THERE", "Administrator", "Producer", "Reader", "run"]

#: Keys of compacted topics: few, so that there is something to compact.
KEYS = tuple(f"k{number}".encode() for number in range(5))

#: A topic that is never deleted.
KEPT = "kept"

#: After these a producer sends the same again.
AGAIN = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        MAY_BE_STORED,
    }
)

#: After these it looks for the topic again: it may be another one by now.
NOT_THERE = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})


def run(client: Client, work: Callable[[], Any]) -> None:
    """Have a client work, as an event; what it doesn't expect breaks the run."""

    def begin() -> None:
        Deferred.fromCoroutine(work()).addErrback(failed)

    def failed(failure: Failure) -> None:
        client.process.world.breaks(f"{client.name}: {failure.getTraceback()}")

    client.process.at(0, begin)


async def found_topic(client: Client, chance: Random, name: str) -> Topic | None:
    """Ask some broker for a topic; None where it doesn't know it, or doesn't answer."""
    try:
        topic: Topic = await client.ask(
            chance.choice(list(client.brokers)), requests.metadata, name
        )
        return topic
    except (LostError, RefusedError):
        return None


class _Batch(NamedTuple):
    """`number`: how many its producer has made before."""

    number: int
    sequence: int
    messages: tuple[tuple[bytes | None, bytes], ...]
    data: bytes


class Producer:
    """An idempotent producer for one partition at a time, with some batches under way."""

    def __init__(self, client: Client, books: Books, names: list[str], chance: Random) -> None:
        self.client, self.books, self.chance = client, books, chance
        self._names = names
        self._lives = 0

    async def work(self) -> None:
        client, chance = self.client, self.chance
        while not client.is_over:
            await client.sleep(chance.expovariate(2.0))
            topic = await found_topic(client, chance, chance.choice(self._names))
            if topic is None or not topic.leaders:
                continue
            try:
                broker = chance.choice(list(client.brokers))
                producer_id = await client.ask(broker, requests.init_producer)
            except (LostError, RefusedError):
                continue
            self._lives += 1
            await _Stay(self, topic, producer_id, f"{client.name}.{self._lives}").work()


class _Stay:
    """A producer as one producer id, at one partition."""

    def __init__(self, producer: Producer, topic: Topic, producer_id: int, name: str) -> None:
        self.client, self.books, self.chance = producer.client, producer.books, producer.chance
        self.topic = topic
        self.number = self.chance.randrange(len(topic.leaders))
        self.leader = topic.leaders[self.number]
        self.name = name
        self._producer_id = producer_id
        self._unacknowledged: deque[_Batch] = deque()
        self._made = self._sequence = 0
        self._left = self.chance.randint(1, 30)
        self._most = self.chance.choice((1, 2, 5))
        self._acks = self.chance.choice((-1, -1, -1, 1))

    async def work(self) -> None:
        books = self.books.topics.get(self.topic.id)
        is_keyed = books is not None and books.is_compacted
        attempts = 0
        while (self._left or self._unacknowledged) and attempts < 60:
            while self._left and self._has_room():
                self._left -= 1
                self._unacknowledged.append(self._batch(is_keyed))
            if self.client.is_over:
                self._left = 0
            before = len(self._unacknowledged)
            if not await self._send():
                return
            attempts = 0 if len(self._unacknowledged) < before else attempts + 1
            slowly = self.chance.expovariate(5.0) if attempts else self.chance.expovariate(30.0)
            await self.client.sleep(slowly)

    def _has_room(self) -> bool:
        """Whether one more may be under way: no more than brokers remember, from the first on."""
        waiting = self._unacknowledged
        return not waiting or self._made - waiting[0].number < self._most

    def _batch(self, is_keyed: bool) -> _Batch:
        now_ms = self.client.process.clock.now_ms()
        records, base = [], self._sequence
        for offset in range(self.chance.choice((1, 1, 3))):
            value = value_of(self.topic.id, self.number, self.name, self._sequence)
            key = self.chance.choice(KEYS) if is_keyed else None
            records.append(Record(offset, now_ms, key, value))
            self._sequence += 1
        data = encode_batch(
            records, producer_id=self._producer_id, producer_epoch=0, base_sequence=base
        )
        messages = tuple((each.key, each.value or b"") for each in records)
        self._made += 1
        return _Batch(self._made - 1, base, messages, data)

    async def _send(self) -> bool:
        """Send all that is unacknowledged, in order; whether to go on as the same."""
        asked = [
            Deferred.fromCoroutine(
                self.client.ask(
                    self.leader,
                    requests.produce,
                    self.topic.id,
                    self.number,
                    each.data,
                    self._acks,
                    seconds=self.chance.choice((1.0, 5.0)),
                )
            )
            for each in self._unacknowledged
        ]
        goes_on, may_have_moved = True, False
        for batch, answered in zip(list(self._unacknowledged), asked, strict=True):
            code = await self._outcome(batch, answered)
            may_have_moved |= code in (Code.NOT_LEADER_OR_FOLLOWER, None)
            if code in NOT_THERE:
                goes_on = await self._look_again() and goes_on
            elif code not in (Code.NONE, None) and code not in AGAIN:
                goes_on = self._may_go_on(batch, code) and goes_on
        if goes_on and may_have_moved and self.topic.has_copies:
            goes_on = await self._look_again()
        return goes_on

    def _may_go_on(self, batch: _Batch, code: Code) -> bool:
        """After an earlier one that failed, to be out of order is to be expected."""
        if code is not Code.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return False
        if self._acks == -1 and self._unacknowledged[0] is batch:
            self.books.world.fail(f"{self.name}: {batch.sequence} is refused: a later one is there")
        elif self.topic.has_copies and self._unacknowledged[0] is batch:
            return False  # what was acknowledged before it is lost, as it may be
        return True

    async def _outcome(self, batch: _Batch, answered: "Deferred[Any]") -> Code | None:
        try:
            code, base = await answered
        except LostError:
            return None
        except RefusedError as error:
            return error.code
        if code is Code.NONE and self._acks == 1:  # it may be lost yet
            self._unacknowledged.remove(batch)
        elif code is Code.NONE:
            self.books.acknowledge(Partition(self.topic.id, self.number), base, batch.messages)
            self._unacknowledged.remove(batch)
        return Code(code)

    async def _look_again(self) -> bool:
        """Whether the topic is still there, as far as anybody knows."""
        found = await found_topic(self.client, self.chance, self.topic.name)
        if found is None:
            return self.chance.random() < 0.9
        if found.id != self.topic.id:
            return False
        if self.number < len(found.leaders):  # else who said so doesn't know that it has grown
            self.leader = found.leaders[self.number]
        return True


class Reader:
    """Reads partitions, from their start or on from where it was."""

    def __init__(self, client: Client, books: Books, names: list[str], chance: Random) -> None:
        self.client, self.books, self.chance = client, books, chance
        self._names = names
        self._next: dict[Partition, int] = {}

    async def work(self) -> None:
        client, chance = self.client, self.chance
        while not client.is_over:
            await client.sleep(chance.expovariate(5.0))
            topic = await found_topic(client, chance, chance.choice(self._names))
            if topic is None or not topic.leaders:
                continue
            try:
                await self._read(topic, chance.randrange(len(topic.leaders)))
            except (LostError, RefusedError):
                self._next.clear()

    async def _read(self, topic: Topic, number: int) -> None:
        partition = Partition(topic.id, number)
        begin = self._next.get(partition)
        known = self.books.end_of(partition), self.books.start_of(partition)
        found: requests.Fetched = await self.client.ask(
            topic.leaders[number], requests.fetch, topic.name, number, begin
        )
        if found.topic_id != topic.id:
            return
        self.books.read(
            partition,
            found.start if begin is None else begin,
            found.start,
            found.end,
            found.records,
            *(known if found.is_end_known else (0, 0)),
        )
        if found.records:
            self._next[partition] = found.records[-1].offset + 1


class Administrator:
    """Creates, grows, alters, deletes and re-creates topics, and deletes records."""

    def __init__(self, client: Client, books: Books, names: list[str], chance: Random) -> None:
        self.client, self.books, self.chance = client, books, chance
        self._names = names

    async def work(self) -> None:
        client, chance = self.client, self.chance
        for name in self._names:
            await self._create(name)
        steps = (
            (self._create, 3),
            (self._grow, 1),
            (self._alter, 1),
            (self._delete_records, 2),
            (self._delete, 3),
        )
        calls, weights = zip(*steps, strict=True)
        while not client.is_over:
            await client.sleep(chance.expovariate(0.8))
            step = chance.choices(calls, weights)[0]
            await step(chance.choice(self._names))

    async def _ask(self, *request: Any) -> Any:
        try:
            return await self.client.ask(self.chance.choice(list(self.client.brokers)), *request)
        except (LostError, RefusedError) as error:
            self.client.process.world.note(self.client.name, f"{request[1:]}: {error}")
            return None

    async def _create(self, name: str) -> None:
        settings = {}
        if name.startswith("compacted"):
            settings["cleanup_policy"] = "compact"
        elif name.startswith("retained"):
            settings["retention_bytes"] = "3KiB"
        count = self.chance.choice((1, 2, 3))
        await self._ask(requests.create, name, count, settings)

    async def _grow(self, name: str) -> None:
        await self._ask(requests.grow, name, self.chance.choice((2, 3, 4)))

    async def _alter(self, name: str) -> None:
        await self._ask(requests.alter, name, {"flush_messages": str(self.chance.randint(1, 50))})

    async def _delete_records(self, name: str) -> None:
        topic = await found_topic(self.client, self.chance, name)
        if topic is None:
            return
        number = self.chance.randrange(len(topic.leaders))
        partition = Partition(topic.id, number)
        offset = int(self.books.end_of(partition) * self.chance.random())
        try:
            await self.client.ask(
                topic.leaders[number], requests.delete_records, name, number, offset
            )
        except (LostError, RefusedError):
            return

    async def _delete(self, name: str) -> None:
        topic = await found_topic(self.client, self.chance, name)
        if topic is not None and name != KEPT:
            await self._ask(requests.delete, name)
