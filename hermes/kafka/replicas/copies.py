"""All copies of partitions that a broker has, kept as coordination says.

Each new state of coordination comes by `use`, and goes to the copies that it is about. The module
is long: how copies' logs are made and deleted could stand apart from what copies need.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.cluster.topic_cluster import ClusterState
from hermes.coordination.replicas import ReplicaTree
from hermes.coordination.sessions import Lease
from hermes.errors import HermesError, StorageError
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection
from hermes.kafka.replicas.changing import Changes
from hermes.kafka.replicas.copy import Copy, CopyCounts
from hermes.kafka.replicas.fetches import Place
from hermes.kafka.replicas.links import Link, is_refused
from hermes.kafka.replicas.serving import Serving
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.replication.electing import Refusals
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import ReplicaFetch
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState, TopicReplicas
from hermes.replication.throttling import Throttle
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import then
from hermes.storage import Log

#: How often copies are looked at that something is due for, and how often all.
_PRESS_SECONDS: Final = 0.05
_SWEEP_SECONDS: Final = 4.0

#: How often it is looked whether all that are in sync are connected: twice within the time in
#: which refusals say that a process is gone.
_WATCH_SECONDS: Final = 0.12

#: How often watermarks are written down.
_KEEP_SECONDS: Final = 5.0

#: How soon what failed is tried again: a log that couldn't be made, coordination that was away.
_RETRY_SECONDS: Final = 1.0

#: How soon a throttle is looked at again: its rate may be another by then.
_LONGEST_DELAY: Final = 1.0

#: For which part of a session's time a follower's fetch shows that it follows nobody else.
_TRUST_PART: Final = 2 / 3

#: For how long a stop waits until others lead, and nobody counts on this broker's copies.
_STOP_SECONDS: Final = 10.0


class Copies:
    """Lives in the reactor's thread. Is what its copies need of their broker.

    Args:
        tree: coordination's; raises CoordinationUnavailableError before it was reached.
        lease_of: the lease of a session, if that is this broker's registration; else None.
        refresh: reads coordination again.
        other: reaches the broker that listens so; None where it doesn't, for brokers.
        may_replicate: whether a client may copy partitions.
        throttle_of: how fast a broker makes copies for moves, as leader and as follower, in bytes a
            second.
    """

    def __init__(
        self,
        shared: Shared,
        tree: Callable[[], ReplicaTree],
        lease_of: Callable[[int], Lease | None],
        refresh: Callable[[], "Deferred[None]"],
        other: Callable[[Any], OtherBroker | None],
        may_replicate: Callable[[Client], bool],
        throttle_of: Callable[[int], tuple[float, float]],
    ) -> None:
        self.shared = shared
        self.broker_id = shared.config.broker_id
        self.flusher = shared.flusher
        self.tokens: Iterator[int] = count()
        self.refusals = Refusals()
        self.lease: Lease | None = None
        self.counts = CopyCounts()
        self.lines = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self.by_place: dict[Place, Copy] = {}
        self.serving = Serving(shared.clock, self.by_place.get, may_replicate)
        self._clock: Any = shared.clock
        self._throttle_of = throttle_of
        self._tree = tree
        self._lease_of = lease_of
        self._refresh = refresh
        self._other = other
        self._changes = Changes(tree, shared.in_thread, shared.clock)
        self._copies: dict[tuple[str, int], Copy] = {}
        self._links: dict[int, Link] = {}
        self._state: ClusterState | None = None
        self._pressing: set[Copy] = set()
        self._making: set[Copy] = set()
        self._deleted: dict[Place, int] = {}  # of copies that were here the node's version
        self._probing: set[int] = set()  # brokers that are being looked for
        # Those that are in sync with what this broker leads, as of the last change.
        self._in_sync: frozenset[int] = frozenset()
        self._are_followers_known = False
        self._timers: dict[str, Any] = {}
        # Whether the data directory is the one that coordination knows; None until that was asked.
        self._is_same_directory: bool | None = None
        self._is_asking = self._is_stopped = False
        self._life: int | None = None
        self._leader_throttle, self._follower_throttle = Throttle(), Throttle()
        self._kept: dict[tuple[str, int], int] = {}

    # -- what coordination says -------------------------------------------------------------------

    def use(self, state: ClusterState) -> None:
        """Coordination was read."""
        before, self._state, life = self._state, state, self._life
        if self._is_stopped:
            return
        self._are_followers_known = False
        self._use_life(state)
        leader, follower = self._throttle_of(self.broker_id)
        self._leader_throttle.set_rate(leader, self.now())
        self._follower_throttle.set_rate(follower, self.now())
        topics, nodes = state.contents.topics, state.contents.replicas
        for (name, _), copy in list(self._copies.items()):
            topic = topics.get(name)
            if name not in nodes or topic is None or topic.id != copy.topic_id:
                self._drop(copy)
        is_new = before is None or before.lives != state.lives or self._life != life
        known = {} if before is None or is_new else before.contents.replicas
        for name, node in nodes.items():
            topic = topics.get(name)
            if topic is not None and topic.id == node.id and known.get(name) is not node:
                for number, partition in enumerate(node.partitions):
                    if partition is not None:
                        self._learn(name, node, number, partition)

    def _use_life(self, state: ClusterState) -> None:
        life = state.lives.get(self.broker_id)
        self.lease = None if life is None else self._lease_of(life)
        self._life = None if self.lease is None else life

    def _learn(
        self, name: str, node: TopicReplicas, number: int, partition: PartitionState
    ) -> None:
        assert self._state is not None
        copy = self._copies.get((name, number))
        if copy is None:
            if self.broker_id not in partition.replicas:
                return
            settings = partial(self._settings_of, name, number)
            version = self._deleted.get((node.id.bytes, number), -1)
            if node.version < version:
                return  # as it was before the copy was deleted here
            copy = Copy(self, name, node.id, number, settings, version)
            self._copies[name, number] = self.by_place[copy.place] = copy
            self._making.add(copy)
            self._start_timers()
            self._after("make", 0, self._make_all)
        copy.learned(partition, node.version, self._state.lives, self._life)

    def _drop(self, copy: Copy) -> None:
        del self._copies[copy.topic, copy.number], self.by_place[copy.place]
        self._making.discard(copy)
        copy.gone()

    def _settings_of(self, topic: str, number: int) -> LeaderSettings:
        config = self.shared.config
        node = None if self._state is None else self._state.contents.replicas.get(topic)
        state = None if node is None else node.state_of(number)
        factor = 1 if state is None else len(state.target)
        return LeaderSettings(
            config.topic(topic).least_in_sync(factor),
            config.replica_lag_ms / 1000,
            config.zookeeper_session_timeout_ms * _TRUST_PART / 1000,
        )

    # -- copies' logs -----------------------------------------------------------------------------

    def _make_all(self) -> None:
        """Make logs, or look at those that there are, once it is known whose directory it is."""
        if self._is_same_directory is None:
            self._ask_directory()
            return
        for copy in list(self._making):
            try:
                self._make(copy)
            except HermesError as error:
                self.lines.warn(
                    "not made",
                    "{copy} can't be copied now: {error}",
                    copy=copy.name,
                    error=error,
                )
        if self._making:
            self._after("make", _RETRY_SECONDS, self._make_all)

    def _ask_directory(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True

        def asked(found: bool) -> None:
            self._is_asking, self._is_same_directory = False, found
            if not found:
                self.lines.error(
                    "directory",
                    "the data directory isn't the one that broker {broker_id} had before: its "
                    "copies leave the in-sync replicas, and are made anew",
                    broker_id=self.broker_id,
                )
            self._make_all()

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            self._is_asking = False
            self._after("make", _RETRY_SECONDS, self._make_all)

        self.in_thread(self._is_known_directory).addCallback(asked).addErrback(failed)

    def _is_known_directory(self) -> bool:
        """In a thread."""
        tree, own = self._tree(), self.shared.directory.own_id()
        known = tree.directory(self.broker_id)
        if known is None:
            tree.keep_directory(self.broker_id, own)
        return known in (None, own)

    def _make(self, copy: Copy) -> None:
        directory, name, number = self.shared.directory, copy.topic, copy.number
        log = directory.get(name, number)
        if log is None:
            log = self.shared.topics.create_numbered(name, number, copy.topic_id)
        log.adopt_topic_id(copy.topic_id)
        if log.topic_id != copy.topic_id or not log.counts_messages:
            raise StorageError(f"{log.name} is of another topic; move its directory away")
        log.check_online()
        mark = directory.watermarks.get(name, number)
        state = copy.replica.state
        if mark is not None:
            log.commit(mark)
            is_whole = mark <= log.end_offset
        else:
            # Up to now it was the only copy, or it is new. If others count on it, it has lost what
            # said how much of it is committed.
            is_alone = state is not None and state.isr == {self.broker_id}
            is_whole = is_alone or not log.end_offset
            mark = log.flushed_end if is_alone else log.earliest
            log.replica.become_copy(mark)
        self._making.discard(copy)
        is_whole = is_whole and self._is_same_directory is True
        kept = self.in_thread(directory.watermarks.keep, {(name, number): mark})
        kept.addCallback(lambda _: self._opened(copy, log, is_whole))
        kept.addErrback(self._not_kept, copy)

    def _opened(self, copy: Copy, log: Log, is_whole: bool) -> None:
        if not copy.is_gone:
            copy.opened(self.shared.partitions.of(log), is_whole=is_whole)

    def _not_kept(self, failure: Failure, copy: Copy) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if not copy.is_gone:
            self._making.add(copy)
            self._after("make", _RETRY_SECONDS, self._make_all)

    def dismissed(self, copy: Copy) -> None:
        reading = self.in_thread(self._names_us, copy)
        reading.addCallback(self._delete, copy).addErrback(self._not_deleted, copy)

    def _names_us(self, copy: Copy) -> bool:
        """In a thread: whether this broker is to have the copy, for certain."""
        node = self._tree().read_certainly(copy.topic)
        if node is None or node.id != copy.topic_id:
            return False
        state = node.state_of(copy.number)
        return state is not None and self.broker_id in state.replicas

    def _delete(self, names_us: bool, copy: Copy) -> "Deferred[None] | None":
        if copy.is_gone or self._is_stopped:
            return None
        if names_us:
            copy.begin_anew()
            self.look()
            return None
        self._drop(copy)
        self._deleted[copy.place] = copy.replica.version
        self.lines.info(
            "deleted copy", "{copy} is to have no copy here any more: it is deleted", copy=copy.name
        )
        return self._delete_log(copy, copy.log)

    def _delete_log(self, copy: Copy, log: Log) -> "Deferred[Any]":
        shared = self.shared
        shared.topics.forget_copy(copy.topic, copy.number)
        shared.flusher.forget(log)
        shared.partitions.forget(log)
        return self.in_thread(shared.directory.delete_copy, copy.topic, copy.number)

    def remake(self, copy: Copy, log: Log) -> None:
        def deleted(_: Any) -> None:
            if not copy.is_gone:
                self._making.add(copy)
                self._after("make", 0, self._make_all)

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            self.call_later(_RETRY_SECONDS, self.remake, copy, log)

        self._delete_log(copy, log).addCallbacks(deleted, failed)

    def _not_deleted(self, failure: Failure, copy: Copy) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if copy.is_gone:
            self.lines.error(
                "not deleted",
                "the copy of {copy} is not deleted: {error}",
                copy=copy.name,
                error=failure.value,
            )
        else:
            self.call_later(_RETRY_SECONDS, self.dismissed, copy)

    # -- what copies need -------------------------------------------------------------------------

    def now(self) -> float:
        return float(self._clock.seconds())

    def now_ms(self) -> int:
        return self.shared.now_ms()

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        if not self._is_stopped:
            self._clock.callLater(seconds, self._unless_stopped, function, *args)

    def _unless_stopped(self, function: Callable[..., object], *args: Any) -> None:
        if not self._is_stopped:
            function(*args)

    def in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        return self.shared.in_thread(function, *args)

    def has_holes(self, topic: str) -> bool:
        return self.shared.config.topic(topic).is_compacted

    def ask(self, copy: Copy, leader: int, fetch: ReplicaFetch) -> None:
        delay = self._follower_throttle.delay(self.now()) if copy.is_behind(self.broker_id) else 0.0
        if delay > 0:
            self.call_later(min(delay, _LONGEST_DELAY), self._ask_again, copy, leader, fetch)
        else:
            self._link(leader).ask(copy, fetch)

    def _ask_again(self, copy: Copy, leader: int, fetch: ReplicaFetch) -> None:
        following = copy.replica.following
        if following is not None and following.is_awaited(fetch.token):
            self.ask(copy, leader, fetch)

    def came(self, copy: Copy, size_bytes: int) -> None:
        if copy.is_behind(self.broker_id):
            self._follower_throttle.took(size_bytes, self.now())

    def went(self, size_bytes: int) -> None:
        self._leader_throttle.took(size_bytes, self.now())

    def delay_of_leader(self) -> float:
        return min(self._leader_throttle.delay(self.now()), _LONGEST_DELAY)

    def ask_no_more(self, copy: Copy) -> None:
        for link in self._links.values():
            link.ask_no_more(copy)

    def break_off(self, copy: Copy) -> None:
        following = copy.replica.following
        if following is not None and following.leader in self._links:
            self._links[following.leader].break_off()

    def _link(self, leader: int) -> Link:
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = Link(
                self._clock,
                self.broker_id,
                leader,
                lambda: self._life,
                self._reach,
                self.refusals,
                self._suspect,
                self._refused,
            )
        return link

    def _reach(self, broker_id: int) -> OtherBroker | None:
        listeners = None if self._state is None else self._state.brokers.get(broker_id)
        return None if listeners is None else self._other(listeners)

    def _watch(self) -> None:
        """Find out whether those that should follow and don't are gone: then nobody waits for them.

        A process that was killed refuses connections; one that doesn't answer may come back.
        """
        self._after("watch", _WATCH_SECONDS, self._watch)
        if not self._are_followers_known:
            self._are_followers_known = True
            led = (copy.replica.leading for copy in self._copies.values())
            members = (leading.largest_isr for leading in led if leading is not None)
            self._in_sync = frozenset().union(*members) - {self.broker_id}
        for broker_id in self._in_sync - self.serving.followers - self._probing:
            other = self._reach(broker_id)
            if other is not None:
                self._probing.add(broker_id)
                other.connect().addCallbacks(
                    self._probed,
                    self._not_probed,
                    callbackArgs=(broker_id,),
                    errbackArgs=(broker_id,),
                )

    def _probed(self, connection: OutgoingConnection, broker_id: int) -> None:
        self._probing.discard(broker_id)
        self.refusals.answered(broker_id)
        connection.close()

    def _not_probed(self, failure: Failure, broker_id: int) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        self._probing.discard(broker_id)
        if is_refused(failure):
            self.refusals.refused(broker_id, self.now())
            for copy in list(self._copies.values()):
                leading = copy.replica.leading
                if leading is not None and broker_id in leading.largest_isr:
                    copy.turn()

    def _suspect(self, broker_id: int) -> None:
        """Its address refuses connections: whoever follows it may have to lead."""
        for copy in self._copies.values():
            state = copy.replica.state
            if state is not None and state.leader == broker_id:
                copy.turn()

    def _refused(self, broker_id: int, why: str) -> None:
        self.lines.error(
            "refused",
            "broker {leader} refuses to be copied from, and is asked again: {why}",
            leader=broker_id,
            why=why,
        )

    def look(self) -> None:
        self._refresh().addErrback(_ignored)

    def change(self, copy: Copy, change: Change) -> None:
        self._changes.change(copy, change)

    def changed(self, place: Place) -> None:
        self.serving.changed(place)

    def press(self, copy: Copy) -> None:
        self._pressing.add(copy)
        self._after("press", _PRESS_SECONDS, self._press)

    def flushed(self, log: Log) -> None:
        """A flush of a log with other copies has ended, or failed."""
        copy = self._copies.get((log.topic, log.partition))
        if copy is None or copy.log is not log:
            return
        if log.is_offline:
            copy.turn()
        elif copy.replica.leading is not None:
            copy.advance()

    def reopened(self, log: Log) -> None:
        """A log is back in service."""
        copy = self._copies.get((log.topic, log.partition))
        if copy is not None and copy.log is log:
            copy.turn()

    # -- as time goes by --------------------------------------------------------------------------

    def _after(self, name: str, seconds: float, function: Callable[[], object]) -> None:
        """Call a function once, after a while; not again while that is to come."""
        if name not in self._timers and not self._is_stopped:
            self._timers[name] = self._clock.callLater(seconds, self._due, name, function)

    def _due(self, name: str, function: Callable[[], object]) -> None:
        del self._timers[name]
        function()

    def _start_timers(self) -> None:
        self._after("sweep", _SWEEP_SECONDS, self._sweep)
        self._after("keep", _KEEP_SECONDS, self._keep)
        self._after("watch", _WATCH_SECONDS, self._watch)

    def _press(self) -> None:
        pressing, self._pressing = self._pressing, set()
        for copy in pressing:
            if not copy.is_gone:
                copy.turn()

    def _sweep(self) -> None:
        swept = cooperatively(
            self.shared.scheduler, list(self._copies.values()), lambda copy: copy.turn()
        )
        then(swept, lambda _: self._after("sweep", _SWEEP_SECONDS, self._sweep))
        if self._life is None and self._state is not None:
            self.use(self._state)  # the broker may have its session by now
        self._keep_directory()

    def _keep_directory(self) -> None:
        """Once no copy is counted on that this directory lacks, it is the broker's."""
        if self._is_same_directory is not False or self._making:
            return
        if all(copy.replica.is_whole for copy in self._copies.values()):
            self._is_same_directory = True
            self.in_thread(self._say_directory).addErrback(self._not_said)

    def _say_directory(self) -> None:
        """In a thread."""
        self._tree().keep_directory(self.broker_id, self.shared.directory.own_id())

    def _not_said(self, failure: Failure) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        self._is_same_directory = False

    def _keep(self) -> None:
        marks = self._marks()
        if marks == self._kept:
            self._after("keep", _KEEP_SECONDS, self._keep)
            return
        kept = self.in_thread(self.shared.directory.watermarks.keep, marks)

        def done(result: Any) -> None:
            if isinstance(result, Failure):
                result.trap(StorageError)  # type: ignore[no-untyped-call]
            else:
                self._kept = marks
            self._after("keep", _KEEP_SECONDS, self._keep)

        kept.addBoth(done)

    def _marks(self) -> dict[tuple[str, int], int]:
        return {
            key: copy.log.high_watermark
            for key, copy in self._copies.items()
            if copy.partition is not None and not copy.is_gone
        }

    # -- the end ----------------------------------------------------------------------------------

    def leave(self) -> "Deferred[None]":
        """Hand over what this broker leads, and leave the in-sync replicas.

        Fires when that is done, or takes too long.
        """
        left: Deferred[None] = Deferred()
        ends_at = self.now() + _STOP_SECONDS
        for copy in list(self._copies.values()):
            copy.stopping()

        def look() -> None:
            copies = list(self._copies.values())
            if all(copy.has_left for copy in copies) or self.now() >= ends_at:
                left.callback(None)
                return
            for copy in copies:
                copy.turn()
            self._clock.callLater(_PRESS_SECONDS, look)

        look()
        return left

    def stop(self) -> "Deferred[Any]":
        """Copy nothing any more; fires when connections are closed, and watermarks kept."""
        if self._is_stopped:
            return succeed(None)
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._changes.stop()
        marks = self._marks()
        for copy in self._copies.values():
            copy.gone()
        self.serving.stop()
        ends = [each for each in (link.stop() for link in self._links.values()) if each is not None]
        if marks:
            kept = self.in_thread(self.shared.directory.watermarks.keep, marks)
            ends.append(kept.addErrback(_ignored))
        return DeferredList(ends)


def _ignored(failure: Failure) -> None:
    """It is tried again, or recovery finds out."""
    failure.trap(HermesError)  # type: ignore[no-untyped-call]
