"""One client's connection: requests in, answers out, in order and within bounds.

Twisted carries, `RequestReceiver` cuts the bytes into requests, `Broker` decides; this class
keeps the order and the bounds between them:

- Requests are taken one after the other. While an answer is on its way to a slow reader, or an
  ordered outcome is awaited, none is taken; and once more than `READ_AHEAD_BYTES` of further
  requests have arrived, the socket isn't read either. So a client that pipelines and never reads
  costs one answer's worth of descriptors and a little buffer.
- Acknowledged produces that wait for their flush do not hold up the produces behind them, up to
  `MAX_UNANSWERED`. Anything else waits for them, so that answers and effects keep their order.
- A refused request ends the connection, once the answers before it have left. Produce requests
  that had arrived whole before the peer closed are still carried out: a producer may send and
  leave.

One class, though long: all its methods change the same state, and each of these bounds holds only
as long as all of them keep it.
"""

import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from twisted.internet import tcp
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from hermes.broker.broker import CloseConnection, Later
from hermes.broker.carriers import Carrier, SendfileCarrier, carrier_for
from hermes.broker.sends import TURN_BYTES, FileSend
from hermes.broker.turns import TURN_SECONDS
from hermes.errors import HermesError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    LongProduce,
    MultiProduceRequest,
    ProduceRequest,
    ProduceRun,
    RequestReceiver,
)

if TYPE_CHECKING:
    from hermes.broker.factory import BrokerFactory

__all__ = ["MAX_UNANSWERED", "READ_AHEAD_BYTES", "BrokerConnection"]

#: How much of further requests is read while an answer is outstanding.
READ_AHEAD_BYTES = 64 * 1024

#: How many acknowledged produces of one connection may wait for their flush.
MAX_UNANSWERED = 64

#: Small answers are collected up to this size before they are sent together.
_COLLECT_BYTES = 32 * 1024

#: How often a connection that is being closed looks whether its answers have arrived.
_LINGER_SECONDS = 0.02

_PRODUCES = (
    ProduceRun,
    ProduceRequest,
    MultiProduceRequest,
    AcknowledgedProduceRequest,
    LongProduce,
)


class _Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("answer", "ready")

    def __init__(self, answer: bytes | FileSend | None = None, ready: bool = False) -> None:
        self.answer = answer
        self.ready = ready


