"""Connections: carry bytes between a socket, its receiver and the processor.

What arrives waits until the client is served next (clients.py); the socket is not read meanwhile.
Bounds: a frame is at most 1 MiB; a client with too many requests or bytes without a response, or
one that does not read its responses, is neither served nor read from; one that never asks for a
session, or doesn't authenticate where that is asked for, is cut off. limits.py has the figures.
"""

from collections import deque
from typing import Any, Final

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IPushProducer
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.config.listeners import NONE
from hermes.coordination.embedded.access_control import verified_identity
from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.four_letter_words import ClientReport, Statistics, word_response
from hermes.coordination.embedded.guard import OPEN, Guard
from hermes.coordination.embedded.guarded_processor import GuardedProcessor
from hermes.coordination.embedded.jute_records import AclIdentity
from hermes.coordination.embedded.limits import (
    IDLE_SECONDS,
    MAX_OWED,
    MAX_OWED_BYTES,
    MAX_UNCOMMITTED_BYTES,
    MAX_UNPROVEN_FRAME_BYTES,
    PROOF_SECONDS,
    SMALL_BYTES,
)
from hermes.coordination.embedded.processor import Peer
from hermes.coordination.embedded.proofs import Promise, Proof
from hermes.coordination.embedded.receiver import ClientReceiver, Word
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.server_sessions import ServerSession
from hermes.coordination.embedded.zookeeper_requests import ConnectRequest
from hermes.errors import RemoteProtocolError
from hermes.listening import peer_principal
from hermes.logs import ModuleLogger

# A client is served no more requests than this before the next one is.
_QUANTUM_REQUESTS: Final = 32


