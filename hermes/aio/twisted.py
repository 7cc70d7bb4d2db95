"""The client library for Twisted: the twins of `hermes.aio` on a reactor, without asyncio.

    async def main(reactor):
        async with SimpleConsumer(reactor, "localhost:9092") as consumer:
            async for message, next_offset in consumer.follow("clicks", 0, offset=0):
                print(message.payload)

    task.react(lambda reactor: ensureDeferred(main(reactor)))

Methods are coroutines: await them in coroutines, or wrap them with `ensureDeferred`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from twisted.internet import defer, error, protocol
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.aio.channel import prove_identity
from hermes.aio.event_loops import EventLoop, Signal
from hermes.aio.groups import AsyncRebalanceListener, BaseConnector
from hermes.aio.producer import BaseAsyncProducer
from hermes.aio.simple_consumer import BaseConsumer, ConsumerOptions
from hermes.client.arguments import broker_address
from hermes.client.batching import Outcome
from hermes.client.groups.config import ConsumerConfig
from hermes.client.producer_config import ProducerConfig
from hermes.client.sync_producer import SendResult
from hermes.errors import (
    BrokerNotReachedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    RemoteProtocolError,
)
from hermes.forks import FORKED, watch_forks
from hermes.keywords import explains_keywords
from hermes.protocol import Buffer, ResponseReceiver
from hermes.security import ClientSecurity
from hermes.security.tls_failures import tls_failure, tls_refusal

__all__ = ["Connector", "Consumer", "Producer", "SimpleConsumer"]

R = TypeVar("R")

_TASK: ContextVar[object] = ContextVar("hermes task", default=None)


class _TwistedAnswers(protocol.Protocol):
    """One connection: answers in request order, one request at a time."""

    transport: Any  # TCP's, which has more than ITransport promises

    def __init__(self, address: str, max_response_bytes: int) -> None:
        self.is_open = True
        self._address = address
        self._receiver = ResponseReceiver(max_response_bytes, address)
        self._waiting: Deferred[Buffer] | None = None

    def call(self, request: bytes) -> "Deferred[Buffer]":
        """The Deferred fires with the answer's body. Raises where none can come."""
        if not self.is_open:
            raise BrokerUnavailableError(f"{self._address} closed the connection")
        self._waiting = Deferred()
        self.transport.write(request)
        return self._waiting

    def drop(self) -> None:
        self.is_open = False
        self.transport.abortConnection()

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        if self._waiting is None:
            self.drop()  # unsolicited bytes: whatever follows can't be trusted
            return
        try:
            self._receiver.receive_data(data)
            body = self._receiver.next_response()
        except RemoteProtocolError as fault:
            self._fire(Failure(fault))  # type: ignore[no-untyped-call]
            self.drop()
            return
        if body is None:
            return
        if self._receiver.buffered_bytes:
            self.drop()  # as above
        self._fire(body)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self.is_open = False
        self._fire(Failure(self._why_lost(reason)))  # type: ignore[no-untyped-call]

    def _why_lost(self, reason: Failure) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"{self._address} closed the connection before it had answered"
        )

    def _fire(self, outcome: Any) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(outcome)


@implementer(IHandshakeListener)
class _TlsAnswers(_TwistedAnswers):
    """One connection by TLS. `is_ready` fires once the broker has proved who it is, or fails."""

    def __init__(
        self, host: str, port: int, max_response_bytes: int, security: ClientSecurity
    ) -> None:
        super().__init__(f"{host}:{port}", max_response_bytes)
        self.is_ready: Deferred[None] = Deferred()
        self._place = (host, port, security)

    def handshakeCompleted(self) -> None:
        self.is_ready.callback(None)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        super().connectionLost(reason)
        if not self.is_ready.called:
            self.is_ready.errback(tls_failure(_value(reason), *self._place))

    def _why_lost(self, reason: Failure) -> BrokerUnavailableError:
        # With TLS 1.3, what a broker makes of our certificate comes after its handshake.
        return tls_refusal(_value(reason), *self._place) or super()._why_lost(reason)


def _value(reason: Failure) -> BaseException:
    value = reason.value
    assert value is not None
    return value


