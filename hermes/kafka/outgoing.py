"""A connection from this broker to another, by Kafka's protocol: requests out, responses in.

Requests go out one after the other without waiting, and are answered in their order. Bodies are
bytes both ways. What doesn't fit ends the connection, and with it all that wait: a response to
another request, of a hostile size, or too late. Nothing is sent again, and nothing connects again:
who asks knows what that would mean. `other_brokers` makes these connections.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.announcement import Announcement
from hermes.errors import (
    BrokerNotReachedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    HermesError,
    RemoteProtocolError,
)
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.receiver import ResponseReceiver
from hermes.security import ClientSecurity
from hermes.security.tls_failures import tls_failure, tls_refusal
from hermes.server.carriers import SendfileCarrier, carrier_for

__all__ = ["OutgoingConnection", "OutgoingLimits"]

_MOST_ID = 0x7FFFFFFF

#: What a sum of times may lack of them.
_ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class OutgoingLimits:
    """What a connection to another broker may cost.

    Attributes:
        response_bytes: a response that declares more ends the connection.
        waiting: how many requests may be on their way; further ones are refused.
        connect_seconds: for the connection, TLS and authentication together.
        request_seconds: for a response, unless a request is given its own time.
    """

    response_bytes: int = 64 * 1024 * 1024
    waiting: int = 64
    connect_seconds: float = 5.0
    request_seconds: float = 30.0


class _Sent:
    """A request on its way, and what hears of its answer."""

    __slots__ = ("answer", "correlation_id", "deadline", "request", "seconds")

    def __init__(
        self, request: KafkaRequest, correlation_id: int, seconds: float, now: float
    ) -> None:
        self.request = request
        self.correlation_id = correlation_id
        self.seconds = seconds
        self.deadline = now + seconds
        self.answer: Deferred[memoryview] = Deferred()

    def fire(self, outcome: Any) -> None:
        if not self.answer.called:  # else whoever asked has cancelled it
            self.answer.callback(outcome)


@implementer(IHandshakeListener)
class OutgoingConnection(Protocol):
    """One open connection. Lives in the reactor's thread.

    Args:
        clock: the reactor, for times.

    Attributes:
        ready: fires once the connection can be used: by TLS, once the other broker has proved who
            it is.
        versions: which versions of which requests the other broker takes, by their keys.
    """

    transport: Any  # TCP's, which has more than ITransport promises

    def __init__(
        self, host: str, port: int, security: ClientSecurity, clock: Any, limits: OutgoingLimits
    ) -> None:
        self.ready: Deferred[None] = Deferred()
        self.versions: Mapping[int, range] = {}
        self._place = (host, port, security)
        self._address = f"{host}:{port}"
        self._clock = clock
        self._limits = limits
        self._receiver = ResponseReceiver(limits.response_bytes, self._address)
        self._waiting: deque[_Sent] = deque()
        self._carrier: SendfileCarrier | None = None
        # One timer for all that wait, which may outlive those that it was set for.
        self._timer: Any = None
        self._timer_at = inf
        self._last_id = 0
        self._why_ended: str | None = None  # an error would keep its traceback, and that this
        self._is_lost = False
        self._closed = Announcement[None]()

    @property
    def is_open(self) -> bool:
        return self._why_ended is None

    def ask(
        self, request: KafkaRequest, timeout_seconds: float | None = None
    ) -> "Deferred[memoryview]":
        """Send a request. Cancelling only means that nobody wants to hear of it any more.

        Args:
            timeout_seconds: for its response; None for what the limits say.

        Returns:
            Fires with the response's body, a view that keeps alive what was received with it. Fails
            with

            BrokerNotReachedError: the connection had ended before; nothing was sent.
            BrokerUnavailableError: the connection ended before there was an answer.
            BrokerTimeoutError: there was none in time, which has ended the connection.
            RemoteProtocolError: it was no answer to this request, which has ended the connection.
            ClientError: too many wait; nothing was sent.

        Raises:
            LocalProtocolError: the request can't be encoded; nothing was sent.
        """
        if self._why_ended is not None:
            why = f"the connection to {self._address} has ended: {self._why_ended}"
            return fail(BrokerNotReachedError(why))
        if len(self._waiting) >= self._limits.waiting:
            why = f"{self._address} has {len(self._waiting)} requests to answer, which is the limit"
            return fail(ClientError(why))
        correlation_id = (self._last_id + 1) & _MOST_ID
        frame = request.encode(correlation_id)
        self._last_id = correlation_id
        seconds = self._limits.request_seconds if timeout_seconds is None else timeout_seconds
        sent = _Sent(request, correlation_id, seconds, self._clock.seconds())
        if sent.deadline < self._timer_at:
            self._set_timer(sent.deadline)
        self._write(frame)
        self._waiting.append(sent)
        return sent.answer

    def _write(self, frame: bytes) -> None:
        # With nothing on its way the transport holds nothing: this needn't wait for its turn.
        if self._carrier is not None and not self._waiting:
            with suppress(OSError):  # which the transport meets, too
                frame = frame[self._carrier.send_bytes(frame, False) :]
        if frame:
            self.transport.write(frame)

    def close(self) -> "Deferred[None]":
        """End the connection, and all that wait; fires once the socket is closed."""
        self._end(BrokerUnavailableError(f"the connection to {self._address} was closed here"))
        if self._is_lost:
            return succeed(None)
        return self._closed.wait()

    # -- what Twisted calls -----------------------------------------------------------------------

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.transport.setTcpKeepAlive(True)
        carrier = carrier_for(self.transport)
        self._carrier = carrier if isinstance(carrier, SendfileCarrier) else None
        _, _, security = self._place
        if not security.uses_tls:
            self.ready.callback(None)

    def handshakeCompleted(self) -> None:
        self.ready.callback(None)

    def dataReceived(self, data: bytes) -> None:
        if not self.is_open:
            return
        before = len(self._waiting)
        try:
            self._receiver.receive_data(data)
            while self.is_open and (response := self._receiver.next_response()) is not None:
                self._take(response)
        except RemoteProtocolError as error:
            self._end(error)
        if len(self._waiting) == before:  # what is coming isn't late, however long it takes
            now = self._clock.seconds()
            for sent in self._waiting:
                sent.deadline = max(sent.deadline, now + sent.seconds)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        cause = reason.value
        assert cause is not None
        self._is_lost = True
        # With TLS 1.3, what the other makes of our certificate comes after its handshake.
        why = tls_refusal(cause, *self._place) or BrokerUnavailableError(
            f"{self._address} closed the connection before it had answered; the request may or may "
            "not have been carried out"
        )
        if not self.ready.called:
            why = tls_failure(cause, *self._place)
            self.ready.errback(why)
        self._end(why)
        self._closed.tell(None)

    # -- what it comes to -------------------------------------------------------------------------

    def _take(self, response: memoryview) -> None:
        if not self._waiting:
            raise RemoteProtocolError(f"{self._address} sent an answer that nobody asked for")
        sent = self._waiting[0]
        try:
            body = sent.request.response_body(response, sent.correlation_id)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._address}: {error}") from None
        self._waiting.popleft()
        sent.fire(body)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.callLater(at - self._clock.seconds(), self._look_for_late)

    def _look_for_late(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._clock.seconds() + _ROUNDING_SECONDS
        late = next((sent for sent in self._waiting if sent.deadline <= now), None)
        if late is not None:
            why = (
                f"{self._address} did not answer within {late.seconds:g} s; the request may or may "
                "not have been carried out"
            )
            self._end(BrokerTimeoutError(why), late)
        elif self._waiting:
            self._set_timer(min(sent.deadline for sent in self._waiting))

    def _end(self, error: HermesError, at_fault: _Sent | None = None) -> None:
        """End the connection, once. Only the request at fault, the first unless given, gets it."""
        if self._why_ended is not None:
            return
        self._why_ended = str(error)
        waiting, self._waiting = self._waiting, deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.transport.abortConnection()
        text = f"the connection to {self._address} ended before it had answered: {error}"
        for sent in waiting:
            is_meant = sent is (at_fault or waiting[0])
            outcome: Any = error if is_meant else BrokerUnavailableError(text)
            sent.fire(Failure(outcome))  # type: ignore[no-untyped-call]
