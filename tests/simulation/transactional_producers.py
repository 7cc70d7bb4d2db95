"""Transactional producers of simulated brokers, of both versions of the protocol.

They do what Kafka's do: ask again while that may help, abort what has failed, take a new epoch
before they go on, and give up when they are fenced. Their requests go by Kafka's bytes.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple

from clients import AGAIN, KEPT, KEYS, NOT_THERE, found_topic
from committed_readers import committed_offset, group_coordinator, group_of
from exchanges import exchange
from invariants_today import Partition, value_of
from invariants_transactions import Attempt, TransactionBooks
from kafka_raw import parts
from requests import Client, LostError, RefusedError, Topic
from transacted_logs import transactional
from twisted.internet.defer import Deferred, DeferredList

from hermes.protocol.kafka_errors import Code
from hermes.protocol.records import Record, encode_batch

__all__ = ["TransactionalProducer"]

_TRANSACTION = 1

#: How long a transaction may take, in ms.
_TIMEOUTS = (1_500, 4_000, 10_000)

#: After these somebody else coordinates by now, or nobody.
_MOVED = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})

_AGAIN = AGAIN | _MOVED | {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS}

#: How often the same is asked.
_TRIES = 40


class _AbortableError(Exception):
    """What can't go on is to be aborted."""


class _GivesUpError(Exception):
    """The producer is fenced, or doesn't know what it is any more."""


class _Versions(NamedTuple):
    """Of requests, in which they differ. `grows`: the epoch does, with each transaction."""

    initialize: int
    produce: int
    commit_offsets: int
    end: int
    grows: bool


_OLD = _Versions(initialize=4, produce=11, commit_offsets=3, end=3, grows=False)
_NEW = _Versions(initialize=5, produce=13, commit_offsets=5, end=5, grows=True)


class TransactionalProducer:
    """Lives again and again, with one transactional id, which others may have as well."""

    def __init__(
        self,
        client: Client,
        books: TransactionBooks,
        names: list[str],
        transactional_id: str,
        chance: Random,
    ) -> None:
        self.client, self.books, self.chance = client, books, chance
        self.names, self.transactional_id = names, transactional_id
        self._lives = 0

    async def work(self) -> None:
        while not self.client.is_over:
            await self.client.sleep(self.chance.expovariate(4.0))
            self._lives += 1
            try:
                await _Life(self, f"{self.client.name}.{self._lives}").work()
            except _GivesUpError as error:
                self.client.process.world.note(self.client.name, f"gives up: {error}")


