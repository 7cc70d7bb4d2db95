"""Kafka's clients, with their defaults: what each produces each of them consumes."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from kafka_clients import CLIENTS, CODECS, KafkaClient, Sent
from kafka_exchange import check_read, produce_all, records_of, topic_of

from hermes.kafka.producing import produce


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


@pytest.mark.skipif(os.environ.get("HERMES_TESTS_ON") == "kafka", reason="Kafka has no plain ones")
@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
def test_what_a_client_sends_is_plain(
    client: type[KafkaClient],
    acks: str | int,
    bootstrap: str,
    client_named: Callable[[str], KafkaClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small requests are appended without being decoded; only to a new topic one may be early."""
    sender, topic = client_named(client.name), f"plain-{client.name}-{acks}"
    sender.produce(bootstrap, topic, [Sent(b"makes it")])
    decoded: list[object] = []
    decode = produce.decode_produce

    def spied(*args: Any, **named: Any) -> Any:
        decoded.append(args)
        return decode(*args, **named)

    monkeypatch.setattr(produce, "decode_produce", spied)
    for codec in CODECS:
        records = [Sent(b"small", b"key"), Sent(b"too", headers=(("h", b"1"),))]
        placed = sender.produce(bootstrap, topic, records, acks=acks, compression_type=codec)
        assert len(placed) == 2
    assert not decoded
