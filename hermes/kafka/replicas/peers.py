"""The other brokers: copied from, how fast; and whether those that should copy are gone."""

from collections.abc import Callable, Collection
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.topic_cluster import ClusterState
from hermes.errors import HermesError
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection
from hermes.kafka.replicas.links import Link, is_refused
from hermes.kafka.replicas.surroundings import OwnCopy
from hermes.kafka.replicas.timers import Timers
from hermes.limited_log import LimitedLog
from hermes.replication.electing import Refusals
from hermes.replication.messages import ReplicaFetch
from hermes.replication.throttling import Throttle

#: How often it is looked whether all that are in sync are connected: twice within the time in
#: which refusals say that a process is gone.
_WATCH_SECONDS: Final = 0.12

#: How soon a throttle is looked at again: its rate may be another by then.
_LONGEST_DELAY: Final = 1.0


class Peers:
    """Lives in the reactor's thread.

    Args:
        clock: the reactor.
        life: this broker's session with coordination; None without one.
        other: reaches the broker that listens so; None where it doesn't, for brokers.
        followers: the brokers that are connected to copy from this one.
        copies: those that this broker has.
    """

    def __init__(
        self,
        clock: Any,
        broker_id: int,
        life: Callable[[], int | None],
        other: Callable[[Any], OtherBroker | None],
        followers: Callable[[], set[int]],
        copies: Callable[[], Collection[OwnCopy]],
        timers: Timers,
        lines: LimitedLog,
    ) -> None:
        self.refusals = Refusals()
        self._clock = clock
        self._broker_id = broker_id
        self._life = life
        self._other = other
        self._followers = followers
        self._copies = copies
        self._timers = timers
        self._lines = lines
        self._state: ClusterState | None = None
        self._links: dict[int, Link] = {}
        self._probing: set[int] = set()  # brokers that are being looked for
        # Those that are in sync with what this broker leads, as of the last change.
        self._in_sync: frozenset[int] = frozenset()
        self._is_in_sync_known = False
        self._leader_throttle, self._follower_throttle = Throttle(), Throttle()

    def use(self, state: ClusterState, throttles: tuple[float, float]) -> None:
        """Coordination was read; `throttles`: for what is led here, and for what follows."""
        self._state = state
        self._is_in_sync_known = False
        leader, follower = throttles
        self._leader_throttle.set_rate(leader, self._timers.now())
        self._follower_throttle.set_rate(follower, self._timers.now())

    # -- copying from them ------------------------------------------------------------------------

    def ask(self, copy: OwnCopy, leader: int, fetch: ReplicaFetch) -> None:
        now, is_behind = self._timers.now(), copy.is_behind(self._broker_id)
        delay = self._follower_throttle.delay(now) if is_behind else 0.0
        if delay > 0:
            self._timers.later(min(delay, _LONGEST_DELAY), self._ask_again, copy, leader, fetch)
        else:
            self._link(leader).ask(copy.follower, fetch)

    def _ask_again(self, copy: OwnCopy, leader: int, fetch: ReplicaFetch) -> None:
        following = copy.replica.following
        if following is not None and following.is_awaited(fetch.token):
            self.ask(copy, leader, fetch)

    def came(self, copy: OwnCopy, size_bytes: int) -> None:
        if copy.is_behind(self._broker_id):
            self._follower_throttle.took(size_bytes, self._timers.now())

    def went(self, size_bytes: int) -> None:
        self._leader_throttle.took(size_bytes, self._timers.now())

    def delay_of_leader(self) -> float:
        return min(self._leader_throttle.delay(self._timers.now()), _LONGEST_DELAY)

    def ask_no_more(self, copy: OwnCopy) -> None:
        for link in self._links.values():
            link.ask_no_more(copy.follower)

    def break_off(self, copy: OwnCopy) -> None:
        following = copy.replica.following
        if following is not None and following.leader in self._links:
            self._links[following.leader].break_off()

    def _link(self, leader: int) -> Link:
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = Link(
                self._clock,
                self._broker_id,
                leader,
                self._life,
                self._reach,
                self.refusals,
                self._suspect,
                self._refused,
            )
        return link

    def _reach(self, broker_id: int) -> OtherBroker | None:
        listeners = None if self._state is None else self._state.brokers.get(broker_id)
        return None if listeners is None else self._other(listeners)

    def _suspect(self, broker_id: int) -> None:
        """Its address refuses connections: whoever follows it may have to lead."""
        for copy in self._copies():
            replica = copy.replica
            if replica.state is None or replica.state.leader != broker_id:
                continue
            # Who waits for its turn is looked at anyway; there may be thousands.
            if not (replica.is_changing or replica.is_candidate):
                copy.turn()

    def _refused(self, broker_id: int, why: str) -> None:
        self._lines.error(
            "refused",
            "broker {leader} refuses to be copied from, and is asked again: {why}",
            leader=broker_id,
            why=why,
        )

    # -- whether they copy from this one ----------------------------------------------------------

    def watch(self) -> None:
        """Find out whether those that should follow and don't are gone: then nobody waits for them.

        A process that was killed refuses connections; one that doesn't answer may come back.
        """
        self._timers.once(_WATCH_SECONDS, self._look)

    def _look(self) -> None:
        self.watch()
        if not self._is_in_sync_known:
            self._is_in_sync_known = True
            led = (copy.replica.leading for copy in self._copies())
            members = (leading.largest_isr for leading in led if leading is not None)
            self._in_sync = frozenset().union(*members) - {self._broker_id}
        for broker_id in self._in_sync - self._followers() - self._probing:
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
            self.refusals.refused(broker_id, self._timers.now())
            for copy in list(self._copies()):
                leading = copy.replica.leading
                if leading is None or copy.replica.is_changing:
                    continue
                # There may be thousands: only those are looked at whose follower is gone by that.
                is_gone = self.refusals.is_gone(broker_id, leading.heard_at(broker_id))
                if is_gone and broker_id in leading.largest_isr:
                    copy.turn()

    def stop(self) -> "list[Deferred[Any]]":
        """End all connections to them; each fires when one is closed."""
        ends = [link.stop() for link in self._links.values()]
        return [each for each in ends if each is not None]
