"""Ports mixed up: a client says whose port it was given, a server who came to its own."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from hermes import (
    Consumer,
    ConsumerConfig,
    FetchRequest,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    aio,
)
from hermes.cli import program
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationUnavailableError, RemoteProtocolError
from hermes.testing import RunningBroker, running_broker

LOOPBACK = "tcp:0:interface=127.0.0.1"
ONE = FetchRequest("clicks", 0, 0, 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"coordination": "embedded", "kafka_listen": LOOPBACK, "http_listen": LOOPBACK}
    with running_broker(settings=settings) as started:
        yield started


def port_of(broker: RunningBroker, kind: str) -> str:
    assert broker.http is not None
    ports = {
        "listen": broker.address,
        "kafka_listen": broker.bootstrap_servers,
        "coordination_listen": broker.zookeeper_connect,
        "http_listen": broker.http.removeprefix("http://"),
    }
    found = ports[kind]
    assert found is not None
    return found


def fetch(address: str) -> None:
    with SimpleConsumer(address) as consumer:
        consumer.fetch(ONE)


def metadata(address: str) -> None:
    with SimpleConsumer(address) as consumer:
        consumer.metadata()


def send(address: str) -> None:
    with Producer(ProducerConfig(broker_list=address)) as producer:
        producer.send("clicks", b"x")


def join(address: str) -> None:
    Consumer(ConsumerConfig(group="g", brokers=address))


def fetch_in_a_loop(address: str) -> None:
    async def main() -> None:
        async with aio.SimpleConsumer(address) as consumer:
            await consumer.fetch(ONE)

    asyncio.run(main())


@pytest.mark.parametrize("use", [fetch, metadata, send, join, fetch_in_a_loop])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("kafka_listen", r"speaks Kafka's protocol: give the broker's port \(listen"),
        ("coordination_listen", "is ZooKeeper, or a broker's coordination, .*: give the broker's"),
        ("http_listen", r"speaks HTTP: give the broker's port \(listen\), not that of http_listen"),
    ],
)
def test_clients_of_a_broker(broker, kind: str, said: str, use: Callable[[str], None]) -> None:
    address = port_of(broker, kind)
    with pytest.raises(RemoteProtocolError, match=f"^{address} {said}"):
        use(address)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("listen", r"it is a broker's own port \(listen\): give that of ZooKeeper, or"),
        ("kafka_listen", "it speaks Kafka's protocol: give the port of ZooKeeper, or .* 2181"),
        ("http_listen", "it speaks HTTP: give the port of ZooKeeper, or .* 2181"),
    ],
)
def test_clients_of_coordination(broker: RunningBroker, kind: str, said: str) -> None:
    address = port_of(broker, kind)
    session = Session(address, connection_timeout_seconds=60)
    with pytest.raises(CoordinationUnavailableError, match=f"'{address}': {said}"):
        session.start()
    listed = CliRunner().invoke(program, ["groups", "list", "-Z", address])
    assert listed.exit_code == 1
    assert said.partition(":")[0].replace("\\", "") in listed.stderr


@pytest.mark.parametrize(
    ("come", "kind", "said"),
    [
        ("listen", "kafka_listen", "it is a client of Hermes' own or of Kafka 0.7"),
        ("listen", "coordination_listen", "it is a client of Hermes' own or of Kafka 0.7"),
        ("coordination", "listen", "it is a ZooKeeper client, for which there is the port of coo"),
        ("coordination", "kafka_listen", "it is a ZooKeeper client, for which there is the port"),
    ],
)
def test_what_brokers_log(come: str, kind: str, said: str) -> None:
    settings = {"coordination": "embedded", "kafka_listen": LOOPBACK, "http_listen": LOOPBACK}
    with running_broker(settings=settings) as broker:
        address = port_of(broker, kind)
        if come == "listen":
            with pytest.raises(RemoteProtocolError):
                fetch(address)
        else:
            with pytest.raises(CoordinationUnavailableError):
                Session(address, connection_timeout_seconds=60).start()
        with SimpleConsumer(broker.address) as consumer:
            deadline = time.monotonic() + 60
            while not any(said in each.message for each in consumer.recent_log_lines().lines):
                assert time.monotonic() < deadline
                time.sleep(0.05)  # between two looks; nothing tells


def test_a_broker_that_closes_is_no_stranger_once_it_has_answered(broker: RunningBroker) -> None:
    with SimpleConsumer(broker.address) as consumer:
        consumer.create_topic("answered")
        consumer.fetch(FetchRequest("answered", 0, 0, 1000))
        assert consumer._channel.broker_versions.has_answered
