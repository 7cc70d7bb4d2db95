"""Brokers in this process, and the source called as Spark calls it, but without a session."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from embedded_coordination_process import EmbeddedCoordinationProcess

from hermes.client import Producer, ProducerConfig
from hermes.spark.options import SourceOptions
from hermes.spark.source import HermesBatchReader
from hermes.testing import RunningBroker, running_broker

Row = dict[str, Any]
Send = Callable[..., None]


@pytest.fixture
def start_running(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Starts brokers, with settings as keywords; `broker_id` names the directory of its log."""
    with ExitStack() as stack:

        def start(**settings: Any) -> RunningBroker:
            log_dir = tmp_path / f"log-{settings.get('broker_id', 0)}"
            return stack.enter_context(running_broker(log_dir, settings))

        yield start


@pytest.fixture
def broker(start_running: Callable[..., RunningBroker]) -> RunningBroker:
    """A broker whose topics have two partitions."""
    return start_running(num_partitions=2)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    """Where brokers register: the embedded server, in a process of its own."""
    server = EmbeddedCoordinationProcess(tmp_path / "coordination")
    server.start()
    yield server.address
    server.kill()


@pytest.fixture
def send() -> Send:
    """Sends payloads to a topic of a broker, in one partition or over all; flushed when done."""

    def send(broker: RunningBroker, topic: str, payloads: list[bytes], **settings: Any) -> None:
        config = ProducerConfig(
            broker_list=broker.broker_list,
            acks="flushed",
            **{"partitioner": "round-robin", **settings},
        )
        with Producer(config) as producer:
            for payload in payloads:
                producer.send(topic, payload)

    return send


@pytest.fixture
def options() -> Callable[..., SourceOptions]:
    """Options as a user would write them; for a broker, unless they name a ZooKeeper."""

    def parse(broker: RunningBroker | None = None, use: str = "batch", **given: object) -> Any:
        texts = {name: str(value) for name, value in given.items()}
        if broker is not None:
            texts["hermes.bootstrap.servers"] = f"{broker.host}:{broker.port}"
        if "zookeeper" in texts:
            texts["hermes.zookeeper"] = texts.pop("zookeeper")
        return SourceOptions.parse(texts, "stream" if use == "stream" else "batch")

    return parse


@pytest.fixture
def read_all() -> Callable[[SourceOptions], list[Row]]:
    """Plans a batch and reads its ranges one after the other."""

    def read(options: SourceOptions) -> list[Row]:
        reader = HermesBatchReader(options)
        ranges = reader.partitions()
        return [row for each in ranges for batch in reader.read(each) for row in batch.to_pylist()]

    return read
