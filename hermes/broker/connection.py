"""One client's connection: requests in, responses out, in order and within bounds.

Twisted carries, `RequestReceiver` cuts the bytes into requests, `Broker` decides, `Responses` keeps
what goes out; this class has the order and the bounds between them. It is in one of four states:

    serving     requests are taken
        | refused, or told to drain: what has arrived of further requests is dropped
    draining    no more is taken; the responses under way leave
        | all have left
    lingering   nothing more leaves; what the peer still sends is read and dropped
        |
    lost        there is no peer any more. It may come from any state; after serving, the produces
                that had arrived whole are still carried out: a producer may send and leave

Every event (bytes, an outcome, a response that has left, the end) changes the state, and then
`_advance` does all that can be done now. A connection is finished once it is lost and no outcome is
pending: what was asked for may still be appended until then. The class is long because every step
ends in `_advance`, which reads all of the state.

The bounds:

- Requests are taken one after the other. While a response is on its way to a slow reader, or an
  ordered outcome is awaited, none is taken; and once more than `READ_AHEAD_BYTES` of further
  requests have arrived, the socket isn't read either. So a client that pipelines and never reads
  costs one response's worth of descriptors and a little buffer.
- Acknowledged produces that wait for their flush do not hold up the produces after them, up to
  `MAX_UNANSWERED`. Anything else waits for them, so that responses and effects keep their order.

Where the listener wants users, a gate (`gates.py`) stands in the broker's place until the client
has authenticated. Who that is never changes while the connection lasts.
"""

from enum import Enum, auto
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure

from hermes.broker.connections import Connections
from hermes.errors import HermesError
from hermes.interfaces import User
from hermes.listening import peer_principal
from hermes.protocol import (
    AcknowledgedProduceRequest,
    LongProduce,
    MirroredProduceRequest,
    MultiProduceRequest,
    PlainAcknowledgedProduce,
    ProduceRequest,
    ProduceRun,
    RecordProduceRequest,
    RequestReceiver,
)
from hermes.server.carriers import Carrier, SendfileCarrier, carrier_for
from hermes.server.clients import UNKNOWN_CLIENT, Client
from hermes.server.fairness import CROWDED_BYTES
from hermes.server.gates import Gate
from hermes.server.limits import READ_BYTES
from hermes.server.metrics import RequestKind
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.server.policies import ListenerPolicy
from hermes.server.quotas import Throttle
from hermes.server.responses import Responses
from hermes.server.sockets import Lingering, has_input, has_left, set_options, tcp_connection

#: How much of further requests is read while a response is outstanding.
READ_AHEAD_BYTES = 64 * 1024

#: How often to check whether a peer has left, while its socket isn't read and a request waits.
_END_CHECK_SECONDS = 1.0

#: How many acknowledged produces of one connection may wait for their flush.
MAX_UNANSWERED = 64

_PRODUCES = (
    ProduceRun,
    ProduceRequest,
    MultiProduceRequest,
    AcknowledgedProduceRequest,
    PlainAcknowledgedProduce,
    RecordProduceRequest,
    MirroredProduceRequest,
    LongProduce,
)


class _State(Enum):
    """The states of the module's docstring."""

    SERVING = auto()
    DRAINING = auto()
    LINGERING = auto()
    LOST = auto()


#: Of a listener that asks for nothing.
_OPEN = ListenerPolicy()

# Looked up for each request.
_SERVING, _DRAINING, _LINGERING, _LOST = _State


