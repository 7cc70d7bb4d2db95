"""The scene of today's cluster: three brokers, each partition on one, and clients of all kinds."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from brokers import SimulatedBroker, simulate_brokers
from clients import KEPT, Administrator, Producer, Reader, run
from coordination import Coordination
from invariants_today import Books, Partition
from ledger import Ledger
from machines import Machine
from members import ClassicMember, ConsumerMember, Member
from network import Network
from requests import Client, read_whole
from schedule import SCENES
from troubles import Rates, Troubles
from world import World

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.coordination.kafka_groups import KAFKA_GROUPS
from hermes.coordination.kafka_topics import KAFKA_DELETED

#: What may come here: an empty disk loses what has one copy.
_KINDS = (
    *("stop", "kill", "power", "pause", "cut from coordination", "expire"),
    *("slow disk", "full disk", "failing sync", "clock"),
)

_BROKERS = 3


class Today:
    """See `Scene`.

    Attributes:
        kinds: of troubles, those that may come.
        settings: of the brokers, beside the usual ones.
        names: of the topics.
    """

    kinds: Sequence[str] = _KINDS
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, world: World) -> None:
        self.world = world
        self.busy_us, self.calm_us = 12_000_000, 30_000_000
        self.elections = self.cuts = 0
        self.rates = rates = Rates.drawn(world, self.kinds)
        self.books = Books(world)
        self.network = Network(world, late=rates.late, lost=rates.lost, doubled=rates.doubled)
        self.coordination = Coordination(
            world, self.network, lost=rates.unanswered, lagging=rates.lagging
        )
        self.brokers = {
            number: SimulatedBroker(
                world,
                self.network,
                self.coordination,
                number,
                self.books,
                rates.drift,
                self.settings,
            )
            for number in range(1, _BROKERS + 1)
        }
        simulate_brokers(world, self.coordination, self.brokers)
        self.troubles = Troubles(
            world,
            rates,
            self.network,
            self.coordination,
            {each.machine.name: each.disk for each in self.brokers.values()},
            restart=lambda machine: self._broker_on(machine).start(),
            on_wiped=lambda machine: self.wiped(self._broker_on(machine)),
            stop=lambda machine: self._broker_on(machine).stop(),
            may_wipe=lambda machine: self.may_wipe(self._broker_on(machine)),
        )
        self.clients: list[Client] = []
        self.ledgers: list[Ledger] = []
        self._chance = world.child("clients")
        self.names = [KEPT, self._chance.choice(("clicks", "compacted", "retained"))]

    @property
    def acknowledged(self) -> int:
        return self.books.acknowledged

    def _broker_on(self, machine: Machine) -> SimulatedBroker:
        return next(each for each in self.brokers.values() if each.machine is machine)

    def may_wipe(self, broker: SimulatedBroker) -> bool:
        """Whether others have all that a broker has; here nobody."""
        return False

    def wiped(self, broker: SimulatedBroker) -> None:
        """A broker's disk is another one by now."""

    def _client(self, name: str) -> Client:
        machine = Machine(self.world, name)
        client = Client(machine.start(), self.brokers, name)
        self.clients.append(client)
        return client

    # -- its course -----------------------------------------------------------------------------

    def begin(self) -> None:
        for broker in self.brokers.values():
            self.world.at(0, broker.start)
        names = self.names
        for kind, count in (
            (Administrator, 2),
            (Producer, self._chance.randint(1, 3)),
            (Reader, 1),
        ):
            for number in range(count):
                name = f"{kind.__name__.lower()}{number}"
                actor = kind(self._client(name), self.books, names, self.world.child(name))
                begins_us = 1_000_000 if kind is Administrator else 1_500_000
                self.world.at(begins_us, run, actor.client, actor.work)
        groups = (ClassicMember, "classic"), (ConsumerMember, "consumers")
        for kind, group in self._chance.sample(groups, self._chance.choice((0, 1, 1, 2))):
            self._begin_group(kind, group)
        self.world.at(2_500_000, self._begin_troubles)

    def _begin_troubles(self) -> None:
        self.troubles.start()

    def _begin_group(self, kind: type[Member], group: str) -> None:
        ledger = Ledger(self.world, group)
        self.ledgers.append(ledger)
        for number in range(self._chance.randint(2, 3)):
            name = f"{group}{number}"
            member = kind(self._client(name), self.books, ledger, [KEPT], self.world.child(name))
            begins_us = self._chance.choice((1_500_000, 4_000_000, 8_000_000))
            self.world.at(begins_us, run, member.client, member.work)
            if self._chance.random() < 0.4:
                self._end(member.client, begins_us)
            if self._chance.random() < 0.4:
                self._pause(member.client, begins_us)

    def _pause(self, client: Client, begins_us: int) -> None:
        """Let a client stand still, perhaps for so long that others go on without it."""
        process, pauses_us = client.process, begins_us + self._chance.randrange(8_000_000)
        self.world.at(pauses_us, process.pause)
        self.world.at(pauses_us + self._chance.randrange(8_000_000), process.resume)

    def _end(self, client: Client, begins_us: int) -> None:
        """Let a client leave, or be killed, in the middle of it all."""
        ends_us = begins_us + self._chance.randrange(8_000_000)
        if self._chance.random() < 0.5:
            self.world.at(ends_us, setattr, client, "is_over", True)
        else:
            self.world.at(ends_us, client.process.kill)

    def calm(self) -> None:
        self.troubles.stop()
        network = self.network
        network.late = network.lost = network.doubled = self.coordination.lost = 0.0
        members = {each.client for ledger in self.ledgers for each in ledger.members}
        for client in self.clients:
            client.is_over |= client not in members

    # -- what must hold at the end --------------------------------------------------------------

    def check_end(self) -> None:
        world = self.world
        for broker in self.brokers.values():
            if not broker.is_serving or broker.server is None:
                world.fail(f"{broker.machine} doesn't serve in the end")
        self._check_topics()
        self._check_groups()
        self._check_quiet()
        if world.broken is None:
            self._check_logs()

    def _check_topics(self) -> None:
        """Every broker knows the same topics, and has of them what is its own."""
        views = {}
        for broker in self.brokers.values():
            topics = broker.server.topics
            views[broker.id] = {name: topics.get(name) for name in topics.names()}
            if topics.live != frozenset(self.brokers):
                self.world.fail(f"{broker.machine} sees only {topics.live} live")
        first = views[1]
        for number, view in views.items():
            if view != first:
                self.world.fail(f"broker 1 sees {first}, broker {number} {view}")
            here = self.brokers[number].run.directory.logs
            for (name, _), log in here.items():
                topic = first.get(name)
                if topic is None or log.topic_id != topic.id:
                    self.world.fail(
                        f"{log.name} is still on broker {number}: topic {topic}, log {log.topic_id}"
                    )
        left = self.coordination.nodes(KAFKA_DELETED)
        if len(left) > 1:
            self.world.fail(f"deletions are not over: {sorted(left)}")

    def _check_groups(self) -> None:
        """Each partition is somebody's, and nobody waits for another rebalance."""
        topic = self.brokers[1].server.topics.get(KEPT)
        for ledger in self.ledgers:
            ledger.check_stored(self.coordination.nodes(KAFKA_GROUPS))
            alive = [each for each in ledger.members if each.is_alive]
            owned = sorted(place.number for each in alive for place in each.owned)
            wanted = list(range(len(topic.partitions))) if topic is not None and alive else []
            if owned != wanted:
                self.world.fail(f"{ledger.group}: {owned} of {wanted} are read in the end")

    def _check_quiet(self) -> None:
        """Nobody waits for anything any more."""
        for broker in self.brokers.values():
            shared = broker.run.shared
            waits = {
                "flushes": shared.flusher.running,
                "refreshes": len(broker.run.cluster._part.cluster._waiting),
                "deletions": len(broker.run.cluster._part._deleting),
            }
            if any(waits.values()):
                self.world.fail(f"{broker.machine} still has {waits}")
        members = {each.client for ledger in self.ledgers for each in ledger.members}
        for client in self.clients:
            if client in members or client.process.is_dead:
                continue
            waiting = sum(map(len, client._asked.values()))
            if waiting:
                self.world.fail(f"{client.name} still waits for {waiting} answers")

    def _check_logs(self) -> None:
        topics = self.brokers[1].server.topics
        for name in topics.names():
            topic = topics.get(name)
            if topic.id not in self.books.topics:
                continue  # nobody has used it
            most = self.books.topics[topic.id].partitions
            if len(topic.partitions) < most:
                self.world.fail(f"{name} had {most} partitions, and has {len(topic.partitions)}")
            for number in range(len(topic.partitions)):
                leader = self.brokers[topic.leader(number)]
                leader.machine.process.run(self._check_log, leader, topic, number)

    def _check_log(self, leader: SimulatedBroker, topic: ClusterTopic, number: int) -> None:
        log = leader.server.topics.log(topic.name, number)
        if log.is_offline:
            self.world.fail(f"{log.name} is offline: {log.offline_reason}")
        partition = Partition(topic.id, number)
        start, end = log.earliest, log.high_watermark
        records = read_whole(log)
        known = self.books.end_of(partition), self.books.start_of(partition)
        self.books.read(partition, start, start, end, records, *known)
        self.books.check_whole(partition, start, records)


SCENES["today"] = Today
