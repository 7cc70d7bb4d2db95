"""ZooKeeper's wire protocol in bytes, for tests that speak it without a library."""

import struct
from typing import Any

from hermes_testkit import RawClient, frame
from twisted.internet.testing import StringTransport

__all__ = [
    "OPEN_ACL",
    "JuteClient",
    "Transport",
    "acl",
    "answers",
    "connect_request",
    "create",
    "exists",
    "get_children",
    "get_data",
    "multi",
    "request",
    "set_data",
    "text",
]


def text(value: str | bytes) -> bytes:
    """A string or a buffer."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(data)) + data


def acl(*entries: tuple[int, str, str]) -> bytes:
    """A list of (permissions, scheme, identity)."""
    parts = [struct.pack(">i", bits) + text(scheme) + text(who) for bits, scheme, who in entries]
    return struct.pack(">i", len(entries)) + b"".join(parts)


OPEN_ACL = acl((31, "world", "anyone"))


def connect_request(
    timeout_ms: int = 10_000, session: int = 0, password: bytes = bytes(16), seen_zxid: int = 0
) -> bytes:
    """What a connection starts with."""
    return frame(struct.pack(">iqiq", 0, seen_zxid, timeout_ms, session) + text(password) + b"\0")


def request(xid: int, operation: int, body: bytes = b"") -> bytes:
    """One request."""
    return frame(struct.pack(">ii", xid, operation) + body)


def create(
    xid: int, path: str, data: bytes = b"", flags: int = 0, allowed: bytes = OPEN_ACL
) -> bytes:
    """Make a node."""
    return request(xid, 1, _create(path, data, flags, allowed))


def exists(xid: int, path: str, watch: bool = False) -> bytes:
    """Ask whether a node is there."""
    return request(xid, 3, text(path) + bytes([watch]))


def get_data(xid: int, path: str, watch: bool = False) -> bytes:
    """Read a node."""
    return request(xid, 4, text(path) + bytes([watch]))


def set_data(xid: int, path: str, data: bytes) -> bytes:
    """Write a node, whatever its version."""
    return request(xid, 5, text(path) + text(data) + struct.pack(">i", -1))


def get_children(xid: int, path: str, watch: bool = False) -> bytes:
    """Read the names of a node's children."""
    return request(xid, 8, text(path) + bytes([watch]))


def multi(xid: int, *creates: tuple[str, bytes]) -> bytes:
    """Make nodes in one transaction."""
    parts = [
        struct.pack(">ibi", 1, 0, -1) + _create(path, data, 0, OPEN_ACL) for path, data in creates
    ]
    return request(xid, 14, b"".join(parts) + struct.pack(">ibi", -1, 1, -1))


def _create(path: str, data: bytes, flags: int, allowed: bytes) -> bytes:
    return text(path) + text(data) + allowed + struct.pack(">i", flags)


class JuteClient(RawClient):
    """A session of its own."""

    def __init__(self, port: int, timeout_ms: int = 10_000) -> None:
        super().__init__(port)
        self.call(connect_request(timeout_ms))

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request; the error of its reply, and the reply's body."""
        reply = self.call(data)
        if len(reply) < 20:
            raise ConnectionResetError("the server closed the connection")
        return struct.unpack_from(">i", reply, 16)[0], reply[20:]


def answers(connection: Any) -> list[tuple[int, int]]:
    """The xid and the error of each answer but the first."""
    data, found = connection.transport.value(), []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(struct.unpack_from(">i8xi", data, 4))
        data = data[4 + size :]
    return found[1:]


class Transport(StringTransport):
    """Remembers whether it was asked to read, and to abort."""

    is_reading = True
    aborting = False
    bufferSize = 65536

    def pauseProducing(self) -> None:
        self.is_reading = False

    def resumeProducing(self) -> None:
        self.is_reading = True

    def abortConnection(self) -> None:
        self.aborting = True
        self.connected = False
