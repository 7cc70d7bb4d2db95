"""One connection to one broker, for asyncio."""

import asyncio
import select
import struct
from typing import Any, Final

from hermes.aio.channel import prove_identity
from hermes.client.arguments import broker_address
from hermes.errors import (
    BrokerNotReachedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    RemoteProtocolError,
)
from hermes.forks import FORKED, watch_forks
from hermes.protocol.framing import refused_size
from hermes.security import PLAIN, ClientSecurity
from hermes.security.tls_failures import tls_failure, tls_refusal

_SIZE: Final = struct.Struct(">i")
# An answer's size prefix is only a claim: memory is taken as its bytes arrive, from this size on.
_FIRST_READ_BYTES: Final = 1024 * 1024
# Memory up to this size is kept for the next answer: clearing new one costs more than filling it.
_KEPT_BYTES: Final = 4 * 1024 * 1024


class _AsyncioAnswers(asyncio.BufferedProtocol):
    """One connection: answers in request order, one request at a time."""

    def __init__(
        self, host: str, port: int, max_response_bytes: int, security: ClientSecurity
    ) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host = host
        self._port = port
        self._security = security
        self._max_response_bytes = max_response_bytes
        self._waiting: asyncio.Future[memoryview] | None = None
        self._body = self._buffer = bytearray()
        self._has_size, self._received, self._wanted = False, 0, 0
        self.is_open = True
        self._poll = select.poll()
        self._await_size()

    @property
    def is_idle(self) -> bool:
        """Whether no unsolicited bytes have arrived."""
        return self.is_open and not self._poll.poll(0)

    def call(self, request: bytes) -> "asyncio.Future[memoryview]":
        """The future has the answer's body, until the next call. Raises where none can come."""
        if not self.is_open:
            raise BrokerUnavailableError(f"{self._host}:{self._port} closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def drop(self) -> None:
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        received = self._received
        if received == len(self._buffer):
            more = bytes(min(self._wanted - received, max(received, _FIRST_READ_BYTES)))
            try:
                self._buffer.extend(more)
            except BufferError:  # a kept error's traceback still has a view of it
                self._buffer = self._buffer + more
        return memoryview(self._buffer)[received : self._wanted]

    def buffer_updated(self, nbytes: int) -> None:
        if self._waiting is None:
            self.drop()  # unsolicited bytes: whatever follows can't be trusted
            return
        self._received += nbytes
        if self._received < self._wanted:
            return
        if not self._has_size:
            self._await_body(*_SIZE.unpack(self._buffer))
        if self._has_size and self._received == self._wanted:
            body, size = self._buffer, self._wanted
            self._body = body if len(body) <= _KEPT_BYTES else bytearray()
            self._await_size()
            self._answer(memoryview(body)[:size])

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self.closed.set_result(None)
        address = f"{self._host}:{self._port}"
        if exc is None:
            text = f"{address} closed the connection before it had answered"
            self._fail(BrokerUnavailableError(text))
            return
        # With TLS 1.3, what a broker makes of our certificate comes after its handshake.
        refusal = tls_refusal(exc, self._host, self._port, self._security)
        self._fail(refusal or BrokerUnavailableError(f"{address}: the connection broke: {exc}"))

    def _await_size(self) -> None:
        self._has_size, self._buffer, self._received, self._wanted = False, bytearray(4), 0, 4

    def _await_body(self, size: int) -> None:
        if not 0 <= size <= self._max_response_bytes:
            address = f"{self._host}:{self._port}"
            self._fail(refused_size(address, size, self._max_response_bytes))
            self.drop()
            return
        self._has_size, self._received, self._wanted = True, 0, size
        self._buffer = self._body

    def _answer(self, body: memoryview) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(body)

    def _fail(self, error: ClientError | RemoteProtocolError) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)


class AsyncioConnection:
    """A lazily made, self-repairing connection; see `hermes.client.BrokerConnection`."""

    def __init__(
        self,
        host: str,
        port: int | None,
        timeout_seconds: float,
        connect_timeout_seconds: float,
        max_response_bytes: int,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._host, self._port = broker_address(host, port)
        self.timeout_seconds = timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._max_response_bytes = max_response_bytes
        self.security = security
        self._turn = asyncio.Lock()
        self._answers: _AsyncioAnswers | None = None
        self._closed = self._is_forked = False
        watch_forks(self)

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    async def call(self, request: bytes, timeout_seconds: float) -> memoryview:
        """Cancelling it costs the connection, nothing else."""
        if self._is_forked:
            raise ClientError(f"this connection to {self.address} {FORKED}")
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                try:
                    return await self._exchange(request)
                except BaseException:
                    self.disconnect()
                    raise
        except TimeoutError as error:
            raise BrokerTimeoutError(
                f"{self.address} did not answer within {timeout_seconds:g} s; "
                "the request may or may not have been carried out"
            ) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def disconnect(self) -> None:
        answers, self._answers = self._answers, None
        # In a forked process the event loop shares the parent's selector: nothing may be removed.
        if answers is not None and not self._is_forked:
            answers.drop()

    async def close(self) -> None:
        """Calls under way fail."""
        self._closed = True
        answers = self._answers
        self.disconnect()
        if answers is not None and not self._is_forked:
            await asyncio.shield(answers.closed)

    def forked(self) -> None:
        self._is_forked = True

    async def _exchange(self, request: bytes) -> memoryview:
        if self._answers is not None and not self._answers.is_idle:
            self.disconnect()
        if self._answers is None and not self._closed:
            self._answers = await self._connect()
        if self._answers is None or self._closed:  # perhaps while it was connecting
            raise ClientError(f"the connection to {self.address} was closed")
        return await self._answers.call(request)

    async def _connect(self) -> _AsyncioAnswers:
        security, seconds = self.security, self._connect_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                _, answers = await asyncio.get_running_loop().create_connection(
                    self._make_answers, self._host, self._port, **self._tls_options()
                )
                if security.user is not None:
                    await self._authenticate(answers)
        except TimeoutError as error:
            done = "a connection" if security.is_plain else "a connection with TLS and a user"
            raise BrokerNotReachedError(
                f"{self.address} did not accept {done} within {seconds:g} s"
            ) from error
        except (OSError, UnicodeError, ValueError) as error:
            if security.uses_tls and not isinstance(error, ConnectionRefusedError):
                raise tls_failure(error, self._host, self._port, security) from error
            raise BrokerNotReachedError(
                f"no connection to {self.address}: {error}; is the broker running there?"
            ) from error
        return answers

    def _make_answers(self) -> _AsyncioAnswers:
        return _AsyncioAnswers(self._host, self._port, self._max_response_bytes, self.security)

    def _tls_options(self) -> dict[str, Any]:
        if not self.security.uses_tls:
            return {}
        context = self.security.ssl_context()
        return {
            "ssl": context,
            "server_hostname": self._host,
            "ssl_handshake_timeout": self._connect_timeout_seconds,
        }

    async def _authenticate(self, answers: _AsyncioAnswers) -> None:
        try:
            await prove_identity(answers, self.security, self.address, asyncio.to_thread)
        except BaseException:
            answers.drop()
            raise
