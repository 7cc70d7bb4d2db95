"""Every request of ZooKeeper's protocol, in every way that must come to nothing, over real sockets.

A request type that is new in `OpCode` or `KNOWN_TYPES` has no row here, and a test fails.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from certificates import Certificates
from jute_frames import OPEN_ACL, connect_request, request, text

from hermes.coordination.embedded.zookeeper_requests import KNOWN_TYPES, OpCode
from hermes.coordination.sessions import Session
from hermes.security import ClientSecurity
from hermes.testing import RunningBroker, running_broker

# Of each probe a password is guessed once: for more, whoever guesses waits.
PROBES = [f"probe-{number}" for number in range(40)]
USERS = {name: f"{name}'s password" for name in ("alice", "bob", "dave", "admin", *PROBES)}
ACCESS = [
    {"principal": "alice", "operations": ["group"], "group": "a-*"},
    {"principal": "alice", "operations": ["consume"], "topic": "clicks"},
    {"principal": "bob", "operations": ["group"], "group": "b-*"},
    {"principal": "bob", "operations": ["consume"], "topic": "views"},
    {"principal": "admin", "operations": ["all"]},
]
NO_AUTH, AUTH_FAILED, MUST_AUTHENTICATE = -102, -115, -124
UNIMPLEMENTED, RECONFIGURATION_DISABLED = -6, -123
SECRET = b"what alice has stored"


def _multi(path: bytes) -> bytes:
    head, end = struct.pack(">i?i", 1, False, -1), struct.pack(">i?i", -1, True, -1)
    return head + path + text(b"x") + OPEN_ACL + bytes(4) + end


def bodies(where: str) -> dict[int, bytes]:
    """The body of each type of request, about a node that is there."""
    path, new, any_version = text(where), text(f"{where}/new"), struct.pack(">i", -1)
    return {
        OpCode.CREATE: new + text(b"x") + OPEN_ACL + bytes(4),
        OpCode.CREATE2: new + text(b"x") + OPEN_ACL + bytes(4),
        OpCode.DELETE: path + any_version,
        OpCode.EXISTS: path + b"\1",
        OpCode.GET_DATA: path + b"\1",
        OpCode.SET_DATA: path + text(b"x") + any_version,
        OpCode.GET_ACL: path,
        OpCode.SET_ACL: path + OPEN_ACL + any_version,
        OpCode.GET_CHILDREN: path + b"\1",
        OpCode.GET_CHILDREN2: path + b"\1",
        OpCode.SYNC: path,
        OpCode.PING: b"",
        OpCode.CHECK: path + any_version,
        OpCode.MULTI: _multi(new),
        OpCode.AUTH: bytes(4) + text("digest") + text("admin:guessed"),
        OpCode.SET_WATCHES: bytes(8) + 3 * (struct.pack(">i", 1) + path),
        OpCode.CLOSE: b"",
        **dict.fromkeys(KNOWN_TYPES - set(OpCode), path),
    }


TYPES = sorted(bodies("/x"))
#: Answered to who may nothing: they tell nothing, and change nothing.
HARMLESS = {OpCode.SYNC, OpCode.PING, OpCode.CLOSE, OpCode.SET_WATCHES}
READS = {
    *(OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_ACL),
    *(OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2),
}
# What isn't served at all; a check is a part of transactions only.
NOT_SERVED = {*(KNOWN_TYPES - set(OpCode)), OpCode.CHECK}


def test_every_type_has_a_row() -> None:
    assert set(TYPES) == (KNOWN_TYPES | set(OpCode)) - {OpCode.ERROR}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"coordination": "embedded", "access": ACCESS}
    with running_broker(settings=settings, tls=True, users=USERS) as running:
        session = as_user(running, "admin")
        for path in ("/consumers/a-group/offsets/clicks/0-0", "/brokers/topics/clicks/9"):
            session.put(path, SECRET)
        session.stop()
        yield running


@pytest.fixture(scope="module")
def tree(broker: RunningBroker) -> Iterator[None]:
    """What was there before all attempts is there after them, and nothing else."""
    session = as_user(broker, "admin")
    before = _tree(session)
    yield
    assert _tree(session) == before
    session.stop()


def as_user(broker: RunningBroker, name: str) -> Session:
    security = ClientSecurity(**broker.client_settings(name))
    session = Session(broker.zookeeper_connect, security=security)
    session.start()
    return session


def _tree(session: Session, path: str = "/") -> dict[str, Any]:
    found = {path: session.get(path)}
    for name in session.children(path):
        found |= _tree(session, f"{path.rstrip('/')}/{name}")
    return found


class Client:
    """A connection that says exactly what it is told."""

    def __init__(self, broker: RunningBroker, ca: str | None) -> None:
        host, port = broker.zookeeper_connect.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
            try:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            except ssl.SSLError:
                self._socket.close()
                raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, *frames: bytes) -> list[tuple[int, int, int, bytes]]:
        """Everything that is answered until the end: the xid, zxid and error, and the body."""
        with suppress(OSError):
            self._socket.sendall(b"".join(frames))
        answered = b""
        with suppress(OSError):
            while part := self._socket.recv(65536):
                answered += part
        return list(_frames(answered))


def _frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    (size,) = struct.unpack_from(">i", data)
    data = data[4 + size :]  # the answer to the connect request
    while data:
        (size,) = struct.unpack_from(">i", data)
        yield *struct.unpack_from(">iqi", data, 4), data[20 : 4 + size]
        data = data[4 + size :]


CLOSE = request(9, OpCode.CLOSE)
A_GROUP, A_TOPIC, A_BROKER = (
    "/consumers/a-group/offsets/clicks/0-0",
    "/brokers/topics/clicks/9",
    "/brokers/ids/0",
)


def proof(name: str, password: str) -> bytes:
    return request(-4, OpCode.AUTH, bytes(4) + text("digest") + text(f"{name}:{password}"))


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("code", TYPES)
def test_by_nobody(broker: RunningBroker, certificates: Certificates, code: int) -> None:
    asked = request(7, code, bodies(A_GROUP)[code])
    ca = broker.client_settings("dave")["tls_ca"]
    # Without TLS.
    host, port = broker.zookeeper_connect.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        answered = b""
        with suppress(OSError):
            plain.sendall(connect_request() + asked)
            while part := plain.recv(65536):
                answered += part
    assert len(answered) <= 7  # an alert of TLS at the most
    # By an authority that isn't the server's: the client sends nothing.
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(broker, str(certificates.other_ca))
    # Without a user.
    with Client(broker, ca) as client:
        (answer,) = client.say(connect_request(), asked, *[CLOSE] * (code == OpCode.PING))[:1]
    expected = {int(OpCode.PING): 0, int(OpCode.CLOSE): 0, int(OpCode.AUTH): AUTH_FAILED}
    assert answer == (7, 0, expected.get(code, MUST_AUTHENTICATE), b"")
    # With a wrong password: what follows isn't looked at.
    probe = PROBES[TYPES.index(code)]
    with Client(broker, ca) as client:
        assert client.say(connect_request(), proof(probe, USERS[probe]), CLOSE)[-1][2] == 0
    with Client(broker, ca) as client:
        assert client.say(connect_request(), proof(probe, "wrong"), asked) == [
            (-4, 0, AUTH_FAILED, b"")
        ]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("path", [A_GROUP, A_TOPIC, A_BROKER])
@pytest.mark.parametrize("user", ["dave", "bob"])
def test_by_users_without_the_right(broker: RunningBroker, user: str, path: str) -> None:
    ca, made = broker.client_settings(user)["tls_ca"], bodies(path)
    last = (OpCode.AUTH, OpCode.CLOSE)  # each ends the connection
    asked = [code for code in TYPES if code not in last]
    found: dict[int, tuple[int, bytes]] = {}
    for ending in last:
        codes = [*(asked if ending == last[0] else []), ending]
        frames = [request(100 + TYPES.index(code), code, made[code]) for code in codes]
        with Client(broker, ca) as client:
            proved, *answers = client.say(connect_request(), proof(user, USERS[user]), *frames)
        assert proved[2] == 0
        events = [each for each in answers if each[0] == -1]
        assert not events or path == A_BROKER  # whose address is no secret to users
        answers = [each for each in answers if each[0] != -1]
        for code, (xid, _, error, body) in zip(codes, answers, strict=True):
            assert xid == 100 + TYPES.index(code)
            found[code] = error, body
    assert set(found) == set(TYPES)
    for code, (error, body) in found.items():
        assert SECRET not in body
        if code == OpCode.AUTH:
            assert error == AUTH_FAILED
        elif code in NOT_SERVED:
            assert error in (UNIMPLEMENTED, RECONFIGURATION_DISABLED)
        elif code == OpCode.MULTI:
            refused = struct.pack(">i?ii", -1, False, NO_AUTH, NO_AUTH)
            assert (error, body) == (0, refused + struct.pack(">i?i", -1, True, -1))
        elif code in HARMLESS or (path == A_BROKER and code in READS):
            assert error == 0  # where brokers are is told to whoever is served
        else:
            assert (error, body) == (NO_AUTH, b"")
