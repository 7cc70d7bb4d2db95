"""A replicated partition of three brokers, with whatever befalls them, and who produces to it."""

from contextlib import suppress
from itertools import count
from math import inf
from random import Random

from coordination import Coordination
from disks import Disk
from invariants import Copy, Invariants
from machines import Machine
from network import Network
from replica_clients import Clients, Producer, Reader, read_all
from replicas import TOPIC, TOPIC_ID, Cluster, ReplicaBroker, lives_of
from schedule import SCENES, Histories
from troubles import Rates, Troubles
from world import World

from hermes.coordination.replicas import ReplicaTree
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import WrongStateError
from hermes.replication.leading import LeaderSettings
from hermes.replication.replica import Role
from hermes.replication.state import (
    PartitionState,
    TopicReplicas,
    cancelled,
    first_state,
    moving,
    unclean,
)
from hermes.storage import LogSettings

BROKERS = (1, 2, 3)

_PRODUCERS = 3

#: How often what only replicas meet comes in a second, at a wildness of 1.
_USUAL = {
    "suspicion": 0.3,
    "leaving": 0.15,
    "stop": 0.1,
    "deletion": 0.3,
    "move": 0.3,
    "unclean election": 0.2,
}

#: Of troubles of each kind the share of seeds that have them.
_SHARES = {"unclean election": 0.25}

#: How often what has no more troubles is waited for, for `calm_us` each.
_MOST_CALMS = 8

#: For how long a fetch shows that its follower follows nobody else.
TRUST_SECONDS = 0.35


