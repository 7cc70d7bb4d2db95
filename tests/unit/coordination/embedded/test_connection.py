"""Connections: their bounds, on a transport in memory."""

import gc
import struct
import weakref
from typing import Any

import pytest
from jute_frames import Transport

from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.limits import (
    IDLE_SECONDS,
    MAX_HELD_BYTES,
    MAX_OWED,
    MAX_OWED_BYTES,
    MAX_UNCOMMITTED_BYTES,
)
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.transaction import Transaction
from hermes.coordination.embedded.zookeeper_requests import CreateRequest, DeleteRequest

CONNECT = struct.pack(">iiqiqi", 44, 0, 0, 5000, 0, 16) + bytes(16)
PING = struct.pack(">iii", 8, -2, 11)
PING_ANSWER_BYTES = 20
CONNECT_ANSWER_BYTES = 40


class Server:
    """A factory with what is around it.

    Attributes:
        clients: what its connections share.
    """

    def __init__(self, bench: Any, max_count: int) -> None:
        self.clients = Clients(bench.clock, max_count)
        self.clients.processor = bench.processor
        self._clock = bench.clock
        self._factory = CoordinationFactory(self.clients)

    def connect(self) -> Any:
        """A client has connected."""
        connection: Any = self._factory.buildProtocol(None)
        if connection is not None:
            connection.makeConnection(Transport())
        return connection

    def receive(self, connection: Any, data: bytes) -> None:
        """Bytes arrive, and it is everybody's turn."""
        connection.dataReceived(data)
        self._clock.advance(0)

    def settle(self) -> None:
        """The disk is done with everything."""
        self._clock.advance(0)


@pytest.fixture
def server(bench: Any) -> Server:
    return Server(bench, 2)


def request(xid: int, code: int, body: bytes = b"") -> bytes:
    return struct.pack(">iii", 8 + len(body), xid, code) + body


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">i", len(data)) + data


def create(path: str, data: bytes = b"") -> bytes:
    acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    return request(1, 1, text(path) + text(data) + acl + bytes(4))


def get_data(path: str) -> bytes:
    return request(2, 4, text(path) + b"\0")


def test_requests_without_an_answer_are_bounded(bench: Any, server: Server) -> None:
    connection = server.connect()
    bench.disk.is_slow = True
    server.receive(connection, CONNECT + PING * (3 * MAX_OWED))
    assert connection.report.queued == MAX_OWED
    assert not connection.transport.is_reading
    bench.disk.finish()
    bench.clock.advance(0)
    assert connection.report.queued == 0
    assert connection.transport.is_reading
    answers = CONNECT_ANSWER_BYTES + 3 * MAX_OWED * PING_ANSWER_BYTES
    assert len(connection.transport.value()) == answers


def test_answers_that_wait_for_the_disk_are_bounded_in_bytes(bench: Any, server: Server) -> None:
    connection = server.connect()
    size = MAX_OWED_BYTES // 4
    server.receive(connection, CONNECT + create("/big", b"x" * size))
    sent = len(connection.transport.value())
    bench.disk.is_slow = True
    server.receive(connection, create("/w") + get_data("/big") * 998)
    assert connection.waiting_bytes < MAX_OWED_BYTES + 2 * size
    assert bench.queue.held_bytes < MAX_OWED_BYTES + 2 * size
    assert not connection.transport.is_reading
    bench.disk.finish()
    bench.clock.advance(0)
    assert len(connection.transport.value()) - sent > 998 * size  # a reader gets all of them
    assert connection.waiting_bytes == bench.queue.held_bytes == 0
    assert connection.transport.is_reading


def test_a_client_is_served_again_once_its_events_have_left(bench: Any, server: Server) -> None:
    connection = server.connect()
    server.receive(connection, CONNECT)
    count = MAX_OWED_BYTES // 1000 + 1
    paths = [f"/{'ab'[number % 2]}/{number:01000}" for number in range(count)]
    requests = [CreateRequest(path, b"", OPEN_ACL, 0) for path in ("/a", "/b", *paths)]
    bench.processor.change(Rights(), [(Transaction.create, each) for each in requests])
    for path in paths:
        server.receive(connection, request(2, 3, text(path) + b"\1"))
    connection.transport.clear()
    bench.disk.is_slow = True
    deletions = [DeleteRequest(path, -1) for path in paths]
    bench.processor.change(Rights(), [(Transaction.delete, each) for each in deletions])
    server.receive(connection, PING)
    assert connection.report.queued == 0
    bench.disk.finish()
    bench.clock.advance(0)
    assert connection.transport.value()[-PING_ANSWER_BYTES:][4:8] == struct.pack(">i", -2)
    assert connection.transport.is_reading


def test_what_waits_for_the_disk_is_bounded_for_all_clients(bench: Any) -> None:
    count = 40
    server = Server(bench, count)
    clients = [server.connect() for _ in range(count)]
    for client in clients:
        server.receive(client, CONNECT)
    server.receive(clients[0], create("/big", b"x" * 900_000))
    bench.disk.is_slow = True
    for client in clients:
        server.receive(client, create("/big/e") + get_data("/big") * 12)
    assert bench.queue.held_bytes < MAX_UNCOMMITTED_BYTES + 2_000_000
    bench.disk.is_slow = False
    bench.disk.finish()
    bench.clock.advance(0)
    assert all(len(client.transport.value()) > 10_000_000 for client in clients)
    assert bench.queue.held_bytes == 0


