"""What coordination says of a partition's copies, and every change of that. Pure functions.

    /hermes/kafka/replicas/<topic>    persistent    JSON: a `TopicReplicas`

    {"id": "<UUID>", "partitions": [
      {"replicas": [1,2,3], "leader": 1, "life": "<session>", "epoch": 7, "isr": [1,2,3],
       "adding": [], "removing": []}, ...]}

`unclean` stands there, too, where there ever was such an election: the epoch that it began; and
`lacking`, true, where the only replica in sync lacks something, so that nobody leads.

Each change takes the state that was read and gives the next one, or raises `WrongStateError`: what
it needs isn't so, and nothing is to be written. Whatever they give keeps these:

- The in-sync replicas are some of the partition's, and at least one.
- The leader is one of them, or nobody.
- The epoch never falls; an epoch belongs to one life of one broker, its session with coordination.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from hermes.errors import InvalidNodeError, LastReplicaError, WrongStateError
from hermes.protocol import NOBODY
from hermes.quoting import quoted

#: Nobody's session.
NO_LIFE: Final = 0

_TOPIC_KEYS: Final = frozenset({"id", "partitions"})
_KEYS: Final = frozenset(
    {"replicas", "leader", "life", "epoch", "isr", "adding", "removing", "unclean", "lacking"}
)
_MOST_REPLICAS: Final = 100


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who has a partition, who leads it, and who has all of it.

    Attributes:
        replicas: the brokers that have a copy, or are to get one; the first is preferred as leader.
        leader: `NOBODY` for none.
        life: the session in which the leader was made so.
        epoch: counts what made anybody's knowledge of copies void.
        isr: the in-sync replicas.
        adding, removing: of a move under way the brokers that get and lose copies.
        others: what a later version has written beside that; kept.
        unclean_epoch: the last one that began with an unclean election; -1 for none. What copies
            have of earlier epochs may be lost by that, committed or not.
        is_lacking: whether nobody leads since the only replica in sync has said that its copy lacks
            something: until it is there again with what it had, or an operator says who is to lead.
    """

    replicas: tuple[int, ...]
    leader: int
    life: int
    epoch: int
    isr: frozenset[int]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()
    others: Mapping[str, Any] = field(default_factory=dict)
    unclean_epoch: int = -1
    is_lacking: bool = False

    @property
    def had(self) -> tuple[int, ...]:
        """Who had copies before a move began."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Who has copies once a move is done."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def sound(self) -> frozenset[int]:
        """The in-sync replicas that don't say that they lack something."""
        return frozenset() if self.is_lacking else self.isr

    def is_led_by(self, broker_id: int, life: int) -> bool:
        return self.leader == broker_id and self.life == life


def first_state(
    replicas: Sequence[int], lives: Mapping[int, int], epoch: int = 0
) -> PartitionState:
    """The state of a new partition: all copies are equal, since they are empty.

    `lives`: the sessions of the brokers that are there; the first replica among them leads.
    """
    _check_replicas(replicas)
    leader = next((each for each in replicas if each in lives), NOBODY)
    # Who isn't there now may come back with another disk.
    isr = frozenset(each for each in replicas if each in lives) or frozenset(replicas)
    return PartitionState(tuple(replicas), leader, lives.get(leader, NO_LIFE), epoch, isr)


# -- leading ------------------------------------------------------------------------------------


def led_by(state: PartitionState, broker_id: int, life: int) -> PartitionState:
    """An in-sync replica becomes leader: in an epoch of its own, even if it was leader before."""
    _check_in_sync(state, broker_id)
    return replace(state, leader=broker_id, life=life, epoch=state.epoch + 1, is_lacking=False)


def handed_over(state: PartitionState, leader: int, successor: int, life: int) -> PartitionState:
    """The leader makes another in-sync replica the leader."""
    _check_leader(state, leader)
    return led_by(state, successor, life)


def resigned(state: PartitionState, leader: int) -> PartitionState:
    """The leader lets whoever is in sync, and can, become leader: itself, too."""
    _check_leader(state, leader)
    return replace(state, leader=NOBODY, life=NO_LIFE)


def unclean(state: PartitionState, broker_id: int, life: int) -> PartitionState:
    """Let a replica lead which may lack what was committed, since an operator wants that."""
    if broker_id not in state.replicas:
        raise WrongStateError(f"broker {broker_id} has no copy")
    led = led_by(replace(state, isr=frozenset({broker_id})), broker_id, life)
    return replace(led, unclean_epoch=led.epoch)


# -- in sync or not -----------------------------------------------------------------------------


