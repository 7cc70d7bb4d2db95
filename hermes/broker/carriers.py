"""How the bytes of a response reach a transport: sendfile on plain TCP, bounded reads elsewhere.

A carrier moves bytes and ranges of files, says how many it moved, and knows how to be woken when
there is room again. It knows nothing of requests, logs or the order of responses (`sends.py`).

On plain TCP the carrier writes to the socket itself and never through `transport.write`: the
transport's own buffer stays empty, so a header can't be overtaken by the range that follows it,
and no large string of bytes is ever copied into Python. `MSG_MORE` keeps a header and the range
after it in one train of segments; without it every fetch waits for a delayed ACK.
"""

import fcntl
import os
import socket
import struct
import termios
from typing import Any, Protocol

from twisted.internet import tcp
from twisted.internet.interfaces import ITransport

#: What one `CopyingCarrier` read takes from a file: bounds memory per connection.
COPY_BYTES = 64 * 1024

#: What `SendfileCarrier.receive` asks for: requests for more, which are small.
_RECEIVE_BYTES = 4096

_UNSENT = struct.Struct("i")

_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class Carrier(Protocol):
    """Moves bytes towards one peer without blocking."""

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        """Send some of `data`.

        Args:
            data: what to send, not empty.
            more: whether further bytes of the same response follow at once.

        Returns:
            How many bytes were taken; 0 when the peer has no room now.

        Raises:
            OSError: the connection is gone; abort it.
        """

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Send up to `count` bytes of an open file from `position`.

        Returns:
            How many bytes were taken; 0 when the peer has no room now.

        Raises:
            EOFError: the file ends before `position`: it was cut behind our back.
            OSError: the connection or the file failed; abort the connection.
        """

    def wake_when_writable(self) -> None:
        """Have the transport call the registered producer when there is room."""

    def writable(self) -> None:
        """The transport asks for more: there is room again."""

    def unsent_bytes(self) -> int:
        """How much of what was taken has not reached the peer, as far as can be told."""


class SendfileCarrier:
    """Plain TCP (or a UNIX socket): straight to the socket with `send` and `sendfile`."""

    __slots__ = ("_out", "_socket", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.getHandle()
        self._out = self._socket.fileno()

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        """See `Carrier`."""
        try:
            return self._socket.send(data, _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive(self) -> bytes:
        """Read what has arrived already; empty when that is nothing, or the connection ended."""
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except OSError:
            return b""

    def send_file(self, fd: int, position: int, count: int) -> int:
        """See `Carrier`."""
        try:
            sent = os.sendfile(self._out, fd, position, count)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == 0:
            raise EOFError(f"the segment ends before position {position}")
        return sent

    def wake_when_writable(self) -> None:
        """See `Carrier`."""
        self._transport.startWriting()

    def writable(self) -> None:
        """See `Carrier`; here the kernel says whether there is room."""

    def unsent_bytes(self) -> int:
        """See `Carrier`."""
        try:
            count: int = _UNSENT.unpack(fcntl.ioctl(self._out, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            return 0
        return count


class CopyingCarrier:
    """Any other transport (TLS, a test's in-memory one): bounded reads and `transport.write`.

    The transport buffers what is written, so no more than about `COPY_BYTES` are given to it
    before it has drained and asks for more: until then it reports "no room".
    """

    __slots__ = ("_room", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._room = COPY_BYTES

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        """See `Carrier`."""
        if self._room <= 0:
            return 0
        written = bytes(data[:COPY_BYTES])
        self._room -= len(written)
        self._transport.write(written)
        return len(written)

    def send_file(self, fd: int, position: int, count: int) -> int:
        """See `Carrier`."""
        if self._room <= 0:
            return 0
        data = os.pread(fd, min(count, COPY_BYTES), position)
        if not data:
            raise EOFError(f"the segment ends before position {position}")
        return self.send_bytes(data, False)

    def wake_when_writable(self) -> None:
        """See `Carrier`; a pull producer is asked again by the transport itself."""

    def writable(self) -> None:
        """See `Carrier`."""
        self._room = COPY_BYTES

    def unsent_bytes(self) -> int:
        """See `Carrier`; the transport flushes its own buffer before it closes."""
        return 0


def carrier_for(transport: ITransport) -> Carrier:
    """Choose the carrier of a new connection.

    A transport that is exactly Twisted's TCP (or UNIX) server connection, without TLS started on
    it, gets `sendfile`; whatever wraps or encrypts gets copies, which give the same bytes.
    """
    plain = isinstance(transport, tcp.Connection) and not getattr(transport, "TLS", False)
    if plain and hasattr(os, "sendfile"):
        return SendfileCarrier(transport)
    return CopyingCarrier(transport)
