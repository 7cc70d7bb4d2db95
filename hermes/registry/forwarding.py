"""Calls that only the leader may answer, forwarded to it over HTTP as they came."""

import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from hermes.errors import HermesError
from hermes.registry.errors import unavailable
from hermes.registry.rest_messages import (
    CONTENT_TYPE,
    FORWARDED_HEADER,
    RestRequest,
    RestResponse,
)
from hermes.security import PLAIN, ClientSecurity

_CONNECT_SECONDS: Final = 2.0
_MOST_ANSWER_BYTES: Final = 16 << 20


class Forwarder:
    """Forwards calls, each over a connection of its own. Threads may share it.

    Args:
        timeout_seconds: the longest that a wait for a response may take, above 0.
        security: how to connect to the leader; may block, and raise HermesError. The password is
            sent by TLS, or within this machine.

    Attributes:
        calls: how many were sent; `failures`: how many had no response.
    """

    def __init__(
        self,
        timeout_seconds: float,
        security: Callable[[], ClientSecurity] = lambda: PLAIN,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._security = security
        self._lock = threading.Lock()
        self._open: dict[HTTPConnection, str] = {}  # the address of each
        self._is_closed = False
        self.calls = self.failures = 0

    def send(self, url: str, request: RestRequest) -> RestResponse:
        """Forward a call to the leader at `url`. Blocks.

        Raises RegistryError: 50003, no response came, or none that can be understood; unless nobody
        listens there, nobody knows whether it was done.
        """
        place = urlsplit(url)
        try:
            connection, headers = self._prepare(place)
        except HermesError as error:
            raise unavailable(f"the leading registry can't be asked: {error}") from error
        self._begin(connection, url)
        try:
            target = f"{place.path.rstrip('/')}/{request.target}"
            return self._exchange(connection, url, target, request, headers)
        except Exception:
            with self._lock:
                self.failures += 1
            raise
        finally:
            with self._lock:
                self._open.pop(connection, None)
            connection.close()

    def abandon_others(self, url: str) -> None:
        """Wait no longer for responses from elsewhere: a leader that hangs has been replaced."""
        with self._lock:
            for connection, other in self._open.items():
                if other != url:
                    _end(connection)

    def close(self) -> None:
        """Fail calls under way, and those to come. Idempotent."""
        with self._lock:
            self._is_closed = True
            for connection in self._open:
                _end(connection)

    def _begin(self, connection: HTTPConnection, url: str) -> None:
        with self._lock:
            if self._is_closed:
                raise unavailable("the registry is being stopped")
            self._open[connection] = url
            self.calls += 1

    def _prepare(self, place: SplitResult) -> tuple[HTTPConnection, dict[str, str]]:
        """The connection to a leader, not opened yet, and the credentials for it (HermesError)."""
        security = self._security()
        host = place.hostname or ""
        headers = {}
        if security.user is not None and (place.scheme == "https" or _is_loopback(host)):
            both = f"{security.user}:{security.password}".encode()
            headers["Authorization"] = f"Basic {b64encode(both).decode()}"
        if place.scheme != "https":
            return HTTPConnection(host, place.port or 80, timeout=_CONNECT_SECONDS), headers
        context = security.ssl_context()
        connection = HTTPSConnection(
            host, place.port or 443, timeout=_CONNECT_SECONDS, context=context
        )
        return connection, headers

    def _exchange(
        self,
        connection: HTTPConnection,
        url: str,
        target: str,
        request: RestRequest,
        proof: dict[str, str],
    ) -> RestResponse:
        try:
            connection.connect()
            connection.sock.settimeout(self._timeout_seconds)
        except OSError as error:
            raise unavailable(
                f"the leading registry, at {url}, can't be reached ({error}): try again"
            ) from error
        headers = {FORWARDED_HEADER: "1", "Content-Type": CONTENT_TYPE, **proof}
        try:
            connection.request(request.method, target, request.body, headers)
            with connection.getresponse() as response:
                body = response.read(_MOST_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise unavailable(
                f"the leading registry, at {url}, has not answered ({error!r:.100}); whether this "
                "was done shows when you look, or ask for it again"
            ) from error
        if response.status in (401, 403):
            raise unavailable(
                f"the leading registry, at {url}, does not let this one in: its connect_as needs a "
                "user who may produce to hermes-schemas"
            )
        kind = response.getheader("Content-Type") or ""
        if len(body) > _MOST_ANSWER_BYTES or (body and "json" not in kind):
            raise unavailable(
                f"what is at {url} is no registry: it has answered with status {response.status}"
            )
        return RestResponse(response.status, body)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _end(connection: HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
