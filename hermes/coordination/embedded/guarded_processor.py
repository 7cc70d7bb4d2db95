"""What clients may do until they have authenticated, on a listener that asks for passwords.

A client of ZooKeeper asks for a session first and authenticates in it. So the session is only
promised: it begins, or is taken over from its former connection, once the password was right.
Nothing is kept for who doesn't come that far, and no answer says anything about the tree.

Anything but a proof, a sign of life and the end of the session is answered as ZooKeeper does where
it enforces authentication, and the connection is closed.
"""

import os
from typing import Final

from hermes.coordination.embedded.access_control import credential_identity, verified_identity
from hermes.coordination.embedded.jute import JuteReader
from hermes.coordination.embedded.limits import MAX_CREDENTIAL_BYTES
from hermes.coordination.embedded.processor import PASSWORD_BYTES, Peer, RequestProcessor
from hermes.coordination.embedded.proofs import Promise, Proof
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    AuthRequest,
    ConnectRequest,
    OpCode,
    decode_request,
)
from hermes.coordination.embedded.zookeeper_responses import (
    encode_connect_response,
    encode_response,
)

# Tells nothing: whoever hasn't authenticated sees no transaction's number.
_NO_ZXID: Final = 0


class GuardedProcessor(RequestProcessor):
    def connect(self, peer: Peer, request: ConnectRequest) -> None:
        """Give a session, or until the client has authenticated promise one."""
        if not peer.asks_for_passwords:
            super().connect(peer, request)
            return
        promise = self._promised(request)
        peer.promise = promise
        known = promise and (promise.session_id, promise.password)
        with_read_only = request.read_only is not None
        response = encode_connect_response(
            known, self._timeout_ms(request), with_read_only=with_read_only
        )
        self._send(peer, peer.respond, response)
        if promise is None:
            self.queue.call_after(peer.end)

    def _promised(self, request: ConnectRequest) -> Promise | None:
        sessions = self.state.sessions
        if request.session_id == 0:
            session_id = sessions.unused_id(self._now_ms())
            return Promise(request, session_id, os.urandom(PASSWORD_BYTES))
        session = sessions.find(request.session_id, request.password)
        if session is None:
            return None
        return Promise(request, session.session_id, session.password)

    def handle(self, peer: Peer, body: memoryview) -> None:
        """Serve a request; a client without a session may only authenticate."""
        if not peer.asks_for_passwords:
            super().handle(peer, body)
            return
        reader = JuteReader(body)
        xid, code = reader.int32(), reader.int32()
        if peer.session is not None and code != OpCode.AUTH:
            super().handle(peer, body)
            return
        if code == OpCode.AUTH:
            self._take_proof(peer, xid, reader)
        elif code == OpCode.PING:
            self._answer(peer, xid)
        elif code == OpCode.CLOSE:
            self._answer(peer, xid, is_last=True)
        else:
            self._answer(peer, xid, ZooKeeperCode.AUTHENTICATION_REQUIRED, is_last=True)

    def _take_proof(self, peer: Peer, xid: int, reader: JuteReader) -> None:
        try:
            request = decode_request(OpCode.AUTH, reader)
        except RequestRefusedError as refusal:
            self._answer(peer, xid, refusal.code, is_last=True)
            return
        assert isinstance(request, AuthRequest)
        if request.scheme == "ip":  # an address proves itself, and here nothing
            self._answer(peer, xid)
            return
        user, colon, password = request.credential.decode("utf-8", "replace").partition(":")
        is_whole = colon and len(request.credential) <= MAX_CREDENTIAL_BYTES
        if request.scheme != "digest" or not is_whole:
            self.refuse(peer, xid)
            return
        peer.check(Proof(xid, user, password, request.credential))

    # -- what comes of a proof --------------------------------------------------------------------

    def refuse(self, peer: Peer, xid: int) -> None:
        self._answer(peer, xid, ZooKeeperCode.AUTH_FAILED, is_last=True)

    def admit(self, peer: Peer, proof: Proof, user: str) -> bool:
        """A proof is right: give the client its session.

        False when it gets none: not as somebody else than before, nor another's session.
        """
        promise, peer.promise = peer.promise, None
        if promise is None:
            if peer.session is None or peer.rights.principal != user:
                self.refuse(peer, proof.xid)
                return False
        elif not self._keep(peer, promise, user):
            return False
        peer.rights.principal = user
        # By name, so that no ACL need hold what a password could be found by; and as it was hashed
        # by those who have made an ACL of it themselves.
        peer.rights.identities[verified_identity(user)] = None
        peer.rights.identities[credential_identity(proof.credential)] = None
        self._send(peer, peer.respond, encode_response(proof.xid, self.state.tree.zxid))
        return True

    def _keep(self, peer: Peer, promise: Promise, user: str) -> bool:
        request = promise.request
        if self._is_ahead(request):
            peer.end()
            return False
        if request.session_id == 0:
            session = self._open(request, promise.session_id, promise.password, user)
        else:
            found = self._resume(request, user)
            if found is None:  # it has expired meanwhile, or is another's
                peer.end()
                return False
            session = found
        peer.session, session.connection = session, peer
        self._note_deadline(session)
        return True

    def _answer(
        self,
        peer: Peer,
        xid: int,
        code: ZooKeeperCode = ZooKeeperCode.OK,
        *,
        is_last: bool = False,
    ) -> None:
        self._send(peer, peer.respond, encode_response(xid, _NO_ZXID, code))
        if is_last:
            self.queue.call_after(peer.end)
