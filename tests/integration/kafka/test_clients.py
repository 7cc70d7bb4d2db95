"""Kafka's clients, with their defaults: what each produces each of them consumes."""

from collections.abc import Callable

import pytest
from kafka_clients import CLIENTS, CODECS, KafkaClient
from kafka_exchange import check_read, produce_all, records_of, topic_of


@pytest.fixture(scope="module")
def produced(
    bootstrap: str, client_named: Callable[[str], KafkaClient]
) -> dict[str, list[tuple[int, int]]]:
    """Where each record is, by topic: a topic for each client and codec."""
    placed: dict[str, list[tuple[int, int]]] = {}
    for each in CLIENTS:
        placed |= produce_all(client_named(each.name), bootstrap)
    return placed


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
def test_each_record_gets_the_next_offset(
    client: type[KafkaClient], produced: dict[str, list[tuple[int, int]]]
) -> None:
    for codec in CODECS:
        placed = produced[topic_of(client, codec)]
        assert placed == [(0, number) for number in range(len(records_of(client)))], codec


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
@pytest.mark.usefixtures("produced")
def test_each_client_consumes_what_all_produced(
    client: type[KafkaClient], bootstrap: str, client_named: Callable[[str], KafkaClient]
) -> None:
    topics = {topic_of(each, codec): each for each in CLIENTS for codec in CODECS}
    check_read(client_named(client.name), bootstrap, topics)
