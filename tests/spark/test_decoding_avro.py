"""Avro, bare and in the framing of Hermes' encoder: golden bytes and fastavro's own."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from hermes.errors import ConfigError
from hermes.plugins.encoders.avro import AvroEncoder
from hermes.spark.decoding import decode_avro, decode_framed_avro, split_dead_letters

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "member", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}

EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "hermes.test",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "again", "type": ["Four", "null"]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {
            "name": "inner",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Inner",
                    "fields": [
                        {"name": "ids", "type": {"type": "array", "items": ["null", "int"]}},
                        {"name": "four", "type": "Four"},
                    ],
                },
            ],
        },
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inners", "type": {"type": "array", "items": "Inner"}},
    ],
}

EVERYTHING_TYPE = (
    "struct<flag:boolean,small:int,large:bigint,single:float,double:double,raw:binary,four:binary,"
    "again:binary,id:string,day:date,ms:timestamp,us:timestamp,local:timestamp_ntz,"
    "price:decimal(6,2),inner:struct<ids:array<int>,four:binary>,counts:map<string,bigint>,"
    "inners:array<struct<ids:array<int>,four:binary>>>"
)

FULL: dict[str, Any] = {
    "flag": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "single": 1.5,
    "double": -2.25,
    "raw": b"\x00\xff",
    "four": b"abcd",
    "again": b"efgh",
    "id": UUID(int=7),
    "day": date(1, 1, 1),
    "ms": datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    "us": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "local": datetime(2011, 6, 13, 8, 0, 0, 1),
    "price": Decimal("-1234.56"),
    "inner": {"ids": [1, None], "four": b"ijkl"},
    "counts": {"a": 1, "b": 2},
    "inners": [{"ids": [], "four": b"mnop"}],
}
SPARSE: dict[str, Any] = {**FULL, "again": None, "inner": None, "counts": {}, "inners": []}


def encoded(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema, named_schemas={}), value)
    return buffer.getvalue()


def in_order(spark: Any, decode: Any, values: list[bytes | None]) -> list[Any]:
    df = spark.createDataFrame(list(enumerate(values)), "number int, value binary").coalesce(1)
    rows = decode(df).orderBy("number").collect()
    assert all((row.decoded is None) != (row.dead_letter is None) for row in rows)
    return [
        row.dead_letter if row.decoded is None else row.decoded.asDict(recursive=True)
        for row in rows
    ]


def test_every_type(spark: Any) -> None:
    values: list[bytes | None] = [encoded(EVERYTHING, FULL), encoded(EVERYTHING, SPARSE)]
    found = in_order(spark, lambda df: decode_avro(df, EVERYTHING), values)
    for row in found:
        row["ms"], row["us"] = row["ms"].astimezone(UTC), row["us"].astimezone(UTC)
    assert found == [{**FULL, "id": str(FULL["id"])}, {**SPARSE, "id": str(FULL["id"])}]
    empty = spark.createDataFrame([], "value binary")
    decoded = decode_avro(empty, EVERYTHING)
    assert decoded.schema["decoded"].dataType.simpleString() == EVERYTHING_TYPE
    assert decoded.collect() == []


def test_bare_values(spark: Any) -> None:
    """Golden bytes: zigzag length 4 "home", branch 1, zigzag length 2 "me", symbol 1."""
    good = bytes.fromhex("08686f6d6502046d6502")
    found = in_order(
        spark,
        lambda df: decode_avro(df, CLICK),
        [
            good,
            bytes.fromhex("00 00 00"),
            None,
            b"",
            good[:-1],
            good + b"\0",
            bytes.fromhex("04fffe 00 00"),
            bytes.fromhex("00 04 00"),
            bytes.fromhex("00 03 00"),
            bytes.fromhex("00 00 01"),
            bytes.fromhex("00 00 04"),
        ],
    )
    assert found[:2] == [
        {"page": "home", "member": "me", "kind": "B"},
        {"page": "", "member": None, "kind": "A"},
    ]
    assert found[2:4] == ["the value is null", "the value is empty"]
    assert found[5] == "1 bytes follow the value"
    expected = {4: "EOFError", 6: "UnicodeDecodeError", **dict.fromkeys(range(7, 11), "IndexError")}
    for number, error in expected.items():
        assert found[number].startswith(f"not a value of the schema: {error}: "), number


def test_what_a_column_can_not_hold_is_a_dead_letter_and_its_neighbours_are_not(spark: Any) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "i", "type": "int"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {
                "name": "n",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            },
        ],
    }
    good = bytes.fromhex("02 00 02 05")
    found = in_order(
        spark,
        lambda df: decode_avro(df, schema),
        [
            good,
            bytes.fromhex("ffffffffffff7f 00 02 05"),
            bytes.fromhex("02 feffffff0f 02 05"),
            bytes.fromhex("02 00 04 7fff"),
            good,
        ],
    )
    assert [found[0], found[4]] == [{"i": 1, "day": date(1970, 1, 1), "n": Decimal(5)}] * 2
    assert all(each.startswith("not a value of the schema: ") for each in found[1:4])


def test_the_framing_of_the_encoder(spark: Any) -> None:
    newer = {**CLICK, "fields": [*CLICK["fields"], {"name": "n", "type": "int", "default": 9}]}
    value = {"page": "home", "member": None, "kind": "A"}
    first = AvroEncoder(CLICK, 1).encode("clicks", value)
    second = AvroEncoder(newer, 2).encode("clicks", {**value, "n": 3})
    unknown = AvroEncoder(CLICK, 7).encode("clicks", value)
    values = [first, second, unknown, b"\x01" + first[1:], first[:4], first + b"\0"]
    schemas = {1: CLICK, 2: newer}
    found = in_order(spark, lambda df: decode_framed_avro(df, schemas, reader_schema=newer), values)
    assert found == [
        {**value, "n": 9},
        {**value, "n": 3},
        "written with schema 7, which was not given",
        "the payload doesn't start with 0 and a schema id",
        "the payload doesn't start with 0 and a schema id",
        "1 bytes follow the value",
    ]
    assert in_order(spark, lambda df: decode_framed_avro(df, {1: CLICK}), [first]) == [value]


def test_values_that_can_not_be_resolved_are_dead_letters(spark: Any) -> None:
    reader = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "int"}]}
    (found,) = in_order(
        spark,
        lambda df: decode_avro(df, CLICK, reader_schema=reader),
        [bytes.fromhex("08686f6d65 00 00")],
    )
    assert found.startswith("not a value of the schema: SchemaResolutionError: ")


def test_values_are_decoded_once(spark: Any) -> None:
    df = spark.createDataFrame([(b"\0\0\0",)], "value binary")
    good, _ = split_dead_letters(decode_avro(df, CLICK))
    plan = good.where("decoded.page = ''").select("decoded.*")._jdf.queryExecution().toString()
    assert plan.split("== Physical Plan ==")[1].count("ArrowEvalPython") == 1


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record({"type": "int", "logicalType": "time-millis"}), "f0: time-millis as int is not"),
        (
            record({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}),
            "f0: duration as fixed is not supported",
        ),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 39}),
            "f0: a decimal of 39 digits is not supported",
        ),
        (record("int", ["int", "string"]), "f1: a union of anything but null and one type is not"),
        (record(["null"]), "f0: a union of anything but null and one type is not supported"),
        (record("null"), "f0: null is not supported"),
        (record({"type": "array", "items": ["null", "R"]}), "f0[]: the record R within itself"),
        (
            record({"type": "map", "values": {"type": "record", "name": "E", "fields": []}}),
            "f0{}: a record without fields is not supported",
        ),
        ('"string"', "expected the schema of a record"),
        (["null", record("int")], "expected the schema of a record"),
        ("{", "not an Avro schema: "),
        (record("nope"), "not an Avro schema: "),
        (record(b"bytes"), "not an Avro schema: "),
    ],
)
def test_what_is_not_supported_is_refused_while_planning(
    spark: Any, schema: Any, message: str
) -> None:
    df = spark.createDataFrame([], "value binary")
    with pytest.raises(ConfigError) as caught:
        decode_avro(df, schema)
    assert str(caught.value).startswith(f"schema: {message}")
    with pytest.raises(ConfigError) as caught:
        decode_framed_avro(df, {3: schema})
    assert str(caught.value).startswith(f"schemas.3: {message}")
    with pytest.raises(ConfigError) as caught:
        decode_avro(df, CLICK, reader_schema=schema)
    assert str(caught.value).startswith(f"reader_schema: {message}")


@pytest.mark.parametrize(
    ("schemas", "message"),
    [
        ({}, "schemas: expected at least one"),
        ({1: CLICK, 2: CLICK}, "reader_schema: several schemas need one to be resolved to"),
        ({-1: CLICK}, "schemas: expected ids from 0 to 2147483647, got -1"),
        ({"1": CLICK}, "schemas: expected ids from 0 to 2147483647, got '1'"),
    ],
)
def test_wrong_schemas_of_a_framing(spark: Any, schemas: Any, message: str) -> None:
    df = spark.createDataFrame([], "value binary")
    with pytest.raises(ConfigError) as caught:
        decode_framed_avro(df, schemas)
    assert str(caught.value) == message
