"""A server that begins like ZooKeeper and then answers as a test says, for one that misbehaves."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["MisbehavingZooKeeper", "answer"]

_STAT = struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
_NO_NODE = -101
_EXISTS, _PING, _AUTH = 3, 11, 100


def answer(xid: int, body: bytes = b"", error: int = 0) -> bytes:
    """One answer, framed."""
    return struct.pack(">iiqi", 16 + len(body), xid, 1, error) + body


class MisbehavingZooKeeper:
    """Listens on loopback, a thread per connection.

    Args:
        react: makes the bytes to send for a request, from its xid, its type, and the number of the
            connection, from 0; None to answer as an empty ZooKeeper does.
        granted_ms: the session's timeout; None to say nothing at all, not even that.
        tls: by which connections are served; None for none.

    Attributes:
        address: `host:port`.
        received: the bodies of all requests, the first of each connection among them.
        connections: how many there were.
    """

    def __init__(
        self,
        react: Callable[[int, int, int], bytes | None] = lambda *_: None,
        granted_ms: int | None = 6000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self.received: list[bytes] = []
        self._react = react
        self._granted_ms = granted_ms
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.connections = 0
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop, and end every connection. Idempotent."""
        if self._accepting.is_alive():
            self._listening.shutdown(socket.SHUT_RDWR)
            self._accepting.join()
        self._listening.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connected)
            number, self.connections = self.connections, self.connections + 1
            thread = threading.Thread(target=self._serve, args=(connected, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connected: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_side=True)
                self._open.append(connected)
            with connected.makefile("rb") as requests:
                self._read(requests)
                if self._granted_ms is None:
                    requests.read()
                    return
                hello = struct.pack(">iiqi", 0, self._granted_ms, 0x1234, 16) + b"p" * 16 + b"\0"
                connected.sendall(struct.pack(">i", len(hello)) + hello)
                while True:
                    request = self._read(requests)
                    xid, kind = struct.unpack(">ii", request[:8])
                    made = self._react(xid, kind, number)
                    connected.sendall(_usual(xid, kind) if made is None else made)
        except (OSError, struct.error, ValueError):
            pass  # the other end has gone

    def _read(self, requests: "socket.SocketIO | object") -> bytes:
        read = requests.read  # type: ignore[union-attr]
        (length,) = struct.unpack(">i", read(4))
        body: bytes = read(length)
        self.received.append(body)
        return body


def _usual(xid: int, kind: int) -> bytes:
    if kind == _PING:
        return answer(-2)
    if kind == _AUTH:
        return answer(xid)
    return answer(xid, _STAT) if kind == _EXISTS else answer(xid, error=_NO_NODE)