class _Life:
    """A producer from its first request on, until it gives up."""

    def __init__(self, producer: TransactionalProducer, name: str) -> None:
        self.client, self.books, self.chance = producer.client, producer.books, producer.chance
        self.id, self.name = producer.transactional_id, name
        self._versions = self.chance.choice((_OLD, _NEW, _NEW))
        # Who names topics by their names would write to another one of the same name.
        self._names = producer.names if self._versions.grows else [KEPT]
        self._timeout_ms = self.chance.choice(_TIMEOUTS)
        self._left = self.chance.randint(1, 8)
        self._coordinator: int | None = None
        self._producer = -1, -1
        self._sequences: dict[Partition, int] = {}

    async def work(self) -> None:
        await self._initialize()
        while self._left and not self.client.is_over:
            self._left -= 1
            await self.client.sleep(self.chance.expovariate(self.chance.choice((5.0, 50.0, 50.0))))
            attempt = self.books.begin(self.id)
            commits = self.chance.random() < 0.7
            try:
                await self._fill(attempt)
            except _AbortableError as error:
                self.client.process.world.note(self.name, f"aborts {attempt}: {error}")
                commits = False
                await self._end(attempt, commits=False)
                if not self._versions.grows:
                    await self._initialize()
                continue
            if self.chance.random() < 0.1 and not self.client.is_over:
                raise _GivesUpError("it leaves a transaction open")
            await self._end(attempt, commits=commits)
            if attempt.has_offset and self.chance.random() < 0.5:
                await self._read_offset()

    # -- asking ---------------------------------------------------------------------------------

    async def _again(self, ask: Callable[[], Awaitable[Code]]) -> Code:
        """Ask until there is an answer that stays the same."""
        for _ in range(_TRIES):
            try:
                code = await ask()
            except LostError:
                code = Code.NOT_COORDINATOR
            except RefusedError as error:
                code = error.code
            if code not in _AGAIN:
                return code
            if code in _MOVED:
                self._coordinator = None
            await self.client.sleep(self.chance.expovariate(10.0))
        raise _GivesUpError("nobody answers")

    async def _ask(self, broker_id: int, name: str, version: int, **fields: Any) -> Any:
        seconds = self.chance.choice((1.0, 5.0))
        return await self.client.ask(broker_id, exchange, name, version, fields, seconds=seconds)

    async def _ask_coordinator(self, name: str, version: int, **fields: Any) -> Any:
        if self._coordinator is None:
            broker_id = self.chance.choice(list(self.client.brokers))
            keys = {"key_type": _TRANSACTION, "coordinator_keys": (self.id,)}
            (found,) = (await self._ask(broker_id, "FindCoordinator", 4, **keys)).coordinators
            if found.error_code.value:
                raise RefusedError(Code(found.error_code.value))
            self._coordinator = found.node_id
        return await self._ask(self._coordinator, name, version, **fields)

    def _now_us(self) -> int:
        return self.client.process.world.now_us

    def _as_itself(self) -> dict[str, Any]:
        producer_id, epoch = self._producer
        return {
            "transactional_id": self.id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    # -- begin and end --------------------------------------------------------------------------

    async def _initialize(self) -> None:
        version = self._versions.initialize
        timeout = parts("InitProducerId", version).timeout(self._timeout_ms)

        async def ask() -> Code:
            answer = await self._ask_coordinator(
                "InitProducerId", version, transaction_timeout=timeout, **self._as_itself()
            )
            code = Code(answer.error_code.value)
            if code is Code.NONE:
                self._become(answer.producer_id, answer.producer_epoch)
            return code

        code = await self._again(ask)
        if code is not Code.NONE:
            raise _GivesUpError(f"its start is refused: {code.name}")

    def _become(self, producer_id: int, epoch: int) -> None:
        self._producer = producer_id, epoch
        self._sequences.clear()
        self.books.initialized(self.id, self.name, producer_id, epoch)

    async def _end(self, attempt: Attempt, *, commits: bool) -> None:
        async def ask() -> Code:
            attempt.commits_asked += commits
            sent_us = self._now_us()
            answer = await self._ask_coordinator(
                "EndTxn", self._versions.end, committed=commits, **self._as_itself()
            )
            code = Code(answer.error_code.value)
            if code is Code.NONE:
                self.books.check_life(self.id, self.name, sent_us, f"an end of {attempt}")
                if self._versions.grows:
                    self._become(answer.producer_id, answer.producer_epoch)
            return code

        code = await self._again(ask)
        if code is Code.NONE:
            self.books.ended(self.id, attempt, commits=commits)
            return
        if attempt.commits_asked == 1:
            attempt.is_committed = False  # nothing but this can have committed it
        raise _GivesUpError(f"the end of {attempt} is refused: {code.name}")

    async def _read_offset(self) -> None:
        """Ask where it has come to, as one that begins anew does."""
        try:
            await committed_offset(self.client, self.chance, self.books, self.id)
        except (LostError, RefusedError):
            return

    # -- what is in it --------------------------------------------------------------------------

    async def _fill(self, attempt: Attempt) -> None:
        places = await self._places()
        work = [self._send(attempt, topic, number) for topic, number in places]
        if not places or self.chance.random() < 0.5:
            attempt.has_offset = True
            work.append(self._commit_offset(attempt))
        done = await DeferredList(list(map(Deferred.fromCoroutine, work)), consumeErrors=True)
        for is_done, result in done:
            if not is_done:
                result.raiseException()

    async def _places(self) -> list[tuple[Topic, int]]:
        found: dict[Partition, tuple[Topic, int]] = {}
        for _ in range(self.chance.randint(1, 3)):
            topic = await found_topic(self.client, self.chance, self.chance.choice(self._names))
            if topic is not None and topic.leaders:
                number = self.chance.randrange(len(topic.leaders))
                found[Partition(topic.id, number)] = topic, number
        return list(found.values())

    async def _send(self, attempt: Attempt, topic: Topic, number: int) -> None:
        if not self._versions.grows:
            await self._add_partition(topic, number)
        for _ in range(self.chance.choice((1, 1, 2))):
            slowly = self.chance.choice((*[0.01] * 10, 0.3, 2.0))
            await self.client.sleep(slowly * self.chance.random())
            await self._produce(attempt, topic, number)

    async def _add_partition(self, topic: Topic, number: int) -> None:
        added = parts("AddPartitionsToTxn", 3).AddPartitionsToTxnTopic(
            name=topic.name, partitions=(number,)
        )
        fields = {f"v3_and_below_{name}": value for name, value in self._as_itself().items()}

        async def ask() -> Code:
            answer = await self._ask_coordinator(
                "AddPartitionsToTxn", 3, v3_and_below_topics=(added,), **fields
            )
            (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            return Code(found.partition_error_code.value)

        _check(await self._again(ask))

    async def _produce(self, attempt: Attempt, topic: Topic, number: int) -> None:
        partition = Partition(topic.id, number)
        records = self._records(attempt, topic, number)
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = first + len(records)
        producer_id, epoch = self._producer
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=first
        )
        data, leaders = transactional(batch), topic.leaders

        async def ask() -> Code:
            nonlocal leaders
            sent_us = self._now_us()
            code, base = await self._ask_leader(leaders[number], topic, number, data)
            if code is Code.NONE:
                self.books.check_life(self.id, self.name, sent_us, f"a batch of {attempt}")
                messages = [(each.key, each.value or b"") for each in records]
                self.books.books.acknowledge(partition, base, messages)
            elif code in NOT_THERE or code is Code.NOT_LEADER_OR_FOLLOWER:
                found = await found_topic(self.client, self.chance, topic.name)
                if found is not None and found.id != topic.id:
                    return Code.UNKNOWN_TOPIC_ID
                if found is not None and number < len(found.leaders):
                    leaders = found.leaders
                return Code.NOT_LEADER_OR_FOLLOWER
            return code

        _check(await self._again(ask))

    def _records(self, attempt: Attempt, topic: Topic, number: int) -> list[Record]:
        now_ms, first = self.client.process.clock.now_ms(), attempt.sent
        attempt.sent += self.chance.choice((1, 1, 3))
        known = self.books.books.topics.get(topic.id)
        is_keyed = known is not None and known.is_compacted
        return [
            Record(
                offset,
                now_ms,
                self.chance.choice(KEYS) if is_keyed else None,
                value_of(topic.id, number, attempt.name, first + offset),
            )
            for offset in range(attempt.sent - first)
        ]

    async def _ask_leader(
        self, leader: int, topic: Topic, number: int, data: bytes
    ) -> tuple[Code, int]:
        version = self._versions.produce
        make = parts("Produce", version)
        part = make.PartitionProduceData(index=number, records=data)
        topic_data = make.TopicProduceData(
            name=topic.name, topic_id=topic.id, partition_data=(part,)
        )
        answer = await self._ask(
            leader,
            "Produce",
            version,
            acks=-1,
            timeout=make.timeout(30_000),
            transactional_id=self.id,
            topic_data=(topic_data,),
        )
        (found,) = answer.responses[0].partition_responses
        return Code(found.error_code.value), found.base_offset

    async def _commit_offset(self, attempt: Attempt) -> None:
        group, version = group_of(self.id), self._versions.commit_offsets
        if not self._versions.grows:

            async def add() -> Code:
                answer = await self._ask_coordinator(
                    "AddOffsetsToTxn", 3, group_id=group, **self._as_itself()
                )
                return Code(answer.error_code.value)

            _check(await self._again(add))
        make = parts("TxnOffsetCommit", version)
        part = make.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=attempt.number, committed_metadata=""
        )
        topic = make.TxnOffsetCommitRequestTopic(name=KEPT, partitions=(part,))

        async def ask() -> Code:
            coordinator = await group_coordinator(self.client, self.chance, group)
            answer = await self._ask(
                coordinator,
                "TxnOffsetCommit",
                version,
                group_id=group,
                topics=(topic,),
                **self._as_itself(),
            )
            (found,) = answer.topics[0].partitions
            return Code(found.error_code.value)

        _check(await self._again(ask))


def _check(code: Code) -> None:
    if code is not Code.NONE:
        raise _AbortableError(code.name)
