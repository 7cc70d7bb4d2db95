"""How simulated brokers reach each other: the product's own connections, over a simulated network.

Both ends are the product's, from its bytes on: `OtherBroker` and `OutgoingConnection` at the one
that asks, the frames' receiver and the dispatcher at the one that answers. What lies between them
carries bytes, in order, until it is lost.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from machines import Process
from network import Connection
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.python.failure import Failure

from hermes.kafka.connection import FrameReceiver
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.security import PLAIN
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.server.sends import FileSend

__all__ = ["bytes_of", "reaching"]

_LARGEST_BYTES = 1 << 20
_LIMITS = OutgoingLimits()


class _Transport:
    """What an `OutgoingConnection` writes to."""

    def __init__(self, connection: Connection, server: "_Server") -> None:
        self._connection = connection
        self._server = server

    def write(self, data: bytes) -> None:
        self._connection.to_server(self._server.received, bytes(data))

    def abortConnection(self) -> None:
        self._connection.lose()

    def setTcpNoDelay(self, _: bool) -> None:
        pass

    setTcpKeepAlive = setTcpNoDelay


class _Server:
    """The end of one connection at the broker that answers: each request in its turn."""

    def __init__(self, connection: Connection, broker: Any, protocol: OutgoingConnection) -> None:
        self._connection = connection
        self._broker = broker
        self._protocol = protocol
        self._receiver = FrameReceiver(_LARGEST_BYTES)
        self._client: Client | None = None
        self._waiting: deque[DeferredResponse] = deque()
        connection.on_lost_at_server = self._lost

    def received(self, data: bytes) -> None:
        if self._broker.dispatcher is None:
            self._connection.lose()
            return
        if self._client is None:
            (listener,) = self._broker.server.topics.listeners()
            self._client = Client(self._connection.client, listener)
        self._receiver.receive_data(data)
        while (frame := self._receiver.next_request()) is not None:
            try:
                outcome = self._broker.dispatcher.serve(frame, self._client)
            except CloseConnection:
                self._connection.lose()
                return
            if not isinstance(outcome, DeferredResponse):
                outcome = DeferredResponse.known(outcome)
            self._waiting.append(outcome)
            outcome.watch(self)

    def _lost(self) -> None:
        if self._client is not None:
            self._client.has_left = True
        for each in self._waiting:
            if each.cancellable:
                each.cancel()

    # -- as a watcher of responses ----------------------------------------------------------------

    def response_known(self, _: DeferredResponse) -> None:
        while self._waiting and self._waiting[0].is_known:
            response = self._waiting.popleft().response
            try:
                data = bytes_of(self._broker, response)
            except OSError:  # a disk doesn't give it back
                self._connection.lose()
                return
            self._connection.to_client(self._protocol.dataReceived, data)

    def response_failed(self, _: DeferredResponse, failure: Failure) -> None:
        self._connection.lose()

    def response_passed(self, _: DeferredResponse) -> None:
        pass

    request_released = response_passed


def bytes_of(broker: Any, response: Any) -> bytes:
    """All of a response, with what it sends from files."""
    if isinstance(response, bytes):
        return response
    assert isinstance(response, FileSend)
    files, parts = broker.files, []
    try:
        for part in response._parts:
            if isinstance(part, bytes):
                parts.append(part)
            else:
                parts.append(files.pread(part.fileno(), part.length, part.position))
    finally:
        response.release()
    return b"".join(parts)


def reaching(broker_on: Callable[[int], Any]) -> Any:
    """What is to be `OtherBroker._reach`; `broker_on` finds a simulated broker by its port."""

    async def reach(self: Any) -> OutgoingConnection:
        process: Process = self._reactor.process
        host, port = self._place
        target = broker_on(port)
        seconds = target.network.delay_us() / 1e6
        arrived: Deferred[None] = Deferred(lambda _: timer.cancel())
        timer = self._reactor.callLater(seconds, arrived.callback, None)
        await arrived
        is_cut = target.network.is_cut(process.machine, target.machine)
        is_cut |= target.network.is_cut(target.machine, process.machine)
        if is_cut:
            await Deferred()  # until whoever asks gives it up
        if not target.is_serving or target.dispatcher is None:
            raise ConnectionRefusedError
        protocol = OutgoingConnection(host, port, PLAIN, self._reactor, _LIMITS)

        def lost() -> None:
            protocol.connectionLost(Failure(ConnectionLost()))

        connection = target.network.connect(process, target.machine, lost)
        assert connection is not None
        server = _Server(connection, target, protocol)
        protocol.makeConnection(_Transport(connection, server))
        return protocol

    return reach
