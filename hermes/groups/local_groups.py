"""The groups of a broker: found or made, bounded, stored, handed over.

A group is read when it is first asked for, and is this broker's from then on: another that writes
it meanwhile makes this one's next write fail, and the group is given up here. What was committed is
shown once it is on disk.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import uuid4

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.announcement import Announcement
from hermes.errors import HermesError, InvalidNodeError
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import (
    FIRST_EPOCH,
    ConsumerMembership,
    ConsumerSettings,
    TopicLookup,
)
from hermes.groups.deadlines import Deadlines
from hermes.groups.group import Group, Stored
from hermes.groups.group_entry import Assigner, ConsumerGroupWriter, Counts, GroupEntry
from hermes.groups.offsets import (
    Change,
    GroupMovedError,
    GroupRecord,
    GroupStore,
    StoredGroup,
)
from hermes.groups.store_queue import StoreCalls, StoreQueue, Then
from hermes.groups.values import GroupSettings, State
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code, KafkaError

#: How often to check whether groups have become another broker's.
_MOVED_SECONDS: Final = 1.0


class CoordinatorSettings(NamedTuple):
    """What bounds all groups of a broker; unused offsets are kept for `retention_ms`."""

    group: GroupSettings = GroupSettings()
    consumer: ConsumerSettings = ConsumerSettings()
    max_groups: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000


class LocalGroups:
    """The groups of a broker. Lives in the reactor's thread.

    Args:
        brokers: tells the ids of those that may coordinate groups.
        topics: the topics, whose partitions consumer groups share. What was committed of one that
            is gone is neither shown nor kept, even if nobody was there when it went.
        now_ms: the wall clock, in ms since 1970.
        in_thread: calls a function in a worker thread and returns its Deferred.
        call_store, call_small: call functions of the store, see `StoreQueue`.

    Attributes:
        entries: those that are in memory, by name.
        held_bytes: what all groups hold in memory, about.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        store: GroupStore,
        broker_id: int,
        brokers: Callable[[], Collection[int]],
        settings: Callable[[], CoordinatorSettings],
        topics: TopicLookup,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_thread: "Callable[..., Deferred[Any]]",
        call_store: StoreCalls | None = None,
        call_small: StoreCalls | None = None,
    ) -> None:
        self.entries: dict[str, GroupEntry] = {}
        self.counts = Counts()
        self.held_bytes = 0

        def call(then: Then, function: Callable[..., Any], *args: Any) -> None:
            in_thread(function, *args).addBoth(then)

        self._queue = StoreQueue(store, call_store or call, call_small)
        self._broker_id = broker_id
        self._brokers = brokers
        self.settings = settings
        self.topics = topics
        self.clock = clock
        self.now_ms = now_ms
        self._limited_log = LimitedLog(self._log, clock.seconds)
        self._deadlines = Deadlines(clock, self._on_deadline)
        self.writer = ConsumerGroupWriter(self.write, now_ms, self._log_too_large)
        self.assigner = Assigner(clock, in_thread, self.counts, self.changed)
        self._loading: dict[str, Announcement[None]] = {}
        self._sizes: dict[str, int] = {}
        self._check: Any = None
        self._is_stopped = False

    # -- begin and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Look after groups from now on, also after those that nobody asks for."""
        self._check = self.clock.callLater(_MOVED_SECONDS, self._give_up_moved)

    def stop(self) -> "Deferred[None]":
        """Answer all that wait, and finish what is being written; fires when that is done."""
        self._is_stopped = True
        if self._check is not None:
            self._check.cancel()
            self._check = None
        self._deadlines.stop()
        for entry in list(self.entries.values()):
            entry.group.end(Code.NOT_COORDINATOR)
        self.entries.clear()
        return self._queue.close()

    # -- whose a group is -----------------------------------------------------------------------

    def coordinator_for(self, name: str) -> int | None:
        return coordinator_for(name, self._brokers())

    def _check_coordinator(self, name: str) -> None:
        if self._is_stopped:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        coordinator = self.coordinator_for(name)
        if coordinator is None:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        if coordinator != self._broker_id:
            raise KafkaError(Code.NOT_COORDINATOR)

    def _give_up_moved(self) -> None:
        self.begin()
        brokers = self._brokers()
        for name, entry in list(self.entries.items()):
            if entry.brokers == brokers:
                continue
            coordinator = coordinator_for(name, brokers)
            if coordinator == self._broker_id:
                entry.brokers = brokers
            elif coordinator is not None:
                self._give_up(name)

    def _give_up(self, name: str) -> None:
        entry = self.entries.get(name)
        if entry is None:
            return
        self.counts.moved += 1
        self._log.info("group {name} is another broker's by now", name=name)
        entry.group.end(Code.NOT_COORDINATOR)
        self._unload(name)

    def _unload(self, name: str) -> None:
        self.entries.pop(name, None)
        self._deadlines.set(name, None)
        self.held_bytes -= self._sizes.pop(name, 0)
        self._queue.release(name).addErrback(lambda _: None)

    # -- finding a group ------------------------------------------------------------------------

    def known(self, name: str) -> GroupEntry | None:
        """A group of this broker's that has been read; None: `find` has to look."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        brokers = self._brokers()
        if entry.brokers != brokers:
            if coordinator_for(name, brokers) != self._broker_id:
                return None
            entry.brokers = brokers
        return entry

    async def find(self, name: str, *, make: bool) -> GroupEntry | None:
        """A group of this broker's; None where there is none, unless it is to be made.

        Raises KafkaError: it is another's, is being deleted, can't be read now, or there are too
        many.
        """
        entry = self.known(name)
        if entry is not None:
            if entry.group.is_dead:
                raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
            return entry
        self._check_coordinator(name)
        while name in self._loading:  # by somebody else
            await self._loading[name].wait()
            self._check_coordinator(name)
        entry = self.entries.get(name)
        if entry is None:
            entry = await self._load(name, make)
            if entry is not None:
                self._check_coordinator(name)
        return entry

    async def find_verified(self, name: str) -> GroupEntry | None:
        """`find`, but only if no other broker had taken the group over when this was asked.

        This one may not have noticed yet, or be cut off from coordination: what it has in memory
        would be older than what others have seen already.
        """
        while True:
            entry = await self.find(name, make=False)
            if entry is None:
                return None
            code = await self.write(entry, Change(name))
            if code is not Code.NONE:
                raise KafkaError(code)
            if self.entries.get(name) is entry:
                self.changed(entry)
                return entry

    async def all(self) -> list[GroupEntry]:
        """All groups of this broker, read where they weren't; KafkaError if that fails.

        One that moves meanwhile is left out; so is one that can't be understood, which is logged.
        """
        if self._is_stopped:
            return []
        try:
            names = await self._queue.names()
        except HermesError as error:
            raise self._unavailable("", error) from error
        brokers = self._brokers()
        for name in names:
            if name in self.entries or coordinator_for(name, brokers) != self._broker_id:
                continue
            try:
                await self.find(name, make=False)
            except KafkaError as error:
                is_wrong = isinstance(error.__cause__, InvalidNodeError)
                if not is_wrong and error.code is not Code.NOT_COORDINATOR:
                    raise
        return list(self.entries.values())

    async def _load(self, name: str, make: bool) -> GroupEntry | None:
        loaded = self._loading[name] = Announcement()
        failure: Failure | None = None
        try:
            found = await self._loaded(name)
            if found is None and not make:
                await self._queue.release(name)
                return None
            if found is None and len(self.entries) >= self.settings().max_groups:
                self._limited_log.warn(
                    "groups",
                    "group {name} was refused: there are {count} already (max_groups)",
                    name=name,
                    count=len(self.entries),
                )
                await self._queue.release(name)
                raise KafkaError(Code.GROUP_MAX_SIZE_REACHED)
            record = None if found is None else found.record
            group = self._restored(name, record)
            entry = self.entries[name] = GroupEntry(group, is_stored=found is not None)
            since = -1 if record is None else record.empty_ms
            entry.empty_ms = since if since >= 0 else self.now_ms()
            if found is not None:
                entry.apply(dict(found.offsets))
            self._deadlines.set(name, group.next_deadline())
            self._measure(entry)
            return entry
        except KafkaError:
            raise
        except HermesError as error:
            refusal = self._unavailable(name, error)
            # Else they would all try it, one after the other.
            failure = Failure(refusal)  # type: ignore[no-untyped-call]
            raise refusal from error
        finally:
            del self._loading[name]
            loaded.tell(failure)

    async def _loaded(self, name: str) -> StoredGroup | None:
        """Read a group; a request that is cancelled meanwhile claims it no more."""
        try:
            return await self._queue.load(name)
        except CancelledError:
            self._queue.release(name).addErrback(lambda _: None)
            raise

    def _restored(self, name: str, record: GroupRecord | None) -> Group | ConsumerGroup:
        membership = None if record is None else record.membership
        if record is not None and isinstance(membership, ConsumerMembership):
            consumers = self._new_consumer_group(name, record.generation)
            consumers.restore(membership, self.clock.seconds())
            return consumers
        group = self._new_classic_group(name, record)
        if record is not None and not isinstance(membership, ConsumerMembership):
            group.restore(membership, self.clock.seconds())
        return group

    def _new_classic_group(self, name: str, record: GroupRecord | None = None) -> Group:
        return Group(
            name,
            lambda: self.settings().group,
            self._store_generation,
            lambda: str(uuid4()),
            generation=0 if record is None else record.generation,
            protocol_type=None if record is None else record.protocol_type or None,
        )

    def _new_consumer_group(self, name: str, epoch: int = FIRST_EPOCH) -> ConsumerGroup:
        return ConsumerGroup(name, lambda: self.settings().consumer, self.topics, epoch=epoch)

    def become_classic(self, entry: GroupEntry) -> Group:
        entry.group.end(Code.NOT_COORDINATOR)
        entry.group = group = self._new_classic_group(entry.group.name)
        return group

    def become_consumer(self, entry: GroupEntry) -> ConsumerGroup:
        entry.group.end(Code.COORDINATOR_NOT_AVAILABLE)
        entry.group = group = self._new_consumer_group(entry.group.name)
        entry.revision = 0
        return group

    def _unavailable(self, name: str, error: HermesError) -> KafkaError:
        self.counts.failures += 1
        self._limited_log.error(
            "store", "group {name} is not available: {error}", name=name, error=str(error)
        )
        return KafkaError(Code.COORDINATOR_NOT_AVAILABLE)

    # -- looking after them ------------------------------------------------------------------------

    def _on_deadline(self, name: str) -> None:
        entry = self.entries.get(name)
        if entry is None:
            return
        now = self.clock.seconds()
        entry.group.advance(now)
        if isinstance(entry.group, ConsumerGroup) and entry.group.is_assignment_due(now):
            self.assigner.catch_up(entry, entry.group)
        self.changed(entry)

    def changed(self, entry: GroupEntry) -> None:
        name = entry.group.name
        if self.entries.get(name) is not entry:
            return
        if entry.is_vacant:
            entry.group.end(Code.COORDINATOR_NOT_AVAILABLE)
            self._unload(name)
            return
        self._deadlines.set(name, entry.group.next_deadline())
        self._measure(entry)
        if isinstance(entry.group, ConsumerGroup):
            self.writer.persist(entry, entry.group)

    def _measure(self, entry: GroupEntry) -> None:
        name, size = entry.group.name, entry.size
        self.held_bytes += size - self._sizes.get(name, 0)
        self._sizes[name] = size

    def check_memory(self, name: str, more: int) -> None:
        """Refuse what would have groups hold too much.

        `more` is by how many bytes the group would grow, about; what needs none is never refused.
        """
        if more <= 0:
            return
        limit = self.settings().max_bytes
        if self.held_bytes + more > limit:
            self._limited_log.warn(
                "memory",
                "a request of group {name} was refused: groups hold {held} of {limit} bytes "
                "(group_memory)",
                name=name,
                held=self.held_bytes,
                limit=limit,
            )
            entry = self.entries.get(name)
            if entry is not None:  # perhaps it was only made for this
                self.changed(entry)
            raise KafkaError(Code.GROUP_MAX_SIZE_REACHED)

    # -- writing --------------------------------------------------------------------------------

    def write(self, entry: GroupEntry, change: Change) -> "Deferred[Code]":
        """Store a change; fires with what became of it, and never fails for a reason of ours."""
        done: Deferred[Code] = Deferred()
        self.write_then(entry, change, done.callback)
        return done

    def write_then(self, entry: GroupEntry, change: Change, then: Then, commits: int = 0) -> None:
        """The same, at less cost: `then` is told. `commits` are counted once it is on disk."""
        entry.writing.append(change)
        self._queue.write(change, partial(self._written, entry, change, then, commits))

    def _written(
        self, entry: GroupEntry, change: Change, then: Then, commits: int, result: Any
    ) -> None:
        entry.writing.popleft()
        if result is not None:
            then(self._not_written(entry, change, result))
            return
        self.counts.commits += commits
        if change.offsets or not change.is_empty:
            entry.is_stored = not change.forget
        if entry.apply(change.offsets) and self.entries.get(change.group) is entry:
            self._measure(entry)
        then(Code.NONE)

    def _not_written(self, entry: GroupEntry, change: Change, result: Any) -> Code:
        name = change.group
        error = result.value if isinstance(result, Failure) else result
        if isinstance(error, GroupMovedError):
            if self.entries.get(name) is entry:
                self._give_up(name)
            return Code.NOT_COORDINATOR
        if isinstance(error, HermesError):
            return self._unavailable(name, error).code
        # A fault of ours: who waits must hear of it, and whether it is stored isn't known either.
        self.counts.failures += 1
        self._limited_log.failure("fault", "storing group {name} failed", result, name=name)
        return Code.COORDINATOR_NOT_AVAILABLE

    def _store_generation(self, group: Group, then: Stored) -> None:
        entry, name = self.entries[group.name], group.name
        if group.state is State.EMPTY:
            entry.empty_ms = self.now_ms()
        since = entry.empty_ms if group.state is State.EMPTY else -1
        self.counts.rebalances += group.state is not State.STABLE
        membership = group.membership
        if membership is not None and not membership.can_be_stored:
            self._log_too_large(name)
            membership = None

        def stored(code: Code) -> None:
            then(code, self.clock.seconds())
            self.changed(entry)

        record = GroupRecord(group.generation, group.protocol_type or "", since, membership)
        self.write(entry, Change(name, record)).addCallback(stored)

    def _log_too_large(self, name: str) -> None:
        self._limited_log.info(
            "members",
            "group {name} has too many members to keep them: after a restart they join again",
            name=name,
        )

    async def delete(self, entry: GroupEntry) -> Code:
        name = entry.group.name
        entry.group.end(Code.COORDINATOR_NOT_AVAILABLE)  # a member that joins meanwhile tries again
        code = await self.write(entry, Change(name, forget=True))
        if self.entries.get(name) is entry:
            self._unload(name)
        return code


def coordinator_for(group: str, brokers: Iterable[int]) -> int | None:
    """Choose the coordinator of a group, by rendezvous hashing, so that all brokers say the same.

    When a broker comes or goes only the groups move that it gets or had. None where there is none.
    """
    name = group.encode(errors="surrogatepass")
    return max(brokers, key=lambda broker: (_weight(name, broker), broker), default=None)


def _weight(name: bytes, broker: int) -> bytes:
    return blake2b(name, digest_size=8, salt=broker.to_bytes(8, "big")).digest()
