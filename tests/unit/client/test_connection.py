"""A connection against a broker that misbehaves in every way: typed errors, no hang, no leak."""

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.client.connection import BrokerConnection
from hermes.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    ConfigError,
    RemoteProtocolError,
)
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    MetadataRequest,
    ProduceRequest,
    encode_message_set,
)

REQUEST = struct.pack(">i", 6) + b"\x00\x01abcd"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All of it holds of TLS as well."""
    if "transport" in metafunc.fixturenames:
        metafunc.parametrize("transport", ["plain", "tls"], indirect=True)


def connection_to(broker: Any, **options: Any) -> BrokerConnection:
    return BrokerConnection(broker.host, broker.port, security=broker.security, **options)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def wait_until_readable(connection: BrokerConnection) -> None:
    """Until the broker's end of file (or garbage) has arrived here."""
    while not connection._poll.poll(10_000):
        assert connection.security.uses_tls, "nothing came"  # what came was of TLS itself


def test_connects_on_first_use_and_returns_the_body(scripted) -> None:
    broker = scripted(["read one request", framed(b"hello"), "read until the client closes"])
    with connection_to(broker) as connection:
        assert not connection.is_connected
        assert connection.call(REQUEST) == b"hello"
        assert connection.is_connected
    assert not connection.is_connected
    assert broker.requests == [REQUEST]


def test_an_answer_larger_than_the_first_read_arrives_whole(scripted) -> None:
    body = bytes(range(256)) * 16_384 + b"tail"
    broker = scripted(["read one request", framed(body), "read until the client closes"])
    with connection_to(broker) as connection:
        assert connection.call(REQUEST) == body


def test_the_memory_of_an_answer_is_used_again(scripted) -> None:
    bodies = [b"first", b"second one", b"3", bytes(5 << 20), b"last"]
    answers = [step for body in bodies for step in ("read one request", framed(body))]
    broker = scripted([*answers, "read until the client closes"])

    def refuse(body: memoryview) -> None:
        raise ClientError(f"{body[:1].tobytes()!r}")  # its traceback has the view

    with connection_to(broker) as connection:
        with pytest.raises(ClientError, match="f") as kept:
            connection.call(REQUEST, refuse)
        assert [connection.call(REQUEST) for _ in bodies[1:-1]] == bodies[1:-1]
        assert len(connection._buffer) == 0, "what a large answer took is not kept"
        assert connection.call(REQUEST) == b"last"
        assert connection.is_connected
    assert broker.connection_count == 1
    assert kept.value.args


def test_an_empty_answer_is_an_answer(scripted) -> None:
    broker = scripted(["read one request", framed(b""), "read until the client closes"])
    with connection_to(broker) as connection:
        assert connection.call(REQUEST) == b""


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["read one request", "close the connection"],
        ["read one request", "close it with a reset"],
        ["read one request", b"\x00\x00", "close the connection"],
        ["read one request", framed(b"hello")[:-1], "close the connection"],
        ["read one request", "send no more, but go on reading", "read until the client closes"],
    ],
)
def test_a_broker_that_closes_is_an_error_and_the_next_call_connects_anew(scripted, script) -> None:
    broker = scripted(script, ["read one request", framed(b"ok"), "read until the client closes"])
    with connection_to(broker) as connection:
        with pytest.raises(BrokerUnavailableError, match=connection.address):
            connection.call(REQUEST)
        assert not connection.is_connected
        assert connection.call(REQUEST) == b"ok"


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_an_answer_of_an_absurd_size_is_refused_before_it_is_read(scripted, size: int) -> None:
    broker = scripted(["read one request", struct.pack(">i", size), "read until the client closes"])
    with connection_to(broker, max_response_bytes=1000) as connection:
        with pytest.raises(RemoteProtocolError, match="port of a broker"):
            connection.call(REQUEST)
        assert not connection.is_connected


