"""What all tests share: the golden vectors, and brokers that run as processes of their own."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_testkit import BrokerProcess

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def kafka_vectors() -> dict[str, Any]:
    """The recording of a Kafka 0.7.2 broker: `vectors` by name, `behaviours` in their order."""
    recorded = json.loads((VECTORS / "kafka-0.7.2.json").read_text(encoding="utf-8"))
    return {
        "vectors": {vector["name"]: vector for vector in recorded["vectors"]},
        "behaviours": recorded["behaviours"],
    }


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts `twistd -n hermes` processes with settings given as keywords; stops them at the end.

    A `log_dir` is made under the test's own directory when none is given. The process runs in
    another directory than the repository's, so that packaging faults show.
    """
    brokers: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        settings.setdefault("log_dir", str(tmp_path / "logs"))
        broker = BrokerProcess(tmp_path / f"broker-{len(brokers)}", settings)
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.stop()
