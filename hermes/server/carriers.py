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
from twisted.protocols.policies import ProtocolWrapper

#: What one `CopyingCarrier` read takes from a file: bounds memory per connection.
COPY_BYTES = 64 * 1024

#: What `SendfileCarrier.receive` asks for: requests for more, which are small.
_RECEIVE_BYTES = 4096

_UNSENT = struct.Struct("i")

_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class Carrier(Protocol):
    """Moves bytes towards one peer without blocking.

    Attributes:
        is_pushed: how a send registers with the transport: as a push producer, which goes on until
            it is told to pause, or as a pull producer, which is asked for more.
    """

    is_pushed: bool

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

    def wake_when_writable(self) -> bool:
        """Have the transport call the registered producer when there is room.

        Returns:
            Whether it will; else there may be room already: go on when others have been served.
        """

    def full(self) -> None:
        """The transport has told a push producer to pause."""

    def writable(self) -> None:
        """The transport asks for more: there is room again."""

    def may_go_on(self) -> bool:
        """Whether a push producer that others were served before may send again."""

    def unregistered(self) -> None:
        """The transport has no producer any more, so it will tell nobody that it has room."""

    def unsent_bytes(self) -> int:
        """How much of what was taken has not reached the peer, as far as can be told."""


class SendfileCarrier:
    """Plain TCP (or a UNIX socket): straight to the socket with `send` and `sendfile`."""

    __slots__ = ("_out", "_socket", "_transport")

    is_pushed = False

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

    def wake_when_writable(self) -> bool:
        """See `Carrier`."""
        self._transport.startWriting()
        return True

    def full(self) -> None:
        """See `Carrier`; nobody says so here."""

    def writable(self) -> None:
        """See `Carrier`; here the kernel says whether there is room."""

    def may_go_on(self) -> bool:
        """See `Carrier`; here the kernel says so."""
        return True

    def unregistered(self) -> None:
        """See `Carrier`; nothing depends on it here."""

    def unsent_bytes(self) -> int:
        """See `Carrier`."""
        try:
            count: int = _UNSENT.unpack(fcntl.ioctl(self._out, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            return 0
        return count


class CopyingCarrier:
    """Any other transport (TLS, a test's in-memory one): bounded reads and `transport.write`.

    The transport buffers what is written, so no more than about `COPY_BYTES` are given to it at a
    time; then the send has to be its producer. One that pulls asks for more once it has drained.

    TLS must not pull: Twisted's asks without end whether there is more, also while the send waits
    for a disk, and by the global reactor, which may be another one. It tells a push producer when
    it is full, though only within a write. So others are served before the send goes on, and no
    more than a few times `COPY_BYTES` are ever buffered.

    Args:
        transport: what is written to.
        is_pushed: see `Carrier`.
    """

    __slots__ = ("_is_full", "_room", "_transport", "is_pushed")

    def __init__(self, transport: Any, is_pushed: bool) -> None:
        self.is_pushed = is_pushed
        self._transport = transport
        self._room = COPY_BYTES
        self._is_full = False

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        """See `Carrier`."""
        if self._room <= 0 or self._is_full:
            return 0
        written = bytes(data[:COPY_BYTES])
        self._room -= len(written)
        self._transport.write(written)
        return len(written)

    def send_file(self, fd: int, position: int, count: int) -> int:
        """See `Carrier`."""
        if self._room <= 0 or self._is_full:
            return 0
        data = os.pread(fd, min(count, COPY_BYTES), position)
        if not data:
            raise EOFError(f"the segment ends before position {position}")
        return self.send_bytes(data, False)

    def wake_when_writable(self) -> bool:
        """See `Carrier`; one that is pushed to does if it has said that it is full."""
        return self._is_full or not self.is_pushed

    def full(self) -> None:
        """See `Carrier`."""
        self._is_full = True

    def writable(self) -> None:
        """See `Carrier`."""
        self._is_full = False
        self._room = COPY_BYTES

    def may_go_on(self) -> bool:
        """See `Carrier`."""
        if self._is_full:
            return False
        self._room = COPY_BYTES
        return True

    def unregistered(self) -> None:
        """See `Carrier`; the next send finds out anew whether there is room."""
        if self._is_full:
            self._is_full = False
            self._room = 0

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
    return CopyingCarrier(transport, is_pushed=isinstance(transport, ProtocolWrapper))
