"""Values written and read with schemas, resolved by Avro's rules; bytes are literal."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from hermes.avro.json_values import json_to_value
from hermes.avro.limits import MAX_SCHEMA_DEPTH, MAX_TYPE_DEPTH
from hermes.avro.reader import AvroReader
from hermes.avro.schema import AvroSchema
from hermes.errors import EncodingError


def record(name: str, **types: Any) -> dict[str, Any]:
    """A record; a type in a tuple stands before the field's default."""
    fields = []
    for field, kind in types.items():
        given = {"type": kind[0], "default": kind[1]} if isinstance(kind, tuple) else {"type": kind}
        fields.append({"name": field, **given})
    return {"type": "record", "name": name, "fields": fields}


def resolved(writer: Any, value: Any, reader: Any) -> Any:
    written = AvroSchema(writer)
    return AvroReader(written, AvroSchema(reader)).read(written.write(value))


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "value", "written"),
    [
        ("null", None, ""),
        ("string", "ab", "04 6162"),
        ('"string"', "ab", "04 6162"),
        (' {"type": "long"}', -1, "01"),
        (["null", "string"], "ab", "02 04 6162"),
        (["null", "string"], None, "00"),
        ({"type": "array", "items": "int"}, [1, 2], "04 02 04 00"),
        ({"type": "map", "values": "int"}, {"a": 1}, "02 02 61 02 00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "02"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "6162"),
        (MILLIS, datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "02"),
        (record("R", a="int", b=["null", "R"]), {"a": 1, "b": {"a": 2, "b": None}}, "02 02 04 00"),
    ],
)
def test_any_type_may_stand_alone(schema: Any, value: Any, written: str) -> None:
    found = AvroSchema(schema)
    assert found.write(value) == bytes.fromhex(written)
    assert AvroReader(found).read(bytes.fromhex(written)) == value
    assert AvroReader(found, AvroSchema(schema)).read(bytes.fromhex(written)) == value


def test_a_position_within_a_payload_and_what_is_left_over() -> None:
    reading = AvroReader(AvroSchema("int"))
    assert reading.read(b"xx\x02", 2) == 1
    with pytest.raises(EncodingError, match="1 bytes follow the value"):
        reading.read(b"\x02\x02")
    with pytest.raises(EncodingError, match="not a value of the schema: "):
        reading.read(b"")


OLD = record("Click", page="string", count="int", gone="string")
VALUE = {"page": "/", "count": 3, "gone": "x"}


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (record("Click", page="string"), {"page": "/"}),
        (record("Click", page="bytes"), {"page": b"/"}),
        (record("Click", count="long", page=["null", "string"]), {"count": 3, "page": "/"}),
        (record("Click", count="double"), {"count": 3.0}),
        (record("a.b.Click", new=(["null", "int"], None)), {"new": None}),
        (record("Click", new=("string", "none")), {"new": "none"}),
        (record("Click", new=("bytes", "\u00ff")), {"new": b"\xff"}),
        (record("Click", new=(MILLIS, 5)), {"new": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)}),
        (record("Click", new=(PRICE, "\u0001")), {"new": Decimal("0.01")}),
        (record("Click", new=({"type": "array", "items": "bytes"}, ["a"])), {"new": [b"a"]}),
        (record("Click", new=("double", "NaN")), None),
        (record("Click", new=(record("In", a=("int", 1), b="int"), {"b": 2})),
         {"new": {"a": 1, "b": 2}}),
        (["null", record("Click", page="string")], {"page": "/"}),
        ({**record("Hit", page="string"), "aliases": ["Click"]}, {"page": "/"}),
    ],
)  # fmt: skip
def test_records_evolve(reader: Any, expected: Any) -> None:
    found = resolved(OLD, VALUE, reader)
    assert found == expected if expected is not None else found["new"] != found["new"]


def test_a_renamed_field() -> None:
    reader = record("Click", path="string")
    reader["fields"][0]["aliases"] = ["page"]
    assert resolved(OLD, VALUE, reader) == {"path": "/"}


