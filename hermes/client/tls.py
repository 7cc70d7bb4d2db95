"""TLS on the socket of a blocking connection, as if it were a plain one.

`BrokerConnection` relies on three things that an `ssl.SSLSocket` does otherwise: a time-out bounds
a call, not each record of it; `shutdown` may be called while another thread reads or writes; and
polling tells whether anything came between calls, which here may be a message of TLS itself, or
lie decrypted in memory.
"""

import select
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from hermes.security import ClientSecurity


class TlsSocket(ssl.SSLSocket):
    """A connection by TLS that behaves as a plain socket; see the module."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        timeout = self.gettimeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        with memoryview(data) as whole, whole.cast("B") as octets:
            try:
                sent = self.send(octets)
                while sent < len(octets):
                    if deadline is not None:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            raise TimeoutError
                        self.settimeout(left)
                    sent += self.send(octets[sent:])
            except TimeoutError:
                raise
            except OSError:
                self._raise_alert()
                raise

    def _raise_alert(self) -> None:
        with suppress(ssl.SSLWantReadError, ssl.SSLEOFError, ConnectionError, TimeoutError):
            self.settimeout(0)
            self.recv(1)

    def shutdown(self, how: int) -> None:
        """End the connection below TLS; a call that another thread has begun finds its end."""
        socket.socket.shutdown(self, how)

    def say_goodbye(self) -> None:
        """Tell the peer that this end of the connection is on purpose; waits for nothing."""
        with suppress(OSError, ValueError):
            self.settimeout(0)
            self.unwrap()  # sends, and then finds that the peer's has not come yet


class TlsPoll:
    """As `select.poll`, of one connection by TLS: whether there is something of the application.

    `at_end`: whether the peer's end was found.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._connection: TlsSocket | None = None
        self.at_end = False

    def register(self, connection: TlsSocket, events: int) -> None:
        self._poll.register(connection, events)
        self._connection, self.at_end = connection, False

    def unregister(self, connection: TlsSocket) -> None:
        self._poll.unregister(connection)
        self._connection = None

    def poll(self, timeout_ms: int) -> bool:
        """Whether there is data, or the end. It is spent: the connection is of no more use.

        Raises OSError if the connection broke, or the peer refused it by an alert of TLS.
        """
        connection = self._connection
        assert connection is not None
        if not connection.pending() and not self._poll.poll(timeout_ms):
            return False
        connection.settimeout(0)
        try:
            self.at_end = not connection.recv(1)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False  # a ticket, an update of keys, a part of a record
        return True


def wrap(connected: socket.socket, host: str, security: ClientSecurity) -> TlsSocket:
    """Prepare TLS over a connected socket; `do_handshake` of the result is to be called.

    Raises ConfigError if a file can't be used, OSError and ValueError for the host or the
    connection.
    """
    context = security.ssl_context()
    context.sslsocket_class = TlsSocket
    wrapped = context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    assert isinstance(wrapped, TlsSocket)
    return wrapped
