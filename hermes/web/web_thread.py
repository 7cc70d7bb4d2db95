"""A web server in a thread of its own, for programs that have no reactor."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred

from hermes.config.listeners import ListenerConfig
from hermes.listening import Address, Listener
from hermes.reactors import make_reactor, release_reactor
from hermes.security import AccessRule
from hermes.web.guards import users_guard
from hermes.web.server import WebServer


class WebThread:
    """A `WebServer`, its reactor, and a thread that runs both.

    Args:
        setting: where the endpoints come from, for error messages.
        mount: adds the resources; called once the ports are open.
        users_file: the users of ports with `authentication: scram`.
        access: None where everybody may do everything.

    Attributes:
        addresses: what the ports are bound to, once it has started.

    Raises:
        ConfigError: one is not an endpoint.
    """

    def __init__(
        self,
        setting: str,
        listeners: Sequence[ListenerConfig],
        mount: Callable[[WebServer, Any], None],
        *,
        users_file: str | Path | None = None,
        access: Iterable[AccessRule] | None = None,
    ) -> None:
        self.addresses: list[Address] = []
        self._reactor = make_reactor()
        self._mount = mount
        self._users_file = users_file
        self._access = access
        self._listeners = [Listener(self._reactor, setting, each) for each in listeners]
        self._server: WebServer | None = None
        self._failure: Exception | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hermes-web", daemon=True)

    def start(self) -> None:
        """Open the ports.

        Raises HermesError if one can't be opened, or the users file be used; none is left open.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        if self._thread.is_alive():
            self._reactor.callFromThread(self._stop)
            self._thread.join()

    def _run(self) -> None:
        self._reactor.callWhenRunning(self._open)
        self._reactor.run(installSignalHandlers=False)
        release_reactor(self._reactor)

    def _open(self) -> None:
        try:
            guard, stop_guard = users_guard(self._reactor, self._users_file, self._access)
            self._server = WebServer(self._reactor, guard=guard)
            self._server.on_stop.append(stop_guard)
            self._server.open(self._listeners)
            self._mount(self._server, self._reactor)
            self.addresses = self._server.addresses
        except Exception as error:  # whatever it is: `start` waits
            self._failure = error
            self._stop()
        self._started.set()

    def _stop(self) -> None:
        server = self._server
        stopped = maybeDeferred(server.stop) if server is not None else maybeDeferred(int)
        stopped.addBoth(lambda _: self._reactor.stop())
