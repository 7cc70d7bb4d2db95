"""The members of a classic group: each, and what the group knows of all of them together."""

import struct
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from hermes.groups.membership import ClassicMembership, StoredMember
from hermes.groups.values import (
    DescribedMember,
    Join,
    JoinAnswer,
    JoinedMember,
    JoinResponse,
    Protocol,
    SyncAnswer,
    SyncResponse,
)
from hermes.protocol.kafka_errors import Code

#: So many ids are known of static members that were replaced.
_MOST_REPLACED: Final = 100

#: So many topics of a group's members are looked through, without those that many share.
_MOST_TOPICS: Final = 50_000

_VERSION_BYTES: Final = 2
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


#: What is stored as it is: all but the assignment.
_STORED_FIELDS: Final = attrgetter(*StoredMember._fields[:-1])


@dataclass(slots=True, eq=False)
class Member:
    """A member: what `Join` has, and how far it is.

    Attributes:
        is_new: whether it has not completed a rebalance yet.
        joining, syncing: answers the request that waits; None while none does.
        deadline: when it is dead unless it is heard of; None while that doesn't matter.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    is_new: bool = True
    joining: JoinAnswer | None = None
    syncing: SyncAnswer | None = None
    deadline: float | None = None

    @classmethod
    def from_join(cls, member_id: str, join: Join) -> "Member":
        return cls(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.protocols,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
        )

    def extend_session(self, now: float, seconds: float | None = None) -> None:
        self.deadline = now + (self.session_timeout_ms / 1000 if seconds is None else seconds)

    @property
    def is_waiting(self) -> bool:
        """Whether it need not be heard of: it waits for an answer. A new one might be gone."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Sequence[str]) -> str:
        """The protocol that it likes best of those that all can."""
        return next(each.name for each in self.protocols if each.name in candidates)

    def as_joined(self, protocol: str) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def describe(self, metadata: bytes) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            metadata,
            self.assignment,
        )

    def to_stored(self, assignment: bytes) -> StoredMember:
        return StoredMember._make((*_STORED_FIELDS(self), assignment))

    @property
    def size(self) -> int:
        names = len(self.member_id) + len(self.client_id)
        return protocols_size(self.protocols) + len(self.assignment) + names