@pytest.mark.parametrize(
    "reader",
    [
        record("Click", page="int"),
        record("Click", new="string"),
        record("Other", page="string"),
        record("Click", count="boolean"),
        "string",
    ],
)
def test_what_can_not_be_resolved(reader: Any) -> None:
    with pytest.raises(EncodingError, match="not a value of the schema: SchemaResolutionError"):
        resolved(OLD, VALUE, reader)


def test_a_union_of_records_resolves_to_one_of_them() -> None:
    union = [record("A", a="int"), record("B", b="int")]
    assert resolved(union, {"b": 7}, record("B", b="long", n=("int", 1))) == {"b": 7, "n": 1}
    assert resolved(record("B", b="int"), {"b": 7}, union) == {"b": 7}


@pytest.mark.parametrize(
    ("writer", "value", "reader", "expected"),
    [
        ("long", 5, MILLIS, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        (MILLIS, datetime(1970, 1, 1, 0, 0, 1, 0, UTC), "long", 1000),
        (MILLIS, datetime(1970, 1, 1, 0, 0, 1, 0, UTC), MICROS,
         datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        ("int", 5, MILLIS, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        (DATE, date(1970, 1, 3), "int", 2),
        (["null", "int"], 2, ["null", DATE], date(1970, 1, 3)),
        (["null", "int"], None, ["null", DATE], None),
        ({"type": "array", "items": "int"}, [1], {"type": "array", "items": DATE},
         [date(1970, 1, 2)]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"type": "map", "values": DATE},
         {"a": date(1970, 1, 2)}),
        ("string", str(UUID(int=1)), {"type": "string", "logicalType": "uuid"}, UUID(int=1)),
    ],
)  # fmt: skip
def test_the_readers_logical_types_count(
    writer: Any, value: Any, reader: Any, expected: Any
) -> None:
    wrapped = resolved(record("R", f=writer), {"f": value}, record("R", f=reader))
    assert wrapped == {"f": expected}
    assert resolved(writer, value, reader) == expected


def test_a_schema_writes_as_before_after_it_was_a_readers() -> None:
    reader = AvroSchema(record("R", f=["null", PRICE]))
    before = reader.write({"f": Decimal("1.25")})
    writer = AvroSchema(record("R", f=["null", "bytes"]))
    assert AvroReader(writer, reader).read(writer.write({"f": b"\x01"})) == {"f": Decimal("0.01")}
    assert reader.write({"f": Decimal("1.25")}) == before


def test_a_default_stays_right_where_logical_types_differ() -> None:
    reader = record("R", f=MILLIS, new=(DATE, 1))
    found = resolved(record("R", f="long"), {"f": 0}, reader)
    assert found == {"f": datetime(1970, 1, 1, tzinfo=UTC), "new": date(1970, 1, 2)}


def test_an_alias_may_bring_another_logical_type() -> None:
    reader = record("R", later=MILLIS, day=DATE)
    reader["fields"][0]["aliases"] = ["at"]
    writer = record("R", at="long", later="string", day=DATE)
    found = resolved(writer, {"at": 0, "later": "x", "day": date(1970, 1, 2)}, reader)
    assert found == {"later": datetime(1970, 1, 1, tzinfo=UTC), "day": date(1970, 1, 2)}


def test_values_do_not_share_a_default() -> None:
    schema = AvroSchema(record("Click", page="string"))
    reader = AvroSchema(record("Click", tags=({"type": "array", "items": "string"}, [])))
    reading = AvroReader(schema, reader)
    first = reading.read(b"\x02/")
    first["tags"].append("mine")
    assert reading.read(b"\x02/") == {"tags": []}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 2**31),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ("bytes", "\u0100"),
        (record("In", b="int"), {}),
        ({"type": "array", "items": "int"}, ["x"]),
    ],
)
def test_a_readers_default_must_fit(kind: Any, default: Any) -> None:
    reader = AvroSchema(record("Click", new=(kind, default)))
    with pytest.raises(ValueError, match="the default of new: "):
        AvroReader(AvroSchema(OLD), reader)


