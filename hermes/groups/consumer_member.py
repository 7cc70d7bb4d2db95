"""One member of a consumer group, and how it comes from what it has to what it is to have.

It first gives up what it is not to have any more, and says so; then it comes to the epoch of the
target, and gets what nobody else has; the rest it gets as the others give it up. So no partition is
ever with two members. The states are those of Kafka's `CurrentAssignmentBuilder`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from hermes.groups.consumer_values import Reconciliation, StoredConsumer, TopicIdPartition

#: What is stored as it is: all but the partitions.
_STORED_FIELDS: Final = attrgetter(*StoredConsumer._fields[:-3])


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member: what its heartbeats said, and how far it is.

    Attributes:
        matched: the topics that its regular expression has found; as `topics`, sorted.
        epoch, previous_epoch: the last it was told, and the one before: a heartbeat may have
            crossed the answer.
        assigned, revoking: what it may use, and what it has to give up, each with the epoch in
            which it got that.
        session_end: when it is dead unless it is heard of.
        revoke_end: when it is dead unless it has given up `revoking`; None where it has nothing to.
        counted: its size as it counts in that of the group.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str | None = None
    matched: tuple[str, ...] = ()
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: Reconciliation = Reconciliation.STABLE
    assigned: dict[TopicIdPartition, int] = field(default_factory=dict)
    revoking: dict[TopicIdPartition, int] = field(default_factory=dict)
    session_end: float = 0.0
    revoke_end: float | None = None
    counted: int = 0

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics that it wants, by name. Made anew each time: there may be thousands."""
        return frozenset(self.topics).union(self.matched)

    def update(self, **said: Any) -> set[str]:
        """Take what it says of itself; returns the names of what has changed.

        What is equal stays the same object, since members may share it.
        """
        changed = set()
        for name, value in said.items():
            before = getattr(self, name)
            if value is not before and value != before:
                setattr(self, name, value)
                changed.add(name)
        return changed

    @property
    def size(self) -> int:
        """What it holds, in bytes of its client's, and a hundred for each topic and partition.

        What its regular expression finds isn't counted: members share that.
        """
        names = (self.member_id, self.client_id, self.instance_id, self.rack_id, self.regex)
        texts = sum(len(each or "") for each in names) + topics_bytes(self.topics)
        return texts + 100 * (len(self.assigned) + len(self.revoking))

    def is_at(self, epoch: int) -> bool:
        return self.state is Reconciliation.STABLE and self.epoch == epoch

    def to_stored(self, target: frozenset[TopicIdPartition]) -> StoredConsumer:
        partitions = (dict(self.assigned), dict(self.revoking), target)
        return StoredConsumer._make((*_STORED_FIELDS(self), *partitions))

    @classmethod
    def from_stored(cls, stored: StoredConsumer, session_end: float) -> "ConsumerMember":
        values = stored._asdict()
        del values["target"]
        values.update(assigned=dict(stored.assigned), revoking=dict(stored.revoking))
        return cls(**values, session_end=session_end)


@dataclass(frozen=True, slots=True)
class Step:
    state: Reconciliation
    epoch: int
    assigned: Mapping[TopicIdPartition, int]
    revoking: Mapping[TopicIdPartition, int]


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: frozenset[TopicIdPartition],
    owned: frozenset[TopicIdPartition] | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Step | None:
    """Find out how far a member can go; None where it stays as it is.

    Args:
        target: what the member is to have; of the same epoch it may be less than before, where the
            member wants less by now.
        owned: what it says it has; None where it says nothing new.
        is_free: whether nobody has a partition, the member neither.
    """
    is_there = member.state is Reconciliation.STABLE and member.epoch == target_epoch
    if is_there and member.assigned.keys() <= target:
        return None
    if member.state is Reconciliation.UNREVOKED and _has_any(owned, member.revoking):
        return None
    assigned = {each: epoch for each, epoch in member.assigned.items() if each in target}
    revoking = {each: epoch for each, epoch in member.assigned.items() if each not in target}
    if revoking and _has_any(owned, revoking):
        return Step(Reconciliation.UNREVOKED, member.epoch, assigned, revoking)
    # What it has just given up itself is free, too, though nobody has written that down yet.
    missing = target - assigned.keys()
    gained = [each for each in missing if is_free(each) or each in member.revoking]
    is_complete = len(gained) == len(missing)
    state = Reconciliation.STABLE if is_complete else Reconciliation.UNRELEASED
    return Step(state, target_epoch, assigned | dict.fromkeys(gained, target_epoch), {})


def topics_bytes(topics: Iterable[str]) -> int:
    return sum(100 + len(each) for each in topics)


def _has_any(
    owned: frozenset[TopicIdPartition] | None, places: Mapping[TopicIdPartition, int]
) -> bool:
    return bool(places) and (owned is None or not owned.isdisjoint(places))
