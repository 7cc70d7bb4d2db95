"""Decides what a request does to the tree, the sessions and the watches, and who is sent what.

Knows connections only as `Peer`s, and neither sockets nor files. Whatever it sends goes through the
commit queue, events before the response to the request that caused them.

Source: ZooKeeper's `ZooKeeperServer`, `PrepRequestProcessor` and `FinalRequestProcessor`.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IReactorTime

from hermes.coordination.embedded.access_control import add_identity
from hermes.coordination.embedded.commit_queue import CommitQueue
from hermes.coordination.embedded.four_letter_words import ClientReport
from hermes.coordination.embedded.jute import JuteReader
from hermes.coordination.embedded.jute_records import AclPermission, EventType
from hermes.coordination.embedded.limits import MAX_OPERATIONS, MAX_SESSIONS
from hermes.coordination.embedded.proofs import Promise, Proof
from hermes.coordination.embedded.read_requests import ReadRequest, missed_events, serve_read
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.server_sessions import ExpiryTimer, ServerSession, SessionTable
from hermes.coordination.embedded.transaction import NodeEvent, Transaction
from hermes.coordination.embedded.tree import DataTree
from hermes.coordination.embedded.tree_changes import SessionClosed, SessionOpened
from hermes.coordination.embedded.watches import Watches
from hermes.coordination.embedded.write_requests import serve_write
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    KNOWN_TYPES,
    AuthRequest,
    CloseRequest,
    ConnectRequest,
    PingRequest,
    Request,
    SetWatchesRequest,
    decode_request,
)
from hermes.coordination.embedded.zookeeper_responses import (
    encode_connect_response,
    encode_event,
    encode_response,
)
from hermes.limited_log import LimitedLog

#: Of a session.
PASSWORD_BYTES: Final = 16


class Peer(Protocol):
    """A connection, as the processor sees it.

    Attributes:
        session: the one it uses; None before it has connected and after the session's end.
        promise: what it gets once it has authenticated; None when it has that, or asked for none.
        asks_for_passwords: whether its listener does (guarded_processor.py).
        waiting_bytes: what it will be sent once it is on disk; added here, subtracted there.
    """

    rights: Rights
    session: "ServerSession[Peer] | None"
    promise: Promise | None
    asks_for_passwords: bool
    waiting_bytes: int

    def respond(self, data: bytes) -> None:
        """Send the response to the oldest request that has none."""

    def notify(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Close the connection once everything is sent."""

    def check(self, proof: Proof) -> None:
        """Find out whether a proof is right; no further request is served meanwhile."""

    @property
    def report(self) -> ClientReport:
        """Its address, for the log."""

    def __hash__(self) -> int: ...


@dataclass(slots=True)
class ServerState:
    tree: DataTree = field(default_factory=DataTree)
    sessions: SessionTable[Peer] = field(default_factory=SessionTable)
    watches: Watches[Peer] = field(default_factory=Watches)


