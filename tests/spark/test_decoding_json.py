"""JSON: each value is decoded as a whole or is a dead letter with a reason, in batch and stream."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import StructType

from hermes.errors import ConfigError
from hermes.spark.decoding import decode_json, split_dead_letters

SCHEMA = (
    "i int, l bigint, y tinyint, d double, f float, n decimal(5,2), s string, b boolean, "
    "t timestamp, day date, a array<int>, m map<string,int>, o struct<x:int,y:string>, raw binary"
)


def outcomes(spark: Any, values: list[Any], schema: Any, **arguments: Any) -> list[Any]:
    rows = [(number, value) for number, value in enumerate(values)]
    df = spark.createDataFrame(rows, "number int, value binary").coalesce(1)
    decoded = decode_json(df, schema, **arguments).orderBy("number").collect()
    # The rule that holds for every value: one of the two, never both, never neither.
    assert all((row.decoded is None) != (row.dead_letter is None) for row in decoded)
    return [
        row.dead_letter
        if row.decoded is None
        else {key: value for key, value in row.decoded.asDict(True).items() if value is not None}
        for row in decoded
    ]


GOOD = {
    b'{"i":1,"s":"x"}': {"i": 1, "s": "x"},
    b' {"i" : 1}\n': {"i": 1},
    b"{}": {},
    b'{"i":null}': {},
    b'{"I":1}': {},
    b'{"more":[1,{"i":2}],"i":3}': {"i": 3},
    b'{"i":1,"i":2}': {"i": 2},
    b'{"l":-9223372036854775808}': {"l": -(2**63)},
    b'{"d":1}': {"d": 1.0},
    b'{"d":1e-999}': {"d": 0.0},
    b'{"n":1.239}': {"n": Decimal("1.24")},
    b'{"n":"1.2"}': {"n": Decimal("1.20")},
    b'{"s":5}': {"s": "5"},
    b'{"s":{"x": 1}}': {"s": '{"x":1}'},
    b'{"s":""}': {"s": ""},
    '{"s":"Ὀδύσσεια 🐎"}'.encode(): {"s": "Ὀδύσσεια 🐎"},
    rb'{"s":"\ud83d\udc0e"}': {"s": "🐎"},
    rb'{"s":"\\ud83d"}': {"s": r"\ud83d"},
    b'{"t":"2011-06-13T10:00:00+02:00"}': {"t": datetime(2011, 6, 13, 8, tzinfo=UTC)},
    b'{"t":1307952000}': {"t": datetime(2011, 6, 13, 8, tzinfo=UTC)},
    b'{"day":"2011-06-13"}': {"day": date(2011, 6, 13)},
    b'{"a":[1,null]}': {"a": [1, None]},
    b'{"m":{"k":1}}': {"m": {"k": 1}},
    b'{"o":{"x":1,"z":2}}': {"o": {"x": 1, "y": None}},
    b'{"raw":"aGk="}': {"raw": bytearray(b"hi")},
    b'{"s":"}],\\"x\\":["}': {"s": '}],"x":['},
}

NOT_ONE = "not exactly one JSON object"
DEAD = {
    None: "the value is null",
    b"": "the value is empty",
    b" \n": "the value is empty",
    b'{"s":"\xff"}': "the value is not UTF-8",
    b'{"s":"\xed\xa0\x80"}': "the value is not UTF-8",
    b'{"i":1': NOT_ONE,
    b'{"i":1}}': NOT_ONE,
    b'{"i":1} rubbish': NOT_ONE,
    b'{"i":1}]': NOT_ONE,
    b'{"i":1},{"i":2}': NOT_ONE,
    b'{"i":1}{"i":2}': NOT_ONE,
    b'{"i":1}],"x":[{"i":2}': NOT_ONE,
    b"[]": NOT_ONE,
    b'[{"i":1}]': NOT_ONE,
    b"5": NOT_ONE,
    b"{'i':1}": NOT_ONE,
    b"{i:1}": NOT_ONE,
    b'{"i":01}': NOT_ONE,
    b'{"i":1,}': NOT_ONE,
    b'/* */{"i":1}': NOT_ONE,
    b'{"i":1}//': NOT_ONE,
    b'\xef\xbb\xbf{"i":1}': NOT_ONE,
    b'{"s":"a\x00b"}': NOT_ONE,
    b'{"d":NaN}': NOT_ONE,
    b'{"more":NaN}': NOT_ONE,
    b'{"more":' + b"[" * 2000 + b"]" * 2000 + b"}": NOT_ONE,
    b"null": "the JSON value is null",
    rb'{"s":"\ud83d"}': "half of a surrogate pair",
    rb'{"s":"\\\udc0e"}': "half of a surrogate pair",
    b'{"i":"1"}': "i is not a valid int",
    b'{"i":1.0}': "i is not a valid int",
    b'{"i":1e3}': "i is not a valid int",
    b'{"i":3000000000,"s":"x"}': "i is not a valid int",
    b'{"i":true,"l":"x"}': "i is not a valid int; l is not a valid bigint",
    b'{"l":9223372036854775808}': "l is not a valid bigint",
    b'{"y":300}': "y is not a valid tinyint",
    b'{"d":"1.5"}': "d is not a valid double",
    b'{"d":"NaN"}': "d is not a valid double",
    b'{"d":"Infinity"}': "d is not a valid double",
    b'{"d":1e999}': "d is out of range",
    b'{"d":-1e999}': "d is out of range",
    b'{"f":1e300}': "f is out of range",
    b'{"n":1234.5}': "n is not a valid decimal(5,2)",
    b'{"b":"true"}': "b is not a valid boolean",
    b'{"b":1}': "b is not a valid boolean",
    b'{"t":"nope"}': "t is not a valid timestamp",
    b'{"t":""}': "t is not a valid timestamp",
    b'{"t":1.5}': "t is not a valid timestamp",
    b'{"t":1307952000000}': "t is out of range",
    b'{"day":"2011-02-30"}': "day is not a valid date",
    b'{"day":5}': "day is not a valid date",
    b'{"a":[1,"x"]}': "a is not a valid array<int>",
    b'{"a":5}': "a is not a valid array<int>",
    b'{"m":{"k":"x"}}': "m is not a valid map<string,int>",
    b'{"m":{"k":1,"k":2}}': "m has a name twice",
    b'{"o":{"x":"no","y":"s"}}': "a nested field is of another type",
    b'{"o":[1,"a"]}': "o is not a valid struct<x:int,y:string>",
    b'{"raw":"!!"}': "raw is not a valid binary",
}


def test_every_kind_of_value(spark: Any) -> None:
    found = outcomes(spark, [*GOOD, *DEAD], SCHEMA)
    for value, outcome in zip(GOOD, found, strict=False):
        assert (value, utc(outcome)) == (value, GOOD[value])
    for value, outcome in zip(DEAD, found[len(GOOD) :], strict=True):
        assert (value, outcome) == (value, DEAD[value])


def utc(outcome: Any) -> Any:
    """Timestamps come in the zone of this machine, without saying so."""
    if isinstance(outcome, dict) and "t" in outcome:
        return {**outcome, "t": outcome["t"].astimezone(UTC)}
    return outcome


def test_required_fields_are_required_at_any_depth(spark: Any) -> None:
    schema = StructType.fromDDL(
        "id string not null, o struct<x: int not null, y: int>, "
        "list array<struct<k: string not null>>, m map<string, struct<v: double not null>>"
    )
    schema["list"].dataType.containsNull = False
    found = outcomes(
        spark,
        [
            b'{"id":"a"}',
            b'{"id":"a","o":{"x":1},"list":[{"k":"k"}],"m":{"z":{"v":1}}}',
            b'{"o":{"x":1}}',
            b'{"id":null}',
            b'{"id":"a","o":{"y":1}}',
            b'{"id":"a","list":[{"k":"k"},{}]}',
            b'{"id":"a","list":[{"k":"k"},null]}',
            b'{"id":"a","m":{"z":{"v":1},"zz":{"v":null}}}',
            b'{"id":"a","m":{"z":{"v":1e999}}}',
        ],
        schema,
    )
    assert found[0] == {"id": "a"}
    assert found[1]["m"] == {"z": {"v": 1.0}}
    assert found[2:] == [
        "id is required, but missing or null",
        "id is required, but missing or null",
        "o.x is required, but missing or null",
        "list[].k is required, but missing or null",
        "list[] is required, but missing or null",
        "m{}.v is required, but missing or null",
        "m{}.v is out of range",
    ]


def test_names_can_be_required_to_come_once(spark: Any) -> None:
    twice = "a name comes twice, or the object is too large to tell"
    values = [b'{"i":1}', b'{"i":1,"i":1}', b'{"i":1,"more":{"x":1,"x":2}}', b'{"i":"1"}']
    assert outcomes(spark, values, "i int", unique_names=True) == [
        {"i": 1},
        twice,
        twice,
        "i is not a valid int",
    ]


def test_formats_of_times(spark: Any) -> None:
    values = [b'{"day":"13.06.2011"}', b'{"day":"2011-06-13"}']
    found = outcomes(spark, values, "day date", options={"dateFormat": "dd.MM.yyyy"})
    assert found == [{"day": date(2011, 6, 13)}, "day is not a valid date"]


def test_a_bad_field_that_nobody_selects_makes_a_dead_letter_all_the_same(spark: Any) -> None:
    """Spark would leave unused fields out of the schema, and so not see them."""
    df = spark.createDataFrame([(b'{"i":1,"l":"x"}',), (b'{"i":2,"l":2}',)], "value binary")
    good, dead = split_dead_letters(decode_json(df, "i int, l bigint"))
    assert [row.i for row in good.select("decoded.i").collect()] == [2]
    assert dead.count() == 1


def test_a_filter_does_not_parse_again(spark: Any) -> None:
    df = spark.createDataFrame([(b'{"i":1}',)], "value binary")
    good, _ = split_dead_letters(decode_json(df, "i int"))
    plan = good.where("decoded.i > 0").select("decoded.*")._jdf.queryExecution().toString()
    assert plan.split("== Physical Plan ==")[1].count("from_json(") == 1


def test_columns_keep_their_place_and_strange_names_work(spark: Any) -> None:
    df = spark.createDataFrame([(1, '{"a.b":1,"it\'s":2,"c`d":3}')], "`x.y` int, `va lue` string")
    schema = StructType.fromDDL("`a.b` int, `it's` int, `c``d` int")
    decoded = decode_json(df, schema, column="va lue", into="de.coded", dead_letter="dead`letter")
    assert decoded.columns == ["x.y", "va lue", "de.coded", "dead`letter"]
    (row,) = decoded.collect()
    assert (tuple(row[2]), row[3]) == ((1, 2, 3), None)


def test_many_fields(spark: Any) -> None:
    schema = ", ".join(f"c{number} int not null" for number in range(100))
    whole = {f"c{number}": number for number in range(100)}
    values = [json.dumps(whole).encode(), json.dumps({**whole, "c50": "x"}).encode()]
    assert outcomes(spark, values, schema) == [whole, "c50 is not a valid int"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "nope"}, "column: there is no column 'nope'; there are number, value"),
        ({"column": "number"}, "column: expected binary or string, but the column 'number' is int"),
        ({"into": "Value"}, "into: there is a column 'Value' already; choose another name"),
        (
            {"dead_letter": "decoded"},
            "dead_letter: there is a column 'decoded' already; choose another name",
        ),
        (
            {"options": {"mode": "FAILFAST"}},
            "options.mode: unknown; there are dateFormat, locale, timeZone, timestampFormat, "
            "timestampNTZFormat",
        ),
        ({"schema": "i int, I int"}, "schema: a field comes twice (upper and lower case are the"),
        ({"schema": "i integerr"}, "schema: no DDL: "),
        ({"schema": StructType()}, "schema: expected a StructType or DDL with fields, got "),
        ({"schema": "bigint"}, "schema: expected a StructType or DDL with fields, got 'bigint'"),
    ],
)
def test_wrong_arguments(spark: Any, arguments: dict[str, Any], message: str) -> None:
    df = spark.createDataFrame([], "number int, value binary")
    with pytest.raises(ConfigError) as caught:
        decode_json(df, **{"schema": "i int", **arguments})
    assert str(caught.value).startswith(message)
