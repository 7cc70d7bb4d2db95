"""A group that this broker coordinates: who is in it, what it has committed, what that weighs."""

from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.group import Group
from hermes.groups.offsets import Committed, TopicPartition, weight
from hermes.groups.values import MEMBER_BYTES, State
from hermes.protocol.kafka_errors import Code

#: What a group weighs beside its members and offsets.
_GROUP_BYTES = 2_000


@dataclass(slots=True, eq=False)
class GroupEntry:
    """One group.

    Attributes:
        group: its members; a classic group, or a consumer group.
        offsets: what it has committed, all of it on disk.
        empty_ms: since when it has no members, in ms since 1970.
        is_stored: whether anything is kept of it.
        busy: how many requests and writes are under way.
        offset_bytes: what its offsets weigh.
        revision: that of a consumer group as it is on disk.
        waiting: who waits for a consumer group to be on disk, from which revision on.
        is_keeping: whether somebody is writing it.
        awaiting_target: who waits for the target assignment that is being made.
    """

    group: Group | ConsumerGroup
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    empty_ms: int = 0
    is_stored: bool = False
    busy: int = 0
    offset_bytes: int = 0
    revision: int = 0
    waiting: "list[tuple[int, Deferred[Code]]]" = field(default_factory=list)
    is_keeping: bool = False
    awaiting_target: "list[Deferred[None]]" = field(default_factory=list)

    def apply(self, places: "dict[TopicPartition, Committed | None]") -> None:
        """Take what was written."""
        for place, committed in places.items():
            before = self.offsets.pop(place, None)
            if before is not None:
                self.offset_bytes -= weight(place, before)
            if committed is not None:
                self.offsets[place] = committed
                self.offset_bytes += weight(place, committed)

    @property
    def size(self) -> int:
        """What it holds in memory, in bytes, about."""
        count = len(self.group.members) + len(self.group.pending)
        names = sum(map(len, self.group.pending))
        return _GROUP_BYTES + MEMBER_BYTES * count + names + self.group.size + self.offset_bytes

    @property
    def is_vacant(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        group = self.group
        has_anything = group.pending or self.offsets or self.busy or self.is_stored
        return not has_anything and group.state is State.EMPTY
