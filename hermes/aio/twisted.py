"""The client library for Twisted: the twins of `hermes.aio` on a reactor, without asyncio.

    async def main(reactor):
        async with SimpleConsumer(reactor, "localhost", 9092) as consumer:
            async for message, next_offset in consumer.follow("clicks", 0, offset=0):
                print(message.payload)

    task.react(lambda reactor: ensureDeferred(main(reactor)))

Methods are coroutines: await them in coroutines, or wrap them with `ensureDeferred`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from twisted.internet import defer, error, protocol
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from hermes.aio.event_loops import EventLoop, Signal
from hermes.aio.groups import AsyncRebalanceListener, BaseConnector
from hermes.aio.producer import BaseAsyncProducer
from hermes.aio.simple_consumer import BaseConsumer, ConsumerOptions
from hermes.client.arguments import check_address
from hermes.client.batching import Outcome
from hermes.client.groups.config import ConsumerConfig
from hermes.client.producer_config import ProducerConfig
from hermes.client.sync_producer import SendResult
from hermes.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    RemoteProtocolError,
)
from hermes.forks import FORKED, watch_forks
from hermes.protocol import Buffer, ResponseReceiver

__all__ = ["Connector", "Consumer", "Producer", "SimpleConsumer"]

R = TypeVar("R")

_TASK: ContextVar[object] = ContextVar("hermes task", default=None)


class _Answers(protocol.Protocol):
    """One connection: answers in request order, one request at a time."""

    transport: Any  # TCP's, which has more than ITransport promises

    def __init__(self, address: str, max_response_bytes: int) -> None:
        self.is_open = True
        self._address = address
        self._receiver = ResponseReceiver(max_response_bytes)
        self._waiting: Deferred[Buffer] | None = None

    def call(self, request: bytes) -> "Deferred[Buffer]":
        """Send a request; the Deferred fires with the answer's body."""
        self._waiting = Deferred()
        self.transport.write(request)
        return self._waiting

    def drop(self) -> None:
        """Give the connection up."""
        self.is_open = False
        self.transport.abortConnection()

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        try:
            self._receiver.receive_data(data)
            body = self._receiver.next_response()
        except RemoteProtocolError as fault:
            self._fire(Failure(fault))  # type: ignore[no-untyped-call]
            self.drop()
            return
        if body is None:
            return
        if self._waiting is None or self._receiver.buffered_bytes:
            self.drop()  # unsolicited bytes: whatever follows can't be trusted
        self._fire(body)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self.is_open = False
        text = f"{self._address} closed the connection before it had answered"
        self._fire(Failure(BrokerUnavailableError(text)))  # type: ignore[no-untyped-call]

    def _fire(self, outcome: Any) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(outcome)


class _TwistedConnection:
    """See `hermes.aio.channel.AsyncConnection`."""

    def __init__(self, reactor: Any, host: str, port: int, options: ConsumerOptions) -> None:
        check_address(host, port)
        self.timeout_seconds = options.timeout_seconds
        self._reactor = reactor
        self._address = f"{host}:{port}"
        self._max_response_bytes = options.max_response_bytes
        self._endpoint = HostnameEndpoint(reactor, host, port, options.connect_timeout_seconds)
        self._turn = DeferredLock()
        self._answers: _Answers | None = None
        self._closed = self._is_forked = False
        watch_forks(self)

    @property
    def address(self) -> str:
        return self._address

    async def call(self, request: bytes, timeout_seconds: float) -> Buffer:
        if self._is_forked:
            raise ClientError(f"this connection to {self.address} {FORKED}")
        exchanged: Deferred[Buffer] = Deferred.fromCoroutine(self._exchange(request))
        exchanged.addTimeout(timeout_seconds, self._reactor)
        try:
            return await exchanged
        except (defer.TimeoutError, error.TimeoutError) as fault:
            raise BrokerTimeoutError(
                f"{self.address} did not answer within {timeout_seconds:g} s; "
                "the request may or may not have been carried out"
            ) from fault

    async def sleep(self, seconds: float) -> None:
        await deferLater(self._reactor, seconds)

    def disconnect(self) -> None:
        answers, self._answers = self._answers, None
        # In a forked process the reactor shares the parent's selector: nothing may be removed.
        if answers is not None and answers.is_open and not self._is_forked:
            answers.drop()

    def forked(self) -> None:
        self._is_forked = True

    async def close(self) -> None:
        self._closed = True
        self.disconnect()

    async def _exchange(self, request: bytes) -> Buffer:
        await self._turn.acquire()
        try:
            if self._closed:
                raise ClientError(f"the connection to {self.address} was closed")
            if self._answers is None or not self._answers.is_open:
                self._answers = await self._connect()
            return await self._answers.call(request)
        except BaseException:
            self.disconnect()
            raise
        finally:
            self._turn.release()

    async def _connect(self) -> _Answers:
        factory = protocol.Factory.forProtocol(
            lambda: _Answers(self.address, self._max_response_bytes)
        )
        try:
            answers: Any = await self._endpoint.connect(factory)
        except defer.CancelledError:
            raise
        except Exception as fault:
            raise BrokerUnavailableError(
                f"no connection to {self.address}: {fault}; is the broker running there?"
            ) from fault
        assert isinstance(answers, _Answers)
        return answers