def shrunk(state: PartitionState, leader: int, gone: AbstractSet[int]) -> PartitionState:
    """The leader takes in-sync replicas out that don't follow any more."""
    _check_leader(state, leader)
    if leader in gone:
        raise WrongStateError(f"broker {leader} leads: it leaves, instead")
    return replace(state, isr=state.isr - gone)


def expanded(state: PartitionState, leader: int, joined: AbstractSet[int]) -> PartitionState:
    """The leader takes replicas in that have everything."""
    _check_leader(state, leader)
    if joined - set(state.replicas):
        raise WrongStateError(f"brokers {sorted(joined - set(state.replicas))} have no copy")
    return replace(state, isr=state.isr | joined)


def left(state: PartitionState, broker_id: int, *, least: int = 1) -> PartitionState:
    """A replica takes itself out, and gives up leadership with that. What it has stays whole.

    Raises LastReplicaError: fewer than `least` others are in sync.
    """
    if broker_id not in state.isr:
        return state
    isr = state.isr - {broker_id}
    if len(isr) < least:
        raise LastReplicaError(f"broker {broker_id} is one of the last in-sync replicas")
    left_by = replace(state, isr=isr)
    return left_by if state.leader != broker_id else resigned(left_by, broker_id)


def forfeited(state: PartitionState, broker_id: int) -> PartitionState:
    """A replica says that its copy lacks what it had, in sync or not: it starts over.

    What the leader has counted of it, or is about to take it in for, may be of the copy that is
    gone. So a new epoch begins, of the same leader: in that nothing of it was counted.

    Raises LastReplicaError: nobody else is in sync.
    """
    if broker_id not in state.replicas:
        return state
    return replace(left(state, broker_id), epoch=state.epoch + 1)


def lacking(state: PartitionState, broker_id: int) -> PartitionState:
    """The only in-sync replica says that its copy lacks what it had: so nobody leads."""
    if state.isr != {broker_id}:
        raise WrongStateError(f"broker {broker_id} isn't the only one in sync")
    return replace(state, leader=NOBODY, life=NO_LIFE, is_lacking=True)


# -- moves --------------------------------------------------------------------------------------
#
# Who has no copy any more deletes it, and may get another one: so an epoch begins with that, of the
# same leader, in which nothing of the first one was counted.


def moving(state: PartitionState, target: Sequence[int]) -> PartitionState:
    """Begin to move a partition, or turn a move under way to another target."""
    _check_replicas(target)
    before = state.had
    staying = frozenset(state.isr & state.adding)
    # Who has everything by now stays until the move is done: it may be the last one that has.
    kept = (*before, *(each for each in state.replicas if each in staying))
    replicas = (*target, *(each for each in kept if each not in target))
    return replace(
        state,
        replicas=replicas,
        epoch=state.epoch + bool(set(state.replicas) - set(replicas)),
        adding=frozenset(target) - set(before),
        removing=frozenset(replicas) - set(target),
    )


def moved(
    state: PartitionState, leader: int, successor: int = NOBODY, life: int = NO_LIFE
) -> PartitionState:
    """The leader ends a move: the target is in sync, and the others have no copy any more.

    `successor`: leads from now on, where the leader is among those others.
    """
    _check_leader(state, leader)
    target = state.target
    if not state.adding <= state.isr:
        raise WrongStateError(f"brokers {sorted(state.adding - state.isr)} lack something yet")
    isr = state.isr & set(target)
    if not isr:
        raise WrongStateError("none of the brokers that are to have copies is in sync")
    epoch = state.epoch + bool(state.removing)
    done = replace(
        state, replicas=target, isr=isr, epoch=epoch, adding=frozenset(), removing=frozenset()
    )
    if leader in target:
        return done
    if successor not in isr:
        raise WrongStateError(f"broker {successor} can't lead: it isn't in sync")
    return replace(done, leader=successor, life=life)


def cancelled(state: PartitionState) -> PartitionState:
    """Undo a move: who was to be added goes, unless nobody else is in sync.

    Raises LastReplicaError: then the move can only go on.
    """
    isr = state.isr - state.adding
    if not isr:
        raise LastReplicaError(f"only brokers {sorted(state.isr)} are in sync")
    epoch = state.epoch + bool(state.adding)
    done = replace(
        state, replicas=state.had, isr=isr, epoch=epoch, adding=frozenset(), removing=frozenset()
    )
    if state.leader in isr or state.leader == NOBODY:
        return done
    return replace(done, leader=NOBODY, life=NO_LIFE)


def _check_leader(state: PartitionState, broker_id: int) -> None:
    if state.leader != broker_id or broker_id == NOBODY:
        raise WrongStateError(f"broker {broker_id} doesn't lead: {state.leader} does")


