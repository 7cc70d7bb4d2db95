"""Brokers that copy from each other where ports ask who connects: by a listener and a right."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from planted_secrets import planted

from hermes.security.users import Users
from hermes.testing import RunningKafka, running_kafka

PATIENCE_SECONDS = 120.0
Pair = tuple[dict[str, Any], bool]
ADMIN, COPIER = planted("an admin of copies"), planted("a broker that copies")
MAY_COPY = {"principal": "copier", "operations": ["replicate"], "cluster": True}
MAY_NOT = {"principal": "copier", "operations": ["all"], "topic": "*"}


def settings(folder: Path, rule: dict[str, Any]) -> dict[str, Any]:
    """Of each broker: ports that ask for a user, and one user for coordination, one for copies."""
    users = Users.none().with_user("admin", ADMIN, iterations=4096)
    write(folder / "users", users.with_user("copier", COPIER, iterations=4096).encode())
    write(folder / "admin.password", ADMIN.encode())
    write(folder / "copier.password", COPIER.encode())
    port = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    return {
        "users_file": str(folder / "users"),
        "access": [{"principal": "admin", "operations": ["all"]}, rule],
        "kafka_listen": [{**port, "name": "clients"}, {**port, "name": "inside"}],
        "coordination_listen": port,
        "replication_listener": "inside",
        "connect_as": {"user": "admin", "password_file": str(folder / "admin.password")},
        "replicate_as": {"user": "copier", "password_file": str(folder / "copier.password")},
    }


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


@pytest.fixture(params=[MAY_COPY, MAY_NOT], ids=["permitted", "refused"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """How clients reach two brokers, and whether these may copy from each other."""
    may_copy = request.param is MAY_COPY
    common = settings(tmp_path, request.param)
    if not may_copy:
        common["replica_lag_time"] = "1s"
    with ExitStack() as stack:
        first = stack.enter_context(running_kafka(settings={**common, "coordination": "embedded"}))
        zookeeper = {
            "coordination": "zookeeper",
            "zookeeper_connect": str(first.zookeeper_connect),
        }
        stack.enter_context(running_kafka(settings={"broker_id": 1, **common, **zookeeper}))
        yield client_settings(first), may_copy


def client_settings(broker: RunningKafka) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": ADMIN,
        "log_level": 0,
    }


def test_who_has_the_right_is_in_sync_and_others_fall_out(
    pair: tuple[dict[str, Any], bool],
) -> None:
    known, may_copy = pair
    admin = AdminClient(known)
    while len(admin.list_topics(timeout=60).brokers) < 2:
        pass  # a run that hangs is ended, and shows where
    topic = NewTopic("copied", 1, replica_assignment=[[0, 1]])
    admin.create_topics([topic])["copied"].result(PATIENCE_SECONDS)

    def in_sync() -> set[int]:
        return set(admin.list_topics("copied", timeout=60).topics["copied"].partitions[0].isrs)

    # Acknowledged once both have it, or the other one has fallen out.
    producer, failed = Producer(known), list[Any]()
    producer.produce("copied", b"kept", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failed == [None]
    if may_copy:
        assert in_sync() == {0, 1}
    while not may_copy and in_sync() != {0}:
        pass
