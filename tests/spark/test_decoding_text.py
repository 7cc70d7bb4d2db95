"""Text, whole and by a regular expression."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from hermes.errors import ConfigError
from hermes.spark.decoding import decode_pattern, decode_text


def in_order(spark: Any, decode: Any, values: list[bytes | None]) -> list[Any]:
    df = spark.createDataFrame(list(enumerate(values)), "number int, value binary").coalesce(1)
    rows = decode(df).orderBy("number").collect()
    assert all((row.decoded is None) != (row.dead_letter is None) for row in rows)
    return [row.dead_letter if row.decoded is None else row.decoded for row in rows]


@pytest.mark.parametrize(
    ("encoding", "outcomes"),
    [
        ("utf-8", ["the value is null", "", "héllo", "the value is not UTF-8", "a\0b"]),
        ("US-ASCII", ["the value is null", "", *["the value is not ASCII"] * 2, "a\0b"]),
        ("latin1", ["the value is null", "", "hÃ©llo", "h\xe9llo", "a\0b"]),
        ("cp1252", ["the value is null", "", "hÃ©llo", "h\xe9llo", "a\0b"]),
        ("utf-16-le", ["the value is null", "", "써沩潬", *["the value is not UTF-16-LE"] * 2]),
    ],
)
def test_text_in_an_encoding(spark: Any, encoding: str, outcomes: list[str]) -> None:
    values = [None, b"", "héllo".encode(), b"h\xe9llo", b"a\0b"]
    assert in_order(spark, lambda df: decode_text(df, encoding=encoding), values) == outcomes


PATTERN = r'(\S+) \[([^\]]+)\] "([^"\\]*+(?:\\.[^"\\]*+)*+)" (\d+) (\d+\.?\d*|-)(?: (\S+))?'
SCHEMA = (
    "host string not null, time timestamp not null, line string, status smallint not null, "
    "took decimal(6,3), count int"
)


def test_fields_of_a_line(spark: Any) -> None:
    def decode(df: Any) -> Any:
        return decode_pattern(
            df, PATTERN, SCHEMA, null_text="-", timestamp_format="dd/MMM/yyyy:HH:mm:ss Z"
        )

    start = b'h [17/May/2015:10:05:03 +0200] "GET /" '
    found = in_order(
        spark,
        decode,
        [
            start + b"200 1.5 7",
            start + b"200 -",
            b'h [17/May/2015:10:05:03 +0000] "" 404 2',
            b"",
            start + b"200",
            start + b"200 1.5 7\n",
            start + b"40000 -",
            start + b"200 123456.5",
            start + b"200 1 x",
            b'h [17/Mai/2015:10:05:03 +0000] "GET /" 200 -',
            b'- [17/May/2015:10:05:03 +0000] "GET /" 200 -',
            b'h [17/May/2015:10:05:03 +0000] "\xff" 200 -',
            b'h [17/May/2015:10:05:03 +0000] "' + b"\\x" * 20_000 + b'" 200 -',
        ],
    )
    first = found[0].asDict()
    assert first.pop("time").astimezone(UTC) == datetime(2015, 5, 17, 8, 5, 3, tzinfo=UTC)
    assert first == {
        "host": "h",
        "line": "GET /",
        "status": 200,
        "took": Decimal("1.500"),
        "count": 7,
    }
    assert (found[1].took, found[1]["count"]) == (None, None)
    assert (found[2].line, found[2].took) == ("", Decimal(2))
    assert found[3:12] == [
        "the text doesn't match",
        "the text doesn't match",
        "the text doesn't match",
        "status is not a valid smallint",
        "took is not a valid decimal(6,3)",
        "count is not a valid int",
        "time is not a valid timestamp",
        "host is required, but missing or null",
        "the value is not UTF-8",
    ]
    assert len(found[12].line) == 40_000


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"(a)", 1),
        (r"a", 0),
        (r"(?:a)(?=b)(?<!c)(?i)(d)", 1),
        (r"(?<name>a)", 1),
        (r"\((\))", 1),
        (r"[(]([^)(\]]+)[]()]", 1),
        (r"\Q(((\E(a)", 1),
        (r"((a)|(b))", 3),
        (r"\\(a)", 1),
    ],
)
def test_groups_are_counted_while_planning(spark: Any, pattern: str, groups: int) -> None:
    df = spark.createDataFrame([], "value binary")
    with pytest.raises(ConfigError, match=f"^pattern: it has {groups} groups and the schema 5"):
        decode_pattern(df, pattern, "a int, b int, c int, d int, e int")


def test_wrong_arguments(spark: Any) -> None:
    df = spark.createDataFrame([], "value binary")
    for encoding in ("utf-9", "base64", "rot13", "", "a\0"):
        with pytest.raises(ConfigError, match=r"^encoding: expected one that Python knows: "):
            decode_text(df, encoding=encoding)
    with pytest.raises(ConfigError, match=r"^schema: a: text can't become array<int>$"):
        decode_pattern(df, "(a)", "a array<int>")
    with pytest.raises(ConfigError, match=r"^column: there is no column 'x'; there are value$"):
        decode_text(df, column="x")
