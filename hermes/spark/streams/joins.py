"""Joins of a stream: with another stream within a time, and with a table."""

from collections.abc import Sequence
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hermes.errors import ConfigError
from hermes.spark.arguments import Duration, as_interval, as_ms, named, require_columns
from hermes.spark.streams.lateness import watermarked

__all__ = ["How", "join_table", "join_within"]

#: What becomes of left rows without a partner: dropped, or put out with nulls.
How = Literal["inner", "left_outer"]

_HOW: Final = ("inner", "left_outer")
_PREFIX: Final = "hermes_right_"


def join_within(
    left: DataFrame,
    right: DataFrame,
    within: Duration,
    *,
    on: str | Sequence[str],
    left_time: str,
    right_time: str,
    before: Duration = "0ms",
    how: How = "inner",
    left_watermark: Duration | None = None,
    right_watermark: Duration | None = None,
) -> DataFrame:
    """Join rows with the same keys whose times lie close together: clicks to impressions.

    A right row joins a left one when its time is from `before` before to `within` after the left
    one's, both ends included. Every pair comes once: a left row with two partners comes twice. Null
    keys join nothing.

    In streams both sides are kept until the watermark says that no partner can come any more, and
    with `how="left_outer"` a left row without one comes out then, with nulls. The watermark of the
    query is the one of the side that is furthest behind (unless
    `spark.sql.streaming.multipleWatermarkPolicy` says otherwise), so a side that is silent holds
    everything up. A row behind the watermark is dropped, on the left side too: it then comes with
    nulls no more than with a partner. Write in mode `append`.

    Example:
        seen = join_within(
            impressions, clicks, "1h", on="ad", left_time="shown", right_time="clicked",
            how="left_outer", left_watermark="10m", right_watermark="10m",
        )
        rate = tumbling_counts(seen, "1h", time="shown", by="ad",
                               totals=[sf.count("clicked").alias("clicks")])

    Args:
        left: a DataFrame, of a batch or of a stream.
        right: another of the same kind; its other columns' names must not be those of `left`.
        within: how much later the right row may be.
        on: the columns of the key, the same names on both sides, at least one.
        left_time: the left side's column with the events' times.
        right_time: the right side's.
        before: how much earlier the right row may be.
        how: `inner` or `left_outer`.
        left_watermark: how late a left row may be. None when the stream has a watermark already;
            every stream needs one.
        right_watermark: the same for the right side.

    Returns:
        The left side's columns, then the right side's without the key.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    keys = _check(left, right, on, how, "right")
    # An outer row is out once no partner can come; that time must lie ahead.
    before_ms, within_ms = as_ms(before, "before"), as_ms(within, "within")
    ready = watermarked(left, left_time, left_watermark, prefix="left_")
    other = watermarked(right, right_time, right_watermark, prefix="right_")
    if right_time in keys or left_time in keys:
        raise ConfigError("on", "the times are joined by `within`, not by being equal")
    earliest = named(left_time) - sf.expr(f"INTERVAL {as_interval(before_ms)}")
    latest = named(left_time) + sf.expr(f"INTERVAL {as_interval(within_ms)}")
    close = (named(right_time) >= earliest) & (named(right_time) <= latest)
    return _joined(ready, other, keys, close, how)


def join_table(
    stream: DataFrame,
    table: DataFrame,
    *,
    on: str | Sequence[str],
    how: How = "inner",
) -> DataFrame:
    """Join a stream with a table: names to numbers, countries to addresses.

    Keeps no state and needs no watermark: each micro-batch is joined with the table as it is then.
    A DataFrame over files knows those that were there when it was made; make it again within
    `foreachBatch` where the table changes. Rows of the table with the same key multiply the
    stream's. Null keys join nothing.

    Example:
        members = spark.read.parquet("members")
        named = join_table(clicks, members, on="member", how="left_outer")

    Args:
        stream: a DataFrame, of a stream or of a batch.
        table: a batch's; small enough to be sent to every worker, or shuffled every time.
        on: the columns of the key, the same names on both sides, at least one.
        how: what becomes of the stream's rows without a partner: `inner` drops them, `left_outer`
            puts them out with nulls.

    Returns:
        The stream's columns, then the table's without the key.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    if table.isStreaming:
        raise ConfigError("table", "expected a table, not a stream; streams join by join_within")
    keys = _check(stream, table, on, how, "table")
    return _joined(stream, table, keys, sf.lit(True), how)


def _check(
    left: DataFrame, right: DataFrame, on: str | Sequence[str], how: str, argument: str
) -> list[str]:
    """Check what both joins have in common; the key's columns come back. Raises ConfigError."""
    if how not in _HOW:
        raise ConfigError("how", f"expected {' or '.join(_HOW)}, got {how!r}")
    keys = require_columns(left, on, "on", least=1)
    require_columns(right, keys, "on")
    taken = {name.lower() for name in left.columns}
    twice = [name for name in right.columns if name.lower() in taken and name not in keys]
    if twice:
        raise ConfigError(
            argument, f"both sides have a column {twice[0]!r}; rename or drop it on one of them"
        )
    return keys


def _joined(
    left: DataFrame, right: DataFrame, keys: list[str], condition: Column, how: str
) -> DataFrame:
    # The key's columns get names of their own on one side, so that each name means one column.
    other = right.withColumnsRenamed({key: f"{_PREFIX}{key}" for key in keys})
    equal = [named(key) == named(f"{_PREFIX}{key}") for key in keys]
    joined = left.join(other, reduce(Column.__and__, equal, condition), how)
    return joined.drop(*(f"{_PREFIX}{key}" for key in keys))
