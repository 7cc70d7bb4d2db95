"""TLS on blocking connections: whom they trust, what they say of refusals, and what that costs."""

import dataclasses
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Certificates, Pair

from hermes.client.connection import BrokerConnection
from hermes.client.simple_consumer import SimpleConsumer
from hermes.errors import (
    BrokerError,
    BrokerNotReachedError,
    BrokerNotTrustedError,
    BrokerUnavailableError,
    ClientError,
    ConfigError,
    RemoteProtocolError,
    is_retriable,
)
from hermes.security import ClientSecurity

REQUEST = struct.pack(">i", 6) + b"\x00\x01abcd"
OK = struct.pack(">i", 2) + b"ok"
ONE_ANSWER = ["read one request", OK, "read until the client closes"]

Context = Callable[..., ssl.SSLContext]


@pytest.fixture
def server_context(certificates: Certificates) -> Context:
    """Make a server's context."""

    def make(pair: Pair | None = None, **attributes: Any) -> ssl.SSLContext:
        pair = pair or certificates.server
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        for name, value in attributes.items():
            setattr(context, name, value)
        return context

    return make


@pytest.fixture
def secured(scripted: Callable[..., Any]) -> Callable[..., Any]:
    """Start scripted brokers with a context of their own."""

    def start(context: ssl.SSLContext, *scripts: Any) -> Any:
        broker = scripted(*scripts)
        broker.tls = context
        return broker

    return start


def trusting(certificates: Certificates, **more: Any) -> ClientSecurity:
    return ClientSecurity(tls_ca=str(certificates.ca), **more)


def owning(pair: Pair) -> dict[str, str]:
    return {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key)}


def refusal_of(broker: Any, security: ClientSecurity, host: str = "127.0.0.1") -> Exception:
    """What a call ends with; another call ends so, too, and the broker got neither."""
    with BrokerConnection(host, broker.port, security=security) as connection:
        errors = []
        for _ in range(2):
            with pytest.raises((BrokerUnavailableError, RemoteProtocolError)) as refused:
                connection.call(REQUEST)
            assert not connection.is_connected
            errors.append(refused.value)
    assert broker.requests == []
    assert {type(each) for each in errors} == {type(errors[0])}
    assert f"{host}:{broker.port}" in str(errors[0])
    return errors[0]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("untrusted_server", "is signed by none of"),
        ("expired_server", "its certificate has expired"),
        ("wrong_host_server", "its certificate is not for '127.0.0.1'"),
    ],
)
def test_a_certificate_that_is_not_good_is_refused_and_no_retry_helps(
    secured: Any, server_context: Context, certificates: Certificates, server: str, words: str
) -> None:
    broker = secured(server_context(getattr(certificates, server)))
    error = refusal_of(broker, trusting(certificates))
    assert isinstance(error, BrokerNotTrustedError)
    assert words in str(error)
    assert not is_retriable(error)


def test_the_systems_authorities_trust_no_other(secured: Any, server_context: Context) -> None:
    error = refusal_of(secured(server_context()), ClientSecurity(tls=True))
    assert isinstance(error, BrokerNotTrustedError)
    assert "signed by none of the system's authorities: set tls_ca" in str(error)


