"""Opens a site's ports, and closes them with all their connections."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from hermes.listening import Address, Listener
from hermes.web.gates import WebGate
from hermes.web.guards import WebGuard
from hermes.web.hosts import AcceptedHosts
from hermes.web.site import Root, Site

#: How long a stop lets responses under way leave.
_LEAVE_SECONDS = 1.0


class WebServer:
    """Serves a tree of resources. Lives in the reactor's thread.

    Args:
        hosts: the names that requests may be addressed to, beside those of the loopback interface.
        guard: users and rules; none unless given.

    Attributes:
        root: what is served; complete it before the reactor runs.
        gates: one for each of `addresses`.
        on_stop: called by `stop`, the last one first, when no request comes any more; what they
            return is waited for.
    """

    def __init__(
        self, reactor: Any, hosts: Iterable[str] = (), guard: WebGuard | None = None
    ) -> None:
        self._reactor = reactor
        self.guard = guard or WebGuard()
        self.root = Root()
        self.addresses: list[Address] = []
        self.on_stop: list[Callable[[], Any]] = []
        self.hosts = AcceptedHosts(hosts)
        self.gates: list[WebGate] = []
        self._sites: list[Site] = []
        self._ports: list[Any] = []

    def open(self, listeners: Sequence[Listener]) -> None:
        """Several calls add up. HermesError: a port can't be opened; those before it are open."""
        for listener in listeners:
            gate = self.guard.gate(listener)
            self.addresses.append(self.open_own(listener, gate))
            self.gates.append(gate)

    def open_own(self, listener: Listener, gate: WebGate) -> Any:
        """Listen for this process itself, on a port that isn't in `addresses`; returns its address.

        Raises HermesError: it can't be opened.
        """
        site = Site(self.root, self.hosts, self._reactor, gate)
        opened = listener.open(site)
        self._sites.append(site)
        self._ports.append(opened.port)
        return opened.address

    @property
    def connections(self) -> int:
        return len(self._channels())

    def _channels(self) -> list[Any]:
        return [channel for site in self._sites for channel in site.channels]

    @inlineCallbacks
    def stop(self) -> "Any":
        for port in self._ports:
            yield port.stopListening()
        self._ports.clear()
        yield self._close_connections()
        for call in reversed(self.on_stop):  # what was mounted may need what it was made with
            yield call()

    def _close_connections(self) -> "Deferred[None]":
        closed = Deferred[None]()

        def abort() -> None:
            for channel in self._channels():
                channel.transport.abortConnection()

        patience = self._reactor.callLater(_LEAVE_SECONDS, abort)

        def look() -> None:
            if not (self._channels() or closed.called):
                if patience.active():
                    patience.cancel()
                closed.callback(None)

        for site in self._sites:
            site.on_closed = look
        for channel in self._channels():
            channel.loseConnection()
        look()
        return closed
