"""One request to a registry and its response over HTTP, retried where that can help.

Every request of a registry's interface may be sent twice: registering a schema that is registered
gives the same id. So a request whose outcome is unknown is sent again, to the same or another
address. Connections are kept open between requests, and shared by the threads of a client.
"""

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hermes.backoff import growing_pause
from hermes.errors import (
    IncompatibleSchemaError,
    RegistryUnavailableError,
    SchemaRegistryError,
    UnknownSchemaError,
)
from hermes.quoting import printable
from hermes.schemas.addresses import Address
from hermes.security import PLAIN, ClientSecurity

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0
_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_MAX_MESSAGE: Final = 1_000
_IDLE_CONNECTIONS: Final = 8
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

# Too many requests, and what gateways and registries answer while they can't do better.
_RETRIED: Final = (408, 429, 500, 502, 503, 504)


class _Response(NamedTuple):
    status: int
    body: bytes


class Exchanges:
    """Sends requests to a registry. Any number of threads may use it.

    Args:
        addresses: where it listens; the first that responds is tried first from then on.
        timeout_seconds: how long one address may take to accept a connection, and for each step
            of its response.
        retry_seconds: how long a request is retried while no address responds; 0 to try each
            once, None to retry without limit.
        waiting: called with the reason when a request is first retried.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        timeout_seconds: float,
        retry_seconds: float | None,
        waiting: Callable[[str], None] = lambda reason: None,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self.addresses = tuple(addresses)
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._waiting = waiting
        self._security = security
        self._first = 0
        self._lock = threading.Lock()
        self._idle: dict[Address, list[http.client.HTTPConnection]] = {}
        self._process = os.getpid()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request until an address responds.

        Args:
            method: GET, POST, PUT or DELETE.
            path: with its query, quoted; begins with "/".
            body: for JSON; None for none.

        Returns:
            The JSON of the response.

        Raises:
            SchemaRegistryError: the registry refused it, or there is none at the address.
            RegistryUnavailableError: none responded.
        """
        began = time.monotonic()
        pauses = 0
        while True:
            try:
                return self._request_in_turn(method, path, body)
            except RegistryUnavailableError as error:
                left = None
                if self._retry_seconds is not None:
                    left = began + self._retry_seconds - time.monotonic()
                    if left <= 0:
                        raise
                if not pauses:
                    self._waiting(str(error))
            pause = growing_pause(_FIRST_PAUSE_SECONDS, pauses, _LONGEST_PAUSE_SECONDS)
            pauses += 1
            time.sleep(pause if left is None else min(pause, left))

    def get_from_any(self, path: str) -> Any:
        """Get something that one address may have before others, such as a new schema.

        Raises:
            UnknownSchemaError: no address that responds has it.
            HermesError: as `request`.
        """
        try:
            return self.request("GET", path)
        except UnknownSchemaError:
            for address in self._in_order()[1:]:
                try:
                    return self._request_from(address, "GET", path, None)
                except (UnknownSchemaError, RegistryUnavailableError):
                    continue
            raise

    def close(self) -> None:
        """Close the connections. Idempotent; later requests open new ones."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def __del__(self) -> None:
        # What holds a client, an encoder say, has nothing to be closed by. No lock: in a forked
        # process it may be held for ever.
        for connections in getattr(self, "_idle", {}).values():
            for connection in connections:
                connection.close()

    # -- addresses ------------------------------------------------------------------------------

    def _in_order(self) -> list[Address]:
        first = self._first
        return [*self.addresses[first:], *self.addresses[:first]]

    def _request_in_turn(self, method: str, path: str, body: object) -> Any:
        reasons = []
        for address in self._in_order():
            try:
                response = self._request_from(address, method, path, body)
            except RegistryUnavailableError as error:
                reasons.append(str(error))
            else:
                self._first = self.addresses.index(address)
                return response
        raise RegistryUnavailableError("; ".join(reasons))

    def _request_from(self, address: Address, method: str, path: str, body: object) -> Any:
        response = self._exchange(address, method, path, body)
        if response.status in _RETRIED:
            _, text = _error_of(response)
            raise RegistryUnavailableError(f"schema registry {address}: {response.status}: {text}")
        if response.status == 200:
            try:
                return json.loads(response.body)
            except (ValueError, RecursionError):
                raise _no_registry(address, response, "a body that isn't JSON") from None
        raise _refusal(address, response)

    # -- connections ----------------------------------------------------------------------------

    def _exchange(self, address: Address, method: str, path: str, body: object) -> _Response:
        connection = self._take_idle(address)
        if connection is not None:
            try:
                return self._once(connection, address, method, path, body)
            except (OSError, http.client.HTTPException):
                connection.close()  # closed by the other side since; that says nothing
        connection = self._connection(address)
        try:
            return self._once(connection, address, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if address.is_secure and _is_distrust(error):
                raise SchemaRegistryError(
                    f"schema registry {address} is not trusted: {error} (is tls_ca right, and the "
                    "host's name?)"
                ) from error
            raise RegistryUnavailableError(
                f"schema registry {address}: {printable(_reason(error), _MAX_MESSAGE)}"
            ) from error
        except BaseException:
            connection.close()
            raise

    def _once(
        self,
        connection: http.client.HTTPConnection,
        address: Address,
        method: str,
        path: str,
        body: object,
    ) -> _Response:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if address.authorization:
            headers["Authorization"] = address.authorization
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = _CONTENT_TYPE
        connection.request(method, address.path + path, data, headers)
        response = connection.getresponse()
        content = response.read(_MAX_BODY_BYTES + 1)
        if len(content) > _MAX_BODY_BYTES:
            raise http.client.HTTPException(f"a response of more than {_MAX_BODY_BYTES} bytes")
        self._give_back(address, connection)
        return _Response(response.status, content)

    def _connection(self, address: Address) -> http.client.HTTPConnection:
        if not address.is_secure:
            return http.client.HTTPConnection(
                address.host, address.port, timeout=self._timeout_seconds
            )
        return http.client.HTTPSConnection(
            address.host,
            address.port,
            timeout=self._timeout_seconds,
            context=self._security.ssl_context(),
        )

    def _take_idle(self, address: Address) -> http.client.HTTPConnection | None:
        if self._process != os.getpid():
            # Forked: the connections are the parent's, and its threads may have held the lock.
            self._process, self._lock, self._idle = os.getpid(), threading.Lock(), {}
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None

    def _give_back(self, address: Address, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None:  # the response said that it would be closed
            return
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < _IDLE_CONNECTIONS:
                idle.append(connection)
                return
        connection.close()


def _is_distrust(error: Exception) -> bool:
    """Whether a certificate was the reason: another attempt would end the same way."""
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.HTTPException):
        said = f"{type(error).__name__}: {error}"
        return (
            f"what answers doesn't speak HTTP (is it the port of http_listen?), or stopped: {said}"
        )
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _error_of(response: _Response) -> tuple[int, str]:
    """The code and the text of a refusal; code 0 if it isn't a registry's."""
    try:
        value = json.loads(response.body)
        code, text = value["error_code"], value.get("message", "")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return 0, http.client.responses.get(response.status, "an unknown status")
    return (code if type(code) is int else 0), printable(str(text), _MAX_MESSAGE)


def _refusal(address: Address, response: _Response) -> SchemaRegistryError:
    code, text = _error_of(response)
    if response.status in (401, 403):
        return SchemaRegistryError(
            f"schema registry {address}: {response.status}: {text} ({_advice(address)})",
            status=response.status,
            code=code,
        )
    if not code:
        return _no_registry(address, response, f"{response.status} {text}")
    kinds = {404: UnknownSchemaError, 409: IncompatibleSchemaError}
    kind = kinds.get(response.status, SchemaRegistryError)
    return kind(f"schema registry {address}: {text}", status=response.status, code=code)


def _advice(address: Address) -> str:
    if address.authorization:
        return (
            "is the user the right one, and the password? They are settings, or stand in the URL, "
            "or in HERMES_REGISTRY_CREDENTIALS"
        )
    return (
        "give a user and a password, which are sent by https or on this machine; those of "
        "HERMES_REGISTRY_CREDENTIALS, or of the URL, are sent in any case"
    )


def _no_registry(address: Address, response: _Response, what: str) -> SchemaRegistryError:
    return SchemaRegistryError(
        f"there is no schema registry at {address}: it answered {what}", status=response.status
    )