def test_a_name_of_the_certificate_is_as_good_as_an_address(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    broker = secured(server_context(), ONE_ANSWER)
    security = trusting(certificates)
    with BrokerConnection("localhost", broker.port, security=security) as connection:
        assert connection.call(REQUEST) == b"ok"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_own_certificate_is_shown_and_what_is_refused_of_it_is_said(
    secured: Any, server_context: Context, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    def context() -> ssl.SSLContext:
        made = server_context(maximum_version=version, verify_mode=ssl.CERT_REQUIRED)
        made.load_verify_locations(certificates.ca)
        return made

    alice = trusting(certificates, **owning(certificates.client("alice")))
    with BrokerConnection(
        "127.0.0.1", secured(context(), ONE_ANSWER).port, security=alice
    ) as connection:
        assert connection.call(REQUEST) == b"ok"
    for security, words in (
        (trusting(certificates), "it wants a client's certificate"),
        (trusting(certificates, **owning(certificates.untrusted_client)), "refused the certifi"),
        (trusting(certificates, **owning(certificates.expired_client)), "refused the certificate"),
    ):
        error = refusal_of(secured(context()), security)
        assert isinstance(error, BrokerNotTrustedError), error
        assert words in str(error)
        assert not is_retriable(error)


def test_an_unanswered_request_that_a_certificate_is_refused_for_is_no_success(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    context = server_context(verify_mode=ssl.CERT_REQUIRED)
    context.load_verify_locations(certificates.ca)
    broker = secured(context)
    security = trusting(certificates)
    connection = BrokerConnection("127.0.0.1", broker.port, security=security)

    def send_on() -> None:
        for _ in range(1000):  # the refusal may come a moment after the first
            connection.send(REQUEST)

    with connection, pytest.raises(BrokerNotTrustedError):
        send_on()
    assert broker.requests == []


def test_no_version_in_common_is_said(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context = server_context(
            minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1
        )
    error = refusal_of(secured(context), trusting(certificates))
    assert isinstance(error, BrokerNotTrustedError)
    assert "no version of TLS, or no cipher" in str(error)


def test_a_plain_port_that_answers_is_no_tls(scripted: Any, certificates: Certificates) -> None:
    broker = scripted([b"HTTP/1.1 400 Bad Request\r\n\r\n"], [b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    error = refusal_of(broker, trusting(certificates))
    assert isinstance(error, BrokerNotTrustedError)
    assert "does not speak TLS there" in str(error)


def test_a_plain_port_that_closes_may_be_a_broker_that_restarts(
    scripted: Any, certificates: Certificates
) -> None:
    error = refusal_of(scripted([], []), trusting(certificates))
    assert type(error) is BrokerNotReachedError
    assert "has this port no TLS" in str(error)
    assert is_retriable(error)


def test_a_port_of_tls_closes_on_those_without_and_they_say_what_it_may_want(
    secured: Any, server_context: Context
) -> None:
    broker = secured(server_context())
    words = r"does this port want TLS \(tls_ca\)"
    consumer = SimpleConsumer("127.0.0.1", broker.port)
    with consumer, pytest.raises(BrokerUnavailableError, match=words):
        consumer.metadata()
    assert broker.requests == []


def test_an_alert_of_tls_is_known_by_those_without(scripted: Any) -> None:
    broker = scripted(["read one request", bytes.fromhex("15 03 03 00 02 02 46")])
    connection = BrokerConnection("127.0.0.1", broker.port)
    with connection, pytest.raises(RemoteProtocolError, match="speaks TLS: set tls_ca"):
        connection.call(REQUEST)


class _Silent(threading.Thread):
    """Accepts connections and says nothing."""

    def __init__(self) -> None:
        super().__init__(name="silent")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.accepted = threading.Event()
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                self._open.append(self._listener.accept()[0])
            except OSError:
                return
            self.accepted.set()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.join()
        for each in (self._listener, *self._open):
            each.close()


@pytest.fixture
def silent() -> Iterator[_Silent]:
    server = _Silent()
    server.start()
    yield server
    server.stop()


def test_a_handshake_that_does_not_go_on_costs_the_time_for_connecting(
    silent: _Silent, certificates: Certificates
) -> None:
    with BrokerConnection(
        "127.0.0.1",
        silent.port,
        security=trusting(certificates),
        connect_timeout_seconds=0.05,
        hold_off_seconds=3600,
    ) as connection:
        with pytest.raises(BrokerNotReachedError, match=r"within 0\.05 s") as late:
            connection.call(REQUEST)
        with pytest.raises(BrokerNotReachedError, match="a moment ago"):
            connection.call(REQUEST)
    assert is_retriable(late.value)


def test_close_ends_a_handshake_of_another_thread(
    silent: _Silent, certificates: Certificates
) -> None:
    connection = BrokerConnection(
        "127.0.0.1", silent.port, security=trusting(certificates), connect_timeout_seconds=600
    )
    errors: list[Exception] = []

    def call() -> None:
        try:
            connection.call(REQUEST, timeout_seconds=600)
        except ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert silent.accepted.wait(60)
    connection.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_a_renewed_certificate_is_used_for_the_next_connection(
    secured: Any, server_context: Context, certificates: Certificates, tmp_path: Path
) -> None:
    """Also when the whole authority is another."""
    former, later = Authority(tmp_path, "former"), Authority(tmp_path, "later")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(former.path.read_bytes())
    answers = ["read one request", OK]
    broker = secured(server_context(former.server()), answers, ONE_ANSWER)
    security = ClientSecurity(tls_ca=str(trusted))
    with BrokerConnection("127.0.0.1", broker.port, security=security) as connection:
        assert connection.call(REQUEST) == b"ok"
        broker.tls = server_context(later.server())
        both = tmp_path / "both.pem"
        both.write_bytes(former.path.read_bytes() + later.path.read_bytes())
        os.replace(both, trusted)
        while not connection._poll.poll(60_000):
            pass  # what came was of TLS itself
        assert connection.call(REQUEST) == b"ok"


def test_a_certificate_that_is_gone_is_a_fault_of_the_settings(
    secured: Any, server_context: Context, tmp_path: Path
) -> None:
    broker = secured(server_context())
    security = ClientSecurity(tls_ca=str(tmp_path / "gone.pem"))
    with BrokerConnection("127.0.0.1", broker.port, security=security) as connection:
        with pytest.raises(ConfigError) as refused:
            connection.call(REQUEST)
        assert not connection.is_connected
    assert refused.value.key == "tls_ca"


def test_tickets_between_calls_are_not_taken_for_the_end(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    context = server_context(num_tickets=10)
    broker = secured(context, ["read one request", OK] * 20)
    security = trusting(certificates)
    with BrokerConnection("127.0.0.1", broker.port, security=security) as connection:
        for _ in range(20):
            assert connection.call(REQUEST) == b"ok"
    assert broker.connection_count == 1


def test_unanswered_requests_are_read_although_tickets_were_not(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    """A socket that is closed with unread bytes resets the connection, and loses what was sent."""
    frame = struct.pack(">i", 60_002) + b"\x00\x00" + bytes(60_000)
    broker = secured(
        server_context(num_tickets=10), ["read one request"] * 50 + ["read until the client closes"]
    )
    with BrokerConnection("127.0.0.1", broker.port, security=trusting(certificates)) as connection:
        for _ in range(50):
            connection.send(frame)
        assert connection.has_unanswered
        while len(broker.requests) < 50:
            threading.Event().wait(0.001)


def test_a_large_request_is_sent_whole(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    frame = struct.pack(">i", (8 << 20) + 2) + b"\x00\x00" + os.urandom(8 << 20)
    broker = secured(server_context(), ONE_ANSWER)
    security = trusting(certificates)
    with BrokerConnection("127.0.0.1", broker.port, security=security) as connection:
        assert connection.call(frame) == b"ok"
    assert broker.requests == [frame]


def test_a_child_leaves_the_parents_connection_alone(
    secured: Any, server_context: Context, certificates: Certificates
) -> None:
    broker = secured(server_context(), ["read one request", OK] * 2)
    security = trusting(certificates)
    with BrokerConnection("127.0.0.1", broker.port, security=security) as connection:
        assert connection.call(REQUEST) == b"ok"
        child = os.fork()
        if not child:
            try:
                connection.call(REQUEST)
            except ClientError:
                connection.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert connection.call(REQUEST) == b"ok"
    assert broker.connection_count == 1


def test_a_contradiction_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError):
        dataclasses.replace(ClientSecurity(tls_ca="ca.pem"), tls=False)
    assert not issubclass(BrokerNotTrustedError, BrokerError)


def test_clients_without_security_load_none_of_its_libraries() -> None:
    program = (
        "import sys, hermes.aio, hermes.client.groups\n"
        "from hermes import SimpleConsumer\n"
        "SimpleConsumer('localhost', 9092)\n"
        "names = 'scramp OpenSSL cryptography service_identity twisted hermes.client.tls'\n"
        "print([each for each in names.split() if each in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