class SimpleConsumer(BaseConsumer):
    """Reads partitions of one broker, for Twisted; see `hermes.aio.SimpleConsumer`.

    Args:
        reactor: where the connection lives.
        host: the broker's name or address.
        port: its port.
        **options: see `ConsumerOptions`.
    """

    def __init__(self, reactor: Any, host: str, port: int, **options: Any) -> None:
        chosen = ConsumerOptions(**options)
        super().__init__(_TwistedConnection(reactor, host, port, chosen), chosen)


class Producer(BaseAsyncProducer):
    """Publishes messages, for Twisted; see `hermes.aio.Producer`. Use it in the reactor's thread.

    Args:
        reactor: hears of the outcomes; its thread pool waits for room in the queue.
        config: as for `hermes.Producer`.
    """

    def __init__(self, reactor: Any, config: ProducerConfig) -> None:
        super().__init__(config)
        self._reactor = reactor

    def _make_lock(self) -> Any:
        return DeferredLock()

    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        pool = self._reactor.getThreadPool()
        running: Deferred[R] = deferToThreadPool(self._reactor, pool, function, *arguments)
        return running

    def _loop_tools(self) -> tuple[Callable[[], Any], Callable[..., object]]:
        return Deferred, self._reactor.callFromThread

    def _resolve(self, futures: Sequence[Any], outcomes: Iterable[Outcome]) -> None:
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.called:
                continue
            if isinstance(outcome, SendResult):
                future.callback(outcome)
            else:
                future.errback(outcome)


class _ReactorLoop(EventLoop):
    """See `EventLoop`: a reactor."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        pool = self._reactor.getThreadPool()
        running: Deferred[R] = deferToThreadPool(self._reactor, pool, function, *arguments)
        return running

    def run_from_thread(
        self, function: Callable[[], Awaitable[Any]], timeout_seconds: float
    ) -> None:
        done: Future[None] = Future()

        async def call() -> None:
            try:
                await function()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._reactor.callFromThread(lambda: Deferred.fromCoroutine(call()))
        done.result(timeout_seconds)

    def current_task(self) -> object:
        # Each coroutine that a Deferred runs has a context of its own.
        known = _TASK.get()
        if known is None:
            known = object()
            _TASK.set(known)
        return known

    def signal(self) -> Signal:
        return _ReactorSignal(self._reactor)

    async def sleep(self, seconds: float) -> None:
        await deferLater(self._reactor, seconds)


class _ReactorSignal:
    """See `Signal`."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._sent: Deferred[None] = Deferred()

    def send(self) -> None:
        self._reactor.callFromThread(self._fire)

    async def wait(self, seconds: float) -> None:
        self._sent.addTimeout(seconds, self._reactor)
        with suppress(defer.TimeoutError, error.TimeoutError):
            await self._sent

    def _fire(self) -> None:
        if not self._sent.called:
            self._sent.callback(None)


class Connector(BaseConnector):
    """One member of a group, for Twisted; see `hermes.aio.Connector`.

    Args:
        reactor: where it is used.
        config: as for `hermes.client.groups.Consumer`.
        listener: is notified of rebalances, in the reactor's thread.
    """

    def __init__(
        self,
        reactor: Any,
        config: ConsumerConfig,
        listener: AsyncRebalanceListener | None = None,
    ) -> None:
        super().__init__(config, listener, lambda: _ReactorLoop(reactor))


class Consumer:
    """Creates consumers in groups, for Twisted; see `Connector`."""

    @staticmethod
    def create(
        reactor: Any, config: ConsumerConfig, listener: AsyncRebalanceListener | None = None
    ) -> Connector:
        """Make a member, which connects when it is entered with `async with`."""
        return Connector(reactor, config, listener)
