"""kazoo's connection, bounded in time and memory whatever a server answers.

kazoo takes a server at its word: it allocates any length, waits for as long as it says, ends
its thread for good at a response that it can't read, and drops a silent server only when nothing is
asked of it. What is overridden here is internal to kazoo, so `tests/integration/groups` tries each
of it against servers that misbehave.
"""

import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.connection import ConnectionHandler, RWServerAvailable

from hermes.backoff import growing_pause
from hermes.coordination.kazoo_security import (
    TlsRefusedError,
    connect_by_tls,
    masked,
    socket_reason,
)
from hermes.coordination.wrong_ports import what_answers
from hermes.protocol.protocol_detection import Spoken, not_coordination
from hermes.security import PLAIN, ClientSecurity

# Far above ZooKeeper's own limit of a megabyte, which lists of many children may pass.
_MOST_ANSWERED_BYTES: Final = 16 * 1024 * 1024
# ZooKeeper's default is to grant 40 s at most.
_LONGEST_SESSION_MS: Final = 60_000
_SHORTEST_SESSION_MS: Final = 100

# A connection that lasted for less was in vain; a few of them are any server's restart.
_LONG_LIVED_SECONDS: Final = 10.0
_FREE_RECONNECTS: Final = 3
_FIRST_REST_SECONDS: Final = 0.1
_LONGEST_REST_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 1.0

#: kazoo waits several times for each response, with a new selector each time: one of epoll's takes
#: four system calls more.
_POLLING: Final = SimpleNamespace(
    EVENT_READ=selectors.EVENT_READ,
    EVENT_WRITE=selectors.EVENT_WRITE,
    DefaultSelector=selectors.PollSelector,
)

_EXPECTED: Final = (
    ConnectionDropped,
    KazooTimeoutError,
    SessionExpiredError,
    AuthFailedError,
    RWServerAvailable,
)


class BoundedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Threads as kazoo's own handler has them; an attempt to connect ends after its time."""

    def __init__(self, connect_seconds: float, security: ClientSecurity = PLAIN) -> None:
        super().__init__()
        self._connect_seconds = connect_seconds
        self._security = security

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **options: Any
    ) -> socket.socket:
        asked = options.get("timeout") or self._connect_seconds
        seconds = min(asked, self._connect_seconds)
        if self._security.uses_tls:
            return connect_by_tls(address, hostname or address[0], seconds, self._security)
        made: socket.socket = super().create_connection(address, timeout=seconds)
        return made

    def select(self, readers: Any, writers: Any, others: Any, timeout: Any = None) -> Any:
        """As kazoo's, which doesn't know of what TLS has read ahead, where a response may wait."""
        ahead = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not ahead:
            return selector_select(readers, writers, others, timeout, _POLLING)
        ready, writable, odd = selector_select(readers, writers, others, 0, _POLLING)
        return [*ready, *(each for each in ahead if each not in ready)], writable, odd