def _check_in_sync(state: PartitionState, broker_id: int) -> None:
    if broker_id not in state.isr:
        raise WrongStateError(f"broker {broker_id} isn't in sync")


def _check_replicas(replicas: Sequence[int]) -> None:
    if not replicas or len(set(replicas)) < len(replicas):
        raise WrongStateError(f"a partition can't have its copies on {list(replicas)}")


# -- a topic's node -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicReplicas:
    """What stands in a topic's node: by Kafka's number, the state of each partition.

    Attributes:
        partitions: None for one with a single copy that was never replicated.
        others: what a later version has written beside that; kept.
        version: of the node that it was read from; -1 for none.
    """

    id: UUID
    partitions: tuple[PartitionState | None, ...]
    others: Mapping[str, Any] = field(default_factory=dict)
    version: int = field(default=-1, compare=False)

    @property
    def brokers(self) -> frozenset[int]:
        """Those that have a copy of any partition, or are to get one."""
        return frozenset(each for state in self.partitions if state for each in state.replicas)

    def state_of(self, number: int) -> PartitionState | None:
        return self.partitions[number] if 0 <= number < len(self.partitions) else None

    def with_state(self, number: int, state: PartitionState) -> "TopicReplicas":
        places = list(self.partitions)
        places += [None] * (number + 1 - len(places))
        places[number] = state
        return replace(self, partitions=tuple(places))


def format_replicas(node: TopicReplicas) -> bytes:
    partitions = [None if each is None else _shown(each) for each in node.partitions]
    shown = {**node.others, "id": str(node.id), "partitions": partitions}
    return json.dumps(shown, separators=(",", ":")).encode()


def _shown(state: PartitionState) -> dict[str, Any]:
    unclean = {} if state.unclean_epoch < 0 else {"unclean": state.unclean_epoch}
    return {
        **state.others,
        **unclean,
        **({"lacking": True} if state.is_lacking else {}),
        "replicas": state.replicas,
        "leader": state.leader,
        "life": f"{state.life:x}",
        "epoch": state.epoch,
        "isr": sorted(state.isr),
        "adding": sorted(state.adding),
        "removing": sorted(state.removing),
    }


def parse_replicas(path: str, value: bytes) -> TopicReplicas:
    """Read a topic's node; what a later version has added is kept.

    Raises InvalidNodeError: it can't be understood, or says what can't be.
    """
    try:
        read = json.loads(value)
        places = [None if each is None else _parsed(each) for each in read["partitions"]]
        return TopicReplicas(UUID(read["id"]), tuple(places), _beside(read, _TOPIC_KEYS))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = f" ({error})" if type(error) is ValueError else ""
        raise InvalidNodeError(
            f"{path}: expected the replicas of a topic as JSON{why}, got {quoted(value)}"
        ) from error


def _parsed(read: Mapping[str, Any]) -> PartitionState:
    leader, epoch, unclean_epoch = _whole((read["leader"], read["epoch"], read.get("unclean", -1)))
    isr, adding, removing = (
        _set_of(tuple(_whole(read.get(key, ())))) for key in ("isr", "adding", "removing")
    )
    state = PartitionState(
        tuple(_whole(read["replicas"])),
        leader,
        int(read["life"], 16),
        epoch,
        isr,
        adding,
        removing,
        _beside(read, _KEYS),
        unclean_epoch,
        read.get("lacking") is True,
    )
    replicas = set(state.replicas)
    if not 0 < len(replicas) == len(state.replicas) <= _MOST_REPLICAS:
        raise ValueError("replicas are some different brokers")
    if not state.isr or state.isr - replicas:
        raise ValueError("some of the replicas must be in sync")
    if state.leader not in {NOBODY, *state.isr}:
        raise ValueError("a leader must be in sync")
    if (state.adding | state.removing) - replicas or state.adding & state.removing:
        raise ValueError("a move is of replicas, and one way")
    if state.epoch < 0 or state.life < 0:
        raise ValueError("an epoch and a life are numbers from 0 on")
    return state


@lru_cache(maxsize=4096)
def _set_of(brokers: tuple[int, ...]) -> frozenset[int]:
    """The same set for the same brokers: thousands of partitions have one of a few."""
    return frozenset(brokers)


def _beside(read: Mapping[str, Any], known: AbstractSet[str]) -> Mapping[str, Any]:
    return {key: value for key, value in read.items() if key not in known}


def _whole(values: Iterable[Any]) -> list[int]:
    found = list(values)
    if any(type(each) is not int for each in found):
        raise ValueError("expected whole numbers")
    return found
