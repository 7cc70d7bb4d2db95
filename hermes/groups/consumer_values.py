"""What consumers ask of a consumer group (KIP-848) and what it answers, whatever the version."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from hermes.groups.values import State

#: The epoch of a group that nobody has joined; so the first one with members is 2, as Kafka's is.
FIRST_EPOCH: Final = 1

#: The member epochs that mean something else than an epoch.
JOINS: Final = 0
LEAVES: Final = -1
#: A static member leaves, and will be back within its session's time.
STATIC_LEAVE: Final = -2


class TopicIdPartition(NamedTuple):
    """A partition of a topic that keeps its identity: another one may get its name."""

    topic_id: UUID
    partition: int


class TopicSize(NamedTuple):
    topic_id: UUID
    partitions: int


class TopicLookup(Protocol):
    @property
    def revision(self) -> int:
        """Changes whenever a topic does."""

    def size_of(self, name: str) -> TopicSize | None:
        """None where there is no such topic."""

    def is_gone(self, name: str, topic_id: UUID) -> bool:
        """Whether a topic is deleted; another one may have its name by now."""


class Reconciliation(IntEnum):
    """How far a member is on its way to its target assignment; the value is what is stored.

    Stable: it has come to the epoch of the target. Unrevoked: it has to give partitions up, and
    hasn't said yet that it has. Unreleased: it waits for partitions that others still have.
    """

    STABLE = 1
    UNREVOKED = 2
    UNRELEASED = 3


class ConsumerSettings(NamedTuple):
    """What bounds consumer groups.

    Attributes:
        session_ms: after how long without a heartbeat a member is dead.
        heartbeat_ms: how often members are told to send one.
        assignors: the names of those that members may ask for; the first is the default.
        large: from how many partitions, and topics that members subscribe to, on a group is large:
            its target assignment takes so long that others must not wait for it.
        assignment_interval_ms: how long such a group keeps a target assignment at least.
    """

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    max_members: int = 1_000
    assignors: tuple[str, ...] = ("uniform", "range")
    large: int = 1_000
    assignment_interval_ms: int = 1_000


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat; what is None has not changed since the last one.

    Attributes:
        member_epoch: the last one that the member was told; or `JOINS`, or one that leaves.
        client_id, client_host, rack_id: only shown.
        rebalance_timeout_ms: how long it may take to give partitions up; -1: as before.
        assignor: by which assignor it would have the group share.
        owned: the partitions that it has.
    """

    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None

    @property
    def leaves(self) -> bool:
        return self.member_epoch in (LEAVES, STATIC_LEAVE)

    @property
    def is_full(self) -> bool:
        """Whether it says all that there is to say: then it wants to hear all, too."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


class HeartbeatResponse(NamedTuple):
    """The answer to a heartbeat; `assignment` is None where nothing has changed."""

    member_id: str
    member_epoch: int
    heartbeat_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None


class DescribedConsumer(NamedTuple):
    """A member of a consumer group, for people and tools; `assigned` is all that it may have."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assigned: frozenset[TopicIdPartition]
    target: frozenset[TopicIdPartition]


class DescribedConsumers(NamedTuple):
    state: State
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


class StoredConsumer(NamedTuple):
    """A member as it is stored; partitions with the epoch in which they were given."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    regex: str | None
    matched: tuple[str, ...]
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: Reconciliation
    assigned: Mapping[TopicIdPartition, int]
    revoking: Mapping[TopicIdPartition, int]
    target: frozenset[TopicIdPartition]


class ConsumerMembership(NamedTuple):
    """What is stored of a consumer group beside its epoch; none of it ever goes back.

    Attributes:
        assignment_epoch: of which epoch the target assignment is.
        topics: what the group knew of its topics when that was made, by name.
        members: all of them, in the order in which they came.
    """

    assignment_epoch: int
    topics: Mapping[str, TopicSize]
    members: tuple[StoredConsumer, ...]
