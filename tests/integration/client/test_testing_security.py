"""The broker for users' own tests, which asks its clients who they are."""

import os
import ssl
import stat
import urllib.request
from base64 import b64encode
from urllib.error import HTTPError

import pytest
from planted_secrets import MARK, planted

from hermes import ConfigError, FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.errors import (
    BrokerNotTrustedError,
    HermesError,
    NotAuthenticatedError,
    NotAuthorizedError,
)
from hermes.testing import RunningBroker, running_broker

USERS = {name: planted(name) for name in ("writer", "reader")}
ACCESS = [
    {"principal": "writer", "operations": ["produce", "create"], "topic": "clicks"},
    {"principal": "reader", "operations": ["consume"], "topic": "clicks"},
]


def send(broker: RunningBroker, **settings: str) -> None:
    config = ProducerConfig(broker_list=broker.broker_list, acks="flushed", **settings)
    with Producer(config) as producer:
        producer.send("clicks", b"hello").result()


def read(broker: RunningBroker, **settings: str) -> list[bytes]:
    with SimpleConsumer(broker.host, broker.port, **settings) as consumer:
        fetched = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
        return [message.payload for message, _ in fetched]


def test_each_user_may_do_what_the_rules_say() -> None:
    with running_broker(tls=True, users=USERS, settings={"access": ACCESS}) as broker:
        send(broker, **broker.client_settings("writer"))
        assert read(broker, **broker.client_settings("reader")) == [b"hello"]
        with pytest.raises(NotAuthorizedError):
            send(broker, **broker.client_settings("reader"))
        with pytest.raises(NotAuthorizedError):
            read(broker, **broker.client_settings("writer"))
        with pytest.raises(NotAuthenticatedError):
            read(broker, **{**broker.client_settings("reader"), "password": "guessed"})
        with pytest.raises(HermesError):
            read(broker, **broker.client_settings())
        with pytest.raises(HermesError):
            read(broker)
        with pytest.raises(KeyError):
            broker.client_settings("nobody")


def test_users_without_tls_are_for_this_machine() -> None:
    with running_broker(users=USERS) as broker:
        assert broker.tls_ca is None
        assert broker.client_settings("writer") == {"user": "writer", "password": USERS["writer"]}
        send(broker, **broker.client_settings("writer"))
        with pytest.raises(NotAuthenticatedError):
            send(broker)


def test_tls_alone_lets_everybody_in_who_trusts_the_broker() -> None:
    with running_broker(tls=True) as broker, running_broker(tls=True) as other:
        send(broker, **broker.client_settings())
        assert read(broker, **broker.client_settings()) == [b"hello"]
        with pytest.raises(BrokerNotTrustedError):
            read(broker, **other.client_settings())


def test_clients_with_certificates() -> None:
    access = [{"principal": "web", "operations": ["all"], "topic": "*"}]
    clients = ["web", "an other/.."]
    with running_broker(certificates=clients, settings={"access": access}) as broker:
        send(broker, **broker.client_settings("web"))
        assert read(broker, **broker.client_settings("web")) == [b"hello"]
        with pytest.raises(NotAuthorizedError):
            send(broker, **broker.client_settings("an other/.."))
        with pytest.raises(HermesError):
            read(broker, **broker.client_settings())


def test_its_http_port_asks_too() -> None:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(tls=True, users=USERS, settings=settings) as broker:
        assert broker.http is not None
        assert broker.http.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(broker.tls_ca))
        url = f"{broker.http}/metrics"
        with pytest.raises(HTTPError, match="401") as caught:
            urllib.request.urlopen(url, context=context, timeout=60)
        caught.value.close()
        basic = b64encode(f"reader:{USERS['reader']}".encode()).decode()
        asked = urllib.request.Request(url, headers={"Authorization": f"Basic {basic}"})
        with urllib.request.urlopen(asked, context=context, timeout=60) as answer:
            assert b"hermes_" in answer.read()


def test_ports_of_ones_own_stay_as_they_are() -> None:
    plain = {"endpoint": "tcp:0:interface=127.0.0.1", "name": "plain"}
    settings = {"listen": [plain, "tcp:0:interface=127.0.0.1"]}
    with running_broker(users=USERS, settings=settings) as broker:
        send(broker)
        assert read(broker) == [b"hello"]


def test_nothing_shows_a_password_and_nothing_is_left(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with running_broker(tls=True, users=USERS) as broker:
        assert MARK not in repr(broker)
        files = [each for each in tmp_path.rglob("*") if each.is_file()]
        assert any(each.suffix == ".key" for each in files)
        for each in files:
            assert MARK.encode() not in each.read_bytes()
            if each.suffix == ".key" or each.name == "users":
                assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == []


def test_users_and_certificates_exclude_each_other() -> None:
    with (
        pytest.raises(ConfigError, match="give these or users"),
        running_broker(users=USERS, certificates=["web"]),
    ):
        pass


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="user"), running_broker(users={"a:b": "x"}):
        pass
