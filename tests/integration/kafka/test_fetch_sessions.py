"""A client that uses fetch sessions gets every message by one, and ends it when it closes."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka_clients import Java
from scraping import scrape, until
from server_process import DEADLINE_SECONDS

from hermes.testing import RunningKafka, running_kafka

PARTITIONS = 12
SESSIONS = "hermes_kafka_fetch_sessions"


@pytest.fixture
def kafka() -> Iterator[RunningKafka]:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka(topics={"wide": PARTITIONS}, settings=settings) as running:
        yield running


@pytest.fixture
def java() -> Iterator[Java]:
    client = Java()
    yield client
    client.close()


def fill(kafka: RunningKafka, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    values = {b"value %d" % number for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce("wide", value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_consumes_in_a_session(kafka: RunningKafka, java: Java, protocol: str) -> None:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
        "max.partition.fetch.bytes": 200,  # so that much of it is left for later requests
    }
    java.ask(do="join", consumer="c", topics=["wide"], settings=settings)
    expected = fill(kafka, 600)
    got = []
    while len(got) < len(expected):
        answer = java.ask(do="poll", consumer="c", seconds=5)
        got += [Java.got(each).value for each in answer["records"]]
    assert set(got) == expected
    assert len(got) == len(expected)
    while not scrape(str(kafka.http))(SESSIONS):
        java.ask(do="poll", consumer="c", seconds=0.5)
    assert scrape(str(kafka.http))("hermes_kafka_fetch_session_partitions") > 1
    java.ask(do="close", consumer="c")
    until(str(kafka.http), lambda now: now(SESSIONS) == 0)
