"""A broker in a real ZooKeeper by TLS and as a user, as docs/security.md has it."""

from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from zookeeper_process import SecureZooKeeperProcess

from hermes import Consumer, ConsumerConfig, Producer, ProducerConfig
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationNotAuthorizedError, HermesError
from hermes.security import ClientSecurity
from hermes.testing import running_broker

USERS = {"alice": "alice's", "bob": "bob's"}


def test_the_recipe(tmp_path: Path, certificates: Certificates) -> None:
    password = tmp_path / "brokers.password"
    password.touch(mode=0o600)
    password.write_text("the brokers'\n", encoding="utf-8")
    server = SecureZooKeeperProcess(tmp_path / "zookeeper", certificates)
    server.start()
    connect_as = {
        "user": "brokers",
        "password_file": str(password),
        "tls_ca": str(certificates.ca),
    }
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": f"{server.address}/secure",
        "connect_as": connect_as,
    }
    try:
        with running_broker(settings=settings, tls=True, users=USERS) as broker:
            both = tmp_path / "both.pem"
            authority = broker.client_settings("alice")["tls_ca"]
            both.write_bytes(certificates.ca.read_bytes() + Path(authority).read_bytes())

            def client(user: str) -> dict[str, Any]:
                return {**broker.client_settings(user), "tls_ca": str(both)}

            connect = settings["zookeeper_connect"]
            with Producer(
                ProducerConfig(zookeeper_connect=connect, acks="flushed", **client("alice"))
            ) as producer:
                producer.send("clicks", [b"one"])
            connector = Consumer.create(
                ConsumerConfig(
                    group="hers",
                    zookeeper_connect=connect,
                    auto_offset_reset="smallest",
                    consumer_timeout="20s",
                    **client("alice"),
                )
            )
            try:
                (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
                assert next(stream).message == b"one"
                connector.commit_offsets()
                _try_as_bob(f"{server.address}/secure", ClientSecurity(**client("bob")))
            finally:
                connector.shutdown()
    finally:
        server.stop()


def _try_as_bob(connect: str, security: ClientSecurity) -> None:
    bob = Session(connect, security=security)
    bob.start()
    try:
        assert bob.children("/consumers") == ["hers"]  # a real ZooKeeper shows everything
        for attempt in (
            lambda: bob.set("/consumers/hers/offsets/clicks/0-0", b"0"),
            lambda: bob.delete("/consumers/hers/owners/clicks/0-0", -1),
            lambda: bob.delete("/brokers/ids/0", -1),
            lambda: bob.set("/hermes/brokers/0", b"{}"),
            lambda: bob.create("/brokers/topics/clicks/1", b"1"),
        ):
            with pytest.raises(CoordinationNotAuthorizedError, match="refuses user 'bob'"):
                attempt()
        bob.create("/consumers/his", b"")
    finally:
        bob.stop()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"user": None, "password_file": None, "tls_ca": "other"}, "is not of an authority"),
        ({"tls_ca": None}, "perhaps the port is for TLS"),
    ],
)
def test_a_broker_that_may_not_register_says_why(
    tmp_path: Path, certificates: Certificates, changed: dict[str, Any], said: str
) -> None:
    password = tmp_path / "brokers.password"
    password.touch(mode=0o600)
    password.write_text("the brokers'\n", encoding="utf-8")
    server = SecureZooKeeperProcess(tmp_path / "zookeeper", certificates)
    server.start()
    given = {"user": "brokers", "password_file": str(password), "tls_ca": str(certificates.ca)}
    given |= changed
    if given["tls_ca"] == "other":
        given["tls_ca"] = str(certificates.other_ca)
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": server.address,
        "zookeeper_connection_timeout": "1s",
        "connect_as": {name: value for name, value in given.items() if value is not None},
    }
    try:
        with pytest.raises(HermesError, match=said), running_broker(settings=settings):
            pass
    finally:
        server.stop()
