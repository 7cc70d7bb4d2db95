"""A mirror between clusters that ask who comes: by TLS, as another user in each."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from mirror_clusters import HERMES, PATIENCE_SECONDS, eventually
from planted_secrets import leaks, planted

from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.errors import HermesError
from hermes.testing import RunningBroker, running_broker

#: In the source it reads as a group; in the target it writes, and tells what it does.
IN_SOURCE = [
    {"principal": "mirror", "operations": ["consume"], "topic": "clicks"},
    {"principal": "mirror", "operations": ["group"], "group": "hermes-mirror-west"},
    {"principal": "admin", "operations": ["all"]},
]
IN_TARGET = [
    {"principal": "writer", "operations": ["produce", "create", "describe"], "topic": "clicks"},
    {"principal": "writer", "operations": ["group"], "group": "west"},
    {"principal": "admin", "operations": ["all"]},
]


@pytest.fixture(scope="module")
def source() -> Iterator[RunningBroker]:
    users = {name: planted(f"source {name}") for name in ("mirror", "admin")}
    settings = {"access": IN_SOURCE, "coordination": "embedded"}
    with running_broker(tls=True, users=users, settings=settings) as broker:
        admin = broker.client_settings("admin")
        config = ProducerConfig(broker_list=broker.broker_list, acks="flushed", **admin)
        with Producer(config) as producer:
            producer.send("clicks", [b"one", b"two"]).result()
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[RunningBroker]:
    users = {name: planted(f"target {name}") for name in ("writer", "admin")}
    settings = {"access": IN_TARGET, "coordination": "embedded", "broker_id": 7}
    with running_broker(tls=True, users=users, settings=settings) as broker:
        yield broker


def connect_as(broker: RunningBroker, name: str, folder: Path) -> dict[str, str]:
    settings = broker.client_settings(name)
    path = folder / f"{broker.broker_id} {name}.password"
    path.write_text(f"{settings.pop('password')}\n")
    return {**settings, "password_file": path.name}


def copied(target: RunningBroker) -> list[bytes]:
    admin = target.client_settings("admin")
    with SimpleConsumer(target.host, target.port, **admin) as consumer:
        try:
            fetched = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
            return [message.payload for message, _ in fetched]
        except HermesError:
            return []


def status(target: RunningBroker) -> tuple[int, str]:
    admin = target.client_settings("admin")
    ended = subprocess.run(
        [HERMES, "mirror", "status", "-Z", str(target.zookeeper_connect)],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env={
            **os.environ,
            "HERMES_TLS_CA": admin["tls_ca"],
            "HERMES_USER": "admin",
            "HERMES_PASSWORD": admin["password"],
        },
    )
    written = (ended.stdout + ended.stderr).decode()
    assert not leaks(written)
    return ended.returncode, written


@pytest.mark.parametrize("where", ["zookeeper", "brokers"])
def test_it_copies_as_whom_each_cluster_knows_it(
    source: RunningBroker, target: RunningBroker, tmp_path: Path, where: str
) -> None:
    places = {
        "zookeeper": lambda broker: {"zookeeper": broker.zookeeper_connect},
        "brokers": lambda broker: {"brokers": f"{broker.host}:{broker.port}"},
    }[where]
    east = connect_as(source, "mirror", tmp_path)
    password = tmp_path / east["password_file"]
    right = password.read_text()
    password.write_text(planted("wrong"))
    path = tmp_path / "mirror.yaml"
    values = {
        "name": "west",
        "sources": [{"name": "east", **places(source), "connect_as": east}],
        "target": {**places(target), "connect_as": connect_as(target, "writer", tmp_path)},
        "whitelist": "clicks",
    }
    path.write_text(yaml.safe_dump(values))
    log = tmp_path / "log"
    with log.open("wb") as file:
        mirror = subprocess.Popen([HERMES, "mirror", "--config", path], stderr=file)
    try:
        # With a wrong password it says so, and goes on trying.
        eventually(lambda: re.search("refuse[ds] user 'mirror'", log.read_text()), "no trouble")
        password.write_text(right)
        mirror.send_signal(signal.SIGHUP)
        eventually(lambda: copied(target)[:2] == [b"one", b"two"], "nothing was copied")
        eventually(lambda: status(target)[0] == 0 and "east" in status(target)[1], "no status")
    finally:
        mirror.terminate()
        assert mirror.wait(PATIENCE_SECONDS) == 0
    assert not leaks(log.read_bytes()), leaks(log.read_bytes())
