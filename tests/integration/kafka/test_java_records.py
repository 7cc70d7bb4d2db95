"""Record batches between Hermes and Kafka's own library: each reads what the other writes."""

import json
from pathlib import Path

import pytest
from kafka_4 import kafka_version, run_java

from hermes.protocol.record_batches import HEADER_BYTES
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Headers, Record, encode_batch

RECORDED = json.loads(
    (Path(__file__).parents[2] / "vectors" / "kafka-4.json").read_text(encoding="utf-8")
)

HEADERS: Headers = (("näme", "ü".encode()), ("none", None), ("näme", b""))
BATCHES = {
    "some of everything": [
        Record(41, 1_700_000_000_000, b"key", b"value"),
        Record(42, 1_700_000_000_007, None, b"", HEADERS),
        Record(43, 1_699_999_999_000, b"", None),
    ],
    "one byte": [Record(0, 0, None, b"x")],
    "large": [Record(0, 0, b"k", 300_000 * b"large ")],
    "many": [Record(each, each * 1000, None, bytes([each % 256])) for each in range(5000)],
}


def test_the_recorded_batches_are_what_kafka_writes() -> None:
    assert RECORDED["source"] == f"kafka-clients {kafka_version()}"
    lines = run_java("KafkaRecords.java", "write").splitlines()
    assert dict(line.split("\t") for line in lines) == {
        each["name"]: each["hex"] for each in RECORDED["vectors"]
    }


@pytest.fixture(scope="module")
def read_by_java() -> dict[tuple[str, RecordCodec], list[str]]:
    """What Java reads from each of the batches, with each codec."""
    cases = [(name, codec) for name in BATCHES for codec in RecordCodec]
    given = "".join(f"{encode_batch(BATCHES[name], codec).hex()}\n" for name, codec in cases)
    answers = run_java("KafkaRecords.java", "read", given=given).split("\n\n")
    return {
        case: answer.splitlines() for case, answer in zip(cases, answers[: len(cases)], strict=True)
    }


@pytest.mark.parametrize("codec", RecordCodec)
@pytest.mark.parametrize("name", BATCHES)
def test_java_reads_what_hermes_writes(
    name: str, codec: RecordCodec, read_by_java: dict[tuple[str, RecordCodec], list[str]]
) -> None:
    assert read_by_java[name, codec] == list(map(shown, BATCHES[name]))


def test_java_would_say_if_it_did_not() -> None:
    batch = bytearray(encode_batch(BATCHES["one byte"]))
    batch[HEADER_BYTES] ^= 1
    assert run_java("KafkaRecords.java", "read", given=f"{batch.hex()}\n").startswith("refused: ")


def shown(record: Record) -> str:
    """As KafkaRecords.java prints a record."""
    fields = [str(record.offset), str(record.timestamp_ms), _hex(record.key), _hex(record.value)]
    headers = [f"{key.encode().hex()}={_hex(value)}" for key, value in record.headers]
    return " ".join(fields + headers)


def _hex(value: bytes | None) -> str:
    return "null" if value is None else f'"{value.hex()}"'
