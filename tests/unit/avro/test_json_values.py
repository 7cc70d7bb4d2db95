"""Records as people type them, and as they read them."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from hermes.avro.graph import AvroType
from hermes.avro.json_values import json_to_value, value_to_json
from hermes.avro.reader import AvroReader
from hermes.avro.schema import AvroSchema

INNER = {"type": "record", "name": "a.Inner", "fields": [{"name": "n", "type": "int"}]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "two", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "text", "type": "string"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": ["null", INNER]},
        {"name": "inners", "type": {"type": "array", "items": "a.Inner"}},
        {"name": "either", "type": ["null", "int", "string", "a.Inner"]},
        {"name": "price", "type": logical("bytes", "decimal", precision=5, scale=2)},
        {"name": "day", "type": logical("int", "date")},
        {"name": "hour", "type": logical("int", "time-millis")},
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "local", "type": logical("long", "local-timestamp-millis")},
        {"name": "id", "type": logical("string", "uuid")},
        {"name": "more", "type": "string", "default": "as it was"},
    ],
}

GIVEN: dict[str, Any] = {
    "nothing": None,
    "flag": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "single": 1.5,
    "double": -2,
    "raw": "\u0000\u00ff",
    "two": "ab",
    "kind": "B",
    "text": "Grüße",
    "counts": {"a": 1},
    "inner": {"n": 1},
    "inners": [{"n": 2}],
    "either": "text",
    "price": "-123.45",
    "day": "2011-06-13",
    "hour": "08:00:00.001",
    "at": "2011-06-13T08:00:00.000001Z",
    "local": "2011-06-13T08:00:00.001",
    "id": "00000000-0000-0000-0000-000000000007",
}
READ: dict[str, Any] = {
    **GIVEN,
    "double": -2.0,
    "raw": b"\x00\xff",
    "two": b"ab",
    "price": Decimal("-123.45"),
    "day": date(2011, 6, 13),
    "hour": time(8, 0, 0, 1000),
    "at": datetime(2011, 6, 13, 8, 0, 0, 1, UTC),
    "local": datetime(2011, 6, 13, 8, 0, 0, 1000),
    "id": UUID(int=7),
    "more": "as it was",
}


def typed(schema: Any, text: str) -> Any:
    parsed = AvroSchema(schema)
    return json_to_value(text.encode(), parsed.root)


def test_every_type_there_and_back() -> None:
    schema = AvroSchema(EVERYTHING)
    payload = schema.write(typed(EVERYTHING, json.dumps(GIVEN)), is_strict=True)
    value = AvroReader(schema).read(payload)
    assert value == READ
    shown = value_to_json(value)
    assert json.loads(shown) == {
        **GIVEN,
        "double": -2.0,
        "hour": "08:00:00.001000",
        "at": "2011-06-13T08:00:00.000001+00:00",
        "local": "2011-06-13T08:00:00.001000",
        "more": "as it was",
    }
    assert "Grüße".encode() in shown
    assert b"\n" not in shown
    # What is shown can be typed.
    assert schema.write(typed(EVERYTHING, shown.decode())) == payload


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (["null", "string"], '{"string": "me"}', "me"),
        (["null", "string"], "null", None),
        (["null", INNER], '{"a.Inner": {"n": 1}}', {"n": 1}),
        (["null", {"type": "map", "values": "int"}], '{"n": 1}', {"n": 1}),
        ("double", '"NaN"', None),
        ("double", '"-Infinity"', float("-inf")),
        ("double", "1e2", 100.0),
        ("long", "1500000000000", 1500000000000),
        (logical("long", "timestamp-millis"), "1500000000000", 1500000000000),
        (logical("long", "timestamp-millis"), '"2011-06-13T10:00+02:00"',
         datetime(2011, 6, 13, 8, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), '"2011-06-13"', datetime(2011, 6, 13, tzinfo=UTC)),
        (logical("bytes", "decimal", precision=4, scale=2), "12.5", Decimal("12.5")),
        (logical("bytes", "decimal", precision=4, scale=2), "12", Decimal(12)),
        (logical("bytes", "decimal", precision=4, scale=2), '"0"', Decimal(0)),
    ],
)  # fmt: skip
def test_what_may_be_typed(schema: Any, text: str, value: Any) -> None:
    found = typed(schema, text)
    assert found == value if value is not None or text == "null" else found != found
    AvroSchema(schema).write(found)


CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "user", "type": ["null", INNER], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "either", "type": ["int", "boolean"], "default": 1},
    ],
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value"),
        ("{", "not JSON: "),
        ("[" * 100_000, "nested too deep"),
        ("7", "expected an object, a Click, got 7"),
        ("{}", "page: missing, and it has no default"),
        ('{"page": 7}', "page: expected a value of type string, got 7"),
        ('{"page": "/", "pgae": 1}', "pgae: no such field; there are page, user, "),
        ('{"page": "/", "user": {"n": "x"}}', "user.n: expected a value of type int, got 'x'"),
        ('{"page": "/", "user": {}}', "user.n: missing, and it has no default"),
        ('{"page": "/", "tags": [1, 2.5]}', r"tags\[1\]: expected a value of type int, got '2.5'"),
        ('{"page": "/", "tags": {}}', "tags: expected an array, got {}"),
        ('{"page": "/", "counts": {"a": true}}', "counts.a: expected a value of type int, got Tr"),
        ('{"page": "/", "either": "x"}', "either: expected one of int, boolean, got 'x'"),
        ('{"page": "/", "either": 2147483648}', "either: expected one of int, boolean"),
    ],
)
def test_what_does_not_fit_names_its_field(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        typed(CLICK, text)


def test_a_union_in_a_union() -> None:
    """The specification forbids it, and fastavro takes it."""
    assert typed(["null", ["int", "string"]], '"x"') == "x"
    with pytest.raises(ValueError, match="expected one of int, string, got"):
        typed(["null", ["int", "string"]], "1.5")


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        ("double", '"x"', "type double"),
        ("double", "1e999", "type double"),
        ("double", "true", "type double"),
        ("int", "true", "type int"),
        ("int", "1.0", "type int"),
        ("int", '"1"', "type int"),
        ("bytes", '"\u0100"', "type bytes"),
        ({"type": "fixed", "name": "F", "size": 2}, '"abc"', "type fixed"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"B"', "type enum"),
        (logical("int", "date"), '"yesterday"', r"type int \(date\)"),
        (logical("long", "local-timestamp-millis"), '"2011-06-13T08:00Z"', "has no zone"),
        (logical("string", "uuid"), '"x"', r"type string \(uuid\)"),
        (logical("string", "uuid"), "7", r"type string \(uuid\)"),
        (logical("bytes", "decimal", precision=4, scale=2), "123.45", "more than 2 digits before"),
        (logical("bytes", "decimal", precision=4, scale=2), "0.123", "more than 2 digits after"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            "1e999999999",
            "more than 2 digits before",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), '"NaN"', "more than 2 digits before"),
        (logical("bytes", "decimal", precision=4, scale=2), '"x"', r"type bytes \(decimal\)"),
        (logical("bytes", "decimal", precision=4, scale=2), "true", r"type bytes \(decimal\)"),
    ],
)
def test_what_does_not_fit_its_type(schema: Any, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        typed(schema, text)


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        json_to_value(b'"\xff"', AvroType("string"))


def test_numbers_that_json_does_not_have() -> None:
    value = {"a": [float("nan"), float("inf")], "b": float("-inf"), "c": b"\xff", "d": 1.5}
    expected = {"a": ["NaN", "Infinity"], "b": "-Infinity", "c": "\u00ff", "d": 1.5}
    assert json.loads(value_to_json(value)) == expected
