"""What clients ask of a group and what it answers, whatever the version of the request."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from hermes.protocol.kafka_errors import Code

#: What a member weighs beside its names and what it brings.
MEMBER_BYTES: Final = 1_000

#: The protocol type of consumers, whose metadata say which topics they subscribe to.
CONSUMER: Final = "consumer"


class State(StrEnum):
    """Where a group is in its life; the value is Kafka's name of it.

    Empty: it has no members, perhaps offsets. PreparingRebalance: members have to join.
    CompletingRebalance: they have, and wait for the assignment of the leader. Stable: they have it.
    Dead: it isn't here any more. Consumer groups are Assigning while their target assignment is yet
    to be made, and Reconciling while members are on their way to it.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupSettings(NamedTuple):
    """What bounds classic groups.

    Attributes:
        initial_delay_seconds: how long the first rebalance of an empty group waits for further
            members.
        max_members: of a group, those included that have only got an id.
        max_member_bytes: of one member's protocols.
        new_member_seconds: how long a member waits that nobody hears of while it joins first.
    """

    initial_delay_seconds: float = 3.0
    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    max_members: int = 1_000
    max_member_bytes: int = 1024 * 1024
    new_member_seconds: float = 300.0


class Protocol(NamedTuple):
    """One of the ways in which a member can share partitions: an assignor of the client's.

    The leader is given the metadata; of consumers it is the member's subscription.
    """

    name: str
    metadata: bytes


class Join(NamedTuple):
    """A JoinGroup.

    Attributes:
        member_id: empty for one that has none yet.
        instance_id: of a static member; None for a dynamic one.
        client_id, client_host: only shown.
        protocols: what the member can do, best first.
        session_timeout_ms: after how long without a sign of life it is dead.
        rebalance_timeout_ms: how long it may take to join again.
        needs_id: whether a new member is given an id and has to come back with it.
        can_skip: whether a static leader can be told to leave the assignment as it is.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_id: bool = True
    can_skip: bool = True


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """The answer to a JoinGroup; `members` only for the leader."""

    code: Code
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """A SyncGroup; only the leader's has assignments, by member id."""

    member_id: str
    instance_id: str | None
    generation: int
    assignments: dict[str, bytes]
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncResponse(NamedTuple):
    code: Code
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One of those that a LeaveGroup names; an administrator gives only the instance id."""

    member_id: str
    instance_id: str | None


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    state: State
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


JoinAnswer = Callable[[JoinResponse], None]
SyncAnswer = Callable[[SyncResponse], None]
