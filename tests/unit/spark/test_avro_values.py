"""What a worker does with Avro: every payload is a value or a dead letter, whatever its bytes."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.errors import ConfigError
from hermes.spark.decoding.avro_values import (
    AvroFormat,
    decode_batch,
    schema_text,
    to_arrow,
    to_spark,
)

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kinds", "type": {"type": "array", "items": ["Kind", "null"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "inner",
            "type": [
                "null",
                {"type": "record", "name": "I", "fields": [{"name": "k", "type": "Kind"}]},
            ],
        },
    ],
}
TEXT = schema_text(SCHEMA, "schema")
BARE = AvroFormat(((None, TEXT),), None)
KIND = to_arrow(to_spark(TEXT, "schema"))

values = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "kind": st.sampled_from("ABC"),
        "text": st.none() | st.text(),
        "kinds": st.lists(st.none() | st.sampled_from("ABC")),
        "counts": st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)),
        "day": st.dates(),
        "inner": st.none() | st.fixed_dictionaries({"k": st.sampled_from("ABC")}),
    }
)


def encoded(value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA, named_schemas={}), value)
    return buffer.getvalue()


def outcomes(payloads: list[bytes | None], rules: AvroFormat = BARE) -> list[Any]:
    array = decode_batch(payloads, rules, KIND)
    assert array.type == pa.struct([("value", KIND), ("reason", pa.string())])
    found = array.to_pylist(maps_as_pydicts="strict")
    assert len(found) == len(payloads)
    assert all((row["value"] is None) != (row["reason"] is None) for row in found)
    return [row["reason"] if row["value"] is None else row["value"] for row in found]


@given(st.lists(values, max_size=4))
def test_what_was_written_comes_back(written: list[Any]) -> None:
    assert outcomes([encoded(value) for value in written]) == written


@given(st.lists(st.none() | st.binary(max_size=40), max_size=6), values)
def test_any_bytes_are_a_value_or_a_dead_letter(payloads: list[bytes | None], good: Any) -> None:
    assert outcomes([*payloads, encoded(good)])[-1] == good


@given(values, st.data())
def test_a_value_cut_short_or_with_more_behind_it_is_a_dead_letter(good: Any, data: Any) -> None:
    whole = encoded(good)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    longer = whole + data.draw(st.binary(min_size=1, max_size=5))
    assert all(isinstance(outcome, str) for outcome in outcomes([cut, longer]))


@given(st.integers(-(2**63), 2**63 - 1).filter(lambda index: not 0 <= index < 3))
@example(-(2**63))
@example(-(2**63) + 1)
@example(-1)
def test_an_index_that_the_schema_does_not_have(index: int) -> None:
    """In enums and unions; negative ones too, which fastavro lets pass."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, {"type": "long"}, index)
    bad = buffer.getvalue()
    payloads = [
        b"\0" + bad + bytes(5),
        b"\0\0" + bad + bytes(4),
        b"\0\0\0\2" + bad + bytes(4),
        b"\0\0\0\2\0" + bad + bytes(4),
        bytes(6) + bad,
        bytes(6) + b"\2" + bad,
    ]
    for outcome in outcomes(payloads):
        assert outcome.startswith("not a value of the schema: IndexError: ")


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_the_framing(number: int) -> None:
    rules = AvroFormat(((number, TEXT),), TEXT)
    framed = b"\0" + number.to_bytes(4, "big") + bytes(7)
    (value, *others) = outcomes([framed, framed[1:], b"\0" * 4, b"", None], rules)
    assert (value["i"], value["kind"]) == (0, "A")
    assert others[-2:] == ["the value is empty", "the value is null"]
    assert len(others) == 4


def test_a_schema_travels_as_text() -> None:
    assert json.loads(TEXT) == SCHEMA
    assert schema_text(json.dumps(SCHEMA), "schema") == TEXT


def test_arrays_of_nothing_are_refused() -> None:
    nothing = {"type": "fixed", "name": "F", "size": 0}
    schema = json.loads(TEXT)
    schema["fields"].append({"name": "a", "type": {"type": "array", "items": nothing}})
    with pytest.raises(ConfigError, match="take no bytes"):
        schema_text(schema, "schema")