def test_writes_that_wait_for_the_disk_are_bounded(bench: Any, server: Server) -> None:
    connection = server.connect()
    server.receive(connection, CONNECT + create("/n"))
    bench.disk.is_slow = True
    set_data = request(3, 5, text("/n") + text(b"x" * 1_000_000) + struct.pack(">i", -1))
    for _ in range(100):
        server.receive(connection, set_data)
    assert bench.queue.held_bytes < MAX_UNCOMMITTED_BYTES + 2_000_000


def test_clients_that_read_nothing_are_bounded_together(bench: Any) -> None:
    count = 100
    server = Server(bench, count + 1)
    clients = [server.connect() for _ in range(count)]
    server.receive(clients[0], CONNECT + create("/big", b"x" * 900_000))
    for client in clients[1:]:
        server.receive(client, CONNECT)
        fill(client)
        server.receive(client, get_data("/big"))
    open_now = [client for client in clients if client.transport.connected]
    assert server.clients.holdings.total_bytes <= MAX_HELD_BYTES
    assert 1 < len(open_now) < count
    assert open_now[-1] is clients[-1]  # whoever came late had less time to read
    honest = server.connect()
    server.receive(honest, CONNECT + get_data("/big"))
    assert len(honest.transport.value()) > 900_000


def fill(client: Any) -> None:
    """From now on the client reads nothing, and its transport says so with the next write."""
    write = client.transport.write

    def full(data: bytes) -> None:
        write(data)
        client.pauseProducing()

    client.transport.write = full


def test_frames_that_never_end_are_bounded_together(bench: Any) -> None:
    server = Server(bench, 200)
    clients = [server.connect() for _ in range(100)]
    for client in clients:
        server.receive(client, CONNECT + struct.pack(">i", 1_000_000) + b"x" * 900_000)
    assert server.clients.holdings.total_bytes <= MAX_HELD_BYTES
    assert not clients[0].transport.connected
    assert clients[-1].transport.connected
    for client in clients:
        client.connectionLost()
    assert server.clients.holdings.total_bytes == 0


def test_clients_are_served_in_turn(bench: Any, server: Server) -> None:
    greedy, modest = server.connect(), server.connect()
    server.receive(greedy, CONNECT)
    server.receive(modest, CONNECT)
    order = []
    for client in (greedy, modest):
        handled = client.transport.write
        client.transport.write = lambda data, who=client, write=handled: (
            order.append(who),
            write(data),
        )
    greedy.dataReceived(PING * 500)
    modest.dataReceived(PING)
    bench.clock.advance(0)
    assert order.count(greedy) == 500
    assert order.index(modest) < 100


def test_a_client_that_does_not_read_is_not_read_from(server: Server) -> None:
    connection = server.connect()
    server.receive(connection, CONNECT)
    connection.transport.producer.pauseProducing()
    assert not connection.transport.is_reading
    server.receive(connection, PING)
    assert len(connection.transport.value()) == CONNECT_ANSWER_BYTES
    connection.transport.producer.resumeProducing()
    server.settle()
    assert connection.transport.is_reading
    assert len(connection.transport.value()) == CONNECT_ANSWER_BYTES + PING_ANSWER_BYTES


def test_a_client_that_never_asks_for_a_session_is_cut_off(bench: Any, server: Server) -> None:
    silent, served = server.connect(), server.connect()
    server.receive(served, CONNECT)
    bench.clock.advance(IDLE_SECONDS)
    assert silent.transport.disconnected or not silent.transport.connected
    assert served.transport.connected


def test_silent_clients_keep_nobody_out(server: Server) -> None:
    silent = [server.connect() for _ in range(10)]
    assert None not in silent
    assert [client.transport.connected for client in silent] == [False] * 8 + [True] * 2
    for client in silent[:8]:
        client.connectionLost()
    honest = server.connect()
    server.receive(honest, CONNECT)
    assert len(honest.transport.value()) == CONNECT_ANSWER_BYTES


def test_connections_with_sessions_are_counted(server: Server) -> None:
    first, second = server.connect(), server.connect()
    server.receive(first, CONNECT)
    server.receive(second, CONNECT)
    assert server.connect() is None
    first.connectionLost()
    assert server.connect() is not None


def test_a_word_is_answered_and_the_connection_closed(server: Server) -> None:
    connection = server.connect()
    server.receive(connection, b"ruok\n")
    assert connection.transport.value() == b"imok"
    assert connection.transport.disconnecting
    server.receive(connection, b"more")
    assert connection.transport.value() == b"imok"


def test_nothing_behind_the_end_of_a_session_is_served(server: Server) -> None:
    connection = server.connect()
    close = struct.pack(">iii", 8, 1, -11)
    server.receive(connection, CONNECT + close + PING)
    size = CONNECT_ANSWER_BYTES + PING_ANSWER_BYTES
    assert len(connection.transport.value()) == size
    assert connection.transport.disconnecting


def test_while_nothing_can_be_served_clients_are_sent_away(server: Server) -> None:
    server.clients.processor = None
    connection = server.connect()
    server.receive(connection, CONNECT)
    assert connection.transport.disconnecting
    assert connection.transport.value() == b""


@pytest.mark.parametrize(
    "data",
    [b"", CONNECT, CONNECT + PING, b"ruok", bytes(4)],
    ids=["nothing", "a session", "a request", "a word", "an empty frame"],
)
def test_a_connection_that_is_gone_is_freed_at_once(server: Server, data: bytes) -> None:
    connection = server.connect()
    gc.disable()
    try:
        server.receive(connection, data)
        connection.transport.producer = None  # as a socket's transport does
        connection.connectionLost()
        server.settle()
        gone = weakref.ref(connection)
        del connection
        assert gone() is None, gc.get_referrers(gone())
    finally:
        gc.enable()
