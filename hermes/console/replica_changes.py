"""Plans changes of copies and of leaders, and carries out exactly what a plan has shown.

A plan is made anew before it is carried out. Where that gives another one than was shown, nothing
is done.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

from hermes.client.kafka_replicas import KafkaReplicas, Partition, Place
from hermes.client.replica_plans import onto, with_copies, without
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.errors import ClientError, HermesError, UnknownTopicError
from hermes.protocol import NOBODY

#: What can be asked for: as `hermes replicas` calls it, but for `copies`, which is a move, too.
ELECT, UNCLEAN, MOVE, CANCEL, COPIES, DRAIN, ADD = KINDS = (
    "elect",
    "unclean",
    "move",
    "cancel",
    "copies",
    "drain",
    "add-broker",
)


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """What somebody wants.

    Attributes:
        kind: one of `KINDS`.
        places: the partitions to elect leaders for (empty for all), or to move.
        target: of a move the brokers that are to have the partition.
        topics, count: which topics are to have how many copies.
        broker_id: to drain, or to give its share.
    """

    kind: str
    places: tuple[Place, ...] = ()
    target: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    count: int = 0
    broker_id: int = -1


class PlannedChange(NamedTuple):
    """`before`, `after`: who has copies, or leads. `note`: what to know about it."""

    place: Place
    before: str
    after: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What an order comes to.

    Attributes:
        moves: what is to be moved where; None to undo a move.
        elected: of which partitions leaders are elected.
        stays: what can't be changed as was wanted, and why.
    """

    order: ReplicaOrder
    changes: tuple[PlannedChange, ...]
    moves: Mapping[Place, Sequence[int] | None] = field(default_factory=dict)
    elected: tuple[Place, ...] = ()
    stays: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Changes with all that it shows, and does."""
        return sha256(repr((self.order, self.changes, self.moves)).encode()).hexdigest()

    def command(self, broker: str) -> list[str]:
        """The same as words of a command line."""
        order, where = self.order, ["-b", broker]
        named = [_name(each) for each in order.places]
        words = {
            ELECT: ["elect", *where, *named],
            UNCLEAN: ["elect", *where, "--unclean", *named],
            MOVE: ["move", *where, *named, _ids(order.target)],
            CANCEL: ["move", *where, "--cancel", *named],
            DRAIN: ["drain", *where, str(order.broker_id)],
            ADD: ["add-broker", *where, str(order.broker_id)],
        }
        copies = ["--topics", ",".join(order.topics), "--replicas", str(order.count)]
        return ["hermes", "replicas", *words.get(order.kind, ["move", *where, *copies])]


class ReplicaChanger:
    """Methods may block, may be called in any thread, and raise HermesError."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache

    def plan(self, order: ReplicaOrder) -> ReplicaPlan:
        """What would be done. Raises HermesError: it can't be, and the text says why."""
        fixed = self._topics_of_0_7() if order.kind in (DRAIN, ADD) else frozenset()
        return self._cluster.with_kafka_replicas(lambda replicas: _plan(order, replicas, fixed))

    def carry_out(self, order: ReplicaOrder, digest: str) -> list[str]:
        """Do what a plan has shown. Returns what was refused, and why.

        Raises HermesError: the same order comes to something else now, and nothing was changed.
        """
        fixed = self._topics_of_0_7() if order.kind in (DRAIN, ADD) else frozenset()

        def do(replicas: KafkaReplicas) -> list[str]:
            plan = _plan(order, replicas, fixed)
            if plan.digest != digest:
                raise HermesError(
                    "Something has changed since the preview: nothing was done. Look again."
                )
            refused = replicas.move(plan.moves) if plan.moves else {}
            if plan.elected:
                found = replicas.elect(plan.elected, is_unclean=order.kind == UNCLEAN)
                refused |= {place: why for place, why in found.items() if why}
            return [f"{_name(place)}: {why}" for place, why in sorted(refused.items())]

        try:
            return self._cluster.with_kafka_replicas(do)
        finally:
            self._cache.forget()

    def _topics_of_0_7(self) -> frozenset[str]:
        """Topics whose partitions stay where they are."""
        return frozenset(
            topic.topic
            for state in self._cluster.read()
            for topic in state.topics
            if not topic.holds_records
        )


def _plan(order: ReplicaOrder, replicas: KafkaReplicas, fixed: frozenset[str]) -> ReplicaPlan:
    if order.kind in (DRAIN, ADD):
        return _planned_broker(order, replicas, fixed)
    known = {each.place: each for each in replicas.partitions()}
    topics = {topic for topic, _ in known}
    for topic in (*order.topics, *(topic for topic, _ in order.places)):
        if topic not in topics:
            raise UnknownTopicError(f"There is no topic {topic!r}.")
    for place in order.places:
        if place not in known:
            raise ClientError(f"Topic {place[0]!r} has no partition {place[1]}.")
    planned: Mapping[str, Callable[[], ReplicaPlan]] = {
        ELECT: lambda: _planned_election(order, known, replicas),
        UNCLEAN: lambda: _planned_unclean(order, known, replicas),
        MOVE: lambda: _planned_move(order, known, replicas),
        CANCEL: lambda: _planned_undoing(order, known),
        COPIES: lambda: _planned_copies(order, known, replicas),
    }
    return planned[order.kind]()