class RequestProcessor:
    """Serves requests; lives in the reactor's thread.

    Args:
        state: nobody else changes it.
        timeouts_ms: the shortest and the longest session timeout that a client can get.
        now_ms: the wall clock, in ms since 1970; for stamps only.
        log: for lines that clients can cause.
    """

    def __init__(
        self,
        state: ServerState,
        queue: CommitQueue,
        timeouts_ms: tuple[int, int],
        clock: IReactorTime,
        now_ms: Callable[[], int],
        log: LimitedLog,
    ) -> None:
        self.state = state
        self.queue = queue
        self._timeouts_ms = timeouts_ms
        self._clock = clock
        self._now_ms = now_ms
        self._log = log
        self._timer = ExpiryTimer(clock, state.sessions, self.expire)
        self._timer.update()
        self._is_stopped = False

    def stop(self) -> None:
        """Let no session expire any more; the next start deletes what is left of ended ones."""
        self._is_stopped = True
        self._timer.stop()

    # -- sessions ---------------------------------------------------------------------------------

    def connect(self, peer: Peer, request: ConnectRequest) -> None:
        if self._is_ahead(request):
            peer.end()
            return
        session: ServerSession[Peer] | None
        principal = peer.rights.principal
        if request.session_id == 0:
            session_id = self.state.sessions.unused_id(self._now_ms())
            session = self._open(request, session_id, os.urandom(PASSWORD_BYTES), principal)
        else:
            session = self._resume(request, principal)
        known = None
        if session is not None:
            peer.session, session.connection = session, peer
            known = (session.session_id, session.password)
        response = encode_connect_response(
            known, self._timeout_ms(request), with_read_only=request.read_only is not None
        )
        self._send(peer, peer.respond, response)
        if session is None:
            self.queue.call_after(peer.end)
        else:
            self._note_deadline(session)

    def _is_ahead(self, request: ConnectRequest) -> bool:
        """Whether a client has seen what isn't here: it would see time go backwards."""
        if request.last_zxid <= self.state.tree.zxid:
            return False
        self._log.warn(
            "ahead",
            "refused a client that has seen transaction {zxid}; the newest here is {newest}",
            zxid=request.last_zxid,
            newest=self.state.tree.zxid,
        )
        return True

    def _note_deadline(self, session: ServerSession[Peer]) -> None:
        if not self._is_stopped:
            self._timer.note(session.deadline)

    def leave(self, peer: Peer) -> None:
        """A connection is gone: so are its watches. Its session lives on until its timeout."""
        self.state.watches.forget(peer)
        peer.promise = None
        session, peer.session = peer.session, None
        if session is not None and session.connection is peer:
            session.connection = None

    def expire(self, sessions: Iterable[ServerSession[Peer]]) -> None:
        for session in sessions:
            self._log.info(
                "expired", "session {session} has expired", session=f"{session.session_id:#x}"
            )
            peer = session.connection
            if peer is not None:
                self.leave(peer)
                peer.end()
            self._close(session)

    def mark_own(self, session_id: int) -> None:
        """Record, also for after a crash, that a session's client is in this very process."""
        session = self.state.sessions.get(session_id)
        if session is None or session.is_own:
            return
        session.is_own = True
        self.state.tree.zxid += 1
        marked = SessionOpened(session_id, session.password, session.timeout_ms, is_own=True)
        self.queue.commit([marked], self.state.tree.zxid)

    def end_own(self) -> None:
        """End the session of the previous process; call it before this one opens its own."""
        for session in [each for each in self.state.sessions if each.is_own]:
            self._log.info(
                "own",
                "ended session {session}, which this broker's last process has left behind",
                session=f"{session.session_id:#x}",
            )
            self._close(session)

    def _open(
        self, request: ConnectRequest, session_id: int, password: bytes, principal: str
    ) -> ServerSession[Peer]:
        state, timeout_ms = self.state, self._timeout_ms(request)
        if len(state.sessions) >= MAX_SESSIONS:
            self._shed_sessions()
        session = state.sessions.open(session_id, password, timeout_ms, self._clock.seconds())
        session.principal = principal
        state.tree.zxid += 1
        self.queue.commit([SessionOpened(session_id, password, timeout_ms)], state.tree.zxid)
        return session

    def _shed_sessions(self) -> None:
        """End early the sessions that nobody uses and nothing depends on: those due first."""
        owners, sessions = self.state.tree.ephemerals, self.state.sessions
        unused = [
            session
            for session in sessions
            if session.connection is None and session.session_id not in owners
        ]
        unused.sort(key=lambda session: session.deadline)
        self.expire(unused[: MAX_SESSIONS // 10])

    def _resume(self, request: ConnectRequest, principal: str) -> ServerSession[Peer] | None:
        session = self.state.sessions.find(request.session_id, request.password)
        if session is None or session.principal not in (None, principal):
            return None
        session.principal = principal
        former = session.connection
        if former is not None:
            self.leave(former)
            former.end()
        session.timeout_ms = self._timeout_ms(request)
        session.touch(self._clock.seconds())
        return session

    def _close(self, session: ServerSession[Peer], then: Callable[[], None] = lambda: None) -> None:
        """End a session, then its nodes: as many at a time as a transaction may hold.

        Its last transaction ends it on disk, so that after a crash the rest expires once more.
        """
        self.state.sessions.close(session)
        self._delete_ephemerals(session.session_id, then)

    def _delete_ephemerals(self, session_id: int, then: Callable[[], None]) -> None:
        transaction = Transaction(self.state.tree, self._now_ms(), session_id)
        is_done = transaction.delete_ephemerals(MAX_OPERATIONS)
        if is_done:
            transaction.changes.append(SessionClosed(session_id))
        self._commit(transaction)
        if is_done:
            then()
        else:
            self._clock.callLater(0, self._delete_more_ephemerals, session_id, then)

    def _delete_more_ephemerals(self, session_id: int, then: Callable[[], None]) -> None:
        if not self._is_stopped:
            self._delete_ephemerals(session_id, then)

    def _timeout_ms(self, request: ConnectRequest) -> int:
        shortest, longest = self._timeouts_ms
        return min(max(request.timeout_ms, shortest), longest)

    # -- requests ---------------------------------------------------------------------------------

    def handle(self, peer: Peer, body: memoryview) -> None:
        """Serve a request of a peer with a session, header included: exactly one response is sent.

        Raises RemoteProtocolError when the header is incomplete; close the connection.
        """
        reader = JuteReader(body)
        xid, code = reader.int32(), reader.int32()
        assert peer.session is not None
        peer.session.touch(self._clock.seconds())
        error, record = ZooKeeperCode.OK, b""
        try:
            request = decode_request(code, reader)
            if isinstance(request, CloseRequest):
                self._end_session(peer, xid)
                return
            record = self._serve(peer, request)
        except RequestRefusedError as refusal:
            error = refusal.code
        self._send(peer, peer.respond, encode_response(xid, self.state.tree.zxid, error, record))
        self._shed_watches()
        if error is ZooKeeperCode.AUTH_FAILED or code not in KNOWN_TYPES:
            self.queue.call_after(peer.end)

    def _end_session(self, peer: Peer, xid: int) -> None:
        session = peer.session
        assert session is not None
        self.leave(peer)

        def respond() -> None:
            self._send(peer, peer.respond, encode_response(xid, self.state.tree.zxid))
            self.queue.call_after(peer.end)

        self._close(session, respond)

    def _serve(self, peer: Peer, request: Request) -> bytes:
        state = self.state
        if isinstance(request, ReadRequest):
            return serve_read(state.tree, state.watches, peer, peer.rights, request)
        match request:
            case PingRequest():
                return b""
            case AuthRequest(scheme, credential):
                add_identity(peer.rights.identities, scheme, credential)
                return b""
            case SetWatchesRequest():
                missed = missed_events(state.tree, state.watches, peer, peer.rights, request)
                for kind, path in missed:
                    self._send(peer, peer.notify, encode_event(kind, path))
                return b""
            case CloseRequest():
                raise AssertionError("handled by _end_session")
            case _:
                transaction = self._transaction(peer)
                record = serve_write(state.tree, transaction, request)
                self._commit(transaction)
                return record

    def _shed_watches(self) -> None:
        """While all clients together have too many watches, cut off the one that has most."""
        while (peer := self.state.watches.largest()) is not None:
            self._log.warn(
                "watches",
                "cut off {client}: clients have too many watches, and this one has most of them",
                client=peer.report.address,
            )
            self.leave(peer)
            peer.end()

    # -- writes -----------------------------------------------------------------------------------

    def change(
        self, rights: Rights, operations: Iterable[tuple[Callable[[Transaction, Any], Any], Any]]
    ) -> list[Any]:
        """Carry out a transaction of nobody's session, whole or, where that raises, not at all.

        Each of its operations is called with the transaction and its argument; returns what they
        gave.
        """
        transaction = Transaction(self.state.tree, self._now_ms(), 0, rights)
        results = []
        try:
            for operation, argument in operations:
                results.append(operation(transaction, argument))
        except BaseException:
            transaction.rollback()
            raise
        self._commit(transaction)
        return results

    def _transaction(self, peer: Peer) -> Transaction:
        assert peer.session is not None
        session_id = peer.session.session_id
        return Transaction(self.state.tree, self._now_ms(), session_id, peer.rights)

    def _commit(self, transaction: Transaction) -> None:
        if not transaction.changes:
            return
        transaction.commit()
        self.queue.commit(transaction.changes, self.state.tree.zxid)
        for happened in transaction.events:
            self._fire(happened)

    def _send(self, peer: Peer, function: Callable[[bytes], None], data: bytes) -> None:
        peer.waiting_bytes += len(data)
        self.queue.call_after(function, data)

    def _fire(self, happened: NodeEvent) -> None:
        watches = self.state.watches
        frames: dict[tuple[EventType, str], bytes] = {}  # each encoded once
        for peer, kind, path in list(watches.fire(happened.kind, happened.path)):
            rights = peer.rights
            # A list of children that hides this one is as it was, and watched on.
            if rights.is_filtered(path) and not rights.may_read(happened.path):
                watches.children.add(path, peer)
                continue
            # `exists` lets anyone set a watch; its event is for those who may read.
            acl = happened.acl if path == happened.path else happened.parent_acl
            if rights.may_read(path) and rights.is_permitted(path, acl, AclPermission.READ):
                frame = frames.get((kind, path)) or encode_event(kind, path)
                frames[kind, path] = frame
                self._send(peer, peer.notify, frame)
