"""Readers of what was committed, by Kafka's bytes: of partitions, and of transactions' offsets."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import requests
from clients import KEPT, found_topic
from exchanges import CommittedFetch, exchange, fetch_committed
from invariants_today import Partition
from invariants_transactions import TransactionBooks
from kafka_raw import parts
from requests import Client, LostError, RefusedError, Topic

from hermes.protocol.kafka_errors import Code

__all__ = ["CommittedReader", "committed_offset", "group_coordinator", "group_of"]

#: How often the same is asked in the end.
_TRIES = 40


def group_of(transactional_id: str) -> str:
    """The group whose offsets are part of its transactions."""
    return f"group-of-{transactional_id}"


async def group_coordinator(client: Client, chance: Random, group: str) -> int:
    broker_id = chance.choice(list(client.brokers))
    found: int | None = await client.ask(broker_id, requests.coordinator, group)
    if found is None:
        raise RefusedError(Code.COORDINATOR_NOT_AVAILABLE)
    return found


async def committed_offset(
    client: Client, chance: Random, books: TransactionBooks, transactional_id: str
) -> int:
    """Ask which offset a transactional id's group has come to; 0 for none."""
    group, floor = group_of(transactional_id), books.floor(transactional_id)
    coordinator = await group_coordinator(client, chance, group)
    topic = parts("OffsetFetch", 7).OffsetFetchRequestTopic(name=KEPT, partition_indexes=(0,))
    fields = {"group_id": group, "topics": (topic,), "require_stable": True}
    answer = await client.ask(coordinator, exchange, "OffsetFetch", 7, fields)
    if answer.error_code.value:
        raise RefusedError(Code(answer.error_code.value))
    (found,) = answer.topics[0].partitions
    if found.error_code.value:
        raise RefusedError(Code(found.error_code.value))
    offset = max(found.committed_offset, 0)
    books.told(transactional_id, offset, floor)
    return offset


class CommittedReader:
    """Reads what was committed, of partitions and of the offsets of transactions' groups.

    Attributes:
        last: which offset is committed of each transactional id, in the end.
    """

    def __init__(
        self,
        client: Client,
        books: TransactionBooks,
        names: list[str],
        transactional_ids: list[str],
        chance: Random,
    ) -> None:
        self.client, self.books, self.chance = client, books, chance
        self._names, self._ids = names, transactional_ids
        self._next: dict[Partition, int] = {}
        self.last: dict[str, int] = {}

    async def work(self) -> None:
        while not self.client.is_over:
            await self.client.sleep(self.chance.expovariate(5.0))
            try:
                if self.chance.random() < 0.2:
                    await self._read_offset(self.chance.choice(self._ids))
                else:
                    await self._read_some()
            except (LostError, RefusedError):
                self._next.clear()

    async def read_all(self) -> None:
        """Read everything, from its start, once all transactions are over."""
        for name in self._names:
            topic = await self._again(lambda name=name: self._find(name))
            for number in range(len(topic.leaders) if topic is not None else 0):
                self._next.pop(Partition(topic.id, number), None)
                await self._again(lambda at=(topic, number): self._read_to_end(*at))
        for each in self._ids:
            self.last[each] = await self._again(lambda each=each: self._read_offset(each))

    async def _again(self, read: Callable[[], Awaitable[Any]]) -> Any:
        for _ in range(_TRIES):
            try:
                return await read()
            except (LostError, RefusedError) as error:
                last = error
                await self.client.sleep(0.1)
        return self.client.process.world.fail(f"{self.client.name} can't read: {last}")

    async def _find(self, name: str) -> Topic | None:
        try:
            found: Topic = await self.client.ask(1, requests.metadata, name)
        except RefusedError as error:
            if error.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        return found

    async def _read_some(self) -> None:
        topic = await found_topic(self.client, self.chance, self.chance.choice(self._names))
        if topic is not None and topic.leaders:
            await self._read(topic, self.chance.randrange(len(topic.leaders)))

    async def _read_to_end(self, topic: Topic, number: int) -> None:
        while True:
            found = await self._read(topic, number)
            if found.stable_end != found.end:
                what = f"{topic.name}-{number} is stable up to {found.stable_end} of {found.end}"
                self.client.process.world.fail(f"{what} in the end")
            if found.covered >= found.end:
                return

    async def _read(self, topic: Topic, number: int) -> CommittedFetch:
        partition = Partition(topic.id, number)
        known_end = self.books.end_of(partition)
        found: CommittedFetch = await self.client.ask(
            *(topic.leaders[number], fetch_committed, topic.name, topic.id, number),
            self._next.get(partition),
        )
        if found.code:
            raise RefusedError(Code(found.code))
        self.books.read(
            partition,
            found.begin,
            found.covered,
            found.stable_end,
            found.records,
            known_end if found.is_end_known else 0,
        )
        self._next[partition] = found.covered
        return found

    def _read_offset(self, transactional_id: str) -> Awaitable[int]:
        return committed_offset(self.client, self.chance, self.books, transactional_id)
