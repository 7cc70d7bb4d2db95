"""A way to a broker that stalls when told to, so that whoever reads is in the middle of it."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

__all__ = ["StallingProxy"]


class StallingProxy:
    """Passes bytes on in both directions, until so many came from the broker.

    Args:
        port: of the broker, on the loopback interface.
        stall_after_bytes: of one connection; later ones flow freely once `resume` was called.

    Attributes:
        port: where it listens.
        has_stalled: set when a connection stalls.
    """

    def __init__(self, port: int, stall_after_bytes: int) -> None:
        self._broker_port = port
        self._stall_after_bytes = stall_after_bytes
        self._may_go_on = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.has_stalled = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def resume(self) -> None:
        """Let everything flow from now on."""
        self._may_go_on.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.resume()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(60)

    def _start(self, target, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port), 60)
            self._sockets += [client, broker]
            self._start(self._pass_on, client, broker, 1 << 62)
            self._start(self._pass_on, broker, client, self._stall_after_bytes)

    def _pass_on(self, source: socket.socket, target: socket.socket, limit: int) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                passed += len(data)
                if passed > limit and not self._may_go_on.is_set():
                    self.has_stalled.set()
                    self._may_go_on.wait(120)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return