def test_a_writers_default_may_be_anything_that_was_registered() -> None:
    writer = AvroSchema(record("Click", page=({"type": "fixed", "name": "F", "size": 2}, "abc")))
    assert AvroReader(writer, AvroSchema(writer.text)).read(b"ab") == {"page": b"ab"}
    new = AvroSchema(record("Click", n=("int", 1)))
    assert AvroReader(writer, new).read(b"ab") == {"n": 1}


def test_types_of_other_schemas() -> None:
    base = record("a.Base", at=MILLIS, kind={"type": "enum", "name": "Kind", "symbols": ["A"]})
    middle = record("a.Middle", base="Base", kinds={"type": "array", "items": "Kind"})
    top = ["null", "a.Middle", "a.Base"]
    schema = AvroSchema(top, [base, middle])
    value = {"base": {"at": datetime(1970, 1, 1, tzinfo=UTC), "kind": "A"}, "kinds": ["A"]}
    assert AvroReader(schema).read(schema.write(value)) == value
    named = AvroSchema("a.Middle", [base, middle])
    assert named.name == "a.Middle"
    assert named.write(value) == bytes.fromhex("00 00 02 00 00")
    assert AvroReader(named).read(named.write(value)) == value
    # A negative index into what only another schema defines.
    with pytest.raises(EncodingError, match="IndexError"):
        AvroReader(named).read(bytes.fromhex("00 01 00"))
    # Without them the name means nothing.
    with pytest.raises(ValueError, match="not an Avro schema"):
        AvroSchema("a.Middle")


def test_a_name_may_be_used_again_in_another_schema() -> None:
    assert resolved(record("R", a=record("S", b="int")), {"a": {"b": 1}},
                    record("R", a=record("S", b="long", c=("int", 2)))) == {
        "a": {"b": 1, "c": 2}
    }  # fmt: skip


def test_fields_that_a_schema_does_not_have_are_refused_if_asked_for() -> None:
    schema = AvroSchema(record("R", a="int", b=("int", 2)))
    assert schema.write({"a": 1, "c": 3}) == b"\x02\x04"
    assert schema.write({"a": 1}, is_strict=True) == b"\x02\x04"
    for wrong in ({"a": 1, "c": 3}, {"b": 1}, {}, None, 7):
        with pytest.raises(EncodingError, match="does not fit the schema"):
            schema.write(wrong, is_strict=True)


def test_names() -> None:
    assert AvroSchema(record("a.R")).name == "a.R"
    assert AvroSchema({**record("R"), "namespace": "a.b"}).name == "a.b.R"
    assert AvroSchema("string").name is None
    assert AvroSchema(["null", record("R")]).name is None
    assert AvroSchema({"type": "array", "items": "int"}).name is None


# -- what would cost too much -------------------------------------------------------------------


def doubled(leaf: Any, depth: int = 40) -> dict[str, Any]:
    """Records of two fields of the next one: 2^depth values."""
    schema = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for number in range(1, depth):
        inner: Any = schema
        schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": inner}]}
        schema["fields"].append({"name": "b", "type": f"R{number - 1}"})
    return schema


@pytest.mark.parametrize("leaf", ["null", {"type": "fixed", "name": "F", "size": 0}])
def test_records_that_double_at_no_cost_are_refused(leaf: Any) -> None:
    with pytest.raises(ValueError, match="values of it take no bytes"):
        AvroSchema(doubled(leaf))
    with pytest.raises(ValueError, match="take no bytes"):
        AvroSchema({"type": "array", "items": doubled(leaf)})
    with pytest.raises(ValueError, match="take no bytes"):
        AvroSchema(record("R", a=["null", doubled(leaf)]))


def test_records_that_double_and_pay_for_it_may_be_read() -> None:
    schema = AvroSchema(doubled("int"))
    for reader in (None, schema, AvroSchema(doubled("long")), AvroSchema(doubled(DATE))):
        with pytest.raises(EncodingError, match="EOFError"):
            AvroReader(schema, reader).read(b"\x02")


