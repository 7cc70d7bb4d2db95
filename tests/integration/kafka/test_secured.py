"""confluent-kafka through TLS and SASL, with the users, certificates and rules of the broker."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from planted_secrets import planted

from hermes.security.users import Users
from hermes.testing import RunningBroker, running_broker

PASSWORD = planted("kafka's alice")
KAFKA = {"kafka_listen": "tcp:0:interface=127.0.0.1", "coordination": "none"}
HERMES = str(Path(sys.executable).with_name("hermes"))
RULES = [
    {
        "principal": "alice",
        "operations": ["produce", "consume", "describe", "create"],
        "topic": "*",
    },
    {"principal": "alice", "operations": ["group", "describe"], "group": "*"},
    {"principal": "bob", "operations": ["describe"], "topic": "*"},
]


def produced(settings: Mapping[str, Any]) -> KafkaError | None:
    """What a message's delivery comes to."""
    outcomes: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        outcomes.append(error)

    producer = Producer({"message.timeout.ms": 30_000, **settings})
    producer.produce("clicks", b"a page", on_delivery=delivered)
    producer.flush(60)
    (outcome,) = outcomes
    return outcome


def consumed(settings: Mapping[str, Any]) -> bytes | None:
    """The first message."""
    consumer = Consumer({"group.id": "readers", "auto.offset.reset": "earliest", **settings})
    try:
        consumer.subscribe(["clicks"])
        found = consumer.poll(60)
        assert found is not None
        assert found.error() is None
        return found.value()
    finally:
        consumer.close()


def sasl(broker: RunningBroker, user: str, password: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.tls_ca),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def test_a_password_as_it_is_where_the_listener_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(Users.none().with_user("alice", PASSWORD, iterations=4096).encode())
    path.chmod(0o600)
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram", "plain": True}
    given = {"kafka_listen": listener, "users_file": str(path), "access": RULES}
    with running_broker(settings={**KAFKA, **given}) as broker:
        plainly = {
            **sasl(broker, "alice", PASSWORD, "PLAIN"),
            "security.protocol": "SASL_PLAINTEXT",
        }
        del plainly["ssl.ca.location"]
        assert produced(plainly) is None
        assert consumed({**plainly, "sasl.mechanism": "SCRAM-SHA-256"}) == b"a page"
        wrong = produced({**plainly, "sasl.password": "wonder", "message.timeout.ms": 1000})
        assert wrong is not None


def test_users_by_tls_do_what_their_rules_allow() -> None:
    users = {"alice": PASSWORD, "bob": PASSWORD}
    with running_broker(settings={**KAFKA, "access": RULES}, tls=True, users=users) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert produced(sasl(broker, "alice", PASSWORD, mechanism)) is None
        assert consumed(sasl(broker, "alice", PASSWORD, "SCRAM-SHA-256")) == b"a page"
        refused = produced(sasl(broker, "bob", PASSWORD, "SCRAM-SHA-256"))
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        by_tls = ("--tls-ca", str(broker.tls_ca))
        assert (
            groups(broker, *by_tls, "--user", "alice")
            == "GROUP    MEMBERS  KIND\nreaders        0  kafka\n"
        )
        assert "refused user 'alice': the name" in groups(
            broker, *by_tls, "--user", "alice", password="wrong"
        )
        for options in (by_tls, ("--user", "alice")):
            assert "does it want TLS or a user?" in groups(broker, *options)


def groups(broker: RunningBroker, *options: str, password: str = PASSWORD) -> str:
    """What `hermes groups list` says."""
    line = [HERMES, "groups", "list", "-k", str(broker.bootstrap_servers), *options]
    environment = {**os.environ, "HERMES_PASSWORD": password}
    told = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)
    assert told.stderr.count("\n") == bool(told.returncode)
    return told.stdout or told.stderr


@pytest.mark.parametrize("change", [{"sasl.password": "wrong"}, {"sasl.mechanism": "PLAIN"}])
def test_who_proves_nothing_is_told_and_gets_nowhere(change: dict[str, str]) -> None:
    with running_broker(settings=KAFKA, tls=True, users={"alice": PASSWORD}) as broker:
        heard: list[int] = []
        settings = {**sasl(broker, "alice", PASSWORD, "SCRAM-SHA-256"), **change}
        producer = Producer({**settings, "error_cb": lambda error: heard.append(error.code())})
        while KafkaError._AUTHENTICATION not in heard:
            producer.poll(1)


def test_certificates_name_clients() -> None:
    with running_broker(settings=KAFKA, tls=True, certificates=["carol"]) as broker:
        files = broker.client_settings("carol")
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(broker.tls_ca),
            "ssl.certificate.location": files["tls_certificate"],
            "ssl.key.location": files["tls_key"],
        }
        assert produced(settings) is None
        assert consumed(settings) == b"a page"
