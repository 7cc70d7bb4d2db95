"""A broker that answers fetches in every wrong way: threads on loopback, one mode after another."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from hermes.protocol import (
    ContentFormat,
    RecordFetchedEntry,
    encode_message_set,
    encode_record_fetch_response,
)

__all__ = ["MODES", "HostileBroker"]


def answer(payload: bytes, count: int = 1) -> bytes:
    """A right answer to a record fetch of `count` entries, with one message each."""
    messages = encode_message_set([payload])
    entry = RecordFetchedEntry(0, 1 << 40, ContentFormat.MESSAGES, messages)
    return encode_record_fetch_response([entry] * count)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _endless(size: int) -> Iterator[bytes]:
    yield struct.pack(">i", size)
    while True:
        yield bytes(65536)


#: What is sent in place of an answer, piece by piece; then the connection is closed or held.
MODES: dict[str, Callable[[], Iterator[bytes]]] = {
    "closes": lambda: iter(()),
    "half an answer": lambda: iter([answer(b"x")[:-3]]),
    "negative size": lambda: iter([struct.pack(">i", -5)]),
    "largest size": lambda: _endless(2**31 - 1),
    "endless": lambda: _endless(100 << 20),
    "garbage": lambda: iter([framed(os.urandom(5000))]),
    "no body": lambda: iter([framed(b"")]),
    "too few entries": lambda: iter([framed(struct.pack(">hh", 0, 0))]),
    "too many entries": lambda: iter([answer(b"x", 1000)]),
    "negative length": lambda: iter(
        [framed(struct.pack(">hh", 0, 1) + struct.pack(">hqi", 0, 9, -7))]
    ),
    "unknown code": lambda: iter(
        [framed(struct.pack(">hh", 0, 1) + struct.pack(">hqi", 12345, 9, 0))]
    ),
    "code for all": lambda: iter([framed(struct.pack(">h", 12345))]),
    "web server": lambda: iter([b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"]),
}


class HostileBroker:
    """Answers a connection's n-th request with `mode`; "honest" answers rightly.

    Honest answers number their messages by request. In the mode "extra" each is followed by others
    that nobody asked for.
    """

    def __init__(self) -> None:
        self.mode = "honest"
        self.request_count = 0
        self.connection_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        """Close everything and wait for all threads."""
        for each in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            self._open.add(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                (length,) = struct.unpack(">i", size)
                if len(requests.read(length)) < length:
                    break  # no request: what isn't a frame, from who looks whose port it is
                self.request_count += 1
                if self.mode in MODES:
                    for piece in MODES[self.mode]():
                        connection.sendall(piece)
                    return
                more = answer(b"extra") * 3 if self.mode == "extra" else b""
                connection.sendall(answer(b"%d" % self.request_count) + more)
        self._open.discard(connection)
