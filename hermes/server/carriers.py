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

    `is_pushed`: a send registers as a push producer, which goes on until it is told to pause;
    else as a pull producer, which is asked for more.
    """

    is_pushed: bool

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        """Send some of `data`, which isn't empty; 0: the peer has no room now.

        `more`: further bytes of the response follow at once. OSError: the connection is gone.
        """

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Send up to `count` bytes from `position`; 0: the peer has no room now.

        Raises:
            EOFError: the file ends before `position`: it was cut behind our back.
            OSError: the connection or the file failed; abort the connection.
        """

    def wake_when_writable(self) -> bool:
        """Have the transport call the registered producer when there is room.

        False: there may be room already; go on when others have been served.
        """

    def full(self) -> None:
        """The transport tells a push producer to pause."""

    def writable(self) -> None:
        """There is room again."""

    def may_go_on(self) -> bool:
        """Whether a push producer may send again, after others were served."""

    def unregistered(self) -> None:
        """The transport has no producer any more, so it won't report room."""

    def unsent_bytes(self) -> int:
        """How much of what was taken hasn't reached the peer, as far as is known."""


class SendfileCarrier:
    """Plain TCP (or a UNIX socket): straight to the socket with `send` and `sendfile`."""

    __slots__ = ("_out", "_socket", "_transport")

    is_pushed = False

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.getHandle()
        self._out = self._socket.fileno()

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        try:
            return self._socket.send(data, _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive(self) -> bytes:
        """Read what has arrived already; empty: nothing, or the connection ended."""
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except OSError:
            return b""

    def send_file(self, fd: int, position: int, count: int) -> int:
        try:
            sent = os.sendfile(self._out, fd, position, count)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == 0:
            raise EOFError(f"the segment ends before position {position}")
        return sent

    def wake_when_writable(self) -> bool:
        self._transport.startWriting()
        return True

    def full(self) -> None:
        """Never called: this is a pull producer."""

    def writable(self) -> None:
        """The kernel says whether there is room."""

    def may_go_on(self) -> bool:
        """The kernel says whether there is room."""
        return True

    def unregistered(self) -> None:
        """Nothing depends on it here."""

    def unsent_bytes(self) -> int:
        try:
            count: int = _UNSENT.unpack(fcntl.ioctl(self._out, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            return 0
        return count


class CopyingCarrier:
    """Any other transport (TLS, a test's in-memory one): bounded reads and `transport.write`.

    The transport buffers what is written, so it gets about `COPY_BYTES` at a time; then the send
    has to be its producer. One that pulls asks for more once it has drained.

    TLS must not pull: Twisted's polls a pull producer without end, also while it waits for a disk,
    and by the global reactor, which may be another one. It tells a push producer when it is full,
    though only within a write. So others are served before the send goes on, and no more than a
    few times `COPY_BYTES` are ever buffered.
    """

    __slots__ = ("_is_full", "_room", "_transport", "is_pushed")

    def __init__(self, transport: Any, is_pushed: bool) -> None:
        self.is_pushed = is_pushed
        self._transport = transport
        self._room = COPY_BYTES
        self._is_full = False

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        if self._room <= 0 or self._is_full:
            return 0
        written = bytes(data[:COPY_BYTES])
        self._room -= len(written)
        self._transport.write(written)
        return len(written)

    def send_file(self, fd: int, position: int, count: int) -> int:
        if self._room <= 0 or self._is_full:
            return 0
        data = os.pread(fd, min(count, COPY_BYTES), position)
        if not data:
            raise EOFError(f"the segment ends before position {position}")
        return self.send_bytes(data, False)

    def wake_when_writable(self) -> bool:
        """A push producer is woken only after it was told to pause."""
        return self._is_full or not self.is_pushed

    def full(self) -> None:
        self._is_full = True

    def writable(self) -> None:
        self._is_full = False
        self._room = COPY_BYTES

    def may_go_on(self) -> bool:
        if self._is_full:
            return False
        self._room = COPY_BYTES
        return True

    def unregistered(self) -> None:
        """The next send finds out anew whether there is room."""
        if self._is_full:
            self._is_full = False
            self._room = 0

    def unsent_bytes(self) -> int:
        """0: the transport flushes its own buffer before it closes."""
        return 0


def carrier_for(transport: ITransport) -> Carrier:
    """Choose the carrier of a new connection.

    Twisted's own TCP or UNIX connection without TLS gets `sendfile`; anything that wraps or
    encrypts gets copies, which give the same bytes.
    """
    plain = isinstance(transport, tcp.Connection) and not getattr(transport, "TLS", False)
    if plain and hasattr(os, "sendfile"):
        return SendfileCarrier(transport)
    return CopyingCarrier(transport, is_pushed=isinstance(transport, ProtocolWrapper))
