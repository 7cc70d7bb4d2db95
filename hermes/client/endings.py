"""How a connection ended, and waiting until it has: what the kernel knows of the broker's side."""

import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Final

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_READ_BYTES: Final = 1024 * 1024
# Of Linux' struct tcp_info: the state; and ms since data was sent, an acknowledgement was sent
# (never filled in), data came, an acknowledgement came, which the peer's end of file is as well.
_TCP_INFO_BYTES: Final = 60
_STATE_AT: Final = 0
_TIMES: Final = struct.Struct("=IIII")
_TIMES_AT: Final = 44
_FIN_WAIT_1: Final = 4
# How often as long a broker is waited for whose machine has taken our end of file: a new connection
# would lead to the same process, and so gain nothing.
_WAITED_TIMEOUTS: Final = 4
_LOOK_SECONDS: Final = 0.05


def closed_when_idle(connection: socket.socket, seconds: float, at_end: bool | None = None) -> bool:
    """Whether a broker that closed a connection did so because nothing came for so many seconds.

    It had read everything then, as the kernel resets a connection that is closed with unread bytes;
    and it closed long after our last byte, while one that refuses a request closes upon it. False
    also when that can't be known: on anything but Linux. `at_end`: whether it is the end that can
    be read; None to look.
    """
    try:
        if at_end is None:
            at_end = not connection.recv(1, socket.MSG_PEEK)
        if not at_end:
            return False
        info = _tcp_info(connection)
    except OSError:
        return False
    if info is None:
        return False
    sent_ms, _, _, acknowledged_ms = _TIMES.unpack_from(info, _TIMES_AT)
    return bool(sent_ms - acknowledged_ms >= seconds * 1000)


class RetiredConnection:
    """A connection on which an answer did not come in time, until the broker closes it, too.

    The broker closes when it has dealt with everything that was sent; so nothing that is sent over
    another connection afterwards is overtaken. A broker that may be out of reach is waited for
    `timeout_seconds`; one whose machine is there, but doesn't close, four times as long.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._connection = connection
        self._since = time.monotonic()
        self._timeout = timeout_seconds
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)

    def wait(self, deadline: float) -> bool:
        """Wait until the broker has closed, or for long enough; False if the deadline came."""
        try:
            while not self._is_hopeless():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._connection.settimeout(min(left, _LOOK_SECONDS))
                with suppress(TimeoutError):
                    if not self._connection.recv(_READ_BYTES):
                        return True
        except OSError:
            pass  # it broke: its end as well
        return True

    def wake(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """Close it. What our kernel has not delivered yet never will be."""
        with suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._connection.close()

    def let_go(self) -> None:
        """Close this process's end without a word: in a forked process."""
        self._connection.close()

    def _is_hopeless(self) -> bool:
        waited = time.monotonic() - self._since
        if waited < self._timeout:
            return False
        info = _tcp_info(self._connection)
        is_out_of_reach = info is not None and info[_STATE_AT] == _FIN_WAIT_1
        return is_out_of_reach or waited >= _WAITED_TIMEOUTS * self._timeout


def _tcp_info(connection: socket.socket) -> bytes | None:
    if sys.platform != "linux":
        return None
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
