"""A group that this broker coordinates, and what is done for a consumer group beside requests.

It is persisted before any member is answered, and a large one gets its target from a thread. All
this lives in the reactor's thread.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.groups.assignors import Target
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_membership import can_be_stored
from hermes.groups.consumer_values import ConsumerMembership
from hermes.groups.group import Group
from hermes.groups.offsets import (
    Change,
    Committed,
    GroupRecord,
    TopicPartition,
    offset_bytes,
    pending_at,
)
from hermes.groups.targets import Assignment
from hermes.groups.values import MEMBER_BYTES, State
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code

#: What a group weighs beside its members and offsets.
_GROUP_BYTES: Final = 2_000


class Counts:
    """What was done so far, for the metrics.

    `rebalances`: generations that began, and target assignments that were made.
    """

    def __init__(self) -> None:
        self.rebalances = self.commits = self.expired = self.moved = self.failures = 0


@dataclass(slots=True, eq=False)
class GroupEntry:
    """A group, what it has committed, and what that weighs.

    Attributes:
        offsets: what it has committed, all of it on disk.
        pending: what transactions will commit when they do, by their producers' ids; on disk, too.
        doubtful: what may be pending on disk, though that failed; by the producers' ids, too.
        markers: how many transactions have ended here.
        empty_ms: since when it has no members, in ms since 1970.
        busy: how many requests are under way that need it to stay.
        writing: what is being stored of it, in order; none of that is in `offsets` yet.
        revision: that of a consumer group as it is on disk.
        awaiting_write: who waits for which consumer group to be on disk, from which revision on:
            another one may have taken its place.
        brokers: those among which this one coordinates it; None until that has been looked at.
    """

    group: Group | ConsumerGroup
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, Committed]] = field(default_factory=dict)
    doubtful: dict[int, set[TopicPartition]] = field(default_factory=dict)
    markers: int = 0
    empty_ms: int = 0
    is_stored: bool = False
    busy: int = 0
    writing: deque[Change] = field(default_factory=deque)
    offset_bytes: int = 0
    revision: int = 0
    awaiting_write: "list[tuple[ConsumerGroup, int, Deferred[Code]]]" = field(default_factory=list)
    is_writing: bool = False
    awaiting_target: "list[Deferred[None]]" = field(default_factory=list)
    brokers: Collection[int] | None = None

    def apply(self, offsets: Mapping[TopicPartition, Committed | None]) -> bool:
        """Take over what is on disk; whether that weighs something else than before."""
        weight = self.offset_bytes
        for place, committed in offsets.items():
            pending = pending_at(place)
            if pending is None:
                partition, kept = place, self.offsets
            else:
                producer_id, partition = pending
                kept = self.pending.setdefault(producer_id, {})
            before = kept.pop(partition, None)
            if committed is not None:
                kept[partition] = committed
                if before is not None and len(before.metadata) == len(committed.metadata):
                    continue
                self.offset_bytes += offset_bytes(partition, committed)
            if before is not None:
                self.offset_bytes -= offset_bytes(partition, before)
            if pending is not None and not kept:
                del self.pending[pending[0]]
        return self.offset_bytes != weight

    @property
    def size(self) -> int:
        count = len(self.group.members) + len(self.group.pending)
        names = sum(map(len, self.group.pending))
        return _GROUP_BYTES + MEMBER_BYTES * count + names + self.group.size + self.offset_bytes

    @property
    def is_vacant(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        group = self.group
        has_anything = group.pending or self.offsets or self.is_in_use or self.is_stored
        return not has_anything and group.state is State.EMPTY

    @property
    def is_in_use(self) -> bool:
        return bool(self.busy or self.writing)

    def unchanging(self, places: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of some places of which nothing is being stored now."""
        return set(places).difference(*(each.offsets for each in self.writing))


class ConsumerGroupWriter:
    """Writes consumer groups, one write of each at a time."""

    def __init__(
        self,
        write: "Callable[[GroupEntry, Change], Deferred[Code]]",
        now_ms: Callable[[], int],
        log_too_large: Callable[[str], None],
    ) -> None:
        self._write = write
        self._now_ms = now_ms
        self._log_too_large = log_too_large

    def persist(self, entry: GroupEntry, group: ConsumerGroup) -> "Deferred[Code]":
        """Write a group as it is now, if it isn't on disk; fires with what became of it.

        Those who come while it is written share the next write.
        """
        if group.revision == entry.revision:
            return succeed(Code.NONE)
        done: Deferred[Code] = Deferred()
        entry.awaiting_write.append((group, group.revision, done))
        if not entry.is_writing:
            entry.is_writing = True
            ensureDeferred(self._persist_all(entry))
        return done

    async def _persist_all(self, entry: GroupEntry) -> None:
        while entry.awaiting_write:
            group, code, revision = entry.group, Code.NOT_COORDINATOR, -1
            if isinstance(group, ConsumerGroup) and not group.is_dead:
                revision = group.revision
                code = await self._persist_once(entry, group)
            waiting, entry.awaiting_write = entry.awaiting_write, []
            for each in waiting:
                of, since, done = each
                if of is group and since <= revision:
                    done.callback(code)
                elif of is entry.group and not of.is_dead:
                    entry.awaiting_write.append(each)
                else:
                    done.callback(Code.NOT_COORDINATOR)
        entry.is_writing = False

    async def _persist_once(self, entry: GroupEntry, group: ConsumerGroup) -> Code:
        revision, membership = group.revision, group.membership
        if not can_be_stored(membership):
            self._log_too_large(group.name)
            membership = ConsumerMembership(group.epoch, {}, ())
        if not group.members:
            entry.empty_ms = self._now_ms()
        since = -1 if group.members else entry.empty_ms
        record = GroupRecord(group.epoch, group.protocol_type, since, membership)
        code = await self._write(entry, Change(group.name, record))
        if code is Code.NONE and entry.group is group:
            entry.revision = revision
        return code


class Assigner:
    """Makes target assignments, one of a group at a time: those of large groups in threads."""

    _log = ModuleLogger()

    def __init__(
        self,
        clock: IReactorTime,
        in_thread: "Callable[..., Deferred[Any]]",
        counts: Counts,
        changed: Callable[[GroupEntry], None],
    ) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._counts = counts
        self._changed = changed

    def catch_up(self, entry: GroupEntry, group: ConsumerGroup) -> "Deferred[None] | None":
        """Make a group's target anew, if it is time for that.

        Fires when no target of the group is being made, whatever became of that; None: none is.
        """
        made = group.begin_assignment(self._clock.seconds())
        if made is not None and made.is_large:
            self._in_thread(made.make).addBoth(self._finished, entry, group, made)
        elif made is not None:
            self._end(group, made, made.make())
        if not group.is_assigning:
            return None
        waiter: Deferred[None] = Deferred()
        entry.awaiting_target.append(waiter)
        return waiter

    def _end(self, group: ConsumerGroup, made: Assignment, target: Target | None) -> None:
        is_taken = group.end_assignment(made, target, self._clock.seconds())
        self._counts.rebalances += is_taken

    def _finished(
        self, target: Any, entry: GroupEntry, group: ConsumerGroup, made: Assignment
    ) -> None:
        if isinstance(target, Failure):
            self._log.failure("group {name} got no target assignment", target, name=group.name)
            target = None
        self._end(group, made, target)
        waiting, entry.awaiting_target = entry.awaiting_target, []
        for each in waiting:
            each.callback(None)
        self._changed(entry)
