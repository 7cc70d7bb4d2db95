"""Avro records into columns, by fastavro in Python workers (PySpark's package has no spark-avro).

Only the one column with the values travels to the workers; it is decoded once, whatever is
selected or filtered later.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructType

from hermes.errors import ConfigError
from hermes.spark.arguments import named, unguessable_name
from hermes.spark.decoding.dead_letters import (
    DEAD_LETTER,
    DECODED,
    bytes_of,
    check_columns,
    with_outcome,
)

__all__ = ["decode_avro", "decode_framed_avro"]


def decode_avro(
    df: DataFrame,
    schema: Any,
    *,
    reader_schema: Any = None,
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
) -> DataFrame:
    """Decode values that are the body of one Avro record each, without any framing.

    The columns' types stand in `hermes.spark.decoding.avro_types`; what has no counterpart in Spark
    is refused here, not when values come. Dead letters are null and empty values, bytes that end
    early or are left over, text that is no UTF-8, and what the columns can't hold (dates outside
    the years 1 to 9999, a decimal of too many digits). A value that can't be resolved to the
    reader's schema is one too. Avro has no checks of its own: damage that happens to decode goes
    unseen.

    Needs fastavro: `pip install 'hermes-log[avro]'`.

    Example:
        schema = {
            "type": "record",
            "name": "Click",
            "fields": [
                {"name": "page", "type": "string"},
                {"name": "member", "type": ["null", "string"]},
            ],
        }
        good, dead = split_dead_letters(decode_avro(messages, schema))
        good.groupBy("decoded.page").count().show()

    Args:
        df: a DataFrame, of a batch or of a stream.
        schema: the record's, with which all values were written: what `json.load` gives, or the
            JSON text.
        reader_schema: the record's to resolve them to, by Avro's rules: fields left out, renamed,
            with defaults. None to take them as they were written.
        column: the binary column.
        into: the name of the column with the decoded struct.
        dead_letter: the name of the column with the reason.

    Returns:
        `df` with two columns more: `into`, null for dead letters, and `dead_letter`, null for
        what is good.

    Raises:
        ConfigError: an argument is wrong; the text names it, and the field of a schema.
    """
    check_columns(df, column, into, dead_letter)
    writers = ((None, _schema_text(schema, "schema")),)
    return _decode(df, writers, reader_schema, column, into, dead_letter)


def decode_framed_avro(
    df: DataFrame,
    schemas: Mapping[int, Any],
    *,
    reader_schema: Any = None,
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
) -> DataFrame:
    """Decode what Hermes' encoder `avro` wrote: a zero, the id of the writer's schema, the record.

    As `decode_avro`; values with an id that isn't in `schemas` are dead letters too.

    Example:
        messages = spark.read.format("hermes").options(...).load()
        clicks = decode_framed_avro(messages, {1: first, 2: second}, reader_schema=second)

    Args:
        df: a DataFrame, of a batch or of a stream.
        schemas: the writers' schemas by their ids (0 to 2^31 - 1): records.
        reader_schema: the record's to resolve them to. With one schema None stands for that one;
            with several it must be given.
        column: the binary column.
        into: the name of the column with the decoded struct.
        dead_letter: the name of the column with the reason.

    Returns:
        As `decode_avro`.

    Raises:
        ConfigError: an argument is wrong; the text names it, and the field of a schema.
    """
    check_columns(df, column, into, dead_letter)
    if not schemas:
        raise ConfigError("schemas", "expected at least one")
    if len(schemas) > 1 and reader_schema is None:
        raise ConfigError("reader_schema", "several schemas need one to be resolved to")
    for number in schemas:
        if type(number) is not int or not 0 <= number < 2**31:
            raise ConfigError("schemas", f"expected ids from 0 to {2**31 - 1}, got {number!r}")
    writers = tuple(
        (number, _schema_text(schema, f"schemas.{number}")) for number, schema in schemas.items()
    )
    return _decode(df, writers, reader_schema, column, into, dead_letter)


def _schema_text(schema: Any, argument: str) -> str:
    try:
        from hermes.spark.decoding import avro_types
    except ModuleNotFoundError as error:
        raise ConfigError(
            argument, "Avro needs fastavro: pip install 'hermes-log[avro]'"
        ) from error
    return avro_types.schema_text(schema, argument)


def _decode(
    df: DataFrame,
    writers: tuple[tuple[int | None, str], ...],
    reader_schema: Any,
    column: str,
    into: str,
    dead_letter: str,
) -> DataFrame:
    reader = None if reader_schema is None else _schema_text(reader_schema, "reader_schema")
    # Now that it is known to be there.
    from hermes.spark.decoding import avro_columns, avro_types

    kind = avro_types.to_spark(reader or writers[0][1], "schema")
    rules, arrow = avro_columns.AvroFormat(writers, reader), avro_types.to_arrow(kind)

    def decode(payloads: pa.Array) -> pa.Array:
        return avro_columns.decode_batch(payloads.to_pylist(), rules, arrow)

    outcome = StructType().add("value", kind).add("reason", StringType())
    # PySpark's annotations know no form without the kind; the hints above tell it.
    function = arrow_udf(decode, outcome)  # type: ignore[call-overload]
    # Spark evaluates what is deterministic once for each use: for the filter, for the columns.
    once = function.asNondeterministic()
    temporary = unguessable_name()
    result = with_outcome(
        df.withColumn(temporary, once(bytes_of(column))),
        named(temporary).getField("value"),
        named(temporary).getField("reason"),
        into=into,
        dead_letter=dead_letter,
    )
    return result.drop(temporary)