class BoundedConnection(ConnectionHandler):  # type: ignore[misc]
    """A connection that is given up, and made again, when a server doesn't keep to the protocol.

    Args:
        connect_seconds: how long a server may take to answer when it is connected to.
        on_granted: called with the session's timeout in seconds, whenever a server grants one.
        on_refused: called when a server refuses the user; it isn't tried again.
        on_distrust: called with the reason when TLS can't be agreed upon; it is tried again.
        security: what the handler connects by.
    """

    def __init__(
        self,
        client: KazooClient,
        connect_seconds: float,
        on_granted: Callable[[float], None],
        *,
        on_refused: Callable[[], None] = lambda: None,
        on_distrust: Callable[[str], None] = lambda reason: None,
        security: ClientSecurity = PLAIN,
    ) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self._connect_seconds = connect_seconds
        self._on_granted = on_granted
        self._on_refused = on_refused
        self._on_distrust = on_distrust
        self._security = security
        self._was_granted = self._was_asked = False
        self._is_abandoned = False
        self._over = threading.Event()
        self._established: float | None = None
        self._short_lived = 0

    def drop(self) -> None:
        """Give the current connection up, from any thread; another is made unless it is over."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):  # it has gone already
                # Not TLS's own: that would let the other thread go on in clear.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def hurry(self) -> None:
        self._over.set()

    def abandon(self) -> None:
        """Give it up for good, from any thread: a client that stops waits for nothing any more."""
        self._is_abandoned = True
        self._over.set()
        self.drop()

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= _MOST_ANSWERED_BYTES:
            known = not_coordination(length.to_bytes(4, "big", signed=True))
            raise ConnectionDropped(known or f"a response of {length} bytes")
        body: bytes = super()._read(length, timeout)
        return body

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        if self._is_abandoned:  # while it was connecting
            raise ConnectionDropped("it is over")
        return super()._invoke(min(timeout, self._connect_seconds), request, xid)

    def _connect(self, *args: Any) -> tuple[float, float]:
        self._rest()
        if self._is_abandoned:
            raise ConnectionDropped("it is over")
        try:
            read_ms, connect_ms = _understood(super()._connect, *args)
        except AuthFailedError:
            if not self._was_granted:
                self._on_refused()
                raise
            # It has let us in before. Perhaps it will again: its users may have been restored.
            self._short_lived = max(self._short_lived, _FREE_RECONNECTS)
            self._established = time.monotonic()
            raise ConnectionDropped(f"it refuses {self._security.whom}") from None
        except ConnectionDropped as error:
            if self._was_granted or self._security.uses_tls or self._socket is None:
                raise
            known = self._who_answers(args, str(error))
            if known is not None:
                self._on_distrust(known)
                raise ConnectionDropped(known) from error
            text = f"{error}, before it answered: perhaps the port is for TLS (tls_ca)"
            raise ConnectionDropped(text) from error
        self._established = time.monotonic()
        self._was_granted = True
        # kazoo waits for two thirds of the session's timeout.
        granted = min(max(read_ms * 3 / 2, _SHORTEST_SESSION_MS), _LONGEST_SESSION_MS)
        self._on_granted(granted / 1000)
        return granted * 2 / 3, min(connect_ms, granted)

    def _who_answers(self, place: Sequence[Any], said: str) -> str | None:
        """What a server is that hung up instead of answering; of the first one only."""
        if any(said == not_coordination(each) for each in (Spoken.HTTP, Spoken.KAFKA)):
            return said
        if self._was_asked or said == not_coordination(Spoken.TLS):
            return None
        self._was_asked = True
        _, host, port = place
        return what_answers((host, port), min(self._connect_seconds, _PROBE_SECONDS))

    def _rest(self) -> None:
        """Wait before connecting again, when the last connections were established in vain."""
        # kazoo's own pauses are for attempts that fail; a server that is reached and then answers
        # nonsense would be asked as fast as it can be connected to.
        established, self._established = self._established, None
        if established is None:
            return
        lasted = time.monotonic() - established
        self._short_lived = 0 if lasted > _LONG_LIVED_SECONDS else self._short_lived + 1
        if self._short_lived > _FREE_RECONNECTS:
            count = self._short_lived - _FREE_RECONNECTS - 1
            self._over.wait(growing_pause(_FIRST_REST_SECONDS, count, _LONGEST_REST_SECONDS))

    def _read_socket(self, read_timeout: float) -> Any:
        return _understood(super()._read_socket, read_timeout)

    @contextmanager
    def _socket_error_handling(self) -> Iterator[None]:
        """As kazoo's, but says more about TLS."""
        try:
            yield
        except OSError as error:
            if isinstance(error, TlsRefusedError):
                self._on_distrust(str(error))
            reason = socket_reason(error, self._security)
            raise ConnectionDropped(f"socket connection error: {reason}") from error


def _understood(read: Callable[..., Any], *args: Any) -> Any:
    """Call what reads a response; any failure ends the connection, not the thread."""
    try:
        return read(*args)
    except _EXPECTED:
        raise
    except Exception as error:
        raise ConnectionDropped(f"a response that can't be understood: {error!r:.100}") from error


class QuietLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Takes kazoo's lines for debugging only: `Session` says what matters, once.

    `reason`: why the last connection ended, as kazoo put it.
    """

    reason = ""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if "passwd" in str(msg):
            return  # a session's password, which is as good as its user's
        args = tuple(map(masked, args))
        if level >= logging.WARNING:
            text = str(msg) % args if args else str(msg)
            if not text.startswith("Transition"):
                self.reason = text
        super().log(min(level, logging.DEBUG), msg, *args, **options)

    def warn(self, msg: object, *args: object, **options: Any) -> None:
        """The old name of `warning`, which kazoo uses in places."""
        self.log(logging.WARNING, msg, *args, **options)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs
