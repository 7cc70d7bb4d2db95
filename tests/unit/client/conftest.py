"""Brokers on threads that do as a test tells them: a scripted one, on loopback, port 0."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

READ = "read one request"
CLOSE = "close the connection"
RESET = "close it with a reset"
HALF_CLOSE = "send no more, but go on reading"
HOLD = "read until the client closes"

Step = str | bytes


def open_sockets() -> set[str]:
    """The sockets of this process, by inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    threads, sockets = set(threading.enumerate()), open_sockets()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets


class Server:
    """Accepts on loopback; a thread per connection runs `converse` with it."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connection_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="fake-broker")]
        self._threads[0].start()

    def converse(self, number: int, connection: socket.socket) -> None:
        raise NotImplementedError

    def drop_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def read_request(self, connection: socket.socket) -> bytes | None:
        """One request with its prefix; None at the end."""
        prefix = self._read_exactly(connection, 4)
        if prefix is None:
            return None
        body = self._read_exactly(connection, struct.unpack(">i", prefix)[0])
        if body is None:
            return None
        with self._lock:
            self.requests.append(prefix + body)
        return prefix + body

    @staticmethod
    def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            chunk = connection.recv(count - len(data))
            if not chunk:
                return None
            data += chunk
        return data

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number = self.connection_count
                self.connection_count += 1
                self._connections.append(connection)
                thread = threading.Thread(target=self._serve, args=(number, connection))
                self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        try:
            self.converse(number, connection)
        except OSError:
            pass
        finally:
            with self._lock:
                self._connections.remove(connection)
            connection.close()


class ScriptedBroker(Server):
    """The n-th connection follows the n-th script; one without a script is closed at once."""

    def __init__(self, *scripts: list[Step]) -> None:
        self._scripts = scripts
        super().__init__()

    def converse(self, number: int, connection: socket.socket) -> None:
        script = self._scripts[number] if number < len(self._scripts) else []
        for step in script:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif step == READ:
                if self.read_request(connection) is None:
                    return
            elif step == RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            elif step == HALF_CLOSE:
                connection.shutdown(socket.SHUT_WR)
            elif step == HOLD:
                while connection.recv(65536):
                    pass
            else:
                assert step == CLOSE
                return


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    """Start brokers that follow scripts; they are stopped after the test."""
    started: list[ScriptedBroker] = []

    def start(*scripts: list[Step]) -> ScriptedBroker:
        started.append(ScriptedBroker(*scripts))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def unused_port() -> int:
    """A port of loopback where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
