"""What a task does about damage: an error that helps, or a step over no more than needed."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import BrokerUnavailableError, ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import Codec, encode_message_set
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import SourceOptions
from hermes.spark.reading import ReadRange, read_ranges
from hermes.testing import RunningBroker, running_broker

PARTITION = TopicPartition("clicks", 0, 0)
PAYLOADS = [b"message %03d" % number for number in range(100)]
STORED = 10 + len(PAYLOADS[0])

Spoil = Callable[[bytearray], None]


@pytest.fixture
def spoiled(tmp_path: Path) -> Callable[..., Any]:
    """A broker over a log that was changed by hand, as a context."""

    def make(spoil: Spoil, log: bytes = encode_message_set(PAYLOADS)) -> Any:
        segment = tmp_path / "log" / "clicks-0" / f"{0:020d}.kafka"
        segment.parent.mkdir(parents=True)
        data = bytearray(log)
        spoil(data)
        segment.write_bytes(data)
        (tmp_path / "log" / ".kafka_cleanshutdown").touch()  # nothing is recovered
        return running_broker(tmp_path / "log")

    return make


def read(broker: RunningBroker, end: int, **options: Any) -> list[bytes]:
    given = {
        "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
        "subscribe": PARTITION.topic,
        "fetchOffset.numRetries": 1,
        "fetchOffset.retryIntervalMs": 0,
        **options,
    }
    texts = {name: str(value).lower() for name, value in given.items()}
    wanted = ReadRange(PARTITION, broker.host, broker.port, 0, end)
    batches = read_ranges((wanted,), SourceOptions.parse(texts, "batch"))
    return [row["value"] for batch in batches for row in batch.to_pylist()]


def spoil_crc(data: bytearray) -> None:
    data[50 * STORED + 12] ^= 1


def spoil_length(by: int) -> Spoil:
    def spoil(data: bytearray) -> None:
        struct.pack_into(">i", data, 50 * STORED, by)

    return spoil


@pytest.mark.parametrize(
    "spoil", [spoil_crc, spoil_length(500), spoil_length(1 << 20), spoil_length(-7)]
)
def test_damage_in_the_middle(
    spoil: Spoil, spoiled: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    end = len(PAYLOADS) * STORED
    with spoiled(spoil) as broker:
        with pytest.raises(InvalidMessageError) as caught:
            read(broker, end)
        assert read(broker, end, failOnDataLoss=False) == PAYLOADS[:50] + PAYLOADS[51:]
    text = str(caught.value)
    assert text.startswith("topic 'clicks' partition 0-0: ")
    assert str(50 * STORED) in text
    assert "set failOnDataLoss to false to skip it" in text
    assert f"skipped damage from offset {50 * STORED} to {51 * STORED}" in caplog.text


def test_damage_at_the_end(spoiled: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """No good message follows: all that is left of the range is stepped over."""

    def spoil(data: bytearray) -> None:
        struct.pack_into(">i", data, 99 * STORED, 500)

    end = len(PAYLOADS) * STORED
    with spoiled(spoil) as broker:
        with pytest.raises(InvalidMessageError, match=r"partition 0-0: .*failOnDataLoss"):
            read(broker, end)
        assert read(broker, end, failOnDataLoss=False) == PAYLOADS[:99]
    assert f"skipped damage from offset {99 * STORED} to {end}" in caplog.text


def test_a_set_that_expands_beyond_the_bound_names_the_option(
    spoiled: Callable[..., Any],
) -> None:
    log = encode_message_set([bytes(3_000_000)], Codec.GZIP)
    with spoiled(lambda data: None, log) as broker:
        for lenient in (False, True):
            with pytest.raises(ExpandedTooLargeError, match="raise maxFetchBytes"):
                read(broker, len(log), maxFetchBytes=2_000_000, failOnDataLoss=not lenient)
        assert read(broker, len(log), maxFetchBytes=4_000_000) == [bytes(3_000_000)]


def test_nothing_where_there_should_be_something_is_tried_again_within_bounds(
    spoiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a broker that lies: the task must not ask for ever."""
    from hermes.client import MessageSet, SimpleConsumer

    asked = []

    def nothing(self: SimpleConsumer, request: Any) -> MessageSet:
        asked.append(request)
        return MessageSet(b"", request.offset)

    monkeypatch.setattr(SimpleConsumer, "fetch", nothing)
    with (
        spoiled(lambda data: None) as broker,
        pytest.raises(BrokerUnavailableError, match="nothing came from offset 0"),
    ):
        read(broker, STORED)
    assert len(asked) == 2