@pytest.mark.parametrize("precision", [4, 10_000, 10**18])
def test_a_decimal_of_a_megabyte_is_refused(precision: int) -> None:
    """It took a minute."""
    schema = {**PRICE, "precision": precision}
    data = b"\x7f" * (1 << 20)
    payload = AvroSchema("bytes").write(data)
    for reader in (None, AvroSchema(["null", schema])):
        with pytest.raises(EncodingError, match="a decimal of 1048576 bytes"):
            AvroReader(AvroSchema(schema), reader).read(payload)


def test_decimals() -> None:
    reading = AvroReader(AvroSchema(PRICE))
    for written, value in (
        ("00", "0.00"),
        ("02 01", "0.01"),
        ("02 ff", "-0.01"),
        ("04 270f", "99.99"),
        ("0c ffff ffff ffff", "-0.01"),
    ):
        found = reading.read(bytes.fromhex(written))
        assert found == Decimal(value)
        assert str(found) == value
    # One digit more; fastavro would round it.
    with pytest.raises(EncodingError, match="a decimal of more than 4 digits"):
        reading.read(bytes.fromhex("04 2710"))
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}
    assert AvroReader(AvroSchema(fixed)).read(bytes.fromhex("ff38")) == Decimal(-200)


def test_a_decimal_without_a_precision_is_bytes() -> None:
    """By the specification, an invalid logical type is ignored."""
    schema = AvroSchema({"type": "bytes", "logicalType": "decimal"})
    assert json_to_value(b'"a"', schema.root) == b"a"
    assert schema.write(b"a") == b"\x02a"
    assert AvroReader(schema).read(b"\x02a") == b"a"
    assert AvroReader(AvroSchema("bytes"), schema).read(b"\x02a") == b"a"


@pytest.mark.parametrize("depth", [MAX_SCHEMA_DEPTH, 10_000, 90_000])
def test_a_schema_that_is_nested_too_deep(depth: int) -> None:
    text = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    with pytest.raises(ValueError, match="not an Avro schema: "):
        AvroSchema(text)


def test_a_schema_that_is_nested_as_deep_as_allowed() -> None:
    depth = MAX_TYPE_DEPTH - 1
    value: Any = 1
    for _ in range(depth):
        value = [value]
    schema = AvroSchema('{"type":"array","items":' * depth + '"int"' + "}" * depth)
    assert AvroReader(schema).read(schema.write(value)) == value


def chained(count: int) -> dict[str, Any]:
    """Records that each name the one before: flat as JSON, and deep as types."""
    kinds = [record("R0", a="int")]
    kinds += [record(f"R{number}", a=f"R{number - 1}") for number in range(1, count)]
    return record("T", **{f"f{number}": ["null", kind] for number, kind in enumerate(kinds)})


def test_records_that_name_each_other_too_deep() -> None:
    """C code that calls itself for each level ended the process."""
    with pytest.raises(ValueError, match="types are nested more than 250 deep"):
        AvroSchema(chained(20_000))
    few = AvroSchema(chained(200))
    for reader in (None, few, AvroSchema({**chained(200), "name": "other.T"})):
        value = AvroReader(few, reader).read(bytes(199) + b"\x02\x04")
        assert value["f198"] is None
        assert value["f199"] is not None
    references = [record(f"R{number}", a=f"R{number - 1}") for number in range(1, 5_000)]
    with pytest.raises(ValueError, match="not an Avro schema: "):
        AvroSchema("R4999", [record("R0", a="int"), *references])


@pytest.mark.parametrize("key", ["__fastavro_parsed", "__named_schemas"])
def test_a_schema_that_says_that_it_was_parsed(key: str) -> None:
    with pytest.raises(ValueError, match="fastavro's own"):
        AvroSchema({"type": "array", "items": "null", key: {}})


@pytest.mark.parametrize("given", [None, 7, {}, [], "", "nothing", '{"type": 7}', "{", b"x"])
def test_what_is_no_schema(given: Any) -> None:
    if given == []:
        assert AvroSchema(given).name is None  # a union of nothing, which has no values
        return
    with pytest.raises(ValueError, match="not an Avro schema: "):
        AvroSchema(given)
