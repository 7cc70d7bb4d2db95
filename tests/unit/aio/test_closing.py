"""A connection that is closed while it is being made: the call under way fails, nothing is left."""

import asyncio

import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.testing import MemoryReactorClock, StringTransport

from hermes.aio.asyncio_connection import AsyncioConnection, _AsyncioAnswers
from hermes.aio.simple_consumer import ConsumerOptions
from hermes.aio.twisted import _TwistedAnswers, _TwistedConnection
from hermes.errors import BrokerUnavailableError, ClientError


class _LateConnection(AsyncioConnection):
    """Says when it is about to connect, and goes on when it is told to."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, 60.0, 60.0, 1000)
        self.connecting, self.may_connect = asyncio.Event(), asyncio.Event()
        self.made: list[_AsyncioAnswers] = []

    async def _connect(self) -> _AsyncioAnswers:
        self.connecting.set()
        await self.may_connect.wait()
        self.made.append(await super()._connect())
        return self.made[0]


def test_with_asyncio() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            connection = _LateConnection(*server.sockets[0].getsockname())
            call = asyncio.ensure_future(connection.call(b"a request", 60.0))
            await connection.connecting.wait()
            await connection.close()
            connection.may_connect.set()
            with pytest.raises(ClientError, match="was closed"):
                await call
            (made,) = connection.made
            await made.closed

    asyncio.run(run())


class _LateTwistedConnection(_TwistedConnection):
    def __init__(self) -> None:
        super().__init__(MemoryReactorClock(), "localhost", 9092, ConsumerOptions())
        self.made: Deferred[_TwistedAnswers] = Deferred()

    async def _connect(self) -> _TwistedAnswers:
        return await self.made


def test_with_twisted() -> None:
    connection = _LateTwistedConnection()
    call = ensureDeferred(connection.call(b"a request", 60.0))
    failures: list[object] = []
    call.addErrback(lambda failure: failures.append(failure.value))
    ensureDeferred(connection.close())
    answers, transport = _TwistedAnswers("localhost:9092", 1000), StringTransport()
    answers.transport = transport
    connection.made.callback(answers)
    (error,) = failures
    assert isinstance(error, ClientError)
    assert "was closed" in str(error)
    assert (transport.value(), transport.disconnecting) == (b"", True)


def test_a_close_that_is_cancelled_still_ends_calls_under_way() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        faults: list[object] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            connection = _LateConnection(*server.sockets[0].getsockname())
            connection.may_connect.set()
            call = asyncio.ensure_future(connection.call(b"a request", 60.0))
            while not connection.made:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(connection.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(BrokerUnavailableError, match="closed the connection"):
                await asyncio.wait_for(call, 10)
        assert not faults

    asyncio.run(run())
