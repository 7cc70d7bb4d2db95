"""When a value is a dead letter, the two columns that every decoder adds, and what reads them.

Spark's parsers accept what a schema forbids: required fields that are null, numbers and times out
of range, maps with a key twice. `faults` lists the conditions for every type, as expressions of
Spark; `with_outcome` turns a value and the reason against it into columns. Knows no format.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hermes.errors import ConfigError
from hermes.spark.arguments import column_type, named, require_new
from hermes.spark.starting import prepared

#: The names of the two columns unless others are asked for.
DECODED: Final = "decoded"
DEAD_LETTER: Final = "dead_letter"

#: The reason that all formats share.
NULL_VALUE: Final = "the value is null"

_INFINITIES: Final = (float("inf"), float("-inf"))

# What a timestamp and a date can be in SQL, in Python and in files. Milliseconds that are taken for
# seconds lie beyond the end.
_FIRST, _END = "0001-01-01", "+10000-01-01"


class Fault(NamedTuple):
    condition: Column
    reason: Column | str


class DecodingCounts(NamedTuple):
    """How many values were read, and how many of them could not be decoded."""

    values: int
    dead_letters: int


def check_columns(df: DataFrame, column: str, into: str, dead_letter: str) -> None:
    column_type(df, column, "column", (BinaryType, StringType), "binary or string")
    require_new(df.columns, into, "into")
    require_new([*df.columns, into], dead_letter, "dead_letter")


def bytes_of(column: str) -> Column:
    """The column as bytes; a string's are those of its UTF-8."""
    return named(column).cast(BinaryType())


def faults(column: Column, kind: DataType, path: str, *, nullable: bool) -> Iterator[Fault]:
    """List what can be wrong with a column that a parser has filled, outer faults first.

    Where an outer one holds, an inner condition may be null. `kind` has `nullable`, `containsNull`
    and `valueContainsNull` as they are meant; `path` is the column's name, for the reasons.
    """
    if not nullable:
        yield Fault(column.isNull(), f"{path} is required, but missing or null")
    match kind:
        case StructType():
            for field in kind.fields:
                inner = f"{path}.{field.name}" if path else field.name
                part = column.getField(field.name)
                for fault in faults(part, field.dataType, inner, nullable=field.nullable):
                    # Within a struct that may be missing nothing is required unless it is present.
                    present = column.isNotNull() & fault.condition if nullable else fault.condition
                    yield Fault(present, fault.reason)
        case ArrayType():
            yield from _in_elements(column, kind.elementType, f"{path}[]", kind.containsNull)
        case MapType():
            keys = sf.map_keys(column)
            twice = sf.size(sf.array_distinct(keys)) < sf.size(keys)
            yield Fault(twice, f"{path} has a name twice")
            held = sf.map_values(column)
            yield from _in_elements(held, kind.valueType, f"{path}{{}}", kind.valueContainsNull)
        case FloatType() | DoubleType():
            yield Fault(column.isin(*_INFINITIES), f"{path} is out of range")
        case TimestampType() | TimestampNTZType() | DateType():
            first, end = (sf.lit(limit).cast(kind) for limit in (_FIRST, _END))
            yield Fault((column < first) | (column >= end), f"{path} is out of range")


def _in_elements(array: Column, kind: DataType, path: str, nullable: bool) -> Iterator[Fault]:
    # An element's conditions can only be built within a lambda: they are listed once to count them,
    # and once more for each.
    def listed(element: Column) -> list[Fault]:
        return list(faults(element, kind, path, nullable=nullable))

    def condition(number: int) -> Callable[[Column], Column]:
        return lambda element: listed(element)[number].condition

    for number, fault in enumerate(listed(sf.lit(None))):
        yield Fault(sf.exists(array, condition(number)), fault.reason)


def first_reason(found: Sequence[Fault]) -> Column:
    """The reason of the first fault whose condition holds; null where none does."""
    return reduce(lambda chain, fault: chain.when(*fault), found[1:], sf.when(*found[0]))


def with_outcome(
    df: DataFrame, value: Column, reason: Column, *, into: str, dead_letter: str
) -> DataFrame:
    """Add the two columns. `value` is evaluated only where there is no reason.

    Expensive intermediate results must be columns of `df`, so that they are computed once.
    """
    # Spark pushes filters on the reason below the projection that parses, and then parses once for
    # the filter and again for the columns (measured: four times slower). It never pushes through
    # what it considers nondeterministic, and nothing is cheaper than a partition's number.
    barrier = sf.when(sf.spark_partition_id() < 0, "").otherwise(reason)
    judged = prepared(df).withColumn(dead_letter, barrier)
    good = sf.when(named(dead_letter).isNull(), value)
    return judged.select(
        *(named(each) for each in df.columns), good.alias(into), named(dead_letter)
    )


