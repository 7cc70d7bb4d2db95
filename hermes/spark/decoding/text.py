r"""Text into one column, or into several by a regular expression.

UTF-8, ASCII and ISO 8859-1 are decoded inside the JVM, all of Python's other encodings in Python
workers. Spark's own casts replace what isn't text; here it is a dead letter.
"""

import codecs
import re
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hermes.errors import ConfigError
from hermes.spark.arguments import named, unguessable_name
from hermes.spark.decoding.dead_letters import (
    DEAD_LETTER,
    DECODED,
    NULL_VALUE,
    Fault,
    bytes_of,
    check_columns,
    faults,
    first_reason,
    with_outcome,
)
from hermes.spark.decoding.json import struct_schema

_SIMPLE: Final = (BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType)

# What opens a capturing group, after what only looks like one: quoted, escaped, in a class, `(?:`.
_GROUP: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\((?!\?)|\(\?<(?![=!]))", re.S
)


def decode_text(
    df: DataFrame,
    *,
    encoding: str = "utf-8",
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
) -> DataFrame:
    """Decode values as text.

    Every value that is text in the encoding is good, also an empty one. Dead letters are nulls and
    bytes that aren't text; nothing is replaced.

    Example:
        lines = decode_text(spark.readStream.format("hermes").options(...).load())
        good, dead = split_dead_letters(lines)
        words = good.select(sf.explode(sf.split("decoded", " ")).alias("word"))

    Args:
        encoding: any that Python knows. UTF-8, ASCII and ISO 8859-1 stay inside the JVM; others go
            through Python workers.
        column: the binary or string column (a string's bytes are those of its UTF-8).
        into: the name of the column with the text, null for dead letters.
        dead_letter: the name of the column with the reason, null for good values.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    check_columns(df, column, into, dead_letter)
    temporary = unguessable_name()
    ready, text, found = _as_text(df, column, encoding, temporary)
    outcome = with_outcome(ready, text, first_reason(found), into=into, dead_letter=dead_letter)
    return outcome.drop(temporary)


def decode_pattern(
    df: DataFrame,
    pattern: str,
    schema: StructType | str,
    *,
    null_text: str | None = None,
    timestamp_format: str | None = None,
    encoding: str = "utf-8",
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
) -> DataFrame:
    r"""Decode lines of text by a regular expression: one group per field.

    Values are good if they match as a whole and their groups can be cast to the fields' types. Dead
    letters are, besides those of `decode_text`: values that don't match, a group that isn't a value
    of its field's type or is out of its range, a required field (`not null`) that is null. A group
    is null if it equals `null_text`, and, unless the field is a string, if it is empty or took no
    part in the match (which makes a string empty).

    The expression is evaluated once per row. Repeat groups possessively (`(?:a|b)*+`): otherwise
    Java may run out of stack on a long line, which fails the task.

    Example:
        pattern = r"(\\S+) (\\d{3}) (\\d+|-)"
        schema = "host string not null, status int not null, bytes bigint"
        requests = decode_pattern(lines, pattern, schema, null_text="-")

    Args:
        df, encoding, column: as for `decode_text`.
        pattern: a Java regular expression for the whole value; as many groups as the schema has
            fields, in their order. `(?:` opens a group that doesn't count.
        schema: a `StructType`, or DDL: strings, numbers, booleans, dates and timestamps.
        null_text: the text for null in any field, such as "-".
        timestamp_format: Spark's pattern for all the timestamps; ISO 8601 when None.
        into, dead_letter: as for `decode_json`.

    Raises:
        ConfigError: an argument is wrong; the text names it. An invalid regular expression is
            Spark's error, once it runs.
    """
    check_columns(df, column, into, dead_letter)
    wanted = struct_schema(schema)
    _check_pattern(pattern, wanted)
    source, parts, fields = (unguessable_name() for _ in range(3))
    ready, text, found = _as_text(df, column, encoding, source)
    raw = [
        sf.get(named(parts), number).alias(field.name)
        for number, field in enumerate(wanted.fields, start=1)
    ]
    converted = [
        _convert(_without_nulls(part, field.dataType, null_text), field, timestamp_format)
        for part, field in zip(raw, wanted.fields, strict=True)
    ]
    split = ready.withColumn(parts, _groups(text, pattern, len(raw)))
    cast = split.withColumn(fields, sf.struct(*converted))
    found.append(Fault(sf.size(named(parts)) != len(raw) + 1, "the text doesn't match"))
    for part, field in zip(raw, wanted.fields, strict=True):
        given = _without_nulls(part, field.dataType, null_text).isNotNull()
        lost = given & named(fields).getField(field.name).isNull()
        found.append(Fault(lost, f"{field.name} is not a valid {field.dataType.simpleString()}"))
    found += faults(named(fields), wanted, "", nullable=True)
    outcome = with_outcome(
        cast, named(fields), first_reason(found), into=into, dead_letter=dead_letter
    )
    return outcome.drop(source, parts, fields)


def _as_text(
    df: DataFrame, column: str, encoding: str, temporary: str
) -> tuple[DataFrame, Column, list[Fault]]:
    name = _codec(encoding)
    value = bytes_of(column)
    missing = Fault(value.isNull(), NULL_VALUE)
    if name == "iso8859-1":
        return df, sf.decode(value, "ISO-8859-1"), [missing]
    if name in ("utf-8", "ascii"):
        text = value.cast(StringType())
        right = sf.is_valid_utf8(text)
        if name == "ascii":
            right &= sf.length(text) == sf.octet_length(text)
        return df, text, [missing, Fault(~right, f"the value is not {name.upper()}")]
    decoded = df.withColumn(temporary, _decoding_function(name)(value))
    text = named(temporary)
    return decoded, text, [missing, Fault(text.isNull(), f"the value is not {name.upper()}")]


def _codec(encoding: str) -> str:
    try:
        found = codecs.lookup(encoding)
        b" ".decode(encoding)  # refuses base64 and the like, which aren't for text
    except UnicodeDecodeError:
        pass  # an encoding that uses several bytes per character
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError("encoding", f"expected one that Python knows: {error}") from error
    return found.name


def _decoding_function(name: str) -> Any:
    def decode(values: pa.Array) -> pa.Array:
        return pa.array([_text_or_none(value, name) for value in values.to_pylist()], pa.string())

    # PySpark's annotations lack the form without the kind, which it takes from the hints above.
    function = arrow_udf(decode, StringType())  # type: ignore[call-overload]
    # Evaluated once, however often it is used.
    return function.asNondeterministic()


def _text_or_none(value: bytes | None, name: str) -> str | None:
    try:
        return None if value is None else value.decode(name)
    except ValueError:
        return None


def _check_pattern(pattern: str, wanted: StructType) -> None:
    for field in wanted.fields:
        if not isinstance(field.dataType, _SIMPLE):
            raise ConfigError(
                "schema", f"{field.name}: text can't become {field.dataType.simpleString()}"
            )
    groups = sum(match.group(1) is not None for match in _GROUP.finditer(pattern))
    if groups != len(wanted.fields):
        raise ConfigError(
            "pattern",
            f"it has {groups} groups and the schema {len(wanted.fields)} fields; "
            f"write (?:...) for a group that is not a field",
        )


def _groups(text: Column, pattern: str, count: int) -> Column:
    """Split a text into an empty string and its groups; into anything else if it doesn't match."""
    mark = unguessable_name()
    marked = "".join(f"{mark}${number}" for number in range(1, count + 1))
    return sf.split(sf.regexp_replace(text, rf"\A(?:{pattern})\z", marked), mark)


def _without_nulls(part: Column, kind: DataType, null_text: str | None) -> Column:
    nulls = [] if null_text is None else [null_text]
    if not isinstance(kind, StringType):
        nulls.append("")
    return sf.when(~part.isin(*nulls), part) if nulls else part


def _convert(part: Column, field: StructField, timestamp_format: str | None) -> Column:
    if isinstance(field.dataType, TimestampType) and timestamp_format is not None:
        return sf.try_to_timestamp(part, sf.lit(timestamp_format)).alias(field.name)
    return part.try_cast(field.dataType).alias(field.name)
