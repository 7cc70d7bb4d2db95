"""`running_kafka`: a Kafka inside a test, with topics and with failures on demand."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_clients import Confluent, Sent

from hermes.client import SimpleConsumer
from hermes.errors import ArgumentError, InvalidTopicError
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


def test_a_topic_may_have_settings_of_its_own_besides() -> None:
    own = {"clicks": {"retention_time": "1d"}, "others": {"partitions": 2, "format": "kafka"}}
    with (
        running_kafka({"clicks": 3}, {"topics": own}) as kafka,
        SimpleConsumer(kafka.address) as consumer,
    ):
        assert topics(admin(kafka)) == {"clicks": 3, "others": 2}
        found = {each.name: each.value for each in consumer.describe_settings("clicks")}
        assert (found["format"], found["retention_time"]) == ("kafka", "1d")


def test_topics_of_its_settings_take_keys_too() -> None:
    with running_kafka(settings={"topics": {"declared": {"partitions": 2}}}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        errors: list[KafkaError | None] = []
        producer.produce("declared", b"1", b"k", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
    assert errors == [None]


def test_a_topic_whose_name_kafka_refuses_is_refused() -> None:
    with (
        pytest.raises(InvalidTopicError, match="'page views' contains"),
        running_kafka(["page views"]),
    ):
        pass


def test_a_request_that_is_delayed_for_ever_is_not_waited_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with running_kafka(["clicks"]) as kafka:
        client = admin(kafka)
        kafka.faults.delay("Metadata", seconds=3600)
        while not kafka.faults.count("Metadata"):
            with suppress(KafkaException):
                client.list_topics(timeout=1)
    assert "left behind" not in "".join(capfd.readouterr())


def test_one_text_is_no_list_of_topics() -> None:
    """Else each of its letters would be a topic."""
    with pytest.raises(ArgumentError, match="expected a list of names, got 'clicks'"):
        running_kafka("clicks").__enter__()


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
        client.list_topics(timeout=30)
    kafka.faults.clear()
    assert topics(client) == {"clicks": 3}
    assert kafka.faults.count("Metadata") >= before + 2


def values(kafka: RunningKafka, count: int) -> list[bytes | None]:
    got = Confluent().read(kafka.bootstrap_servers, ["clicks"], count)
    return sorted(each.value or b"" for each in got)


SENT = [Sent(b"%d" % number, partition=number % 3) for number in range(9)]


def test_a_producer_tries_again_after_an_error(kafka: RunningKafka) -> None:
    kafka.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    Confluent().produce(kafka.bootstrap_servers, "clicks", SENT)
    assert kafka.faults.count("Produce") >= 3
    assert values(kafka, len(SENT)) == [each.value for each in SENT]


@pytest.mark.parametrize("after", [False, True])
def test_an_idempotent_producer_whose_answer_is_lost_writes_once(
    kafka: RunningKafka, after: bool
) -> None:
    kafka.faults.cut("Produce", after=after, times=3)
    Confluent().produce(kafka.bootstrap_servers, "clicks", SENT, enable_idempotence=True)
    assert kafka.faults.count("Produce") >= 4
    assert values(kafka, len(SENT)) == [each.value for each in SENT]
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
    places = [TopicPartition("clicks", number) for number in range(3)]
    ends = [consumer.get_watermark_offsets(each, timeout=30)[1] for each in places]
    consumer.close()
    assert ends == [3, 3, 3]


def test_an_error_that_lasts_reaches_the_application(kafka: RunningKafka) -> None:
    kafka.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        Confluent().produce(kafka.bootstrap_servers, "clicks", SENT)


def test_a_consumer_outlives_errors_and_cuts(kafka: RunningKafka) -> None:
    Confluent().produce(kafka.bootstrap_servers, "clicks", SENT)
    kafka.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    kafka.faults.cut("Fetch", times=2)
    kafka.faults.fail("ListOffsets", "LEADER_NOT_AVAILABLE")
    assert values(kafka, len(SENT)) == [each.value for each in SENT]


def test_the_fixture_is_configured_by_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_topics.py").write_text(
        """
import pytest
from confluent_kafka.admin import AdminClient

pytest_plugins = ["hermes.testing.fixtures"]

@pytest.fixture
def hermes_kafka_topics():
    return {"clicks": 2}

@pytest.fixture
def hermes_kafka_security():
    return {"tls": True}

def test_topics(hermes_kafka):
    client = AdminClient({
        "bootstrap.servers": hermes_kafka.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(hermes_kafka.tls_ca),
    })
    assert len(client.list_topics(timeout=30).topics["clicks"].partitions) == 2
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_topics.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