def split_dead_letters(
    decoded: DataFrame, *, into: str = DECODED, dead_letter: str = DEAD_LETTER
) -> tuple[DataFrame, DataFrame]:
    """Divide what a decoder returned into good rows and dead letters.

    In a stream the two are two queries with a checkpoint each, and the source is read for both. To
    read once, write both within `foreachBatch`, where `batch.persist()` before the split also saves
    decoding twice.

    Example:
        good, dead = split_dead_letters(decode_json(messages, "page string, time timestamp"))
        good.select("offset", "decoded.*").write.parquet("clicks")
        dead.write.mode("append").parquet("clicks-dead")

    Args:
        into, dead_letter: the decoder's arguments, if they had other values.

    Returns:
        (good, dead): the good rows without the column of reasons; the dead letters with the reason
        and without the decoded column. All other columns, such as the value, are as they were.

    Raises:
        ConfigError: one of the two columns is missing.
    """
    _require(decoded, into, "into")
    _require(decoded, dead_letter, "dead_letter")
    reason = named(dead_letter)
    return (
        decoded.where(reason.isNull()).drop(dead_letter),
        decoded.where(reason.isNotNull()).drop(into),
    )


def count_dead_letters(
    decoded: DataFrame, observation: Observation | str, *, dead_letter: str = DEAD_LETTER
) -> DataFrame:
    """Count values and dead letters as they pass, through `DataFrame.observe`.

    Put it right after the decoder and continue with what it returns. Counting costs no extra pass;
    `read_counts` reads the result. A batch counts in its first action. A stream counts each
    micro-batch; one that is repeated after a crash is counted again, so these counts are for
    monitoring: where the number must be exact, count what was *written*. So it is, up to PySpark
    4.2, with what one action reads twice: for a sort, or for two writes in `foreachBatch`.

    Example:
        seen = Observation("clicks")
        good, dead = split_dead_letters(count_dead_letters(decoded, seen))
        good.write.parquet("clicks")
        print(read_counts(seen).dead_letters)

        query = count_dead_letters(decoded, "clicks").writeStream.format("noop").start()
        print(read_counts(query, "clicks"))

    Args:
        decoded: a decoder's result, before anything is filtered out.
        observation: an `Observation` in a batch; in a stream the name for the progress reports.
        dead_letter: the decoder's argument, if it had another value.

    Raises:
        ConfigError: the column is missing, or a stream was given an `Observation`.
    """
    _require(decoded, dead_letter, "dead_letter")
    if decoded.isStreaming and not isinstance(observation, str):
        raise ConfigError("observation", "a stream needs a name (a str) here")
    values = sf.count(sf.lit(1)).alias("values")
    return decoded.observe(observation, values, sf.count(named(dead_letter)).alias("dead_letters"))


def read_counts(
    source: Observation | StreamingQueryProgress | StreamingQuery, name: str = ""
) -> DecodingCounts:
    """Read what `count_dead_letters` counted; zeros for a stream that has read nothing yet.

    Args:
        source: the `Observation`, which waits for the batch's first action; a query's progress, for
            that micro-batch; or the query, for all micro-batches whose reports it still holds
            (`spark.sql.streaming.numRecentProgressUpdates`, by default 100). For more than those,
            add up the progresses in a `StreamingQueryListener`.
        name: the name that `count_dead_letters` was given, for a progress or a query.

    Raises:
        ConfigError: the reports have no counts of that name.
    """
    if isinstance(source, Observation):
        return _counts(source.get)
    if isinstance(source, StreamingQueryProgress):
        return _observed(source, name)
    found = [_observed(progress, name) for progress in source.recentProgress]
    return DecodingCounts(
        sum(each.values for each in found), sum(each.dead_letters for each in found)
    )


def _observed(progress: StreamingQueryProgress, name: str) -> DecodingCounts:
    observed = progress.observedMetrics
    if name not in observed:
        if not observed:  # a trigger that found no data has no metrics at all
            return DecodingCounts(0, 0)
        raise ConfigError("name", f"nothing is counted as {name!r}; there are {sorted(observed)}")
    return _counts(observed[name].asDict())


def _counts(metrics: Mapping[str, Any]) -> DecodingCounts:
    return DecodingCounts(int(metrics["values"] or 0), int(metrics["dead_letters"] or 0))


def _require(decoded: DataFrame, name: str, argument: str) -> None:
    if name not in decoded.columns:
        raise ConfigError(
            argument, f"there is no column {name!r}; this is for what a decoder returned"
        )
