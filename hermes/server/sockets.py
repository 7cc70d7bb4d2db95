"""The socket of a client's connection, apart from its bytes: options, pending input, the end."""

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.protocols.policies import ProtocolWrapper

from hermes.config.broker import BrokerConfig
from hermes.server.carriers import Carrier

#: How often to check whether the peer has received everything.
_CHECK_SECONDS = 0.02

#: Where TCP is once the peer has closed its half, or all (Linux' tcp_states.h: TCP_CLOSE,
#: TCP_CLOSE_WAIT, TCP_LAST_ACK).
_ENDED = (7, 8, 9)


def tcp_connection(transport: Any) -> tcp.Connection | None:
    """The TCP connection below a transport, TLS or not; None in a test's memory."""
    while isinstance(transport, ProtocolWrapper):
        transport = transport.transport
    return transport if isinstance(transport, tcp.Connection) else None


def set_options(transport: Any, config: BrokerConfig) -> None:
    """No delays for small responses, keep-alive, buffers as configured."""
    connection: Any = tcp_connection(transport)
    if connection is None:
        return
    if isinstance(connection.socket, socket.socket) and connection.socket.family != socket.AF_UNIX:
        connection.setTcpNoDelay(True)
        connection.setTcpKeepAlive(True)
    for option, size in (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    ):
        if size:
            connection.socket.setsockopt(socket.SOL_SOCKET, option, size)


def has_input(transport: Any) -> bool:
    """Whether unread input is waiting; True if that can't be told."""
    connection: Any = tcp_connection(transport)
    if connection is None:
        return True
    try:
        return bool(connection.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False
    except OSError:
        return True  # the transport will find out what is wrong


def has_left(transport: Any) -> bool:
    """Whether the peer has closed its half behind unread input; False if that can't be told.

    A socket that isn't read doesn't report its end.
    """
    connection: Any = tcp_connection(transport)
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        return connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED
    except OSError:
        return False


class Lingering:
    """Closes a connection once the peer has received everything that was sent.

    Closing a socket that has unread input makes the kernel throw away what it hasn't sent yet. So
    while something is left there, only our half is closed; what still arrives must be read and
    dropped meanwhile. `abort` is called after `limit_seconds`.

    `is_waiting`: whether the peer lacked something at first.
    """

    def __init__(
        self,
        transport: Any,
        carrier: Carrier,
        clock: IReactorTime,
        limit_seconds: float,
        abort: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._carrier = carrier
        self._clock = clock
        self._deadline = clock.seconds() + limit_seconds
        self._abort = abort
        self._call: IDelayedCall | None = None
        self.is_waiting = carrier.unsent_bytes() > 0
        if self.is_waiting:
            transport.loseWriteConnection()
        self._check()

    def stop(self) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _check(self) -> None:
        if not self._carrier.unsent_bytes():
            self._transport.loseConnection()
        elif self._clock.seconds() >= self._deadline:
            self._abort()
        else:
            self._call = self._clock.callLater(_CHECK_SECONDS, self._check)
