"""What is kept of a transactional id: its producer, and the transaction that it has or had last."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

#: A topic's name and the number of one of its partitions; or a consumer group, see `group_place`.
Place: TypeAlias = tuple[str, int]

#: The topic with what is kept, which brokers alone write to.
STATE_TOPIC: Final = "__transaction_state"

#: Where Kafka keeps the offsets of groups. No topic's name has a slash.
_OFFSETS: Final = "__consumer_offsets/"

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1

#: No producer is told this epoch: the one after it is left to fence the last.
EXHAUSTED_EPOCH: Final = 2**15 - 2


class State(IntEnum):
    """The states of a transaction, by Kafka's numbers.

    EMPTY               there has been none with this producer id
    ONGOING             partitions are in it
    PREPARE_COMMIT      it is decided; its markers are being written
    PREPARE_ABORT
    COMPLETE_COMMIT     all of its markers are written
    COMPLETE_ABORT
    DEAD                the transactional id has expired
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """As Kafka writes it: `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


_RESTING: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

#: Of each state those that it may follow; None stands for an id that isn't known. An abort may
#: follow rest: a producer that doesn't know what became of its request asks for one to be sure.
BEFORE: Final[Mapping[State, frozenset[State | None]]] = {
    State.EMPTY: _RESTING | {None},
    State.ONGOING: _RESTING | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: _RESTING | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _RESTING,
}


class Transaction(NamedTuple):
    """Of a transactional id; what the topic `__transaction_state` has of it.

    Attributes:
        epoch: of the producer id: whoever has a smaller one is fenced.
        timeout_ms: how long it may be ongoing.
        places: what is in it, and wants its markers.
        updated_ms, started_ms: when it changed and began, in ms since 1970.
        last_epoch: the one before, which a repeated request may still say; -1 for none.
        previous_id: the producer id before, where that has changed since.
        next_id: the producer id that the next transaction has; -1 for the same one.
        version: 2 where the producer knows that its epoch grows with each transaction (KIP-890);
            else 0.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    places: frozenset[Place] = frozenset()
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    next_id: int = NO_ID
    version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.epoch >= EXHAUSTED_EPOCH

    @property
    def is_open(self) -> bool:
        """Whether something is in it, or wants its markers."""
        return self.state is State.ONGOING or self.state.is_prepared

    @property
    def is_committed(self) -> bool:
        """Whether it was decided so."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


def group_place(group: str) -> Place:
    """How a consumer group whose offsets are in a transaction stands among its partitions."""
    return _OFFSETS + group, 0


def group_at(place: Place) -> str | None:
    """The consumer group that stands there; None for a topic's partition."""
    name, _ = place
    return name.removeprefix(_OFFSETS) if name.startswith(_OFFSETS) else None


def partition_of(transactional_id: str, count: int) -> int:
    """Which of the state's partitions has a transactional id: by Java's hash, as in Kafka."""
    units, value = transactional_id.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(units), 2):
        value = (31 * value + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return value % 2**31 % count