def test_an_answer_of_http_says_which_port_was_given(scripted) -> None:
    broker = scripted(["read one request", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    connection = connection_to(broker)
    with connection, pytest.raises(RemoteProtocolError, match="speaks HTTP: give the broker's"):
        connection.call(REQUEST)


@pytest.mark.parametrize("before", [b"", b"\x00", framed(b"hello")[:-1]])
def test_a_silent_broker_costs_the_timeout_and_no_more(scripted, before: bytes) -> None:
    broker = scripted(["read one request", before, "read until the client closes"])
    with connection_to(broker, timeout_seconds=0.05) as connection:
        with pytest.raises(BrokerTimeoutError, match=r"within 0\.05 s"):
            connection.call(REQUEST)
        assert not connection.is_connected


def test_a_broker_that_never_reads_costs_the_timeout_and_no_more(scripted) -> None:
    release = threading.Event()
    broker = scripted(["read one request", "read one request", "close the connection"])
    broker.read_request = lambda connection: release.wait(10) and None  # type: ignore[method-assign]
    try:
        with (
            connection_to(broker, timeout_seconds=0.05) as connection,
            pytest.raises(BrokerTimeoutError),
        ):
            connection.call(struct.pack(">i", 64 << 20) + bytes(64 << 20))
    finally:
        release.set()


def test_a_call_may_have_a_timeout_of_its_own(scripted) -> None:
    broker = scripted(["read one request", framed(b""), "read until the client closes"])
    with connection_to(broker) as connection:
        connection.call(REQUEST)  # so that no handshake has so little time
        with pytest.raises(BrokerTimeoutError, match=r"0\.02 s"):
            connection.call(REQUEST, timeout_seconds=0.02)


def test_nobody_listening_names_the_address(unused_port: int) -> None:
    with (
        BrokerConnection("127.0.0.1", unused_port) as connection,
        pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{unused_port}.*running"),
    ):
        connection.call(REQUEST)


def test_a_host_that_is_no_name_is_unavailable() -> None:
    with (
        BrokerConnection("x" * 70 + ".invalid", 9092) as connection,
        pytest.raises(BrokerUnavailableError),
    ):
        connection.send(REQUEST)


@pytest.mark.parametrize(
    "options",
    [{"port": 0}, {"port": 65536}, {"timeout_seconds": 0}, {"connect_timeout_seconds": -1}],
)
def test_settings_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigError):
        BrokerConnection(**{"host": "localhost", "port": 9092, **options})


def test_an_idle_connection_that_the_broker_closed_is_replaced_unnoticed(scripted) -> None:
    answer = ["read one request", framed(b"ok")]
    broker = scripted([*answer, "close the connection"], [*answer, "read until the client closes"])
    with connection_to(broker) as connection:
        assert connection.call(REQUEST) == b"ok"
        wait_until_readable(connection)
        assert connection.call(REQUEST) == b"ok"
    assert broker.connection_count == 2


def test_bytes_that_nobody_asked_for_do_not_answer_the_next_call(scripted) -> None:
    broker = scripted(
        ["read one request", framed(b"ok") + framed(b"stray"), "read until the client closes"],
        ["read one request", framed(b"right"), "read until the client closes"],
    )
    with connection_to(broker) as connection:
        assert connection.call(REQUEST) == b"ok"
        wait_until_readable(connection)
        assert connection.call(REQUEST) == b"right"


def test_a_close_after_unanswered_requests_is_reported_by_the_next_request(scripted) -> None:
    broker = scripted(
        ["read one request", "close the connection"],
        ["read one request", framed(b"ok"), "read until the client closes"],
    )
    with connection_to(broker) as connection:
        try:
            connection.send(REQUEST)
            wait_until_readable(connection)
        except BrokerUnavailableError:
            pass  # the close was quick enough to be seen by the send itself
        else:
            with pytest.raises(BrokerUnavailableError, match="may be lost"):
                connection.send(REQUEST)
        assert connection.call(REQUEST) == b"ok"


def test_a_signal_may_close_what_its_thread_is_calling(scripted) -> None:
    broker = scripted(["read one request", framed(b"ok"), "read until the client closes"])
    connection = connection_to(broker)
    errors: list[ClientError] = []

    def interrupt(body: memoryview) -> None:
        with pytest.raises(ClientError, match="in the middle of another"):
            connection.call(REQUEST)
        connection.close()

    def call() -> None:
        connection.call(REQUEST, interrupt)
        with pytest.raises(ClientError, match="closed"):
            connection.call(REQUEST)
        errors.append(ClientError())

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert errors
    assert not connection.is_connected


def test_closing_ends_a_call_of_another_thread(scripted) -> None:
    broker = scripted(["read one request", "read until the client closes"])
    connection = connection_to(broker)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            connection.call(REQUEST)
        except ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while not connection.is_connected and thread.is_alive():
        thread.join(0.001)
    connection.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_after_close_a_call_says_so(scripted) -> None:
    broker = scripted([])
    connection = connection_to(broker)
    connection.close()
    connection.close()
    with pytest.raises(ClientError, match="was closed"):
        connection.call(REQUEST)
    assert broker.connection_count == 0


def test_a_waiting_thread_counts_its_wait(scripted) -> None:
    broker = scripted(["read one request", "read until the client closes"])
    with connection_to(broker) as connection, ThreadPoolExecutor(1) as other:
        other.submit(connection._lock.acquire).result(10)
        with pytest.raises(BrokerTimeoutError, match="other threads"):
            connection.call(REQUEST, timeout_seconds=0.01)
        other.submit(connection._lock.release).result(10)


def test_threads_share_a_connection(scripted) -> None:
    count = 50
    broker = scripted(["read one request", framed(b"ok")] * count)
    answers: list[bytes] = []
    with connection_to(broker) as connection:

        def call() -> None:
            answers.extend(connection.call(REQUEST) for _ in range(count // 5))

        threads = [threading.Thread(target=call) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert answers == [b"ok"] * count
    assert broker.connection_count == 1


class SilentNetwork:
    """Where nobody answers a connection, with a clock of its own; counts who tries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.timeouts: list[float] = []
        self.addresses = ["10.0.0.7"]
        clock = SimpleNamespace(monotonic=lambda: self.now)
        network = SimpleNamespace(
            create_connection=self.create_connection,
            getaddrinfo=self.getaddrinfo,
            SOCK_STREAM=socket.SOCK_STREAM,
        )
        monkeypatch.setattr("hermes.client.connection.time", clock)
        monkeypatch.setattr("hermes.client.connection.socket", network)

    def getaddrinfo(self, host: str, port: int, *_: int, **__: int) -> list[tuple]:
        return [(socket.AF_INET, 0, 0, "", (each, port)) for each in self.addresses]

    def create_connection(self, address: tuple[str, int], timeout: float) -> None:
        places = self.addresses if address[0] == "nowhere" else [address[0]]
        for _ in places:  # each of them, as the real one does
            self.timeouts.append(timeout)
            self.now += timeout
        raise TimeoutError


def test_a_broker_that_accepts_nothing_is_not_waited_for_again_for_a_while(monkeypatch) -> None:
    network = SilentNetwork(monkeypatch)
    with BrokerConnection("nowhere", 1, connect_timeout_seconds=5, hold_off_seconds=10) as silent:
        for _ in range(3):
            with pytest.raises(BrokerUnavailableError, match="did not accept"):
                silent.call(REQUEST)
        assert network.timeouts == [5]
        network.now += 10
        with pytest.raises(BrokerUnavailableError, match="within 5 s"):
            silent.call(REQUEST)
        assert network.timeouts == [5, 5]


def test_the_addresses_of_a_name_share_the_time_for_connecting(monkeypatch) -> None:
    network = SilentNetwork(monkeypatch)
    network.addresses = ["10.0.0.7", "10.0.0.8", "10.0.0.9"]
    began = network.now
    with (
        BrokerConnection("nowhere", 1, connect_timeout_seconds=6) as silent,
        pytest.raises(BrokerUnavailableError, match="within 6 s"),
    ):
        silent.call(REQUEST)
    assert (network.now - began, network.timeouts) == (6, [2, 2, 2])


def test_without_a_hold_off_every_call_tries_to_connect(monkeypatch) -> None:
    network = SilentNetwork(monkeypatch)
    with BrokerConnection("nowhere", 1, connect_timeout_seconds=5) as silent:
        for _ in range(3):
            with pytest.raises(BrokerUnavailableError, match="within 5 s"):
                silent.call(REQUEST)
    assert network.timeouts == [5, 5, 5]


def test_a_wait_cut_short_by_the_call_proves_nothing_about_the_broker(monkeypatch) -> None:
    network = SilentNetwork(monkeypatch)
    with BrokerConnection("nowhere", 1, connect_timeout_seconds=5, hold_off_seconds=10) as silent:
        for timeout in (1.0, 2.0):
            with pytest.raises(BrokerUnavailableError, match="did not accept"):
                silent.call(REQUEST, timeout_seconds=timeout)
    assert network.timeouts == [1, 2]


def test_a_refused_connection_is_tried_again_at_once(unused_port, scripted) -> None:
    broker = scripted(["read one request", framed(b"back"), "read until the client closes"])
    with connection_to(broker, hold_off_seconds=3600) as refused:
        refused.port = unused_port
        with pytest.raises(BrokerUnavailableError, match="is the broker running"):
            refused.call(REQUEST)
        refused.port = broker.port
        assert refused.call(REQUEST) == b"back"


# -- requests that change something -------------------------------------------------------------


def frame_of(payload: bytes) -> bytes:
    produce = ProduceRequest("clicks", 0, encode_message_set([payload]))
    return AcknowledgedProduceRequest(Acks.WRITTEN, 1000, (produce,)).encode()


def test_nothing_overtakes_a_change_whose_answer_is_late(memory_broker) -> None:
    broker = memory_broker()
    with connection_to(broker, timeout_seconds=60) as connection:
        broker.paused.clear()
        with pytest.raises(BrokerTimeoutError):
            connection.call(frame_of(b"first"), timeout_seconds=0.05, changes=True)
        with pytest.raises(BrokerUnavailableError, match="nothing was sent after it"):
            connection.call(frame_of(b"second"), timeout_seconds=0.05, changes=True)
        broker.paused.set()
        connection.call(frame_of(b"third"), changes=True)
        assert broker.connection_count == 2
    assert broker.payloads("clicks") == [b"first", b"third"]


def test_an_old_connection_is_not_waited_for_for_ever(memory_broker) -> None:
    broker = memory_broker()
    with connection_to(broker) as connection:
        connection.call(frame_of(b"x"), changes=True)
        connection.timeout_seconds = 0.01
        broker.paused.clear()
        with pytest.raises(BrokerTimeoutError):
            connection.call(frame_of(b"x"), changes=True)
        assert broker.connection_count == 1
        while broker.connection_count < 2:  # it is waited for at first
            with pytest.raises((BrokerUnavailableError, BrokerTimeoutError)):
                connection.call(frame_of(b"x"), changes=True)


def test_what_changes_nothing_is_not_waited_for(memory_broker) -> None:
    broker = memory_broker()
    with connection_to(broker, timeout_seconds=60) as connection:
        broker.paused.clear()
        for count in (1, 2):
            with pytest.raises(BrokerTimeoutError):
                connection.call(MetadataRequest(()).encode(), timeout_seconds=0.05)
            while broker.connection_count < count:
                threading.Event().wait(0.001)


def test_close_does_not_wait_for_an_old_connection(memory_broker) -> None:
    broker = memory_broker()
    connection = connection_to(broker, timeout_seconds=60)
    broker.paused.clear()
    with pytest.raises(BrokerTimeoutError):
        connection.call(frame_of(b"x"), timeout_seconds=0.05, changes=True)
    failed: list[Exception] = []

    def call() -> None:
        try:
            connection.call(frame_of(b"y"), changes=True)
        except ClientError as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    connection.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(failed) == 1


@pytest.mark.parametrize("is_idle", [True, False])
def test_the_end_of_an_idle_connection_is_no_loss(memory_broker, monkeypatch, is_idle) -> None:
    monkeypatch.setattr("hermes.client.connection.closed_when_idle", lambda *given: is_idle)
    broker = memory_broker()
    frame = ProduceRequest("clicks", 0, encode_message_set([b"x"])).encode()
    with connection_to(broker) as connection:
        connection.call(MetadataRequest(()).encode())
        connection.send(frame)
        broker.drop_connections()
        wait_until_readable(connection)
        if is_idle:
            connection.send(frame)
            connection.call(MetadataRequest(()).encode())
            assert broker.connection_count == 2
        else:
            with pytest.raises(BrokerUnavailableError, match="may be lost"):
                connection.send(frame)