@dataclass(slots=True)
class Members:
    """The members of a group, in the order in which they came.

    Attributes:
        static: member ids by instance id.
        joining: how many wait for the answer to a JoinGroup.
        supported: how many members can do a protocol.
        known_until: the generation with which the group was read from its store; None where all of
            its life is known here.
        replaced: ids that static members had before those of now.
    """

    by_id: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    joining: int = 0
    supported: Counter[str] = field(default_factory=Counter)
    known_until: int | None = None
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_REPLACED))

    def __len__(self) -> int:
        return len(self.by_id)

    def check(self, member_id: str, instance_id: str | None, generation: int = -1) -> Code:
        """Whether there is such a member, of a generation if it gives one (-1: it doesn't)."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            if current != member_id:
                is_lost = self._may_be_lost(member_id, generation)
                return Code.UNKNOWN_MEMBER_ID if is_lost else Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.by_id else Code.UNKNOWN_MEMBER_ID

    def _may_be_lost(self, member_id: str, generation: int) -> bool:
        """Whether an id may be of a generation that was not stored before a crash."""
        # A member that is fenced never comes back, so only those may be that were replaced for
        # certain. librdkafka's members have a generation without an id, when a broker was away for
        # longer than their session.
        until = self.known_until
        if until is None or member_id in self.replaced:
            return False
        return not member_id or generation < 0 or generation > until

    def add(self, member: Member, answer: JoinAnswer) -> None:
        self._insert(member)
        member.joining = answer
        self.joining += 1

    def restore(self, membership: ClassicMembership, now: float) -> None:
        """Take in the members that were stored; each has a session's time to be heard of."""
        for stored in membership.members:
            member = Member(**stored._asdict(), is_new=False)
            self._insert(member)
            member.extend_session(now)

    def _insert(self, member: Member) -> None:
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.by_id[member.member_id] = member
        self._support(member, 1)

    def remove(self, member_id: str) -> None:
        """Forget a member, if there is one; what it waits for must have been answered."""
        member = self.by_id.pop(member_id, None)
        if member is None:
            return
        self._support(member, -1)
        if member.joining is not None:
            self.joining -= 1
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)

    def update(self, member: Member, join: Join, answer: JoinAnswer) -> None:
        self._support(member, -1)
        member.protocols = join.protocols
        self._support(member, 1)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.joining += member.joining is None
        member.joining = answer

    def replace_static(self, old: Member, member_id: str) -> Member:
        """Give a static member another id; requests of the old one must have been answered."""
        assert old.instance_id is not None
        self.replaced.append(old.member_id)
        del self.by_id[old.member_id]
        stored = old.to_stored(old.assignment)._replace(member_id=member_id)
        member = Member(**stored._asdict(), is_new=False)
        self.by_id[member_id] = member
        self.static[old.instance_id] = member_id
        return member

    def answer_join(self, member: Member, response: JoinResponse) -> bool:
        answer = member.joining
        if answer is None:
            return False
        member.joining = None
        self.joining -= 1
        answer(response)
        return True

    def answer_sync(self, member: Member, response: SyncResponse) -> bool:
        answer = member.syncing
        if answer is None:
            return False
        member.syncing = None
        answer(response)
        return True

    def refuse(self, member: Member, code: Code, member_id: str) -> None:
        self.answer_join(member, JoinResponse(code, member_id))
        self.answer_sync(member, SyncResponse(code))

    def protocol(self) -> str:
        """The protocol that all can do and most like best."""
        count = len(self.by_id)
        candidates = [name for name, members in self.supported.items() if members == count]
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def all_support_one_of(self, protocols: Sequence[Protocol]) -> bool:
        return any(self.supported[each.name] == len(self.by_id) for each in protocols)

    def subscribed_topics(self, protocol: str) -> frozenset[str] | None:
        """The topics that all members subscribe to together.

        None where one says something else, or they say more than can be looked through at once.
        """
        topics: set[str] = set()
        said: bytes | None = None
        left = _MOST_TOPICS
        try:
            for each in self.by_id.values():
                metadata = each.metadata(protocol)
                if said is not None and metadata.startswith(said, _VERSION_BYTES):
                    continue  # it wants what the one before it does, as most do
                found, end = _parse_topics(metadata, left)
                topics.update(found)
                said, left = metadata[_VERSION_BYTES:end], left - len(found)
        except (struct.error, UnicodeDecodeError, ValueError):
            return None
        return frozenset(topics)

    def rebalance_seconds(self) -> float:
        slowest = max((each.rebalance_timeout_ms for each in self.by_id.values()), default=0)
        return max(slowest, 0) / 1000

    def _support(self, member: Member, change: int) -> None:
        for name in {each.name for each in member.protocols}:
            self.supported[name] += change
            if not self.supported[name]:
                del self.supported[name]


def protocols_size(protocols: Sequence[Protocol]) -> int:
    return sum(len(each.name) + len(each.metadata) for each in protocols)


def _parse_topics(metadata: bytes, most: int) -> tuple[list[str], int]:
    """Read which topics a consumer subscribes to, up to where; ValueError: they are too many.

        int16 version | int32 number of topics | each: int16 length, UTF-8 | later versions' fields

    Assignors read the rest; the coordinator only has to know which offsets are still of use.
    """
    (count,) = _INT.unpack_from(metadata, _VERSION_BYTES)
    if not 0 <= count <= most:
        raise ValueError("too many topics")
    position, topics = _VERSION_BYTES + _INT.size, []
    for _ in range(count):
        (length,) = _SHORT.unpack_from(metadata, position)
        position += 2
        if not 0 <= length <= len(metadata) - position:
            raise ValueError("a topic that isn't there")
        topics.append(metadata[position : position + length].decode())
        position += length
    return topics, position
