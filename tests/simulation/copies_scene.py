"""The scene of a cluster whose topics have copies: whole brokers, that keep them as products do.

All of `today` goes on in it: groups, idempotent producers, compaction, retention, deletions and
topics that come back. Each partition stands on three brokers, any of which may lead by now; in some
schedules an operator moves them, to more or fewer brokers, as fast as throttles let it. In others
disks lose bits (`rot.py`).
"""

from random import Random
from types import MappingProxyType
from typing import Any

import requests
from brokers import SimulatedBroker
from clients import KEPT, found_topic, run
from invariants_today import Partition
from requests import Client, LostError, RefusedError, read_whole
from rot import Rot, committed_end
from schedule import SCENES
from today import Today
from world import World

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.coordination.kafka_topics import KAFKA_TOPICS, parse_topic
from hermes.coordination.replicas import KAFKA_REPLICAS, replicas_path
from hermes.kafka.replicas.copy import Copy
from hermes.replication.state import PartitionState, parse_replicas
from hermes.storage import Log
from hermes.transactions.state import STATE_TOPIC

_KINDS = (
    *("stop", "kill", "power", "pause", "cut", "one-way cut", "cut from coordination", "expire"),
    *("slow disk", "full disk", "failing sync", "clock", "wipe"),
)


#: How often all is looked at, beside when something changes, in µs.
_CHECK_US = 100_000

#: Of the schedules without an operator those whose disks lose bits.
_ROTTEN = 0.5

#: How fast logs are checked for that, in bytes a second.
_DAMAGE_CHECK_RATE = 1 << 20


