"""Stands between a broker and its clients, and cuts connections after so many bytes, either way.

It can also let nothing through for a while, as a network does that is cut: no side hears of it, and
what was on its way arrives once the network is whole again.
"""

import contextlib
import socket
import struct
import threading
from typing import Literal, NamedTuple

__all__ = ["ByteCutter", "Cut", "Sender"]

Sender = Literal["client", "broker"]

_NO_LINGER = struct.pack("ii", 1, 0)


class Cut(NamedTuple):
    """Where a connection is cut.

    Attributes:
        sender: whose bytes are counted.
        after: how many of them pass.
        how: with an end of file, or with a reset.
    """

    sender: Sender
    after: int
    how: Literal["end", "reset"]


class ByteCutter:
    """Such a proxy, in threads of its own, until `stop`.

    Args:
        address: the broker's.
        port: where it listens; any unless given.

    Attributes:
        port: where clients connect to, on the loopback interface.
        cut: what becomes of connections that are made from now on; None: nothing.
        cut_count: how many were cut.
    """

    def __init__(self, address: tuple[str, int], port: int = 0) -> None:
        self.cut: Cut | None = None
        self.cut_count = 0
        self._address = address
        self._flowing: dict[str, threading.Event] = {
            "client": threading.Event(),
            "broker": threading.Event(),
        }
        self.release()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, name="cutter")
        self._threads: list[threading.Thread] = []
        self._accepting.start()

    def hold(self, *senders: Sender) -> None:
        """Let nothing through that these send, until `release`."""
        for each in senders:
            self._flowing[each].clear()

    def release(self) -> None:
        """Let everything through, also what was held."""
        for each in self._flowing.values():
            each.set()

    def stop(self) -> None:
        """End everything and wait for it; once more does nothing."""
        if self._listener.fileno() == -1:
            return
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads = [each for each in self._threads if each.is_alive()]
            thread = threading.Thread(target=self._serve, args=(client, self.cut), name="cutter")
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, cut: Cut | None) -> None:
        with client, contextlib.ExitStack() as stack:
            try:
                broker = stack.enter_context(socket.create_connection(self._address))
            except OSError:  # it is down: so is the client's connection
                return
            with self._lock:
                self._open |= {client, broker}
            ways = [(client, broker, "client"), (broker, client, "broker")]
            back = threading.Thread(target=self._pass, args=(*ways[1], cut), name="cutter")
            back.start()
            self._pass(*ways[0], cut)
            back.join()
            with self._lock:
                self._open -= {client, broker}

    def _pass(
        self, source: socket.socket, target: socket.socket, sender: str, cut: Cut | None
    ) -> None:
        left = cut.after if cut is not None and cut.sender == sender else None
        with contextlib.suppress(OSError):
            while left is None or left > 0:
                data = source.recv(65536 if left is None else min(left, 65536))
                if not data:
                    break
                self._flowing[sender].wait()
                target.sendall(data)
                if left is not None:
                    left -= len(data)
            else:
                assert cut is not None
                self.cut_count += 1
                if cut.how == "reset":
                    for each in (source, target):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
