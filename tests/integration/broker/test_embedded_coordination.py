"""A broker that runs its own coordination: the default, from one process to a group that shares."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hermes_testkit import BrokerProcess, message, produce_acknowledged
from kazoo.client import KazooClient
from server_process import free_port

from hermes import Producer, ProducerConfig
from hermes.client.groups import Connector, Consumer, ConsumerConfig
from hermes.storage import FileLayer
from hermes.storage.owner import write_owner

StartBroker = Callable[..., BrokerProcess]

EMBEDDED = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}


@pytest.fixture
def embedded(tmp_path: Path, start_broker: StartBroker) -> tuple[BrokerProcess, str]:
    """A broker with embedded coordination, and where that is."""
    ready = tmp_path / "ready.json"
    broker = start_broker(num_partitions=4, ready_file=str(ready), **EMBEDDED)
    return broker, json.loads(ready.read_text())["zookeeper_connect"]


def registered(connect: str, path: str) -> tuple[bytes, bool]:
    client = KazooClient(connect)
    client.start()
    try:
        value, stat = client.get(path)
        return value, bool(stat.ephemeralOwner)
    finally:
        client.stop()
        client.close()


def consume(connector: Connector, topic: str, found: list[Any], enough: threading.Event) -> None:
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for each in stream:
        found.append(each.message)
        if len(found) >= 40:
            enough.set()


def test_a_broker_that_does_not_say_is_registered_in_its_own_server(
    embedded: tuple[BrokerProcess, str],
) -> None:
    broker, connect = embedded
    value, ephemeral = registered(connect, "/brokers/ids/0")
    assert value.endswith(f":127.0.0.1:{broker.port}".encode())
    assert ephemeral
    assert any("coordination is embedded" in line for line in broker.lines)


def test_producers_and_a_group_find_it(embedded: tuple[BrokerProcess, str]) -> None:
    _, connect = embedded
    sent = [b"message %d" % number for number in range(40)]
    with Producer(ProducerConfig(zookeeper_connect=connect, acks="flushed")) as producer:
        for payload in sent:
            producer.send("shared", payload)
    found: list[Any] = []
    enough = threading.Event()
    config = ConsumerConfig(zookeeper_connect=connect, group="group")
    with Consumer.create(config) as one, Consumer.create(config) as other:
        threads = [
            threading.Thread(target=consume, args=(each, "shared", found, enough))
            for each in (one, other)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        one.shutdown()
        other.shutdown()
        for thread in threads:
            thread.join(60)
    assert sorted(found) == sorted(sent)
    value, ephemeral = registered(connect, "/consumers/group/offsets/shared/0-0")
    assert int(value) >= 0
    assert not ephemeral


def test_after_a_kill_the_broker_takes_its_place_again(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    """Its own entry of the life before is still there; the address may be another one."""
    ready = tmp_path / "ready.json"
    broker = start_broker(
        ready_file=str(ready), zookeeper_session_timeout="4s", log_format="text", **EMBEDDED
    )
    with broker.connect() as client:
        client.call(produce_acknowledged(("t", 0, message(b"kept"))))
    broker.kill()
    broker.start()
    connect = json.loads(ready.read_text())["zookeeper_connect"]
    value, _ = registered(connect, "/brokers/ids/0")
    assert value.endswith(f":{broker.port}".encode())
    assert broker.stop() == 0


@pytest.fixture
def with_client(start_broker: StartBroker) -> Iterator[tuple[BrokerProcess, KazooClient]]:
    """A broker whose sessions live long, and a client of its server that has /brokers/ids/7."""
    port = free_port()
    settings = {**EMBEDDED, "coordination_listen": f"tcp:{port}:interface=127.0.0.1"}
    broker = start_broker(zookeeper_session_timeout="40s", **settings)
    client = KazooClient(f"127.0.0.1:{port}", timeout=40)
    client.start()
    client.create("/brokers/ids/7", b"other-1:other:9092", ephemeral=True)
    yield broker, client
    client.stop()
    client.close()


def test_after_a_kill_its_own_session_is_over_at_once_and_no_other_one(
    with_client: tuple[BrokerProcess, KazooClient],
) -> None:
    """The broker's address is another one than before: nothing else tells whose the entry is."""
    broker, client = with_client
    for _ in range(2):
        lines = len(broker.lines)
        broker.kill()
        broker.start()
        output = "".join(broker.lines[lines:])
        assert "retrying to register" not in output
        assert output.count("which this broker's last process has left behind") == 1
        value, _ = client.retry(client.get, "/brokers/ids/0")
        assert value.endswith(f":{broker.port}".encode())
        _, stat = client.get("/brokers/ids/7")
        assert stat.ephemeralOwner == client.client_id[0]
    assert broker.stop() == 0
    lines = len(broker.lines)
    broker.start()
    assert "last process" not in "".join(broker.lines[lines:])


def test_a_stop_does_not_wait_for_the_session_that_the_start_waits_for(
    with_client: tuple[BrokerProcess, KazooClient],
) -> None:
    broker, _ = with_client
    broker.kill()
    config = broker.config_file.read_text().replace("broker_id: 0", "broker_id: 7")
    broker.config_file.write_text(config)
    write_owner(str(broker.log_dir), 7, FileLayer())
    broker.start(wait=False)
    broker.wait_for_line("retrying to register broker 7")
    assert broker.stop() == 0
    output = "".join(broker.lines)
    assert "not taken back in time" not in output
    assert "Traceback" not in output


def test_a_port_in_use_says_what_to_change(
    tmp_path: Path, embedded: tuple[BrokerProcess, str]
) -> None:
    _, connect = embedded
    port = connect.rpartition(":")[2]
    second = BrokerProcess(
        tmp_path / "second",
        {
            "log_dir": str(tmp_path / "other"),
            "coordination": "embedded",
            "coordination_listen": f"tcp:{port}:interface=127.0.0.1",
        },
        wait=False,
    )
    assert second.wait() == 1
    output = "".join(second.lines)
    assert "coordination_listen" in output
    assert "Traceback" not in output


def test_a_second_broker_joins_the_first_ones_server_but_not_with_its_id(
    tmp_path: Path, embedded: tuple[BrokerProcess, str], start_broker: StartBroker
) -> None:
    _, connect = embedded
    settings = {"coordination": "zookeeper", "zookeeper_connect": connect}
    start_broker(broker_id=1, log_dir=str(tmp_path / "one"), **settings)
    assert registered(connect, "/brokers/ids/1")[1]
    twin = BrokerProcess(
        tmp_path / "twin",
        {"log_dir": str(tmp_path / "two"), "zookeeper_session_timeout": "4s", **settings},
        wait=False,
    )
    assert twin.wait() == 1
    output = "".join(twin.lines)
    assert "broker id 0 is in use" in output
    assert "Traceback" not in output