class Copies(Today):
    kinds = _KINDS
    settings = MappingProxyType(
        {
            "default_replication_factor": 3,
            "replica_lag_time": "3s",
            "zookeeper_session_timeout": "2s",
        }
    )

    def __init__(self, world: World) -> None:
        self._operator_chance = world.child("operator")
        self._has_operator = self._operator_chance.random() < 0.5
        chance = world.child("rot")
        # Who moves a partition to one broker alone can't know what its disk has lost.
        is_rotten = not self._has_operator and chance.random() < _ROTTEN
        if is_rotten:
            self.settings = {**self.settings, "damage_check_rate": _DAMAGE_CHECK_RATE}
        super().__init__(world)
        self.rot = Rot(self, chance) if is_rotten else None
        self.network.lost = self.network.doubled = self.coordination.lost = 0.0
        self.states: dict[Partition, PartitionState] = {}
        self.directories: dict[Partition, str] = {}
        self._lacking: set[int] = set()
        self._values: dict[str, bytes] = {}
        self.books.on_shown = self._check_in_sync
        world.after_each.append(self._look)
        world.at(_CHECK_US, self._check_all)

    def begin(self) -> None:
        super().begin()
        if self._has_operator:
            operator = Operator(self._client("operator"), self._operator_chance)
            self.world.at(3_000_000, run, operator.client, operator.work)

    def _begin_troubles(self) -> None:
        """Once a topic has its copies: where brokers never see each other, there never is one."""
        if not any(len(state.isr) == len(self.brokers) for state in self.states.values()):
            self.world.at(_CHECK_US, self._begin_troubles)
            return
        super()._begin_troubles()
        rates = self.rates
        self.network.lost, self.network.doubled = rates.lost, rates.doubled
        self.coordination.lost = rates.unanswered
        if self.rot is not None:
            self.rot.plan()

    def calm(self) -> None:
        super().calm()
        if self.rot is not None:
            self.rot.is_over = True

    # -- disks that are lost ----------------------------------------------------------------------

    def may_wipe(self, broker: SimulatedBroker) -> bool:
        """Whether somebody in sync has everything without that disk."""
        is_elsewhere = all(self.sound_copies(each, but=broker.id) for each in self.states)
        return is_elsewhere and broker.id not in self._sole_copies()

    def sound_copies(self, partition: Partition, but: int) -> set[int]:
        """The others in sync, and not about to leave, whose disks have all that must be kept."""
        isr = self.states[partition].isr - {but}
        kept = {each for each in isr if not (self._is_lacking(each) or self._is_stopping(each))}
        if self.rot is None:
            return kept
        end, directory = self._kept_end(partition), self.directories[partition]
        return {each for each in kept if self.rot.intact_end(self.brokers[each], directory) >= end}

    def _kept_end(self, partition: Partition) -> int:
        """Up to where a partition was ever shown; if brokers', up to where any has it committed."""
        directory = self.directories[partition]
        if not self._is_internal(partition):
            return self.books.shown.get(partition, 0)
        return max(committed_end(each, directory) for each in self.brokers.values())

    def _is_internal(self, partition: Partition) -> bool:
        return self.directories[partition].rpartition("-")[0] == STATE_TOPIC

    def _sole_copies(self) -> set[int]:
        """The brokers with partitions of one copy: topics made while nobody else was there."""
        nodes, found = self.coordination.nodes, set()
        for path, value in nodes(KAFKA_TOPICS).items():
            name = path.removeprefix(KAFKA_TOPICS).lstrip("/")
            if not name:
                continue
            replicas = nodes(replicas_path(name)).get(replicas_path(name))
            node = None if replicas is None else parse_replicas(name, replicas)
            for number, place in enumerate(parse_topic(path, value).partitions):
                if node is None or node.state_of(number) is None:
                    found.add(place.broker_id)
        return found

    def wiped(self, broker: SimulatedBroker) -> None:
        self._lacking.add(broker.id)

    def _is_lacking(self, number: int) -> bool:
        """Whether a broker's disk was lost, and it hasn't all of its copies again."""
        if number not in self._lacking:
            return False
        copies = [
            self._copy(number, each) for each, state in self.states.items() if number in state.isr
        ]
        if all(copy is not None and copy.replica.is_whole for copy in copies):
            self._lacking.discard(number)
        return number in self._lacking

    def _is_stopping(self, number: int) -> bool:
        process = self.brokers[number].machine.process
        return process is not None and process.is_stopping

    # -- what must hold at all times --------------------------------------------------------------

    def _look(self) -> None:
        """See what stands in coordination of copies, if that has changed."""
        nodes = self.coordination.server.tree.nodes
        above = nodes.get(KAFKA_REPLICAS)
        for name in () if above is None else above.children:
            value = nodes[f"{KAFKA_REPLICAS}/{name}"].data or b""
            if self._values.get(name) is not value:
                self._values[name] = value
                self._learn(name, value)

    def _learn(self, name: str, value: bytes) -> None:
        node = parse_replicas(name, value)
        for number, state in enumerate(node.partitions):
            partition = Partition(node.id, number)
            before = self.states.get(partition)
            if state is None or state == before:
                continue
            self.states[partition] = state
            self.directories[partition] = f"{name}-{number}"
            if self.rot is not None:
                self.rot.look(partition)
            self._check_in_sync(partition)
            if before is not None and state.epoch < before.epoch:
                self.world.breaks(f"{name}-{number}: the epoch falls, {before} to {state}")
            self.elections += before is None or before.epoch < state.epoch
            if self.world.is_traced:
                who = f"led by {state.leader}, in sync {sorted(state.isr)}"
                self.world.note(f"{name}-{number}", f"epoch {state.epoch}, {who}")

    def _check_all(self) -> None:
        self.world.at(_CHECK_US, self._check_all)
        for partition in self.states:
            self._check_in_sync(partition)
            if self.rot is not None:
                self.rot.look(partition)

    def _check_in_sync(self, partition: Partition) -> None:
        """Each in-sync replica has on its disk what must be kept, unless it knows it hasn't.

        And nothing any more of what was said to be deleted.
        """
        state = self.states.get(partition)
        if state is None or self.is_gone(partition) or not (end := self._kept_end(partition)):
            return
        start = self.books.start_of(partition)
        for number in state.isr:
            copy = self._copy(number, partition)
            if copy is None or copy.log is None or copy.log.is_offline:
                continue
            if copy.replica.is_whole and copy.log.flushed_end < end:
                self.world.breaks(
                    f"{copy.name}: broker {number} is in sync with {copy.log.flushed_end} on its "
                    f"disk of {end} to be kept: {state}"
                )
            if copy.replica.is_whole and copy.log.earliest < start:
                self.world.breaks(
                    f"{copy.name}: broker {number} is in sync from {copy.log.earliest} on, and all "
                    f"before {start} was said to be deleted: {state}"
                )

    def is_gone(self, partition: Partition) -> bool:
        """Whether the topic is deleted, or is to be."""
        books = self.books.topics.get(partition.topic_id)
        is_known = self._is_internal(partition) or (books is not None and not books.is_doomed)
        return not is_known

    def _copy(self, number: int, partition: Partition) -> Copy | None:
        """What a broker has of a partition, if it lives and knows it as a copy."""
        broker = self.brokers[number]
        if not broker.is_serving or broker.copies is None:
            return None
        return broker.copies.by_place.get((partition.topic_id.bytes, partition.number))

    # -- what must hold at the end ----------------------------------------------------------------

    def _check_logs(self) -> None:
        super()._check_logs()
        topics = self.brokers[1].server.topics
        for name in topics.names():
            topic = topics.get(name)
            for number in range(len(topic.partitions)):
                self._check_copies(topic, number)

    def _check_copies(self, topic: ClusterTopic, number: int) -> None:
        """All have what the leader has; of what is compacted, or deleted, some have more."""
        state = topic.state(number)
        if state is None:
            return  # it was made with one copy, as many as the first one had
        what = f"{topic.name}-{number}"
        if state.isr != frozenset(state.replicas) or state.leader < 0:
            self.world.fail(f"{what} has not come to rest: {state}")
        logs = {
            each: self.brokers[each].run.directory.get(topic.name, number) for each in state.isr
        }
        found = {each: self._records(self.brokers[each], log) for each, log in logs.items()}
        start = max(log.earliest for log in logs.values())
        books = self.books.topics.get(topic.id)
        is_compacted = topic.name == STATE_TOPIC or (books is not None and books.is_compacted)
        led = found[state.leader]
        for each, records in found.items():
            if logs[each].high_watermark != logs[state.leader].high_watermark:
                marks = {each: log.high_watermark for each, log in logs.items()}
                self.world.fail(f"{what} is committed up to {marks}")
            for offset in sorted({*led, *records}):
                is_there = offset in led and offset in records
                if offset >= start and not (is_there or is_compacted):
                    self.world.fail(f"{what}: only some have what is at {offset}, broker {each}")
                if is_there and led[offset] != records[offset]:
                    self.world.fail(f"{what}: {led[offset]} and {records[offset]} at {offset}")

    def _records(self, broker: SimulatedBroker, log: Log) -> dict[int, object]:
        found: dict[int, object] = {}

        def read() -> None:
            records = read_whole(log, has_markers=True)
            found.update({each.offset: (each.key, each.value) for each in records})

        broker.machine.process.run(read)
        return found


class Operator:
    """Moves partitions, turns moves round, and throttles them."""

    def __init__(self, client: Client, chance: Random) -> None:
        self.client, self.chance = client, chance

    async def work(self) -> None:
        client, chance = self.client, self.chance
        while not client.is_over:
            await client.sleep(chance.expovariate(1.5))
            topic = await found_topic(client, chance, KEPT)
            if topic is None or not topic.leaders:
                continue
            if chance.random() < 0.2:
                rate = chance.choice((None, 500, 5000))
                await self._ask(requests.throttle, chance.choice(list(client.brokers)), rate)
                continue
            target = chance.sample(list(client.brokers), chance.choice((1, 2, 3, 3)))
            number = chance.randrange(len(topic.leaders))
            is_cancelled = chance.random() < 0.2
            await self._ask(requests.move, KEPT, number, None if is_cancelled else target)
        for broker_id in client.brokers:
            while not await self._ask(requests.throttle, broker_id, None):
                await client.sleep(0.5)

    async def _ask(self, *request: Any) -> bool:
        client = self.client
        try:
            await client.ask(self.chance.choice(list(client.brokers)), *request)
        except (LostError, RefusedError):
            return False
        return True


SCENES["copies"] = Copies
