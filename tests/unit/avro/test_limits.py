"""Avro that would cost far more than its bytes: refused before anything is read."""

import struct
from typing import Any

import pytest

from hermes.avro.limits import MAX_DEPTH
from hermes.errors import ConfigError, EncodingError
from hermes.plugins.encoders.avro import AvroEncoder

PREFIX = struct.pack(">bi", 0, 1)
LIST = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "sum", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "weight", "type": ["null", "double", {"type": "int", "logicalType": "date"}]},
        {"name": "parts", "type": {"type": "array", "items": "T"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "T", "boolean"]}},
        {"name": "raw", "type": "bytes"},
    ],
}


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def chain(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"n": None}
    for _ in range(depth - 1):
        value = {"n": value}
    return value


def take_apart(value: Any) -> None:
    """Free a deep value from the outside, since freeing it at once would go as deep."""
    while isinstance(value, dict) and value["n"] is not None:
        value, value["n"] = value["n"], None


def tree(depth: int) -> dict[str, Any]:
    inner = [tree(depth - 1)] if depth else []
    named = {f"n{n}": each for n, each in enumerate([*inner, None, True])}
    return {
        "name": "x" * 100,
        "kind": "B",
        "sum": b"ab",
        "weight": 1.5,
        "parts": inner * 2,
        "named": named,
        "raw": bytes(70),
    }


def test_recursive_values_go_both_ways() -> None:
    encoder = AvroEncoder(TREE, 1)
    for depth in range(4):
        assert encoder.decode("t", encoder.encode("t", tree(depth))) == tree(depth)


@pytest.mark.parametrize("depth", [6_000, 100_000, 1_000_000])
def test_a_deep_payload_is_refused(depth: int) -> None:
    """C code that calls itself for each level ended the process."""
    with pytest.raises(EncodingError, match=f"more than {MAX_DEPTH} deep"):
        AvroEncoder(LIST, 1).decode("t", PREFIX + b"\2" * depth + b"\0")


def test_what_can_be_written_can_be_read() -> None:
    encoder = AvroEncoder(LIST, 1)
    assert encoder.decode("t", encoder.encode("t", chain(MAX_DEPTH))) == chain(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        value = chain(depth)
        with pytest.raises(EncodingError, match="deep"):
            encoder.encode("t", value)
        take_apart(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["n"] = value
    with pytest.raises(EncodingError, match="deep"):
        AvroEncoder(LIST, 1).encode("t", value)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\4", b"\1", b"\2" * 5, b"\2" * 5 + b"\0\0", b"\x80" * 20],
    ids=lambda payload: payload.hex() or "empty",
)
def test_a_damaged_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(EncodingError):
        AvroEncoder(LIST, 1).decode("t", PREFIX + payload)


def test_an_older_recursive_schema_is_looked_at_as_well() -> None:
    encoder = AvroEncoder(record_of("long") | {"name": "L"}, 2, {1: LIST})
    with pytest.raises(EncodingError, match="deep"):
        encoder.decode("t", PREFIX + b"\2" * 50_000 + b"\0")


NOTHING = [
    "null",
    {"type": "fixed", "name": "F", "size": 0},
    {"type": "record", "name": "E", "fields": []},
    {"type": "record", "name": "E", "fields": [{"name": "x", "type": "null"}]},
    {
        "type": "record",
        "name": "E",
        "fields": [{"name": "x", "type": {"type": "record", "name": "G", "fields": []}}],
    },
]


@pytest.mark.parametrize("items", NOTHING, ids=str)
@pytest.mark.parametrize(
    "around",
    [
        lambda array: array,
        lambda array: ["null", array],
        lambda array: {"type": "map", "values": array},
        lambda array: {"type": "array", "items": array},
        lambda array: record_of(array) | {"name": "Inner"},
    ],
)
def test_arrays_of_nothing_are_refused(items: Any, around: Any) -> None:
    schema = record_of(around({"type": "array", "items": items}))
    with pytest.raises(ConfigError, match="take no bytes"):
        AvroEncoder(schema, 1)
    with pytest.raises(ConfigError, match=r"older_schemas\.7: .*take no bytes"):
        AvroEncoder(record_of("int"), 1, {7: schema})


@pytest.mark.parametrize("items", ["int", ["null", "int"], record_of("boolean") | {"name": "S"}])
def test_arrays_of_something_are_not(items: Any) -> None:
    AvroEncoder(record_of({"type": "array", "items": items}), 1)


def test_a_schema_of_many_uses_is_looked_at_once() -> None:
    kind: Any = "int"
    for level in range(60):
        name = f"N{level}"
        twice = [{"name": "a", "type": kind}, {"name": "b", "type": f"N{level - 1}"}]
        kind = {"type": "record", "name": name, "fields": twice if level else twice[:1]}
    encoder = AvroEncoder(record_of("int") | {"name": "Other"}, 1, {2: kind})  # not in 2^60 steps
    with pytest.raises(EncodingError):
        encoder.decode("t", struct.pack(">bi", 0, 2))
