"""Both servers, one suite: every test here runs on a real ZooKeeper and on the embedded server."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from coordination_servers import KINDS, ServerProcess
from kazoo.client import KazooClient

DEADLINE_SECONDS = 20.0


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two."""
    return str(request.param)


@pytest.fixture
def server(kind: str, coordination_server: Callable[[str], ServerProcess]) -> ServerProcess:
    """A server for all tests that leave it as it is; each has its own chroot there."""
    return coordination_server(kind)


@pytest.fixture
def own_server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for one test, which may stop and start it."""
    server = KINDS[kind](tmp_path_factory.mktemp(kind) / "own")
    server.start()
    yield server
    server.stop()


_numbers = count()


@pytest.fixture
def chroot(server: ServerProcess) -> str:
    """A node that only this test uses."""
    path = f"/contract-{next(_numbers)}"
    client = KazooClient(server.address)
    client.start(DEADLINE_SECONDS)
    client.create(path)
    client.stop()
    client.close()
    return path


@pytest.fixture
def make_client() -> Iterator[Callable[..., Any]]:
    """Makes and starts clients of an address, and closes them at the end."""
    clients: list[Any] = []

    def make(hosts: str, **options: Any) -> Any:
        client = KazooClient(hosts, **{"timeout": 30.0, **options})
        clients.append(client)
        client.start(DEADLINE_SECONDS)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def connect(
    server: ServerProcess, chroot: str, make_client: Callable[..., Any]
) -> Callable[..., Any]:
    """Makes clients of the shared server, in this test's chroot."""
    return lambda **options: make_client(server.address + chroot, **options)


@pytest.fixture
def client(connect: Callable[..., Any]) -> Any:
    """One such client."""
    return connect()


class Seen:
    """Collects what callbacks are given, and lets a test wait for it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = threading.Condition()

    def __call__(self, *item: Any) -> None:
        with self._news:
            self.items.append(item[0] if len(item) == 1 else item)
            self._news.notify_all()

    def wait(self, condition: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until what was seen fulfils the condition; a copy of it."""
        with self._news:
            assert self._news.wait_for(lambda: condition(self.items), DEADLINE_SECONDS), self.items
            return list(self.items)

    def wait_for(self, number: int) -> list[Any]:
        """Wait until so many things were seen."""
        return self.wait(lambda items: len(items) >= number)


@pytest.fixture
def seen() -> Seen:
    """An empty collection."""
    return Seen()


@pytest.fixture
def make_seen() -> type[Seen]:
    """Makes further ones."""
    return Seen


class RawClient:
    """A client that says exactly what it is told: for what kazoo would never send."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)

    def send(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> bytes:
        """The next frame's body."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Wait for the end of the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def connect(
        self,
        session_id: int = 0,
        password: bytes = bytes(16),
        last_zxid: int = 0,
        timeout_ms: int = 10_000,
        read_only: bytes = b"",
    ) -> tuple[int, int, bytes, bytes]:
        """Ask for a session; timeout, session id, password, and what comes behind it."""
        head = struct.pack(">iqiqi", 0, last_zxid, timeout_ms, session_id, len(password))
        self.send(head + password + read_only)
        answer = self.receive()
        timeout, session, length = struct.unpack_from(">4xiqi", answer)
        return timeout, session, answer[20 : 20 + length], answer[20 + length :]

    def call(self, xid: int, code: int, body: bytes = b"") -> tuple[int, int, bytes]:
        """Send a request; the xid, the error and the record of what comes next."""
        self.send(struct.pack(">ii", xid, code) + body)
        return self.next()

    def next(self) -> tuple[int, int, bytes]:
        answer = self.receive()
        got, _, error = struct.unpack_from(">iqi", answer)
        return got, error, answer[16:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError("the server closed the connection")
            data += part
        return data


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[Callable[[], RawClient]]:
    """Makes raw clients of the shared server."""
    clients: list[RawClient] = []

    def make() -> RawClient:
        client = RawClient(server.port)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.socket.close()