class BrokerConnection(Protocol):
    """Serves one client; `served_by` carries requests out: the broker unless given."""

    #: The requests that are taken while acknowledged ones before them wait for their flush.
    _pipelined: tuple[type, ...] = _PRODUCES

    #: What stands in the server's place until a client has authenticated.
    _gate_kind: type[Gate] = Gate

    def __init__(
        self,
        connections: Connections,
        policy: ListenerPolicy = _OPEN,
        served_by: Any = None,
    ) -> None:
        self._connections = connections
        self._policy = policy
        self._broker = connections.broker
        self._gate: Gate | None = None  # until the client has authenticated, if it has to
        self._admitted: Any = self._broker if served_by is None else served_by
        self._server = self._admitted  # what carries requests out: that, or the gate
        self._client = UNKNOWN_CLIENT
        self._produces: RequestKind = self._broker.metrics.requests["produce"]
        self._state = _SERVING
        self._carrier: Carrier | None = None
        # Input.
        self._receiver = self._new_receiver()
        self._waiting_request: Any = None  # a request that waits for the responses before it
        self._ordered: DeferredResponse | None = None  # holds up what follows
        self._yielded = False  # whether the next quantum is scheduled
        self._advancing = False
        # Output.
        self._responses = Responses(
            connections.pages, self._broker.scheduler, self._broker.large_responses
        )
        self._lingering: Lingering | None = None
        self._end_check: IDelayedCall | None = None  # see `_watch_for_end`
        self._has_left = False  # whether the peer's end was found behind what wasn't read yet
        # Whether the socket is read, and whether the peer is idle.
        self._reading = True
        self._is_counted = False  # whether the budget knows of something that is held
        self._paused_by_budget = False
        self._throttle: Throttle | None = None  # where a quota applies
        self._active = True  # whether something arrived or left since the last sweep
        self._sent_mark = 0

    # -- events: Twisted ------------------------------------------------------------------------

    def connectionMade(self) -> None:
        set_options(self.transport, self._connections.config)
        peer = self.transport.getPeer() if self.transport is not None else None
        self._client = Client(peer, self._policy.listener)
        self._carrier = carrier_for(self.transport)  # type: ignore[arg-type]
        self._responses.open(self.transport, self._carrier, self, self._sent)
        self._connections.connected(self)
        if self._policy.authentication != "none":
            self._identify()
        if self._gate is None:
            self._enter()
            if self._state is not _SERVING:
                self._advance()

    def dataReceived(self, data: bytes) -> None:
        self._active = True
        if self._state is not _SERVING:
            return
        self._responses.moved_bytes = 0
        if self._throttle is not None:
            self._throttle.received(len(data))
        self._receiver.receive_data(data)
        self._advance()
        if self._responses.moved_bytes:
            self._read_on()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Carry out the produces that had arrived, let go of the rest."""
        self._state = _LOST
        self._client.has_left = True
        self._responses.close()
        if self._lingering is not None:
            self._lingering.stop()
            self._lingering = None
        if self._end_check is not None:
            self._end_check.cancel()
            self._end_check = None
        self._connections.disconnected(self)
        if self._throttle is not None:
            self._throttle.leave()
            self._throttle = None
        if self._client.token_session is not None:
            self._client.token_session.close()
        if self._gate is not None:
            self._gate.close()
        elif self._policy.authentication != "none":
            self._connections.authentication.disconnected(self, self._client.principal)
        if self._ordered is not None and self._ordered.cancellable:
            self._ordered.cancel()
        self._advance()

    # -- events: authentication -------------------------------------------------------------------

    def _identify(self) -> None:
        authentication = self._connections.authentication
        if self._policy.has_gate:
            waiting = self._connections.waiting
            self._gate = self._gate_kind(authentication, waiting, self._policy, self._client, self)
            self._server = self._gate
            self.set_read_size(self._gate.max_frame_bytes)
            self.limits_changed()
            return
        principal = peer_principal(self.transport, self._policy.tls)
        assert principal is not None  # the listener has refused all others
        self._client.principal = principal
        if authentication.authenticator is not None:
            self._yielded = True  # nothing is taken until its groups are known
            authentication.groups_of_certified(self, principal).addCallbacks(
                self._certified, self._not_found
            )

    def _certified(self, groups: frozenset[str]) -> None:
        self._client.groups = groups
        if self._state is _LOST:
            self._connections.authentication.disconnected(self, self._client.principal)
        self._resume()

    def _not_found(self, failure: Failure) -> None:
        self._connections.authentication.failed("certificate", failure.getErrorMessage())
        self.give_up("its groups can't be looked up now")
        self._resume()

    def admit(self, user: User, revision: object) -> None:
        if self._gate is None or self._state is not _SERVING:
            return
        self._gate.close()
        self._gate = None
        self._client.principal, self._client.groups = user.name, user.groups
        self._client.knows_own_codes = True
        self._server = self._admitted
        self._enter()
        self.limits_changed()
        self._connections.memory.measure(self)
        if self._policy.authentication == "scram" and self._policy.authenticator is None:
            self._connections.authentication.connected(self, user, revision)
        self._yield()  # what follows goes to the broker

    def _enter(self) -> None:
        """The principal is known: count the connection among theirs, or close it."""
        quotas = self._connections.quotas
        refusal = quotas.refusal(self._client)
        if refusal is None:
            self._throttle = quotas.join(self._client, self._advance)
            self._apply_reading()
        else:
            self._refuse(str(refusal), refusal)

    def groups_changed(self, groups: frozenset[str]) -> None:
        self._client.groups = groups

    def revoke(self, reason: str) -> None:
        """Drain: what changes something is still carried out and answered."""
        self._refuse(reason)
        if self._ordered is not None and self._ordered.cancellable:  # a fetch that waits
            self._ordered.cancel()
        if self._responses.sending is not None:
            self._abort()
        self._advance()

    # -- events: the budget and the service -----------------------------------------------------

    def set_read_size(self, size_bytes: int) -> None:
        """Read no more at a time than quota or gate allow, either."""
        connection = tcp_connection(self.transport)
        if connection is not None:
            if self._gate is not None:
                size_bytes = min(size_bytes, self._gate.max_frame_bytes)
            elif self._throttle is not None:
                size_bytes = min(size_bytes, READ_BYTES)
            connection.bufferSize = size_bytes

    def hold_reading(self, held: bool) -> None:
        self._paused_by_budget = held
        self._apply_reading()

    def has_input(self) -> bool:
        return has_input(self.transport)

    def give_up(self, reason: str) -> None:
        """Also ends connections that were idle for too long."""
        if self._state is not _SERVING:
            self._abort()
        else:
            self._refuse(reason)
            if self._responses.sending is not None:  # a peer that doesn't read would hold it up
                self._abort()
        self._advance()

    def response_progress(self) -> int:
        sending = self._responses.sending
        return sending.sent_bytes if sending is not None else 0

    def limits_changed(self) -> None:
        config = self._connections.config
        if self._gate is None:
            self._receiver.limit(config.max_request_bytes, config.max_message_bytes)
        else:
            self._receiver.limit(self._gate.max_frame_bytes, self._gate.max_frame_bytes)

    def quotas_changed(self) -> None:
        is_known = self._gate is None and self._state is not _LOST
        if is_known and (self._throttle is None or self._throttle.usage is None):
            answered_bytes = self._responses.started_bytes
            self._throttle = self._connections.quotas.join(
                self._client, self._advance, answered_bytes
            )

    def drain(self) -> None:
        if self._state is _SERVING:
            self._take_no_more(_DRAINING)
        self._advance()

    def was_idle(self) -> bool:
        sent = self.response_progress()
        busy = self._active or self._ordered is not None or self._paused_by_budget
        busy = busy or (self._throttle is not None and self._throttle.is_delayed)
        idle = not busy and sent == self._sent_mark
        self._active, self._sent_mark = False, sent
        return idle

    # -- events: outcomes and responses -----------------------------------------------------------

    def response_passed(self, awaited: DeferredResponse) -> None:
        if awaited is self._ordered:
            self._ordered = None
            self._advance()

    def request_released(self, awaited: DeferredResponse) -> None:
        if awaited is self._ordered and not self._advancing:
            self._update_reading()

    def response_known(self, awaited: DeferredResponse) -> None:
        if awaited is self._ordered:
            self._ordered = None
        scheduler = self._broker.scheduler
        if awaited.kind is not None:
            awaited.kind.seconds.observe(scheduler.now() - awaited.began)
        scheduler.after_this(self._answer)  # what else becomes known now may leave with it

    def _answer(self) -> None:
        """Send what has become known; nearly always that is all that can be done now."""
        receiver = self._receiver
        if (
            self._ordered is not None
            or receiver.data
            or receiver.chunks
            or receiver.partial
            or self._waiting_request is not None
            or self._state is not _SERVING
            or not self._reading
            or self._is_counted
            or self._throttle is not None
            or self._advancing
        ):
            self._advance()
            return
        self._responses.send_known()

    def response_failed(self, awaited: DeferredResponse, failure: Failure) -> None:
        if awaited is self._ordered:
            self._ordered = None
        self._responses.awaited.remove(awaited)
        if not isinstance(failure.value, CancelledError):
            if not isinstance(failure.value, (CloseConnection, HermesError)):
                self._report_fault(failure)
            self._refuse(failure.getErrorMessage(), failure.value)
        # Else it and the frames that it went through would keep each other, and with them the
        # decoded request, until the garbage is collected.
        failure.cleanFailure()  # type: ignore[no-untyped-call]
        self._advance()

    def _sent(self, error: Exception | None) -> None:
        """A response that did not leave at once is through, or one could not be sent."""
        self._sent_mark = 0
        self._active = True
        if error is None:
            self._responses.moved_bytes = 0
        else:
            self._sending_failed(error)
        self._advance()

    def _resume(self) -> None:
        self._yielded = False
        self._responses.moved_bytes = 0
        self._advance()

    # -- progress -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do all that can be done now; called after every event."""
        if self._advancing:
            return  # what the event has changed is seen by the call that is under way
        self._advancing = True
        scheduler, responses = self._broker.scheduler, self._responses
        began = scheduler.now()
        took_all = False
        try:
            took_all = self._take_requests(began)
        except (HermesError, CloseConnection) as refusal:
            self._refuse(str(refusal), refusal)
        except Exception as fault:
            self._report_fault(Failure())  # type: ignore[no-untyped-call]
            self._refuse("a fault of Hermes", fault)
        finally:
            self._advancing = False
        if responses.small:
            responses.send_small()
        scheduler.count_used(began)
        if (
            took_all
            and self._state is _SERVING
            and self._reading
            and not self._is_counted
            and (self._ordered is None or not self._ordered.request_bytes)
            and self._throttle is None
        ):
            return  # nothing is held, as before, and the socket is read
        if self._throttle is not None:
            self._throttle.charge(responses.started_bytes)
        self._update_reading()
        if self._state is not _SERVING and responses.is_empty:
            if self._state is _DRAINING:
                self._close()
            elif self._state is _LOST and not self._yielded:
                self._connections.finished(self)

    def _take_requests(self, now: float) -> bool:
        """Take what may be taken, for one quantum from `now` on; whether that was all there is."""
        receiver, responses = self._receiver, self._responses
        awaited, scheduler = responses.awaited, self._broker.scheduler
        began, ends = now, 0.0
        while True:
            if awaited and awaited[0].is_known:
                responses.send_ready()
            if self._waiting_request is None and not (
                receiver.data or receiver.chunks or receiver.partial
            ):
                return True
            if not self._may_take():
                return False
            if now > began:
                ends = ends or began + scheduler.quantum_seconds
                if now >= ends:
                    self._yield()
                    return False
            request, self._waiting_request = self._waiting_request, None
            if request is None:
                request = receiver.next_request()
            done: RequestKind | None = None  # what was carried out, and how many of it
            count = 1
            if type(request) is ProduceRun:
                done, count = self._produces, request.request_count
                done.taken += count
                if self._throttle is not None:
                    self._throttle.took(count)
                self._server.append_run(request, self._client)
            elif request is None:
                return False
            elif isinstance(request, self._pipelined):
                done = self._take(request, now)
            elif awaited:
                self._waiting_request = request
            elif self._state is not _LOST and not self._has_left:
                done = self._take(request, now)
            taken, now = now, scheduler.now()
            if done is not None:
                done.seconds.observe(now - taken, count)

    def _may_take(self) -> bool:
        awaited = self._responses.awaited
        return not (
            self._responses.sending is not None
            or self._ordered is not None
            or self._yielded
            or self._state is _DRAINING
            or self._state is _LINGERING
            or (self._throttle is not None and self._throttle.is_delayed)
            or (awaited and (self._waiting_request is not None or len(awaited) >= MAX_UNANSWERED))
        )

    def _take(self, request: Any, now: float) -> RequestKind | None:
        kind: RequestKind = self._admitted.kind_of(request)
        kind.taken += 1
        if self._throttle is not None:
            self._throttle.took(1)
        outcome = self._server.serve(request, self._client)
        if isinstance(outcome, DeferredResponse):
            outcome.kind, outcome.began = kind, now
            self._responses.awaited.append(outcome)
            if outcome.ordered:
                self._ordered = outcome
            outcome.watch(self)
            return None
        if outcome is not None:
            self._responses.add(outcome)
            moved = self._responses.moved_bytes
            if (
                moved >= CROWDED_BYTES  # the least that a quantum is
                and moved >= self._broker.scheduler.quantum_bytes
                and self._receiver.buffered_bytes
            ):
                self._yield()
        return kind

    def _yield(self) -> None:
        self._yielded = True
        self._broker.scheduler.resume_later(self._resume)

    def _read_on(self) -> None:
        """Take what came while responses left, sparing a round of the reactor."""
        # A consumer that keeps several fetches in flight has sent the next one by then. An end or
        # an error of the socket is left for the transport to find.
        if not isinstance(self._carrier, SendfileCarrier):
            return
        responses, scheduler = self._responses, self._broker.scheduler
        while (
            (moved := responses.moved_bytes) > 0
            and (moved < CROWDED_BYTES or moved < scheduler.quantum_bytes)
            and self._reading
            and self._may_take()
        ):
            data = self._carrier.receive()
            if not data:
                return
            if self._throttle is not None:
                self._throttle.received(len(data))
            self._receiver.receive_data(data)
            self._advance()

    # -- the end --------------------------------------------------------------------------------

    def _sending_failed(self, error: Exception) -> None:
        """A peer that left is not worth a line; a segment that can't be read is."""
        if not isinstance(error, ConnectionError):
            self._connections.limited_log.error(
                "sending", "sending to {client} failed: {error}", client=self._client, error=error
            )
        self._abort()

    def _report_fault(self, failure: Failure) -> None:
        self._connections.limited_log.failure(
            "fault", "serving {client} failed", failure, client=self._client
        )

    def _refuse(self, reason: str, error: BaseException | None = None) -> None:
        """Close because of what the peer did, once the responses before it have left."""
        if self._state is _SERVING or self._state is _LOST:
            self._take_no_more(_LOST if self._state is _LOST else _DRAINING)
            if self._gate is not None and isinstance(error, HermesError):
                reason = f"{reason} (before it said who it is)"
            self._connections.refused(self._client, reason, error)

    def _take_no_more(self, state: _State) -> None:
        self._state = state
        self._waiting_request = None
        self._receiver = self._new_receiver()

    def _close(self) -> None:
        """Every response has been handed to the kernel: close when the peer has them all."""
        self._state = _LINGERING
        limit_seconds = self._connections.config.stop_timeout_ms / 1000
        assert self._carrier is not None
        self._lingering = Lingering(
            self.transport, self._carrier, self._connections.clock, limit_seconds, self._abort
        )
        if self._lingering.is_waiting:
            self._read(True)

    def _abort(self) -> None:
        """Cut the connection, whatever is under way; `connectionLost` follows."""
        if self._state is _LOST:
            return
        self._take_no_more(_LINGERING)
        self._responses.close()
        transport: Any = self.transport
        transport.abortConnection()

    # -- reading --------------------------------------------------------------------------------

    def _update_reading(self) -> None:
        """Tell the budget what is held, and read exactly while that can be taken soon."""
        receiver = self._receiver
        checking = self._ordered.request_bytes if self._ordered is not None else 0
        missing = receiver.missing_bytes if self._state is _SERVING else 0
        held = receiver.buffered_bytes + checking
        self._connections.memory.update(self, held, missing, checking)
        self._is_counted = held > 0
        self._apply_reading()

    def _apply_reading(self) -> None:
        if self._state is _SERVING:
            buffered = self._receiver.buffered_bytes
            paused = self._paused_by_budget or (
                self._throttle is not None and self._is_held_by_quota(self._throttle)
            )
            self._read(not paused and (buffered <= READ_AHEAD_BYTES or self._may_take()))
            if not self._reading and self._ordered is not None and self._end_check is None:
                self._watch_for_end()
        elif self._state is _DRAINING:
            self._read(False)

    def _watch_for_end(self) -> None:
        """Let nothing wait for a peer that has left, which an unread socket doesn't report.

        Produces that it had sent are still carried out, as when the connection is lost.
        """
        clock = self._connections.clock
        self._end_check = clock.callLater(_END_CHECK_SECONDS, self._check_end)

    def _check_end(self) -> None:
        self._end_check = None
        ordered = self._ordered
        if ordered is None or self._reading:
            return
        if ordered.cancellable and has_left(self.transport):
            self._has_left = True
            ordered.cancel()
        else:
            self._watch_for_end()

    def _is_held_by_quota(self, throttle: Throttle) -> bool:
        """Whether nothing is read because its principal is over a quota."""
        # A started request is read on while the memory budget is used up: else it would hold memory
        # that others need, and be given up for that.
        return throttle.is_delayed and not (
            self._connections.memory.over_budget and self._receiver.missing_bytes
        )

    def _read(self, reading: bool) -> None:
        if reading is not self._reading:
            self._reading = reading
            transport: Any = self.transport
            if reading:
                transport.resumeProducing()
            else:
                transport.pauseProducing()

    # -- parts ----------------------------------------------------------------------------------

    def _new_receiver(self) -> Any:
        config = self._connections.config
        return RequestReceiver(
            max_request_bytes=config.max_request_bytes, max_message_bytes=config.max_message_bytes
        )


class BrokerFactory(ServerFactory):
    noisy = False

    def __init__(self, connections: Connections, policy: ListenerPolicy = _OPEN) -> None:
        self._connections = connections
        self._policy = policy

    def buildProtocol(self, addr: IAddress | None) -> BrokerConnection | None:
        if not self._connections.has_room(addr):
            return None
        return BrokerConnection(self._connections, self._policy)
