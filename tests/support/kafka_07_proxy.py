"""Makes a Hermes broker look like a Kafka 0.7: it closes on requests that a 0.7 doesn't know."""

import contextlib
import socket
import struct
import threading

__all__ = ["Kafka07Proxy"]

_FIRST_OWN = 64
_SIZE_AND_TYPE = struct.Struct(">ih")


class Kafka07Proxy:
    """Such a proxy, in threads of its own, until `stop`.

    Args:
        host: of the broker.
        port: of the broker.

    Attributes:
        address: host and port to which clients connect.
        refused: the types of the requests upon which it has closed.
    """

    def __init__(self, host: str, port: int) -> None:
        self._broker = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.refused: set[int] = set()
        self._sockets: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        """Cut everything, for good."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Cut the connections that there are."""
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                client.close()
                continue
            self._sockets |= {client, broker}
            for work in (self._forward, self._return):
                thread = threading.Thread(target=work, args=(client, broker))
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                header = _receive(client, _SIZE_AND_TYPE.size)
                size, kind = _SIZE_AND_TYPE.unpack(header)
                if kind >= _FIRST_OWN:
                    self.refused.add(kind)
                    break
                broker.sendall(header + _receive(client, size - 2))
        self._end(client, broker)

    def _return(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 16):
                client.sendall(data)
        self._end(client, broker)

    def _end(self, *both: socket.socket) -> None:
        for each in both:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._sockets.discard(each)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
