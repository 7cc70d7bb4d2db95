"""The brokers of the cluster, for clients that have reached this one and no coordination.

What is registered is read at most once a second, whoever asks; while it can't be read, what was
read last is told. This broker itself is always told.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from hermes.announcement import Announcement
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.errors import CoordinationError
from hermes.logs import ModuleLogger
from hermes.protocol import ClusterBroker, encode_cluster_brokers_response
from hermes.server.outcomes import Outcome, cancellable, then

#: For how long what was read is told.
_FRESH_SECONDS = 1.0


class Neighbours:
    """Knows where the brokers of the cluster listen. Lives in the reactor's thread.

    Args:
        own: tells where this broker listens.
        read: reads where all registered brokers listen, by id; None where nothing is registered.
        seconds: the reactor's clock.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        broker_id: int,
        own: Callable[[], BrokerListeners],
        read: "Callable[[], Deferred[dict[int, BrokerListeners]]] | None",
        seconds: Callable[[], float],
    ) -> None:
        self._broker_id = broker_id
        self._own = own
        self._read = read
        self._seconds = seconds
        self._known: Mapping[int, BrokerListeners] = {}
        self._fresh_until = float("-inf")
        self._waiting = Announcement[None]()

    def tell(self, asked: ListenerNode) -> Outcome:
        """Answer a client that has reached a listener, whose host and port don't matter."""
        return cancellable(then(self._look(), lambda _: self._answer(asked)))

    def _answer(self, asked: ListenerNode) -> bytes:
        found = []
        for broker_id, listeners in sorted({**self._known, self._broker_id: self._own()}.items()):
            if (like := listeners.matching(asked)) is not None:
                found.append(ClusterBroker(broker_id, like.host, like.port))
        return encode_cluster_brokers_response(found)

    def _look(self) -> "Deferred[None] | None":
        if self._read is None or self._seconds() < self._fresh_until:
            return None
        waiter = self._waiting.wait()  # one each, as a client that goes cancels its own
        if len(self._waiting) == 1:
            self._read().addCallbacks(self._has_read, self._has_failed).addBoth(self._go_on)
        return waiter

    def _has_read(self, known: Mapping[int, BrokerListeners]) -> None:
        self._known = known

    def _has_failed(self, failure: Any) -> None:
        if failure.check(CoordinationError) is None:
            self._log.failure("reading where other brokers listen failed", failure)
        else:
            self._log.debug("other brokers are told as before: {error}", error=failure.value)

    def _go_on(self, _: Any) -> None:
        self._fresh_until = self._seconds() + _FRESH_SECONDS
        self._waiting.tell(None)
