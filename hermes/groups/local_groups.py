"""The groups of a broker: found or made, bounded, kept on disk, handed over.

A group is read when it is first asked for, and is this broker's from then on: another that writes
it meanwhile makes this one's next write fail, and the group is given up here. What was committed is
shown once it is on disk.
"""

from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import uuid4

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.interfaces import IReactorTime

from hermes.errors import HermesError
from hermes.groups.assigning import Assigner
from hermes.groups.bounds import CoordinatorSettings, Counts, RefusedError
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import FIRST_EPOCH, ConsumerMembership, TopicView
from hermes.groups.deadlines import Deadlines
from hermes.groups.group import Group
from hermes.groups.group_entry import GroupEntry
from hermes.groups.keeping import ConsumerKeeper
from hermes.groups.offsets import (
    Change,
    GroupMovedError,
    GroupRecord,
    GroupStore,
    StoredGroup,
)
from hermes.groups.rebalances import Rebalances, Stored
from hermes.groups.rendezvous import coordinator_for
from hermes.groups.store_queue import StoreQueue
from hermes.groups.values import State
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code

#: How often it is looked whether groups have become another broker's.
_HOMES_SECONDS: Final = 1.0


class LocalGroups:
    """The groups of a broker. Lives in the reactor's thread.

    Args:
        store: keeps what must outlive this process.
        broker_id: this broker's.
        brokers: tells the ids of those that may coordinate groups.
        settings: tells what bounds them now.
        topics: the topics, whose partitions consumer groups share. What was committed of one that
            is gone is neither shown nor kept, even if nobody was there when it went.
        clock: the reactor, or a test's `Clock`.
        now_ms: the wall clock, in ms since 1970.
        in_thread: calls a function in a worker thread and returns its Deferred.

    Attributes:
        groups: those that are in memory, by name.
        counts: what was done so far.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        store: GroupStore,
        broker_id: int,
        brokers: Callable[[], Collection[int]],
        settings: Callable[[], CoordinatorSettings],
        topics: TopicView,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_thread: "Callable[..., Deferred[Any]]",
    ) -> None:
        self.groups: dict[str, GroupEntry] = {}
        self.counts = Counts()
        self._queue = StoreQueue(store, in_thread)
        self._broker_id = broker_id
        self._brokers = brokers
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._now_ms = now_ms
        self._lines = LimitedLog(self._log, clock.seconds)
        self._deadlines = Deadlines(clock, self._due)
        self._keeper = ConsumerKeeper(self._write, now_ms, self._tell_too_many)
        self._assigner = Assigner(clock, in_thread, self.counts, self._changed)
        self._loading: dict[str, list[Deferred[None]]] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._timers: dict[Callable[[], None], Any] = {}
        self._gone: dict[str, int] = {}  # deleted topics, and when: their offsets are to go
        self._is_stopped = False

    # -- begin and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Look after groups from now on, also after those that nobody asks for."""
        self._again(self._check_homes, _HOMES_SECONDS)

    def stop(self) -> "Deferred[None]":
        """Answer all that wait, and finish what is being written; fires when that is done."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._deadlines.stop()
        for kept in list(self.groups.values()):
            kept.group.end(Code.NOT_COORDINATOR)
        self.groups.clear()
        return self._queue.close()

    def _again(self, what: Callable[[], None], seconds: float) -> None:
        def call() -> None:
            self._again(what, seconds)
            what()

        self._timers[what] = self._clock.callLater(seconds, call)

    @property
    def held_bytes(self) -> int:
        """What all groups hold in memory, about."""
        return self._bytes

    # -- whose a group is -----------------------------------------------------------------------

    def coordinator_for(self, name: str) -> int | None:
        """The broker that coordinates a group; None where nobody does now."""
        return coordinator_for(name, self._brokers())

    def _check_home(self, name: str) -> None:
        if self._is_stopped:
            raise RefusedError(Code.COORDINATOR_NOT_AVAILABLE)
        home = self.coordinator_for(name)
        if home is None:
            raise RefusedError(Code.COORDINATOR_NOT_AVAILABLE)
        if home != self._broker_id:
            raise RefusedError(Code.NOT_COORDINATOR)

    def _check_homes(self) -> None:
        """Give up the groups that are others' by now."""
        brokers = self._brokers()
        for name in list(self.groups):
            home = coordinator_for(name, brokers)
            if home not in (self._broker_id, None):
                self._give_up(name)

    def _give_up(self, name: str) -> None:
        kept = self.groups.get(name)
        if kept is None:
            return
        self.counts.moved += 1
        self._log.info("group {name} is another broker's by now", name=name)
        kept.group.end(Code.NOT_COORDINATOR)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Have a group no more in memory."""
        self.groups.pop(name, None)
        self._deadlines.set(name, None)
        self._bytes -= self._sizes.pop(name, 0)
        self._queue.release(name).addErrback(lambda _: None)

    # -- finding a group ------------------------------------------------------------------------

    async def _find(self, name: str, *, make: bool) -> GroupEntry | None:
        """A group of this broker's; None where there is none, unless it is to be made.

        Raises:
            RefusedError: it is another's, can't be read now, or there are too many.
        """
        self._check_home(name)
        while name in self._loading:  # by somebody else
            waiter: Deferred[None] = Deferred()
            self._loading[name].append(waiter)
            await waiter
            self._check_home(name)
        kept = self.groups.get(name)
        if kept is None:
            kept = await self._load(name, make)
            if kept is not None:
                self._check_home(name)
        return kept

    async def _load(self, name: str, make: bool) -> GroupEntry | None:
        waiters = self._loading[name] = []
        try:
            found = await self._loaded(name)
            settings = self._settings()
            if found is None and not make:
                await self._queue.release(name)
                return None
            if found is None and len(self.groups) >= settings.max_groups:
                self._lines.warn(
                    "groups",
                    "group {name} was refused: there are {count} already (max_groups)",
                    name=name,
                    count=len(self.groups),
                )
                await self._queue.release(name)
                raise RefusedError(Code.GROUP_MAX_SIZE_REACHED)
            record = None if found is None else found.record
            group = self._restored(name, record)
            kept = self.groups[name] = GroupEntry(group, is_stored=found is not None)
            since = -1 if record is None else record.empty_ms
            kept.empty_ms = since if since >= 0 else self._now_ms()
            if found is not None:
                kept.apply(dict(found.offsets))
            self._deadlines.set(name, group.next_deadline())
            self._measure(kept)
            return kept
        except RefusedError:
            raise
        except HermesError as error:
            raise self._unavailable(name, error) from error
        finally:
            del self._loading[name]
            for waiter in waiters:
                waiter.callback(None)

    async def _loaded(self, name: str) -> StoredGroup | None:
        """Read a group; whoever leaves meanwhile leaves it to others to write."""
        try:
            return await self._queue.load(name)
        except CancelledError:
            self._queue.release(name).addErrback(lambda _: None)
            raise

    def _restored(self, name: str, record: GroupRecord | None) -> Group | ConsumerGroup:
        """The group that was kept, or one that begins."""
        membership = None if record is None else record.membership
        if record is not None and isinstance(membership, ConsumerMembership):
            consumers = self._new_consumer_group(name, record.generation)
            consumers.restore(membership, self._clock.seconds())
            return consumers
        group = self._new_classic_group(name, record)
        if record is not None and not isinstance(membership, ConsumerMembership):
            group.restore(membership, self._clock.seconds())
        return group

    def _new_classic_group(self, name: str, record: GroupRecord | None = None) -> Group:
        return Group(
            name,
            lambda: self._settings().group,
            self._store_generation,
            lambda: str(uuid4()),
            generation=0 if record is None else record.generation,
            protocol_type=None if record is None else record.protocol_type or None,
        )

    def _new_consumer_group(self, name: str, epoch: int = FIRST_EPOCH) -> ConsumerGroup:
        return ConsumerGroup(name, lambda: self._settings().consumer, self._topics, epoch=epoch)

    def _unavailable(self, name: str, error: HermesError) -> RefusedError:
        self.counts.failures += 1
        self._lines.error(
            "store", "group {name} is not available: {error}", name=name, error=str(error)
        )
        return RefusedError(Code.COORDINATOR_NOT_AVAILABLE)

    # -- looking after them ------------------------------------------------------------------------

    def _due(self, name: str) -> None:
        kept = self.groups.get(name)
        if kept is None:
            return
        now = self._clock.seconds()
        kept.group.advance(now)
        if isinstance(kept.group, ConsumerGroup) and kept.group.is_assignment_due(now):
            self._assigner.catch_up(kept, kept.group)
        self._changed(kept)

    def _changed(self, kept: GroupEntry) -> None:
        """Look after a group with which something was done."""
        name = kept.group.name
        if self.groups.get(name) is not kept:
            return
        if kept.is_vacant:
            kept.group.end(Code.COORDINATOR_NOT_AVAILABLE)
            self._forget(name)
            return
        self._deadlines.set(name, kept.group.next_deadline())
        self._measure(kept)
        if isinstance(kept.group, ConsumerGroup):
            self._keeper.keep(kept, kept.group)

    def _measure(self, kept: GroupEntry) -> None:
        name, size = kept.group.name, kept.size
        self._bytes += size - self._sizes.get(name, 0)
        self._sizes[name] = size

    def _check_memory(self, name: str, more: int) -> None:
        limit = self._settings().max_bytes
        if more > 0 and self._bytes + more > limit:
            self._lines.warn(
                "memory",
                "a request of group {name} was refused: groups hold {held} of {limit} bytes "
                "(group_memory)",
                name=name,
                held=self._bytes,
                limit=limit,
            )
            kept = self.groups.get(name)
            if kept is not None:  # perhaps it was only made for this
                self._changed(kept)
            raise RefusedError(Code.GROUP_MAX_SIZE_REACHED)

    # -- what is kept ---------------------------------------------------------------------------

    def _write(self, kept: GroupEntry, change: Change) -> "Deferred[Code]":
        """Keep a change; fires with what became of it, and never fails for a reason of ours."""
        kept.busy += 1
        return ensureDeferred(self._written(kept, change))

    async def _written(self, kept: GroupEntry, change: Change) -> Code:
        name = change.group
        try:
            await self._queue.write(change)
        except GroupMovedError:
            if self.groups.get(name) is kept:
                self._give_up(name)
            return Code.NOT_COORDINATOR
        except HermesError as error:
            return self._unavailable(name, error).code
        finally:
            kept.busy -= 1
        if not change.is_empty:
            kept.is_stored = not change.forget
        kept.apply(dict(change.offsets))
        if self.groups.get(name) is kept:
            self._measure(kept)
        return Code.NONE

    def _store_generation(self, group: Rebalances, then: Stored) -> None:
        kept, name = self.groups[group.name], group.name
        if group.state is State.EMPTY:
            kept.empty_ms = self._now_ms()
        since = kept.empty_ms if group.state is State.EMPTY else -1
        self.counts.rebalances += group.state is not State.STABLE
        membership = group.membership
        if membership is not None and not membership.can_be_kept:
            self._tell_too_many(name)
            membership = None

        def stored(code: Code) -> None:
            then(code, self._clock.seconds())
            self._changed(kept)

        record = GroupRecord(group.generation, group.protocol_type or "", since, membership)
        self._write(kept, Change(name, record)).addCallback(stored)

    def _tell_too_many(self, name: str) -> None:
        self._lines.info(
            "members",
            "group {name} has too many members to keep them: after a restart they join again",
            name=name,
        )

    async def _delete(self, kept: GroupEntry) -> Code:
        name = kept.group.name
        kept.group.end(Code.COORDINATOR_NOT_AVAILABLE)  # who joins meanwhile tries again
        code = await self._write(kept, Change(name, forget=True))
        if self.groups.get(name) is kept:
            self._forget(name)
        return code

    async def _all(self) -> list[GroupEntry]:
        """All groups of this broker, read where they weren't.

        Raises:
            RefusedError: they can't be read now.
        """
        if self._is_stopped:
            return []
        try:
            names = await self._queue.names()
        except HermesError as error:
            raise self._unavailable("", error) from error
        brokers = self._brokers()
        for name in names:
            if name not in self.groups and coordinator_for(name, brokers) == self._broker_id:
                await self._find(name, make=False)
        return list(self.groups.values())
