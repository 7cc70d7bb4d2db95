"""All copies of partitions that a broker has, kept as coordination says.

Each new state of coordination comes by `use`, and goes to the copies that it is about.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.cluster.topic_cluster import ClusterState
from hermes.coordination.replicas import ReplicaTree
from hermes.coordination.sessions import Lease
from hermes.errors import HermesError
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.replicas.changing import Changes
from hermes.kafka.replicas.copy import Copy
from hermes.kafka.replicas.copy_logs import CopyLogs
from hermes.kafka.replicas.fetches import Place
from hermes.kafka.replicas.peers import Peers
from hermes.kafka.replicas.serving import LedCopy, Serving
from hermes.kafka.replicas.surroundings import CopyCounts, OwnCopy
from hermes.kafka.replicas.timers import Timers
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.replication.leading import LeaderSettings
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState, TopicReplicas
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import then
from hermes.storage import Log

#: How often copies are looked at that something is due for, and how often all.
_PRESS_SECONDS: Final = 0.05
_SWEEP_SECONDS: Final = 4.0

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
        self.in_thread, self.now_ms = shared.in_thread, shared.now_ms
        self.tokens: Iterator[int] = count()
        self.lease: Lease | None = None
        self.counts = CopyCounts()
        self.lines = lines = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self.by_place: dict[Place, Copy] = {}
        self._copies: dict[tuple[str, int], Copy] = {}
        self._timers = timers = Timers(shared.clock)
        self.now, self.call_later = timers.now, timers.later
        self.serving = Serving(shared.clock, self._led_at, may_replicate)
        self.changed = self.serving.changed
        self._lease_of = lease_of
        self._refresh = refresh
        self._throttle_of = throttle_of
        self._changes = Changes(tree, shared.in_thread, shared.clock)
        self._state: ClusterState | None = None
        self._pressing: set[OwnCopy] = set()
        self._deleted: dict[Place, int] = {}  # of copies that were here the node's version
        self._life: int | None = None
        self._min_insync = self._default_min_insync
        self._sure: int | None = None  # the life in which the data directory was the broker's
        self._doubted: int | None = None  # the one in which that is being asked
        copies = self._copies.values
        self._peers = peers = Peers(
            shared.clock,
            self.broker_id,
            lambda: self._life,
            other,
            lambda: self.serving.followers,
            copies,
            timers,
            lines,
        )
        self.refusals = peers.refusals
        self.ask, self.ask_no_more, self.break_off = peers.ask, peers.ask_no_more, peers.break_off
        self.came, self.went = peers.came, peers.went
        self.delay_of_leader = peers.delay_of_leader
        self._logs = logs = CopyLogs(
            shared,
            tree,
            timers,
            lines,
            copies,
            lambda: self._life is not None,
            self._deleted_here,
            self.look,
        )
        self.dismissed, self.remake, self.now_whole = logs.dismissed, logs.remake, logs.now_whole
        self.unreadable = logs.unreadable
        shared.settings.on_change(self._defaults_changed)
        shared.settings.on_topic_change(self._settings_changed)

    # -- what coordination says -------------------------------------------------------------------

    def use(self, state: ClusterState) -> None:
        """Coordination was read."""
        before, self._state, life = self._state, state, self._life
        if self._timers.is_stopped:
            return
        self._use_life(state)
        self._peers.use(state, self._throttle_of(self.broker_id))
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
        if life is None or self.lease is None:
            self._life = None
        elif self._sure in (None, life):
            self._life = self._sure = life
        else:
            # Between two lives another process may have been the broker, with another directory.
            self._life = None
            if self._doubted != life:
                self._doubted = life
                self._logs.ask_again().addCallback(self._asked, life)

    def _asked(self, is_other: bool | None, life: int) -> None:
        self._doubted = None
        if is_other is None or self._timers.is_stopped:
            return  # the next sweep asks again
        self._sure = life
        for copy in self._copies.values():
            if is_other or self._logs.is_lacking(copy):
                copy.replaced()
        if self._state is not None:
            self.use(self._state)

    def _learn(
        self, name: str, node: TopicReplicas, number: int, partition: PartitionState
    ) -> None:
        assert self._state is not None
        copy = self._copies.get((name, number))
        if copy is None:
            if self.broker_id not in partition.replicas and not self._is_left(name, node, number):
                return
            version = self._deleted.get((node.id.bytes, number), -1)
            if node.version < version:
                return  # as it was before the copy was deleted here
            copy = Copy(self, name, node.id, number, self._settings_of, version)
            self._copies[name, number] = self.by_place[copy.place] = copy
            self._logs.make(copy)
            self._logs.keep_watermarks()
            self._peers.watch()
            self._timers.once(_SWEEP_SECONDS, self._sweep)
        copy.learned(partition, node.version, self._state.lives, self._life)

    def _is_left(self, name: str, node: TopicReplicas, number: int) -> bool:
        """Whether a copy is here that was moved away while the broker was: it is to be deleted."""
        log = self.shared.directory.get(name, number)
        is_copy = log is not None and not log.is_sole_copy and log.topic_id == node.id
        return is_copy and (node.id.bytes, number) not in self._deleted

    def _drop(self, copy: OwnCopy) -> None:
        self._logs.forget(copy)
        del self.by_place[copy.place]
        self._copies.pop((copy.topic, copy.number)).gone()

    def _deleted_here(self, copy: OwnCopy) -> None:
        self._drop(copy)
        self._deleted[copy.place] = copy.replica.version

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

    # What coordination says of settings is in force later than what it says of copies.

    def _settings_changed(self, topic: str) -> None:
        node = None if self._state is None else self._state.contents.replicas.get(topic)
        numbers = range(0 if node is None else len(node.partitions))
        some = [self._copies.get((topic, number)) for number in numbers]
        self._use_settings([copy for copy in some if copy is not None])

    def _defaults_changed(self) -> None:
        before, self._min_insync = self._min_insync, self._default_min_insync
        if before != self._min_insync:
            self._use_settings(list(self._copies.values()))

    @property
    def _default_min_insync(self) -> int | None:
        return self.shared.config.default_min_insync_replicas

    def _use_settings(self, copies: Sequence[Copy]) -> None:
        def use(copy: Copy) -> None:
            if not (copy.is_gone or self._timers.is_stopped):
                copy.settings_changed()

        then(cooperatively(self.shared.scheduler, copies, use), lambda _: None)

    # -- what copies need -------------------------------------------------------------------------

    def look(self) -> None:
        self._refresh().addErrback(_ignored)

    def change(self, copy: OwnCopy, change: Change) -> None:
        self._changes.change(copy, change)

    def press(self, copy: OwnCopy) -> None:
        self._pressing.add(copy)
        self._timers.once(_PRESS_SECONDS, self._press)

    def _led_at(self, place: Place) -> LedCopy | None:
        copy = self.by_place.get(place)
        return None if copy is None else copy.leadership

    # -- what happens to logs ---------------------------------------------------------------------

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

    def _press(self) -> None:
        pressing, self._pressing = self._pressing, set()
        for copy in pressing:
            if not copy.is_gone:
                copy.turn()

    def _sweep(self) -> None:
        swept = cooperatively(
            self.shared.scheduler, list(self._copies.values()), lambda copy: copy.look()
        )
        then(swept, lambda _: self._timers.once(_SWEEP_SECONDS, self._sweep))
        if self._life is None and self._state is not None:
            self.use(self._state)  # the broker may have its session by now

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
            staying = [copy for copy in self._copies.values() if not copy.has_left]
            if not staying or self.now() >= ends_at:
                left.callback(None)
                return
            for copy in staying:
                copy.turn()
            self.shared.clock.callLater(_PRESS_SECONDS, look)

        look()
        return left

    def stop(self) -> "Deferred[Any]":
        """Copy nothing any more; fires when connections are closed, and watermarks kept."""
        if self._timers.is_stopped:
            return succeed(None)
        self._timers.stop()
        self._changes.stop()
        kept = self._logs.keep_now()
        for copy in self._copies.values():
            copy.gone()
        self.serving.stop()
        ends = self._peers.stop()
        if kept is not None:
            ends.append(kept.addErrback(_ignored))
        return DeferredList(ends)


def _ignored(failure: Failure) -> None:
    """It is tried again, or recovery finds out."""
    failure.trap(HermesError)  # type: ignore[no-untyped-call]