class BrokerConnection(Protocol):
    """Serves one client."""

    def __init__(self, factory: "BrokerFactory") -> None:
        self.factory: BrokerFactory = factory
        self._broker = factory.broker
        self._receiver = RequestReceiver(
            max_request_bytes=factory.config.max_request_bytes,
            max_message_bytes=factory.config.max_message_bytes,
        )
        self._carrier: Carrier | None = None  # None again once the connection is lost
        self._slots: deque[_Slot] = deque()
        self._ordered: Deferred[Any] | None = None  # the outcome that holds up what follows
        self._ordered_bytes = 0  # of the request that it belongs to
        self._abandon = False  # whether that outcome is of use to nobody without the peer
        self._held: Any = None  # a request that waits for the slots before it
        self._sending: FileSend | None = None
        self._small: list[bytes] = []
        self._small_bytes = 0
        self._moved = 0  # bytes that left in this turn
        self._yielded = False
        self._processing = False
        self._closing = False
        self._reading = True
        self._held_by_budget = False
        self._lingering: IDelayedCall | None = None
        self._active = True  # whether something arrived or left since the last sweep
        self._sent_mark = 0

    # -- Twisted calls these --------------------------------------------------------------------

    def connectionMade(self) -> None:
        """The connection is there: set its options and count it."""
        _set_socket_options(self.transport, self.factory.config)
        self._carrier = carrier_for(self.transport)  # type: ignore[arg-type]
        self.factory.connected(self)

    def dataReceived(self, data: bytes) -> None:
        """Bytes arrived: take the requests that are whole."""
        self._active = True
        if self._closing:
            return
        self._moved = 0
        self._receiver.receive_data(data)
        self._process()
        self._read_on()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The peer is gone: carry out the produces that had arrived, let go of the rest."""
        self._carrier = None
        self._sending = None  # the transport has told it with stopProducing
        self._broker.large_answers.release(self)
        self._small.clear()
        if self._lingering is not None and self._lingering.active():
            self._lingering.cancel()
        if self._ordered is not None and self._abandon:
            self._ordered.cancel()
        self._process()
        self.factory.disconnected(self)

    # -- the budget and the service call these --------------------------------------------------

    def set_read_size(self, size_bytes: int) -> None:
        """See `hermes.broker.limits.Reader`."""
        if isinstance(self.transport, tcp.Connection):
            self.transport.bufferSize = size_bytes

    def hold_reading(self, held: bool) -> None:
        """See `hermes.broker.limits.Reader`."""
        self._held_by_budget = held
        self._apply_reading()

    def has_input(self) -> bool:
        """See `hermes.broker.limits.Reader`."""
        if not isinstance(self.transport, tcp.Connection):
            return True
        try:
            return bool(self.transport.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        except OSError:
            return True  # the transport will find out what is wrong

    def give_up(self, reason: str) -> None:
        """See `hermes.broker.limits.Reader`; also ends connections that are idle for too long."""
        if self._closing:
            self._abort()
            return
        self._refuse(reason)
        if self._sending is not None:  # which a peer that doesn't read would hold up for ever
            self._abort()

    def answer_progress(self) -> int:
        """See `hermes.broker.large_answers.AnswerReader`."""
        return self._sending.sent_bytes if self._sending is not None else 0

    def drain(self) -> None:
        """Take no more requests; close when the answers under way have left."""
        self._closing = True
        self._update_reading()
        self._close_when_drained()

    def was_idle(self) -> bool:
        """Whether the peer has been silent since the last call, and the silence was its own."""
        sent = self._sending.sent_bytes if self._sending is not None else 0
        busy = self._active or self._ordered is not None or self._held_by_budget
        idle = not busy and sent == self._sent_mark
        self._active, self._sent_mark = False, sent
        return idle

    # -- requests -------------------------------------------------------------------------------

    def _process(self) -> None:
        """Take requests as long as there are any and their turn has come."""
        if self._processing:
            return
        self._processing = True
        try:
            self._take_all()
        except (HermesError, CloseConnection) as refusal:
            self._refuse(str(refusal))
        except Exception:
            self._report_fault(Failure())  # type: ignore[no-untyped-call]
            self._refuse("a fault of Hermes")
        finally:
            self._processing = False
        self._send_small()
        self._update_reading()

    def _take_all(self) -> None:
        next_request = self._receiver.next_request
        append_run = self._broker.append_run
        seconds = self.factory.clock.seconds
        ends = seconds() + TURN_SECONDS
        while self._may_take():
            if seconds() >= ends:
                self._yield()
                return
            request, self._held = self._held, None
            if request is None:
                request = next_request()
            if type(request) is ProduceRun:
                append_run(request)
            elif request is None:
                return
            elif isinstance(request, _PRODUCES):
                self._take(request)
            elif self._slots:
                self._held = request
            elif self._carrier is not None:
                self._take(request)

    def _may_take(self) -> bool:
        return not (
            self._closing
            or self._sending is not None
            or self._ordered is not None
            or self._yielded
            or (self._slots and (self._held is not None or len(self._slots) >= MAX_UNANSWERED))
        )

    def _take(self, request: Any) -> None:
        outcome = self._broker.serve(request)
        if isinstance(outcome, Later):
            self._await(outcome)
        elif outcome is not None:
            if self._slots:
                self._slots.append(_Slot(outcome, ready=True))
            else:
                self._answer(outcome)
            self._yield_when_due()

    def _yield_when_due(self) -> None:
        """Let the other connections have their turn after a turn's worth of bytes."""
        if self._moved >= TURN_BYTES and self._receiver.buffered_bytes:
            self._yield()

    def _yield(self) -> None:
        self._yielded = True
        self.factory.clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._yielded = False
        self._moved = 0
        self._process()
        self._close_when_drained()

    def _read_on(self) -> None:
        """Take what came while answers left, sparing a turn of the reactor.

        A consumer that keeps several fetches in flight has sent the next one by then. Whatever
        else the socket has to say (its end, an error) is left for the transport to find.
        """
        if not isinstance(self._carrier, SendfileCarrier):
            return
        while 0 < self._moved < TURN_BYTES and self._reading and self._may_take():
            data = self._carrier.receive()
            if not data:
                return
            self._receiver.receive_data(data)
            self._process()

    # -- answers --------------------------------------------------------------------------------

    def _await(self, later: Later) -> None:
        slot = _Slot()
        self._slots.append(slot)
        if later.ordered:
            self._ordered, self._abandon = later.outcome, later.abandon
            self._ordered_bytes = later.request_bytes
        later.outcome.addCallbacks(
            self._resolved, self._failed, callbackArgs=(slot, later), errbackArgs=(slot, later)
        )

    def _resolved(self, answer: bytes | FileSend | None, slot: _Slot, later: Later) -> None:
        slot.answer, slot.ready = answer, True
        if later.ordered:
            self._ordered, self._ordered_bytes = None, 0
        self._send_ready()
        self._process()
        self._close_when_drained()

    def _failed(self, failure: Failure, slot: _Slot, later: Later) -> None:
        if later.ordered:
            self._ordered, self._ordered_bytes = None, 0
        self._slots.remove(slot)
        if not isinstance(failure.value, CancelledError):
            if not isinstance(failure.value, (CloseConnection, HermesError)):
                self._report_fault(failure)
            self._refuse(failure.getErrorMessage())

    def _send_ready(self) -> None:
        while self._slots and self._slots[0].ready and self._sending is None:
            answer = self._slots.popleft().answer
            if answer is not None:
                self._answer(answer)

    def _answer(self, answer: bytes | FileSend) -> None:
        """Send an answer, behind all those before it."""
        if isinstance(answer, bytes):
            self._small.append(answer)
            self._small_bytes += len(answer)
            if self._small_bytes >= _COLLECT_BYTES:
                self._send_small()
            return
        if self._small:
            answer.prepend(self._take_small())
        self._start(answer)

    def _send_small(self) -> None:
        if self._small and self._sending is None:
            self._start(FileSend((self._take_small(),)))

    def _take_small(self) -> bytes:
        data = b"".join(self._small)
        self._small.clear()
        self._small_bytes = 0
        return data

    def _start(self, send: FileSend) -> None:
        if self._carrier is None:
            send.release()
            return
        self._moved += send.size_bytes
        try:
            if not send.start(self.transport, self._carrier, self.factory.pages, self._sent):
                self._sending = send
                self._broker.large_answers.hold(self, send.memory_bytes())
        except (OSError, EOFError) as error:
            self._sending_failed(error)

    def _sent(self, error: Exception | None) -> None:
        """An answer that did not leave at once is through."""
        self._sending = None
        self._broker.large_answers.release(self)
        self._sent_mark = 0
        self._active = True
        if error is not None:
            self._sending_failed(error)
            return
        self._moved = 0
        self._send_ready()
        self._process()
        self._close_when_drained()

    # -- the end --------------------------------------------------------------------------------

    def _sending_failed(self, error: Exception) -> None:
        """A peer that left is no news; a segment that can't be read is."""
        if not isinstance(error, ConnectionError):
            self.factory.lines.error(
                "sending", "sending to {peer} failed: {error}", peer=self._peer(), error=error
            )
        self._abort()

    def _report_fault(self, failure: Failure) -> None:
        """What no request should ever cause: log where it came from."""
        self.factory.lines.failure("fault", "serving {peer} failed", failure, peer=self._peer())

    def _refuse(self, reason: str) -> None:
        """Close because of what the peer did, once the answers before it have left."""
        if self._closing:
            return
        self._closing = True
        self.factory.refused(self._peer(), reason)
        self._send_small()
        self._update_reading()
        self._close_when_drained()

    def _close_when_drained(self) -> None:
        """Close once every answer has been handed to the kernel.

        Closing a socket that has unread input makes the kernel throw away what it hasn't sent
        yet. So while something of the answers is left there, only our half is closed, and what
        still comes is read and dropped until the peer has everything (or `stop_timeout` is over).
        """
        if not self._closing or self._slots or self._sending is not None or not self._carrier:
            return
        self._send_small()
        transport = self.transport
        if self._sending is not None or transport is None or self._lingering is not None:
            return
        if not self._carrier.unsent_bytes():
            transport.loseConnection()
            return
        transport.loseWriteConnection()  # type: ignore[attr-defined]
        clock = self.factory.clock
        deadline = clock.seconds() + self.factory.config.stop_timeout_ms / 1000
        self._lingering = clock.callLater(_LINGER_SECONDS, self._linger, deadline)
        self._apply_reading()

    def _linger(self, deadline: float) -> None:
        """Look whether the peer has everything by now."""
        if self._carrier is None or self.transport is None:
            return
        clock = self.factory.clock
        if not self._carrier.unsent_bytes():
            self.transport.loseConnection()
        elif clock.seconds() >= deadline:
            self._abort()
        else:
            self._lingering = clock.callLater(_LINGER_SECONDS, self._linger, deadline)

    def _abort(self) -> None:
        self._closing = True
        if self._carrier is not None and self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def _update_reading(self) -> None:
        """Tell the budget what is held, and read exactly while that can be taken soon."""
        if self._carrier is None:
            return
        receiver = self._receiver
        self.factory.memory.update(
            self,
            receiver.buffered_bytes + self._ordered_bytes,
            receiver.missing_bytes,
            self._ordered_bytes,
        )
        self._apply_reading()

    def _apply_reading(self) -> None:
        if self._carrier is None:
            return
        if self._closing:
            reading = self._lingering is not None
        else:
            buffered = self._receiver.buffered_bytes
            reading = not self._held_by_budget and (
                buffered <= READ_AHEAD_BYTES or self._may_take()
            )
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.transport.resumeProducing()  # type: ignore[union-attr]
            else:
                self.transport.pauseProducing()  # type: ignore[union-attr]

    def _peer(self) -> str:
        peer = self.transport.getPeer() if self.transport is not None else None
        return f"{getattr(peer, 'host', peer)}:{getattr(peer, 'port', '')}"


def _set_socket_options(transport: Any, config: Any) -> None:
    """No delays for small answers, dead peers found out, buffers as configured."""
    if not isinstance(transport, tcp.Connection):
        return
    if isinstance(transport.socket, socket.socket) and transport.socket.family != socket.AF_UNIX:
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
    for option, size in (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    ):
        if size:
            transport.socket.setsockopt(socket.SOL_SOCKET, option, size)
