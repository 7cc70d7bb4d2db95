"""What all kinds of clients do about TLS and users, on real brokers: the same, in equal words."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Certificates
from client_drivers import DRIVERS, Driver

from hermes import FetchRequest, errors
from hermes.errors import is_retriable
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.testing import RunningBroker, running_broker

PASSWORD = "the reader's pa55word"
USERS = {"alice": PASSWORD, "bob": "another pa55word"}
RULES = [{"principal": "alice", "operations": ["produce", "consume", "create"], "topic": "clicks"}]
FETCH = FetchRequest("clicks", 0, 0, 1 << 20)


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> type[Driver]:
    return DRIVERS[request.param]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """It has TLS and wants users; alice may use the topic clicks, where a message is."""
    with running_broker(tls=True, users=USERS, settings={"access": RULES}) as running:
        fill(running, **running.client_settings("alice"))
        yield running


def fill(broker: RunningBroker, **settings: Any) -> None:
    from hermes.client import SyncProducer

    with SyncProducer(broker.host, broker.port, **settings) as producer:
        messages = encode_message_set([b"hello"])
        (result,) = producer.send_acknowledged(
            [ProduceRequest("clicks", 0, messages)], Acks.FLUSHED
        )
        assert not isinstance(result, Exception), result


def payloads(client: Driver) -> list[bytes]:
    return [message.payload for message, _ in client.fetch(FETCH)]


def refusal_of(driver: type[Driver], broker: Any, host: str = "127.0.0.1", **settings: Any) -> Any:
    """What a call ends with; another one ends so, too."""
    with driver(host, broker.port, **settings) as client:
        refusals = []
        for _ in range(2):
            with pytest.raises(errors.HermesError) as refused:
                client.metadata(["clicks"])
            refusals.append(refused.value)
    assert type(refusals[0]) is type(refusals[1])
    assert PASSWORD not in str(refusals[0]) + repr(refusals[0])
    return refusals[0]


def test_a_user_by_tls(driver: type[Driver], broker: RunningBroker) -> None:
    with driver(broker.host, broker.port, **broker.client_settings("alice")) as client:
        for _ in range(3):
            assert payloads(client) == [b"hello"]


def test_a_host_by_its_name(driver: type[Driver], broker: RunningBroker) -> None:
    with driver("localhost", broker.port, **broker.client_settings("alice")) as client:
        assert payloads(client) == [b"hello"]


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", PASSWORD)])
def test_a_wrong_password_is_not_tried_again(
    driver: type[Driver], broker: RunningBroker, user: str, password: str
) -> None:
    given = {**broker.client_settings(), "user": user, "password": password}
    with (
        driver(broker.host, broker.port, **given) as client,
        pytest.raises(errors.NotAuthenticatedError) as refused,
    ):
        client.metadata()
    error = refused.value
    assert f"{broker.host}:{broker.port} refused user '{user}'" in str(error)
    assert "the name or the password is wrong" in str(error)
    assert not is_retriable(error)


def test_nobody_where_users_are_wanted(driver: type[Driver], broker: RunningBroker) -> None:
    error = refusal_of(driver, broker, **broker.client_settings())
    assert isinstance(error, errors.NotAuthenticatedError)
    assert f"To {broker.host}:{broker.port} this client is anonymous: set user and" in str(error)
    assert not is_retriable(error)


def test_a_user_where_none_is_wanted(driver: type[Driver]) -> None:
    with running_broker() as broker:
        error = refusal_of(driver, broker, user="alice", password=PASSWORD)
    assert isinstance(error, errors.NotAuthenticatedError)
    assert "leave out user and password" in str(error)


def test_a_user_without_the_right(driver: type[Driver], broker: RunningBroker) -> None:
    with driver(broker.host, broker.port, **broker.client_settings("bob")) as client:
        for _ in range(2):
            (result,) = client.fetch_waiting([FETCH], 0)
            check_not_authorized(result.error, broker)
        with pytest.raises(errors.NotAuthorizedError) as refused:
            client.describe_partitions("clicks")
        check_not_authorized(refused.value, broker)


def check_not_authorized(error: Any, broker: RunningBroker) -> None:
    assert type(error) is errors.NotAuthorizedError
    assert "'clicks'" in str(error), "what"
    assert f"{broker.host}:{broker.port} takes this client for user 'bob'" in str(error), "whom"
    assert "ask who keeps its rules" in str(error), "what to do"
    assert not is_retriable(error)


def test_an_authority_that_is_not_trusted(
    driver: type[Driver], broker: RunningBroker, certificates: Certificates
) -> None:
    error = refusal_of(driver, broker, tls_ca=str(certificates.ca))
    assert isinstance(error, errors.BrokerNotTrustedError)
    assert "its certificate is" in str(error)
    assert not is_retriable(error)


def test_plain_words_to_tls(driver: type[Driver], broker: RunningBroker) -> None:
    error = refusal_of(driver, broker)
    assert isinstance(error, errors.BrokerUnavailableError)
    assert "does this port want TLS (tls_ca) or a user?" in str(error)


def test_tls_to_a_plain_port(driver: type[Driver], broker: RunningBroker) -> None:
    with running_broker() as plain:
        error = refusal_of(driver, plain, **broker.client_settings())
    assert type(error) is errors.BrokerNotReachedError
    assert "has this port no TLS" in str(error)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("expired_server", "its certificate"),
        ("wrong_host_server", "its certificate is not for '127.0.0.1'"),
        ("untrusted_server", "its certificate is"),
    ],
)
def test_a_brokers_certificate_that_is_not_good(
    driver: type[Driver], certificates: Certificates, server: str, words: str
) -> None:
    pair = getattr(certificates, server)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    listen = {"endpoint": "tcp:0:interface=127.0.0.1", "tls": tls}
    with running_broker(settings={"listen": listen}) as broker:
        error = refusal_of(driver, broker, tls_ca=str(certificates.ca))
    assert isinstance(error, errors.BrokerNotTrustedError)
    assert words in str(error)
    assert not is_retriable(error)


def test_a_clients_certificate(driver: type[Driver], certificates: Certificates) -> None:
    server, alice = certificates.server, certificates.client("alice")
    tls = {
        "certificate": str(server.certificate),
        "key": str(server.key),
        "client_ca": str(certificates.ca),
        "client_certificate": "required",
    }
    listen = {"endpoint": "tcp:0:interface=127.0.0.1", "tls": tls, "authentication": "tls"}
    with running_broker(settings={"listen": listen}) as broker:
        trusted = {"tls_ca": str(certificates.ca)}
        own = {"tls_certificate": str(alice.certificate), "tls_key": str(alice.key)}
        fill(broker, **trusted, **own)
        with driver(broker.host, broker.port, **trusted, **own) as client:
            assert payloads(client) == [b"hello"]
        for refused, words in (
            (None, "it wants a client's certificate"),
            (certificates.untrusted_client, "it refused the certificate"),
            (certificates.expired_client, "it refused the certificate"),
        ):
            shown = {}
            if refused is not None:
                shown = {
                    "tls_certificate": str(refused.certificate),
                    "tls_key": str(refused.key),
                }
            error = refusal_of(driver, broker, **trusted, **shown)
            assert isinstance(error, errors.BrokerNotTrustedError), error
            assert words in str(error)
            assert not is_retriable(error)


class _Silent(threading.Thread):
    """Accepts connections and says nothing."""

    def __init__(self) -> None:
        super().__init__(name="silent")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                self._open.append(self._listener.accept()[0])
            except OSError:
                return

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.join()
        for each in (self._listener, *self._open):
            each.close()


@pytest.mark.parametrize("given", [{"tls": True}, {"user": "alice", "password": PASSWORD}])
def test_a_server_that_says_nothing_costs_the_time_for_connecting(
    driver: type[Driver], given: dict[str, Any]
) -> None:
    silent = _Silent()
    silent.start()
    try:
        error = refusal_of(driver, silent, connect_timeout_seconds=0.05, **given)
    finally:
        silent.stop()
    assert type(error) is errors.BrokerNotReachedError
    assert "within 0.05 s" in str(error)
    assert is_retriable(error)


def test_a_contradiction_is_refused_at_once(driver: type[Driver]) -> None:
    with pytest.raises(errors.ConfigError) as refused, driver("here", 1, user="alice"):
        pass
    assert refused.value.key == "password"


def listening(certificates: Certificates, port: int = 0, **more: Any) -> dict[str, Any]:
    server = certificates.server
    tls = {"certificate": str(server.certificate), "key": str(server.key)}
    return {"endpoint": f"tcp:{port}:interface=127.0.0.1", "tls": tls, **more}


def test_renewed_certificates_are_taken_for_new_connections(
    driver: type[Driver], tmp_path: Path
) -> None:
    """Of the broker and of the client: neither restarts."""
    authority = Authority(tmp_path, "authority")
    server, alice = authority.server(), authority.client("alice")
    tls = {
        "certificate": str(server.certificate),
        "key": str(server.key),
        "client_ca": str(authority.path),
        "client_certificate": "required",
    }
    listen = {"endpoint": "tcp:0:interface=127.0.0.1", "tls": tls, "authentication": "tls"}
    settings = {
        "tls_ca": str(authority.path),
        "tls_certificate": str(alice.certificate),
        "tls_key": str(alice.key),
    }
    yesterday = timedelta(days=-1)
    with running_broker(settings={"listen": listen}) as broker:
        fill(broker, **settings)
        with driver(broker.host, broker.port, **settings) as client:
            assert payloads(client) == [b"hello"]
            alice.replace(authority.client("expired", begin=2 * yesterday, end=yesterday))
            assert payloads(client) == [b"hello"], "the connection is what it was"
            client.disconnect()
            with pytest.raises(errors.BrokerNotTrustedError, match="refused the certificate"):
                payloads(client)
            alice.replace(authority.client("renewed", common_name="alice"))
            server.replace(authority.server("renewed-server"))
            assert payloads(client) == [b"hello"]


def test_a_broker_that_restarts_is_found_again(
    driver: type[Driver], tmp_path: Path, certificates: Certificates
) -> None:
    settings = {"tls_ca": str(certificates.ca), "user": "alice", "password": PASSWORD}
    listen = listening(certificates, authentication="scram")
    log_dir = tmp_path / "log"
    with running_broker(log_dir, {"listen": listen}, users=USERS) as first:
        fill(first, **settings)
        client = driver(first.host, first.port, **settings)
        client.__enter__()
        assert payloads(client) == [b"hello"]
    try:
        with pytest.raises(errors.BrokerNotReachedError) as away:
            payloads(client)
        assert is_retriable(away.value)
        listen = listening(certificates, first.port, authentication="scram")
        with running_broker(log_dir, {"listen": listen}, users=USERS):
            assert payloads(client) == [b"hello"]
    finally:
        client.__exit__()
