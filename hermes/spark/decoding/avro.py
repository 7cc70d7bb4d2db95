"""Avro records into columns, by fastavro in Python workers (PySpark's package has no spark-avro).

Only the column with the values is sent to workers; it is decoded once, whatever is selected later.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructType

from hermes.errors import ConfigError
from hermes.extras import install_command
from hermes.spark.arguments import named, unguessable_name
from hermes.spark.decoding.dead_letters import (
    DEAD_LETTER,
    DECODED,
    bytes_of,
    check_columns,
    with_outcome,
)

if TYPE_CHECKING:
    from hermes.spark.decoding.avro_values import AvroFormat


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

    The columns' types are listed in `hermes.spark.decoding.avro_values`; a type without a
    counterpart in Spark is refused here, not when values arrive. Dead letters are null and empty
    values, bytes that end early or are left over, text that isn't UTF-8, values that the columns
    can't hold (dates outside the years 1 to 9999, a decimal of too many digits), and values that
    can't be resolved to the reader's schema. Avro has no checksums: damage that happens to decode
    goes unnoticed.

    Needs fastavro, which the extra `avro` brings.

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
        schema: the record's schema, with which all values were written: what `json.load` returns,
            or the JSON text.
        reader_schema: the schema to resolve them to, by Avro's rules: fields left out, renamed,
            with defaults. None to take them as they were written.
        column: the binary column.
        into: the name of the column with the decoded struct, null for dead letters.
        dead_letter: the name of the column with the reason, null for good values.

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

    As `decode_avro`; values whose id isn't in `schemas` are dead letters too.

    Example:
        messages = spark.read.format("hermes").options(...).load()
        clicks = decode_framed_avro(messages, {1: first, 2: second}, reader_schema=second)

    Args:
        schemas: the writers' schemas, of records, by their ids (0 to 2^31 - 1).
        reader_schema: the schema to resolve them to. With one schema None stands for that one;
            with several it must be given.
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
        from hermes.spark.decoding import avro_values
    except ModuleNotFoundError as error:
        raise ConfigError(argument, f"Avro needs fastavro: {install_command('avro')}") from error
    return avro_values.schema_text(schema, argument)


def _decode(
    df: DataFrame,
    writers: tuple[tuple[int | None, str], ...],
    reader_schema: Any,
    column: str,
    into: str,
    dead_letter: str,
) -> DataFrame:
    reader = None if reader_schema is None else _schema_text(reader_schema, "reader_schema")
    # Now that fastavro is known to be installed.
    from hermes.spark.decoding import avro_values

    kind = avro_values.to_spark(reader or writers[0][1], "schema")
    rules = avro_values.AvroFormat(writers, reader)
    return with_decoded_avro(df, rules, kind, column=column, into=into, dead_letter=dead_letter)


def with_decoded_avro(
    df: DataFrame,
    rules: "AvroFormat",
    kind: StructType,
    *,
    column: str,
    into: str,
    dead_letter: str,
) -> DataFrame:
    """Add the two columns, of values in a column that was checked, as structs of a `kind`."""
    from hermes.spark.decoding import avro_values

    arrow = avro_values.to_arrow(kind)

    def decode(payloads: pa.Array) -> pa.Array:
        return avro_values.decode_batch(payloads.to_pylist(), rules, arrow)

    outcome = StructType().add("value", kind).add("reason", StringType())
    # PySpark's annotations lack the form without the kind, which it takes from the hints above.
    function = arrow_udf(decode, outcome)  # type: ignore[call-overload]
    # Spark evaluates what is deterministic once per use: for the filter, for the columns.
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
