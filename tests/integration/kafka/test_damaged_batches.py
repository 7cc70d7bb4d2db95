"""A batch is lost of which there is no other copy, as its header is damaged: readers hear of it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka_clients import Confluent, Sent
from kafka_raw import KafkaConversation

from hermes import SimpleConsumer
from hermes.errors import InvalidMessageError
from hermes.protocol import FetchRequest
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import decode_header, next_in
from hermes.spark.offsets import TopicPartition as SparkPartition
from hermes.spark.options import SourceOptions
from hermes.spark.reading import ReadRange, read_ranges
from hermes.testing import RunningKafka, running_kafka

TOPIC = "clicks"
VALUES = [b"%03d" % number for number in range(20)]

#: How many are in each batch, and which one is damaged.
EACH, DAMAGED = 4, 2
FIRST, FOLLOWING = DAMAGED * EACH, (DAMAGED + 1) * EACH
INTACT = VALUES[:FIRST] + VALUES[FOLLOWING:]

_HERMES = str(Path(sys.executable).with_name("hermes"))


@pytest.fixture(scope="module", params=[9, 16], ids=["length", "magic"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningKafka]:
    """Which byte of the header is wrong."""
    log_dir = tmp_path_factory.mktemp("log")
    with running_kafka(settings={"coordination": "none"}, log_dir=log_dir) as kafka:
        for start in range(0, len(VALUES), EACH):
            values = VALUES[start : start + EACH]
            Confluent().produce(kafka.bootstrap_servers, TOPIC, [Sent(each) for each in values])
    (path,) = log_dir.glob(f"{TOPIC}-0/*.log")
    data = bytearray(path.read_bytes())
    position = 0
    while (header := next_in(data, position)) is not None and header.base_offset < FIRST:
        position += header.size_bytes
    assert decode_header(data, position).base_offset == FIRST, "each send was a batch of its own"
    data[position + request.param] ^= 0x10
    path.write_bytes(data)
    with running_kafka(settings={"coordination": "none"}, log_dir=log_dir) as kafka:
        yield kafka


def test_a_fetch_of_what_is_lost_is_refused_and_of_what_follows_answered(
    broker: RunningKafka,
) -> None:
    with KafkaConversation(broker.bootstrap_servers) as asking:
        for offset in range(FIRST, FOLLOWING):
            found = asking.fetch_partition(TOPIC, offset)
            assert (found.error_code.value, not found.records) == (Code.CORRUPT_MESSAGE, True)
        records = asking.fetch(TOPIC, FOLLOWING)
    assert [each.value for each in records] == VALUES[FOLLOWING:]


def test_kafkas_clients_raise_and_can_seek_past_it(broker: RunningKafka) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "reader",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        while True:
            (message,) = consumer.consume(1, 60)
            if message.error() is not None:
                break
            found.append(message.value())
        assert found == VALUES[:FIRST]
        assert "at offset 8" in str(message.error())
        consumer.seek(TopicPartition(TOPIC, 0, FOLLOWING))
        while len(found) < len(INTACT):
            (message,) = consumer.consume(1, 60)
            if message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    assert found == INTACT


def test_our_own_client_says_where_to_go_on_or_goes_on(broker: RunningKafka) -> None:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        before = consumer.fetch(FetchRequest(TOPIC, 0, 0, 1 << 20))
        found = [message.payload for message, _ in before]
        assert (found, before.next_offset) == (VALUES[:FIRST], FIRST)
        with pytest.raises(InvalidMessageError, match=f"the next good one: {FOLLOWING}") as raised:
            consumer.fetch(FetchRequest(TOPIC, 0, FIRST, 1 << 20))
        assert (raised.value.offset, raised.value.next_offset) == (FIRST, FOLLOWING)
    with SimpleConsumer(broker.host, broker.port, on_corrupt="skip") as consumer:
        after = consumer.fetch(FetchRequest(TOPIC, 0, FIRST + 1, 1 << 20))
        assert [message.payload for message, _ in after] == VALUES[FOLLOWING:]
        assert consumer.skipped_count == 1


def test_our_command_skips_it_if_it_may(broker: RunningKafka) -> None:
    command = [_HERMES, "consume", "-t", TOPIC, "-b", f"{broker.host}:{broker.port}", "-e"]
    refused = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout.split()) == (1, VALUES[:FIRST])
    assert b"at offset 8" in refused.stderr
    assert b"the next one starts at 12, where --skip-corrupt would continue" in refused.stderr
    command += ["--skip-corrupt"]
    skipped = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert skipped.stdout.split() == INTACT
    assert b"skipped damage from offset 8 to 12" in skipped.stderr


def test_a_load_ends_there_or_skips_it(broker: RunningKafka) -> None:
    with pytest.raises(InvalidMessageError, match="set failOnDataLoss to false to skip it"):
        loaded(broker, is_skipped=False)
    assert loaded(broker, is_skipped=True) == INTACT


def loaded(broker: RunningKafka, *, is_skipped: bool) -> list[bytes]:
    texts = {
        "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
        "subscribe": TOPIC,
        "failOnDataLoss": str(not is_skipped).lower(),
    }
    partition = SparkPartition(TOPIC, 0, 0)
    wanted = ReadRange(partition, broker.host, broker.port, 0, len(VALUES))
    batches = read_ranges((wanted,), SourceOptions.parse(texts, "batch"))
    return [row["value"] for batch in batches for row in batch.to_pylist()]
