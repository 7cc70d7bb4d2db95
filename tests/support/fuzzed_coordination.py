"""Fuzzes an embedded server that asks for users by TLS, while one of them is served.

Strangers say almost what a client says that authenticates, tear handshakes and frames apart, leave
them half done, or try passwords. None of them has one.
"""

import random
import resource
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from certificates import Certificates
from embedded_coordination_process import SecureEmbeddedProcess
from hermes_testkit import frame
from hostile_jute import JuteFrames
from jute_frames import connect_request, request, text

from hermes.coordination.sessions import Session
from hermes.security import ClientSecurity

__all__ = ["HandshakePieces", "ProofFrames", "fuzz_guarded"]

PASSWORD: Final = "the right one"
_DEADLINE_SECONDS: Final = 120.0
_STAYING: Final = 300
_AUTH: Final = 100
_WAYS: Final = ("whole", "whole", "many", "drip", "cut", "stay", "reset", "in clear", "half open")


class ProofFrames:
    """Makes what strangers send; decided by `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._others = JuteFrames(chance)

    def proof(self) -> bytes:
        """An authentication that is right in form, or not quite."""
        scheme = self._chance.choice(["digest"] * 6 + ["ip", "sasl", "x509", "world", "", "\0"])
        credential = self._chance.choice(
            [
                *(b"alice:wrong", b"alice:", b":", b"", b"nobody:x", b"hermes-internal:x"),
                *(b"alice", b"alice:" + b"x" * 2000, b"\xff\xfe:\xff", b"alice\0:x", b"::::"),
                self._chance.randbytes(self._chance.randrange(1200)),
            ]
        )
        body = struct.pack(">i", self._chance.choice([0, 0, 1, -1])) + text(scheme)
        data = bytearray(request(-4, _AUTH, body + text(credential)))
        if self._chance.random() < 0.2:
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(data)

    def conversation(self, length: int) -> bytes:
        """What a connection sends: a session, proofs, and requests without a right to them."""
        begin = self._others.opening() if self._chance.random() < 0.3 else connect_request(4000)
        parts = [
            self.proof() if self._chance.random() < 0.6 else self._others.frame()
            for _ in range(length)
        ]
        if self._chance.random() < 0.1:
            parts.append(frame(bytes(4)) * 50)
        return begin + b"".join(parts)


class HandshakePieces:
    """Beginnings of TLS, whole, cut or spoilt."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            hello.do_handshake()
        self._hello = outgoing.read()

    def piece(self) -> bytes:
        """One of them."""
        data = bytearray(self._hello[: self._chance.randrange(1, len(self._hello) + 1)])
        if self._chance.random() < 0.5:
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(data)


def fuzz_guarded(
    directory: Path, certificates: Certificates, count: int, seed: int
) -> dict[str, Any]:
    """Attack a new server over so many connections; what was measured."""
    directory.mkdir()
    # Strangers try alice's name. Carol has come before, so they can't keep her out.
    users = dict.fromkeys(("alice", "carol"), PASSWORD)
    server = SecureEmbeddedProcess(directory, certificates, users)
    server.start()
    alice, carol = (
        ClientSecurity(tls_ca=str(certificates.ca), user=user, password=PASSWORD) for user in users
    )
    honest = Session(server.address, security=alice, session_timeout_seconds=30)
    try:
        honest.start()
        _come_and_go(server.address, carol)
        session_id = honest.session_id
        assert honest.create_ephemeral("/mine", b"0") is None
        before = _memory_mib(server.pid)
        ways, slowest = _attack(server.port, certificates, honest, count, random.Random(seed))
        _wait_until(lambda: _sockets(server.pid) < 20, "sockets leak")
        served = honest.get("/mine")
        assert served is not None
        assert (served.value, served.owner) == (str(count).encode(), session_id)
        assert honest.children("/") == ["mine", "zookeeper"]  # nobody else made anything
        after = _memory_mib(server.pid)
        _come_and_go(server.address, carol)
    finally:
        honest.stop()
        server.stop()
    return {
        "seed": seed,
        "connections": count,
        "slowest_ms": round(slowest * 1000),
        "rss_mib_before": before,
        "rss_mib_after": after,
        **{f"{name.replace(' ', '_')}": number for name, number in ways.items()},
    }


def _come_and_go(address: str, security: ClientSecurity) -> None:
    session = Session(address, security=security, connection_timeout_seconds=60)
    session.start()
    session.stop()


def _attack(
    port: int, certificates: Certificates, honest: Session, count: int, chance: random.Random
) -> tuple[Counter[str], float]:
    frames, pieces = ProofFrames(chance), HandshakePieces(chance)
    context = ssl.create_default_context(cafile=certificates.ca)
    ways: Counter[str] = Counter()
    staying: list[socket.socket] = []
    slowest = 0.0
    try:
        for number in range(count):
            way = chance.choice(_WAYS)
            ways[way] += 1
            connection = socket.create_connection(("127.0.0.1", port), 60)
            with suppress(OSError):  # refused, as it should be
                connection = _behave(way, connection, context, frames, pieces, chance)
            if way in ("stay", "half open"):
                staying.append(connection)
                if len(staying) > _STAYING:
                    staying.pop(0).close()
            else:
                connection.close()
            if number % 10 == 9 or number == count - 1:
                began = time.monotonic()
                honest.set("/mine", str(number + 1).encode())
                slowest = max(slowest, time.monotonic() - began)
    finally:
        for each in staying:
            each.close()
    return ways, slowest


def _behave(
    way: str,
    connection: socket.socket,
    context: ssl.SSLContext,
    frames: ProofFrames,
    pieces: HandshakePieces,
    chance: random.Random,
) -> socket.socket:
    """Do it; the connection as it is then."""
    if way == "in clear":
        connection.sendall(frames.conversation(2))
        return connection
    if way == "half open":
        connection.sendall(pieces.piece())
        return connection
    secure = context.wrap_socket(connection, server_hostname="localhost")
    try:
        _speak(way, secure, frames, chance)
    except OSError:  # refused, as it should be
        secure.close()
    return secure


def _speak(way: str, secure: ssl.SSLSocket, frames: ProofFrames, chance: random.Random) -> None:
    data = frames.conversation(1 if way == "whole" else chance.randrange(2, 10))
    if way == "cut":
        data = data[: chance.randrange(len(data))]
    if way == "drip":
        for position in range(min(30, len(data))):
            secure.sendall(data[position : position + 1])
        data = data[30:]
    secure.sendall(data)
    if way == "reset":
        secure.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif way == "whole":
        secure.settimeout(0.2)
        while secure.recv(65536):
            pass


def _sockets(pid: int) -> int:
    """How many sockets a process has open."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found += str(each.readlink()).startswith("socket:")
    return found


def _memory_mib(pid: int) -> int:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # between two looks; there is nothing that could tell