@implementer(IPushProducer)
class CoordinationConnection(Protocol):
    """One client's connection; a `Peer` of the processor and one of the `Clients`.

    Attributes:
        promise: the session that it gets once it has authenticated.
        waiting_bytes: what it will be sent once it is on disk.
    """

    _log = ModuleLogger()

    def __init__(self, clients: Clients, address: IAddress | None, guard: Guard = OPEN) -> None:
        host = getattr(address, "host", None)
        self.rights = Rights(
            {AclIdentity("ip", host): None} if host else {},
            rules=guard.rules,
            shown=guard.shown,
            is_anybody=guard.authentication == NONE,
        )
        self.session: ServerSession[Peer] | None = None
        self.promise: Promise | None = None
        self.waiting_bytes = 0
        self.statistics = Statistics()
        self._clients = clients
        self._address = f"{host}:{getattr(address, 'port', '')}" if host else "unix"
        self.asks_for_passwords = guard.asks_for_passwords
        self._guard = guard
        self._host = host or ""
        self._user: str | None = None  # who has authenticated, for those who know users
        self._is_checking = False  # a password or groups, in a thread
        self._processor: GuardedProcessor | None = None  # from the connect request on
        self._receiver = ClientReceiver()
        self._owed: deque[float] = deque()  # when the requests came that have no response
        self._has_more = False  # the receiver may hold something to serve
        self._waits_for_disk = False  # as all clients do: too much is uncommitted
        self._ended = False
        self._is_read = True  # the socket is
        self._is_full = False  # the transport's buffer
        self._unsent_bytes = 0  # in it since it is full
        self._timer: Any = None

    # -- Twisted calls ----------------------------------------------------------------------------

    def connectionMade(self) -> None:
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(True)
        transport.bufferSize = SMALL_BYTES
        transport.registerProducer(self, True)
        self._clients.add(self)
        self._timer = self._clients.clock.callLater(IDLE_SECONDS, self.abort)
        if self._guard.asks_for_passwords:
            self._receiver.limit(MAX_UNPROVEN_FRAME_BYTES)
        elif self._guard.asks_for_certificates:
            principal = peer_principal(transport, self._guard.tls)
            assert principal is not None, "the listener demands it"
            self.rights.principal = principal
            self.rights.identities[verified_identity(principal)] = None
            if self._guard.users is not None:
                self._is_checking = True  # nothing is served until its groups are known
                self._guard.users.groups_of_certified(self, principal).addCallbacks(
                    self._certified, self._not_certified, callbackArgs=(principal,)
                )

    def dataReceived(self, data: bytes) -> None:
        if self._ended:
            return
        if self.session is not None:  # alive, however long it takes until it is served
            self.session.touch(self._clients.clock.seconds())
        is_behind = self._has_more
        self._receiver.receive_data(data)
        self._has_more = True
        self._note_held()
        self._queue_up()
        if is_behind:
            self._update_reading()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The session lives on."""
        self._ended = True
        self._stop_timer()
        self._clients.forget(self)
        if self._user is not None and self._guard.users is not None:
            self._guard.users.disconnected(self, self._user)
        if self._processor is not None:
            self._processor.leave(self)
        if not isinstance(reason.value, ConnectionDone):
            self._log.debug("{address}: {reason}", address=self._address, reason=str(reason.value))

    def pauseProducing(self) -> None:
        """The client does not read: it is not read from either."""
        self._is_full = True
        self._update_reading()

    def resumeProducing(self) -> None:
        self._is_full = False
        self._unsent_bytes = 0
        self._note_held(has_progressed=True)
        self._queue_up()
        self._update_reading()

    def stopProducing(self) -> None:
        self._ended = True

    # -- the processor calls ----------------------------------------------------------------------

    def respond(self, data: bytes) -> None:
        latency_ms = (self._clients.clock.seconds() - self._owed.popleft()) * 1000
        self._clients.statistics.answered(latency_ms)
        self.notify(data)

    def notify(self, data: bytes) -> None:
        self.waiting_bytes -= len(data)
        self._send(data)
        if self._has_more:
            self._queue_up()
        elif not self._is_read:
            self._update_reading()

    def end(self) -> None:
        """Close the connection once everything is sent; a client that does not read is cut off."""
        transport: Any = self.transport
        if transport.connected and not transport.disconnecting:
            self._ended = True
            self._stop_timer()
            self._timer = self._clients.clock.callLater(IDLE_SECONDS, self.abort)
            transport.unregisterProducer()
            transport.loseConnection()

    def check(self, proof: Proof) -> None:
        users = self._guard.users
        assert users is not None, "a listener that asks for passwords knows some"
        self._is_checking = True
        users.check_password(self._host, proof.user, proof.password).addCallbacks(
            self._checked, self._not_checked, callbackArgs=(proof,)
        ).addErrback(self._failed)

    # -- the users' list calls --------------------------------------------------------------------

    def groups_changed(self, groups: frozenset[str]) -> None:
        """Nothing to do: the rules, which know, are asked each time."""

    def revoke(self, reason: str) -> None:
        """Close it: its user was removed, or has another password."""
        self._clients.limited_log.info(
            "revoked", "closing {address}: {reason}", address=self._address, reason=reason
        )
        if not self._ended:
            self.abort()

    # -- the other clients' table calls -----------------------------------------------------------

    @property
    def report(self) -> ClientReport:
        counted = self.statistics
        return ClientReport(self._address, len(self._owed), counted.received, counted.sent)

    @property
    def received_bytes(self) -> int:
        return self._receiver.buffered_bytes

    def serve_some(self) -> bool:
        """Serve what has arrived, for a quantum; returns whether there may be more now."""
        clock, served = self._clients.clock, 0
        end = clock.seconds() + self._clients.queue.quantum_seconds
        try:
            while self._may_serve and served < _QUANTUM_REQUESTS and clock.seconds() < end:
                item = self._receiver.next_item()
                if item is None:
                    self._has_more = False
                    break
                served += 1
                self._serve(item)
        except RemoteProtocolError as error:
            self._clients.limited_log.warn(
                "protocol", "closing {address}: {error}", address=self._address, error=str(error)
            )
            self.end()
        self._note_held(has_progressed=served > 0)
        self._update_reading()
        return self._has_more and self._may_serve

    def abort(self) -> None:
        self._ended = True
        transport: Any = self.transport
        transport.abortConnection()

    # -- parts ------------------------------------------------------------------------------------

    def _serve(self, item: Word | ConnectRequest | memoryview) -> None:
        self.statistics.received += 1
        self._clients.statistics.received += 1
        if isinstance(item, Word):
            if self._guard.is_open or item.name == "ruok":  # else it would reveal other clients
                self._send(word_response(item.name, self._clients.report()).encode())
            self.end()
            return
        self._owed.append(self._clients.clock.seconds())
        if isinstance(item, ConnectRequest):
            self._connect(item)
        elif self._processor is not None and (self.session or self.promise):
            self._processor.handle(self, item)
        else:
            self._ended = True  # the session is over: what came after its end is ignored

    def _connect(self, request: ConnectRequest) -> None:
        self._stop_timer()
        if self._guard.asks_for_passwords:
            self._timer = self._clients.clock.callLater(PROOF_SECONDS, self._drop_unproved)
        else:
            self._clients.silent.pop(self, None)
        processor = self._clients.processor
        if processor is None:  # the file is being read again
            self.end()
            return
        self._processor = processor
        processor.connect(self, request)

    def _drop_unproved(self) -> None:
        self._clients.limited_log.warn(
            "unproven",
            "cut off {address}: it did not authenticate within {seconds} s",
            address=self._address,
            seconds=round(PROOF_SECONDS),
        )
        self.abort()

    def _checked(self, user: Any, proof: Proof) -> None:
        """A password was checked; None: it is wrong."""
        self._is_checking = False
        if self._ended or self._processor is None:
            return
        if user is None or user.name in self._guard.reserved:
            self._processor.refuse(self, proof.xid)
        elif self._processor.admit(self, proof, user.name):
            self._stop_timer()
            self._clients.silent.pop(self, None)
            self._receiver.limit()
            if self._user is None and self._guard.users is not None:
                self._user = user.name
                self._guard.users.connected(self, user, object())
        self._queue_up()
        self._update_reading()

    def _certified(self, _: Any, principal: str) -> None:
        """The groups of whom a certificate names are known, and are kept up to date."""
        self._is_checking = False
        assert self._guard.users is not None
        if self._ended:
            self._guard.users.disconnected(self, principal)
            return
        self._user = principal
        self._queue_up()
        self._update_reading()

    def _not_certified(self, failure: Failure) -> None:
        self._clients.limited_log.warn(
            "uncertified",
            "closing {address}: its groups can't be looked up: {reason}",
            address=self._address,
            reason=failure.getErrorMessage(),
        )
        if not self._ended:
            self.abort()

    def _not_checked(self, failure: Failure) -> None:
        """Nobody knows whether it is right: the client may try again."""
        self._is_checking = False
        self._clients.limited_log.warn(
            "unchecked",
            "closing {address}: its password can't be checked: {reason}",
            address=self._address,
            reason=failure.getErrorMessage(),
        )
        if not self._ended:
            self.abort()

    def _failed(self, failure: Failure) -> None:
        self._clients.limited_log.failure("fault", "could not admit a client", failure)
        self.abort()

    def _send(self, data: bytes) -> None:
        transport: Any = self.transport
        if transport.connected:
            self.statistics.sent += 1
            self._clients.statistics.sent += 1
            transport.write(data)
            if self._is_full:
                self._unsent_bytes += len(data)
                self._note_held()

    def _note_held(self, *, has_progressed: bool = False) -> None:
        if not self._ended:
            held = self._unsent_bytes + self._receiver.buffered_bytes
            self._clients.holdings.note(self, held, has_progressed=has_progressed)

    @property
    def _may_serve(self) -> bool:
        return not (
            self._ended
            or self._is_checking
            or self._is_full
            or len(self._owed) >= MAX_OWED
            or self.waiting_bytes >= MAX_OWED_BYTES
            or self._must_wait_for_disk()
        )

    def _must_wait_for_disk(self) -> bool:
        if self._processor is None:
            return False
        queue = self._processor.queue
        if queue.held_bytes < MAX_UNCOMMITTED_BYTES:
            return False
        if not self._waits_for_disk:
            self._waits_for_disk = True
            queue.call_after(self._disk_caught_up)
        return True

    def _disk_caught_up(self) -> None:
        self._waits_for_disk = False
        self._queue_up()
        self._update_reading()

    def _queue_up(self) -> None:
        if not self._ended and self._has_more and self._may_serve:
            self._clients.queue.add(self)

    def _update_reading(self) -> None:
        transport: Any = self.transport
        if self._ended or not transport.connected or transport.disconnecting:
            return
        is_read = not self._has_more and self._may_serve
        if is_read != self._is_read:
            self._is_read = is_read
            if is_read:
                transport.resumeProducing()
            else:
                transport.pauseProducing()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None


class CoordinationFactory(ServerFactory):
    noisy = False

    def __init__(self, clients: Clients, guard: Guard = OPEN) -> None:
        self._clients = clients
        self._guard = guard

    def buildProtocol(self, addr: IAddress | None) -> CoordinationConnection | None:
        if not self._clients.make_room():
            return None
        return CoordinationConnection(self._clients, addr, self._guard)
