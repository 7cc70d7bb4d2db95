"""Stands between a ZooKeeper and its clients, and cuts the connection at a request of one's choice.

Frames pass unchanged in both directions. When the chosen request comes, either it is swallowed
(the server never hears of it), or it is passed on and its reply is swallowed (the server has done
it, the client can't know). Then the connection is cut. Later ones are left alone.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Literal

__all__ = ["CuttingProxy"]

# Of the requests that make nodes: create, transactions, create2.
_CREATES = (1, 14, 15)


class CuttingProxy:
    """Such a proxy, in threads of its own, until `stop`.

    Args:
        port: of the server, on the loopback interface.

    Attributes:
        address: where clients connect to.
        swallowed_zxid: the transaction of the reply that was swallowed; None while there is none.
        was_cut: set when the chosen request came and the connection has been cut.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.swallowed_zxid: int | None = None
        self.was_cut = threading.Event()
        self._chosen: tuple[bytes, str] | None = None
        self._sockets: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut_at_create(self, path: str, lost: Literal["request", "reply"]) -> None:
        """Cut when a client creates a node, alone or in a transaction.

        Args:
            path: of the node.
            lost: what does not get through.
        """
        name = path.encode()
        self.was_cut.clear()
        self._chosen = (struct.pack(">i", len(name)) + name, lost)

    def stop(self) -> None:
        """Cut everything, for good."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._sockets):
            _cut(each)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            _Connection(self, client, self._server_port)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, port: int) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.create_connection(("127.0.0.1", port))
        self._swallowed: int | None = None
        proxy._sockets |= {self._client, self._server}
        proxy._start(self._pass_requests)
        proxy._start(self._pass_replies)

    def _pass_requests(self) -> None:
        for number, frame in enumerate(_frames(self._client)):
            if number and self._is_chosen(frame) == "request":
                break
            try:
                self._server.sendall(frame)
            except OSError:
                break
        self._close()

    def _pass_replies(self) -> None:
        for number, frame in enumerate(_frames(self._server)):
            if number and self._swallows(frame):
                break
            try:
                self._client.sendall(frame)
            except OSError:
                break
        self._close()

    def _swallows(self, frame: bytes) -> bool:
        xid, zxid, error = struct.unpack_from(">iqi", frame, 4)
        if xid != self._swallowed or error:  # what was refused (no parent yet) comes once more
            return False
        self._close()
        self._proxy._chosen = None
        self._proxy.swallowed_zxid = zxid
        self._proxy.was_cut.set()
        return True

    def _is_chosen(self, frame: bytes) -> str | None:
        xid, code = struct.unpack_from(">ii", frame, 4)
        chosen = self._proxy._chosen
        if chosen is None or code not in _CREATES or chosen[0] not in frame:
            return None
        if chosen[1] == "reply":
            self._swallowed = xid
        else:
            self._proxy._chosen = None
            self._close()
            self._proxy.was_cut.set()
        return chosen[1]

    def _close(self) -> None:
        for each in (self._client, self._server):
            _cut(each)
            self._proxy._sockets.discard(each)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """The frames that arrive, with their sizes, until the connection ends."""
    try:
        while head := _exactly(connection, 4):
            yield head + _exactly(connection, struct.unpack(">i", head)[0])
    except OSError:
        return


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