class ReplicatedPartition:
    """As `schedule.Scene`."""

    busy_us = 5_000_000
    calm_us = 3_000_000

    def __init__(self, world: World) -> None:
        self.world = world
        self.rates = Rates.drawn(world)
        rates = self.rates
        if rates.of.get("wipe"):
            rates.of["wipe"] *= 10  # each costs one schedule little, and tries many rules
        self.chance: Random = world.child("partition")
        self.network = Network(world, late=rates.late, lost=rates.lost, doubled=rates.doubled)
        self.coordination = Coordination(
            world, self.network, lost=rates.unanswered, lagging=rates.lagging
        )
        self.session = self.coordination.server.session()
        self.admin = ReplicaTree(self.session)
        drift = rates.drift
        machines = {
            each: Machine(world, f"broker {each}", 1 + drift * (self.chance.random() - 0.5) * 2)
            for each in BROKERS
        }
        disks = {each: Disk(machine) for each, machine in machines.items()}
        self.invariants = Invariants(world, self.coordination.server.tree.nodes, TOPIC)
        self.invariants.copies = {each: Copy() for each in BROKERS}
        self.settings = LeaderSettings(
            min_insync=self.chance.choice((1, 2, 2)),
            lag_seconds=self.chance.choice((0.8, 1.5, 3.0)),
            trust_seconds=TRUST_SECONDS,
            preferred_seconds=self.chance.choice((0.5, 2.0)),
        )
        segment_bytes = self.chance.choice((300, 600, 5000))
        self.cluster = Cluster(
            world,
            self.network,
            self.coordination,
            self.invariants,
            self.settings,
            LogSettings(segment_bytes, format="kafka"),
            machines,
            disks,
            {},
            count(1),
            world.child("messages"),
        )
        self.troubles = Troubles(
            world,
            rates,
            self.network,
            self.coordination,
            {str(each): disk for each, disk in disks.items()},
            self.start,
            self.wiped,
            may_wipe=self.may_wipe,
        )
        self.clients = Clients(self.cluster, world.child("clients"), count())
        self.histories: Histories = {}
        self._pauses = self.chance.choice((25_000, 70_000, 180_000)), 100_000
        self._is_calm = False
        # Who is suspected wrongly, or whose move is cancelled, has its lease still; and a session
        # that ends by itself, as none does that is heard of, is told to nobody. Who has read of a
        # leader before it was registered suspects it wrongly, too.
        is_certain = not ("expire" in rates.of or rates.lagging or rates.unanswered)
        self._most_late = (1 + drift) * TRUST_SECONDS + 0.05 if is_certain else inf

    @property
    def elections(self) -> int:
        return self.invariants.elections

    @property
    def cuts(self) -> int:
        return self.invariants.cut_count

    def begin(self) -> None:
        TopicTree(self.session).prepare()
        self.admin.prepare()
        self.admin.create(TOPIC, TopicReplicas(TOPIC_ID, (first_state(BROKERS, {}),)))
        for each in BROKERS:
            self.cluster.start(each)
        self.troubles.start()
        for kind, usual in _USUAL.items():
            rate = usual * self.rates.wildness * self.chance.expovariate(1.0)
            if rate and self.chance.random() < _SHARES.get(kind, 0.5):
                self._plan(kind, rate)
                if kind in ("suspicion", "move", "unclean election"):
                    self._most_late = inf
        for number in range(_PRODUCERS):
            Producer(self.clients, number, self._pauses[0]).next()
        Reader(self.clients, _PRODUCERS, self._pauses[1]).next()
        self.world.at(100_000, self._ask)

    # -- clients ----------------------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        return self.clients.acknowledged

    def _ask(self) -> None:
        self.world.at(50_000, self._ask)
        broker = self.cluster.brokers[self.chance.choice(BROKERS)]
        if not broker.process.is_dead:
            broker.process.run(self._ask_end, broker)

    def _ask_end(self, broker: ReplicaBroker) -> None:
        leading, state = broker.replica.leading, self.invariants.state
        end = broker.end_for_readers()
        if end is None or leading is None or state is None:
            return
        if leading.epoch == state.epoch:
            if end < self.invariants.shown_end:
                shown = self.invariants.shown_end
                self.world.breaks(f"{broker.process} says {end} is the end, and {shown} was shown")
            return
        if state.leader == broker.broker_id:
            return  # only that there is another epoch isn't known yet
        # Another leads, which this one doesn't know: not for longer than it may trust what it has.
        late = (self.world.now_us - self.invariants.state_since_us) / 1e6
        if late > self._most_late:
            self.world.breaks(f"{broker.process} answers {late:.1f} s after its epoch was over")

    # -- troubles ---------------------------------------------------------------------------------

    def _plan(self, kind: str, rate: float) -> None:
        self.world.at(int(self.chance.expovariate(rate) * 1e6), self._come, kind, rate)

    def _come(self, kind: str, rate: float) -> None:
        if self._is_calm:
            return
        self._plan(kind, rate)
        broker = self.cluster.brokers[self.chance.choice(BROKERS)]
        process = broker.process
        if not self.world.fault(f"{kind} of {process}") or process.is_dead or process.is_paused:
            return
        if kind == "suspicion":
            process.run(self._suspect, broker)
        elif kind == "leaving":
            process.run(broker.leave)
        elif kind == "move":
            self._move()
        elif kind == "unclean election":
            self._elect()
        elif kind == "deletion":
            shown = self.invariants.shown
            if shown:
                process.run(broker.delete, shown[-1].end - self.chance.choice((0, 1, 2, 5, 20)))
        elif not broker.is_stopping:
            process.run(broker.stop)
            self.world.at(1_500_000, self._stopped, broker)

    def _move(self) -> None:
        """As an administrator: others are to have copies, or what is under way is cancelled."""
        target = self.chance.sample(BROKERS, self.chance.choice((1, 2, 2, 3)))

        def change(found: PartitionState) -> PartitionState:
            if (found.adding or found.removing) and self.chance.random() < 0.3:
                return cancelled(found)
            return moving(found, target)

        with suppress(WrongStateError):
            self.admin.change(TOPIC, 0, change)

    def _elect(self) -> None:
        """As an operator: whoever is there is to lead, whatever it lacks."""
        state, lives = self.invariants.state, lives_of(self.session)
        live = [] if state is None else [each for each in state.replicas if each in lives]
        if live:
            number = self.chance.choice(live)
            with suppress(WrongStateError):
                self.admin.change(TOPIC, 0, lambda found: unclean(found, number, lives[number]))

    def _suspect(self, broker: ReplicaBroker) -> None:
        state = self.invariants.state
        if state is not None and state.leader != broker.broker_id:
            for _ in range(2):
                broker.refusals.refused(state.leader, broker.now)
            broker.turn()

    def _stopped(self, broker: ReplicaBroker) -> None:
        broker.process.kill()
        self.world.at(300_000, self.cluster.start, broker.broker_id)

    def may_wipe(self, machine: Machine) -> bool:
        """Whether somebody in sync has everything without that disk."""
        state = self.invariants.state
        if state is None:
            return False
        copies = self.invariants.copies
        return any(
            self.cluster.machines[each] is not machine and not copies[each].is_lost
            for each in state.isr
        )

    def start(self, machine: Machine) -> None:
        number = next(each for each in BROKERS if self.cluster.machines[each] is machine)
        self.cluster.start(number)

    def wiped(self, machine: Machine) -> None:
        number = next(each for each in BROKERS if self.cluster.machines[each] is machine)
        self.invariants.lost_disk(number)

    # -- the end ----------------------------------------------------------------------------------

    def calm(self) -> None:
        self._is_calm = self.clients.is_over = True
        self.troubles.stop()
        self.network.lost = self.network.doubled = self.coordination.lost = 0.0
        self.network.late = self.coordination.lagging = 0.0

    def _is_at_rest(self) -> bool:
        state = self.invariants.state
        if state is None or state.leader < 0 or state.adding or state.removing:
            return False
        if self.invariants.is_settling:
            return False
        leader = self.cluster.brokers[state.leader]
        if leader.replica.role is not Role.LEADING:  # its log may not be open yet
            return False
        is_shown = int(leader.log.high_watermark) == leader.log.end_offset
        is_preferred = state.leader == state.replicas[0]
        return is_shown and is_preferred and state.isr == frozenset(state.replicas)

    def _is_lost(self) -> bool:
        """Whether only those are in sync whose copies aren't whole."""
        state, brokers = self.invariants.state, self.cluster.brokers
        return state is not None and all(
            brokers[each].replica.is_whole is False for each in state.isr
        )

    def check_end(self) -> None:
        """All have everything again, unless the last who had it have lost their disks."""
        for _ in range(_MOST_CALMS):  # a slow disk takes its time
            if self._is_at_rest() or self.world.broken is not None:
                break
            self.world.run(self.world.now_us + self.calm_us)
            if self._is_lost() and self.invariants.is_excused:
                self._elect()
        state, copies = self.invariants.state, self.invariants.copies
        assert state is not None
        if all(copies[each].is_lost for each in state.isr) and not self.invariants.is_excused:
            return
        if not self._is_at_rest():
            roles = [each.replica.role.name for each in self.cluster.brokers.values()]
            self.world.breaks(f"it has not come to rest: {state}, {roles}")
            return
        leader = self.cluster.brokers[state.leader]
        mark = int(leader.log.high_watermark)
        if mark < self.invariants.shown_end:
            self.world.breaks(f"the end went back from {self.invariants.shown_end} to {mark}")
        history, final = self.clients.history, read_all(leader)
        is_excused = self.invariants.is_excused
        if is_excused:
            history = history.excusing(self.clients.lost())
        for each in history.problems(final, leader.log.earliest):
            self.world.breaks(each)
        if not leader.log.earliest and not is_excused:
            self.histories["the partition"] = history, final


SCENES["replicas"] = ReplicatedPartition