class _TwistedConnection:
    def __init__(self, reactor: Any, host: str, port: int | None, options: ConsumerOptions) -> None:
        host, port = broker_address(host, port)
        self.timeout_seconds = options.timeout_seconds
        self._reactor = reactor
        self._host = host
        self._port = port
        self.security = options.security
        self._tls: Any = None
        if options.uses_tls:
            from hermes.listening.client_tls import ClientTls  # pyOpenSSL, for those who need it

            self._tls = ClientTls(host, self.security)
        self._connect_timeout_seconds = options.connect_timeout_seconds
        self._max_response_bytes = options.max_response_bytes
        self._endpoint = HostnameEndpoint(reactor, host, port, options.connect_timeout_seconds)
        self._turn = DeferredLock()
        self._answers: _TwistedAnswers | None = None
        self._closed = self._is_forked = False
        watch_forks(self)

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

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
            if not self._closed and (self._answers is None or not self._answers.is_open):
                self._answers = await self._connect()
            if self._answers is None or self._closed:  # perhaps while it was connecting
                raise ClientError(f"the connection to {self.address} was closed")
            return await self._answers.call(request)
        except BaseException:
            self.disconnect()
            raise
        finally:
            self._turn.release()

    async def _connect(self) -> _TwistedAnswers:
        factory: Any = protocol.Factory.forProtocol(self._make_answers)
        if self._tls is not None:
            factory = self._tls.wrap(factory, self._reactor)
        try:
            connected: Any = await self._endpoint.connect(factory)
            answers = connected if self._tls is None else connected.wrappedProtocol
        except defer.CancelledError:
            raise
        except Exception as fault:
            raise BrokerNotReachedError(
                f"no connection to {self.address}: {fault}; is the broker running there?"
            ) from fault
        assert isinstance(answers, _TwistedAnswers)
        if not self.security.is_plain:
            try:
                await self._introduced(answers)
            except BaseException:
                if answers.is_open:
                    answers.drop()
                raise
        return answers

    def _make_answers(self) -> _TwistedAnswers:
        most = self._max_response_bytes
        if self._tls is None:
            return _TwistedAnswers(self.address, most)
        return _TlsAnswers(self._host, self._port, most, self.security)

    async def _introduced(self, answers: _TwistedAnswers) -> None:
        """Agree on TLS, and say who this is, within the time for connecting."""
        seconds = self._connect_timeout_seconds
        introducing: Deferred[None] = Deferred.fromCoroutine(self._introduce(answers))
        introducing.addTimeout(seconds, self._reactor)
        try:
            await introducing
        except (defer.TimeoutError, error.TimeoutError) as fault:
            raise BrokerNotReachedError(
                f"{self.address} accepted a connection, but did not get through TLS and "
                f"authentication within {seconds:g} s"
            ) from fault

    async def _introduce(self, answers: _TwistedAnswers) -> None:
        if isinstance(answers, _TlsAnswers):
            await answers.is_ready
        if self.security.user is None:
            return
        in_thread = partial(deferToThreadPool, self._reactor, self._reactor.getThreadPool())
        await prove_identity(answers, self.security, self.address, in_thread)


@explains_keywords
class SimpleConsumer(BaseConsumer):
    """Reads partitions of one broker, for Twisted; see `hermes.aio.SimpleConsumer`."""

    def __init__(self, reactor: Any, host: str, port: int | None = None, **options: Any) -> None:
        chosen = ConsumerOptions(**options)
        super().__init__(_TwistedConnection(reactor, host, port, chosen), chosen)


@explains_keywords
class Producer(BaseAsyncProducer):
    """Publishes messages, for Twisted; see `hermes.aio.Producer`. Use it in the reactor's thread.

    The reactor hears of the outcomes; its thread pool waits for room in the queue.
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


@explains_keywords
class Connector(BaseConnector):
    """One member of a group, for Twisted; see `hermes.aio.Connector`.

    The listener is notified of rebalances in the reactor's thread.
    """

    def __init__(
        self,
        reactor: Any,
        config: ConsumerConfig,
        listener: AsyncRebalanceListener | None = None,
    ) -> None:
        super().__init__(config, listener, lambda: _ReactorLoop(reactor))


class Consumer(Connector):
    """A consumer in a group, for Twisted: a `Connector`, under the name users look for."""

    @staticmethod
    def create(
        reactor: Any, config: ConsumerConfig, listener: AsyncRebalanceListener | None = None
    ) -> "Consumer":
        """Make one; the same as `Consumer(reactor, config, listener)`."""
        return Consumer(reactor, config, listener)
