"""A connection that is lost while nothing waits for an answer: what is asked next fails at once."""

import asyncio
from unittest.mock import Mock

import pytest
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from hermes.aio.asyncio_connection import _AsyncioAnswers
from hermes.aio.twisted import _TwistedAnswers
from hermes.errors import BrokerUnavailableError
from hermes.security import PLAIN


def test_with_asyncio() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Closing, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            _, answers = await loop.create_connection(
                lambda: _AsyncioAnswers(host, port, 1000, PLAIN), host, port
            )
            await answers.closed
            with pytest.raises(BrokerUnavailableError, match=f"{host}:{port} closed"):
                answers.call(b"a request")

    asyncio.run(run())


class _Closing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def test_with_twisted() -> None:
    answers = _TwistedAnswers("there:9092", 1000)
    answers.transport = Mock()
    answers.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]
    with pytest.raises(BrokerUnavailableError, match="there:9092 closed"):
        answers.call(b"a request")


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0\2\0\0"])
def test_with_twisted_a_broker_that_says_what_nobody_asked_is_left(sent: bytes) -> None:
    """Else the next request would be answered with that."""
    answers = _TwistedAnswers("there:9092", 1000)
    answers.transport = Mock()
    answers.dataReceived(sent)
    assert not answers.is_open
    answers.transport.abortConnection.assert_called_once_with()
