"""`running_kafka`: a Kafka inside a test, with topics and with failures on demand."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from hermes.testing import RunningKafka, running_broker, running_kafka


@pytest.fixture
def kafka() -> Iterator[RunningKafka]:
    with running_kafka(topics={"clicks": 3}) as running:
        yield running


def admin(kafka: RunningKafka, **settings: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, **settings})


def topics(client: AdminClient) -> dict[str, int]:
    return {
        name: len(topic.partitions) for name, topic in client.list_topics(timeout=30).topics.items()
    }


def test_its_topics_are_there(kafka: RunningKafka) -> None:
    assert topics(admin(kafka)) == {"clicks": 3}


def test_a_list_is_of_topics_with_one_partition() -> None:
    with running_kafka(["a", "b"], {"num_partitions": 5}) as kafka:
        assert topics(admin(kafka)) == {"a": 1, "b": 1}


def test_a_broker_without_kafka_has_no_bootstrap_servers() -> None:
    with running_broker() as broker:
        assert broker.bootstrap_servers is None


def test_a_request_fails_until_that_is_cleared(kafka: RunningKafka) -> None:
    client = admin(kafka)
    kafka.faults.fail("metadata", 29, times=None)
    for _ in range(3):
        assert client.list_topics(timeout=30).topics["clicks"].error.code() == 29
    kafka.faults.clear()
    assert client.list_topics(timeout=30).topics["clicks"].error is None


def test_an_answer_can_be_late(kafka: RunningKafka) -> None:
    client = admin(kafka)
    topics(client)
    kafka.faults.delay("Metadata", seconds=0.3, times=1)
    started = time.monotonic()
    topics(client)
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_can_be_cut(kafka: RunningKafka, after: bool) -> None:
    client = admin(kafka)
    before = kafka.faults.count("Metadata")
    kafka.faults.cut("Metadata", after=after, times=None)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    kafka.faults.clear()
    assert topics(client) == {"clicks": 3}
    assert kafka.faults.count("Metadata") >= before + 2


def test_the_fixture_is_configured_by_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_topics.py").write_text(
        """
import pytest
from confluent_kafka.admin import AdminClient

pytest_plugins = ["hermes.testing.fixtures"]

@pytest.fixture
def hermes_kafka_topics():
    return {"clicks": 2}

def test_topics(hermes_kafka):
    client = AdminClient({"bootstrap.servers": hermes_kafka.bootstrap_servers})
    assert len(client.list_topics(timeout=30).topics["clicks"].partitions) == 2
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_topics.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