def _planned_election(
    order: ReplicaOrder, known: Mapping[Place, Partition], replicas: KafkaReplicas
) -> ReplicaPlan:
    registered, changes, elected = replicas.brokers(), [], []
    for place in order.places or known:
        each = known[place]
        preferred = each.target[0]
        if each.leader == preferred:
            continue
        can_lead = preferred in each.in_sync and preferred in registered
        if can_lead:
            elected.append(place)
        elif not order.places:
            continue
        why = "" if can_lead else each.why_not_in_sync(preferred, registered)
        note = f"stays as it is: broker {preferred} {why}" if why else ""
        changes.append(PlannedChange(place, _leader(each), str(preferred), note))
    return ReplicaPlan(order, tuple(changes), elected=tuple(elected))


def _planned_unclean(
    order: ReplicaOrder, known: Mapping[Place, Partition], replicas: KafkaReplicas
) -> ReplicaPlan:
    brokers, changes, elected = replicas.brokers(), [], []
    for place in order.places:
        each, has = known[place], []
        if each.leader != NOBODY:
            raise ClientError(f"{_name(place)} is led by broker {each.leader}: there is no need.")
        for one in each.replicas:
            try:
                if one not in brokers:
                    raise ClientError("is down")
                start, end = replicas.bounds(brokers[one], place)
                has.append(f"broker {one} has offsets {start:,} to {end:,}")
            except ClientError as error:
                has.append(f"broker {one} {error}")
        elected.append(place)
        changes.append(PlannedChange(place, "nobody", "one that is there", "; ".join(has)))
    return ReplicaPlan(order, tuple(changes), elected=tuple(elected))


def _planned_move(
    order: ReplicaOrder, known: Mapping[Place, Partition], replicas: KafkaReplicas
) -> ReplicaPlan:
    plan = _moving(order, known, dict.fromkeys(order.places, order.target))
    away = sorted({*order.target} - replicas.brokers().keys())
    if not away:
        return plan
    note = f"waits for broker {_ids(away)}, which is not registered"
    return replace(plan, changes=tuple(each._replace(note=note) for each in plan.changes))


def _planned_undoing(order: ReplicaOrder, known: Mapping[Place, Partition]) -> ReplicaPlan:
    for place in order.places:
        if not known[place].is_moving:
            raise ClientError(f"{_name(place)} does not move: there is nothing to undo.")
    return _moving(order, known, dict.fromkeys(order.places))


def _planned_copies(
    order: ReplicaOrder, known: Mapping[Place, Partition], replicas: KafkaReplicas
) -> ReplicaPlan:
    racks = replicas.racks()
    chosen = [each for each in known.values() if each.place[0] in order.topics]
    return _moving(order, known, with_copies(chosen, order.count, list(known.values()), racks))


def _planned_broker(
    order: ReplicaOrder, replicas: KafkaReplicas, fixed: frozenset[str]
) -> ReplicaPlan:
    partitions, racks, broker_id = replicas.partitions(), replicas.racks(), order.broker_id
    movable = [each for each in partitions if each.place[0] not in fixed]
    if order.kind == ADD:
        if broker_id not in racks:
            raise ClientError(f"Broker {broker_id} is not registered: start it.")
        plan, stays = onto(broker_id, movable, racks), list[str]()
    else:
        plan = without(broker_id, movable, racks)
        stays = [
            f"{_name(each.place)} stays on broker {broker_id}: a topic of Kafka 0.7’s format"  # noqa: RUF001
            for each in partitions
            if broker_id in each.target and each.place[0] in fixed
        ]
    return _moving(order, {each.place: each for each in partitions}, plan, stays)


def _moving(
    order: ReplicaOrder,
    known: Mapping[Place, Partition],
    moves: Mapping[Place, Sequence[int] | None],
    stays: Iterable[str] = (),
) -> ReplicaPlan:
    changes, needed = [], dict[Place, Sequence[int] | None]()
    for place, target in sorted(moves.items()):
        was = known[place]
        if target == was.target and not was.is_moving:
            continue
        needed[place] = target
        after = was.had if target is None else target
        changes.append(PlannedChange(place, _ids(was.target), _ids(after)))
    return ReplicaPlan(order, tuple(changes), needed, stays=tuple(stays))


def _leader(partition: Partition) -> str:
    return "nobody" if partition.leader == NOBODY else str(partition.leader)


def _name(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
