"""Windows, joins, ranking and de-duplication on streams: small functions that return DataFrames.

They take and return plain DataFrames, so they combine with everything in PySpark, and they work on
batches as well as on streams. Times are columns of timestamps that the events carry; when a row
arrives matters only for being late.

A watermark says how late is too late. Spark takes the latest time that it has seen in a stream,
less the watermark's delay, once per micro-batch: what was seen in one micro-batch counts from the
next one on. Rows with an earlier time may be dropped (`late_rows` counts them), others never are.
Batches have no watermark: every row counts.

A window is emitted when the watermark has passed its end (output mode `append`), after every
micro-batch in which it changed (`update`), or every time (`complete`, which never forgets). In
`append` the last windows of a quiet stream are held back until later events arrive.

Durations are `1m`, `10 minutes` or a timedelta. A ConfigError names the argument that is wrong.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NumericType, TimestampType

from hermes.errors import ConfigError
from hermes.spark.arguments import (
    Duration,
    as_interval,
    as_ms,
    column_type,
    named,
    require_columns,
    require_new,
    require_time,
)
from hermes.spark.starting import prepared

__all__ = [
    "deduplicate",
    "join_table",
    "join_within",
    "late_rows",
    "session_counts",
    "sliding_counts",
    "top_n",
    "tumbling_counts",
]

#: What becomes of left rows without a partner: dropped, or emitted with nulls.
How = Literal["inner", "left_outer"]


# Columns of results.
_WINDOW, _COUNT = "window", "count"
# Intermediate columns. A checkpoint knows them by these names.
_RIGHT, _PLACE, _ROWS, _OWN = "hermes_right_", "hermes_place", "hermes_rows", "hermes_own_id"

# -- windows ------------------------------------------------------------------------------------


def tumbling_counts(
    df: DataFrame,
    width: Duration,
    *,
    time: str,
    by: str | Sequence[str] = (),
    watermark: Duration | None = None,
    totals: Sequence[Column] = (),
) -> DataFrame:
    """Count rows in windows that follow one another without gap or overlap.

    A window includes its start and excludes its end; windows start at multiples of their width
    since 1970 in UTC. Windows without rows don't appear. A row without a time belongs to no window
    and is left out.

    In a stream, rows older than the watermark still count while their window is open, that is,
    until the watermark has passed the window's end; afterwards they are dropped.

    Example:
        clicks = good.select("decoded.*")
        per_minute = tumbling_counts(clicks, "1m", time="time", by="page", watermark="10m")
        per_minute.select("window.start", "page", "count").writeStream.format("console").start()

    Args:
        width: of a window; at least 1 ms.
        time: the column with the events' times.
        by: columns to count separately by.
        watermark: how late a row may be. None when the stream has a watermark already; without any
            a stream can't write in mode `append`, and keeps all windows for ever.
        totals: further aggregates with names, such as `sf.sum("bytes").alias("bytes")`.

    Returns:
        The columns `window` (a struct of `start` and `end`), those of `by`, `count`, and `totals`.
    """
    span = as_interval(as_ms(width, "width", least_ms=1))
    return _counts(df, time, by, watermark, totals, sf.window(named(time), span))


def sliding_counts(
    df: DataFrame,
    width: Duration,
    slide: Duration,
    *,
    time: str,
    by: str | Sequence[str] = (),
    watermark: Duration | None = None,
    totals: Sequence[Column] = (),
) -> DataFrame:
    """Count rows in windows that overlap: a row counts in each one that contains it.

    Otherwise as `tumbling_counts`; windows start at multiples of `slide` since 1970 in UTC.

    Example:
        recent = sliding_counts(clicks, "10m", "1m", time="time", by="page", watermark="10m")

    Args:
        df, time, by, watermark, totals: as for `tumbling_counts`.
        width: of a window; at least `slide`, which is at least 1 ms.
        slide: from one window's start to the next.
    """
    slide_ms = as_ms(slide, "slide", least_ms=1)
    # Spark would silently leave out rows between the windows.
    width_ms = as_ms(width, "width", least_ms=slide_ms)
    window = sf.window(named(time), as_interval(width_ms), as_interval(slide_ms))
    return _counts(df, time, by, watermark, totals, window)


def session_counts(
    df: DataFrame,
    gap: Duration,
    *,
    time: str,
    by: str | Sequence[str],
    watermark: Duration | None = None,
    totals: Sequence[Column] = (),
) -> DataFrame:
    """Count rows in sessions: rows of one key, each at most `gap` later than the one before.

    A session starts with its first row and ends `gap` after its last. A row that comes later than
    its neighbours, but in time, lengthens a session, or joins two.

    In a stream, a session is emitted when the watermark has passed its end. A row older than the
    watermark still counts if it is less than `gap` older; otherwise it is dropped. Spark has no
    output mode `update` for sessions: use `append`.

    Example:
        visits = session_counts(clicks, "30m", time="time", by="member", watermark="10m")
        visits.select("member", "window.start", "window.end", "count")

    Args:
        df, time, watermark, totals: as for `tumbling_counts`.
        gap: the silence that ends a session; at least 1 ms.
        by: the columns of the key, at least one.

    Returns:
        As `tumbling_counts`; `window` is the session.
    """
    require_columns(df, by, "by", least=1)
    span = as_interval(as_ms(gap, "gap", least_ms=1))
    window = sf.session_window(named(time), span).alias(_WINDOW)
    return _counts(df, time, by, watermark, totals, window)


def _counts(
    df: DataFrame,
    time: str,
    by: str | Sequence[str],
    watermark: Duration | None,
    totals: Sequence[Column],
    window: Column,
) -> DataFrame:
    ready = _watermarked(df, time, watermark)
    keys = require_columns(df, by, "by")
    for key in keys:
        require_new([_WINDOW, _COUNT], key, "by")
    if not all(isinstance(total, Column) for total in totals):
        raise ConfigError("totals", "expected aggregates, such as sf.sum('bytes').alias('bytes')")
    grouped = ready.where(named(time).isNotNull()).groupBy(window, *(named(key) for key in keys))
    return grouped.agg(sf.count(sf.lit(1)).alias(_COUNT), *totals)


# -- joins --------------------------------------------------------------------------------------


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
    one's, both ends included. Every pair appears once: a left row with two partners appears twice.
    Null keys join nothing.

    In streams both sides are kept until the watermark says that no partner can come any more; with
    `how="left_outer"` a left row without a partner is emitted then, with nulls. The query's
    watermark is that of the side furthest behind (unless
    `spark.sql.streaming.multipleWatermarkPolicy` says otherwise), so a silent side holds everything
    up. A row older than the watermark is dropped, also on the left side: it isn't emitted with
    nulls either. Write in mode `append`.

    Example:
        seen = join_within(
            impressions, clicks, "1h", on="ad", left_time="shown", right_time="clicked",
            how="left_outer", left_watermark="10m", right_watermark="10m",
        )
        rate = tumbling_counts(seen, "1h", time="shown", by="ad",
                               totals=[sf.count("clicked").alias("clicks")])

    Args:
        left: of a batch or of a stream.
        right: of the same kind; besides the key, it shares no column name with `left`.
        within: how much later the right row may be.
        on: the columns of the key, the same names on both sides, at least one.
        left_time, right_time: the columns with the events' times.
        before: how much earlier the right row may be.
        how: `inner` or `left_outer`.
        left_watermark, right_watermark: how late a row may be. None when the stream has a watermark
            already; every stream needs one.

    Returns:
        The left side's columns, then the right side's without the key.
    """
    keys = _check(left, right, on, how, "right")
    # An outer row is emitted once no partner can come; that time must lie ahead.
    before_ms, within_ms = as_ms(before, "before"), as_ms(within, "within")
    ready = _watermarked(left, left_time, left_watermark, prefix="left_")
    other = _watermarked(right, right_time, right_watermark, prefix="right_")
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
    A DataFrame over files knows only the files that existed when it was created; where the table
    changes, create it again within `foreachBatch`. Rows of the table with the same key multiply the
    stream's. Null keys join nothing.

    Example:
        members = spark.read.parquet("members")
        named = join_table(clicks, members, on="member", how="left_outer")

    Args:
        stream: of a stream or of a batch.
        table: of a batch; sent to every worker if it is small, else shuffled every time.
        on: the columns of the key, the same names on both sides, at least one.
        how: what becomes of the stream's rows without a partner: `inner` drops them, `left_outer`
            emits them with nulls.

    Returns:
        The stream's columns, then the table's without the key.
    """
    if table.isStreaming:
        raise ConfigError("table", "expected a table, not a stream; streams join by join_within")
    keys = _check(stream, table, on, how, "table")
    return _joined(stream, table, keys, sf.lit(True), how)


def _check(
    left: DataFrame, right: DataFrame, on: str | Sequence[str], how: str, argument: str
) -> list[str]:
    if how not in get_args(How):
        raise ConfigError("how", f"expected {' or '.join(get_args(How))}, got {how!r}")
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
    # The key's columns are renamed on one side, so that each name means one column.
    other = right.withColumnsRenamed({key: f"{_RIGHT}{key}" for key in keys})
    equal = [named(key) == named(f"{_RIGHT}{key}") for key in keys]
    joined = prepared(left).join(other, reduce(Column.__and__, equal, condition), how)
    return joined.drop(*(f"{_RIGHT}{key}" for key in keys))


# -- ranking and de-duplication -----------------------------------------------------------------


def top_n(
    df: DataFrame,
    n: int,
    *,
    by: str = "count",
    per: str | Sequence[str] = (),
) -> DataFrame:
    """Keep the `n` rows with the largest numbers, overall or for each value of `per`.

    Ties are broken by the other columns, in their order and ascending, so that the same data give
    the same result. Nulls come last.

    In a batch this always works. In a stream it depends:

    - overall, on counts, in output mode `complete`: Spark sorts and cuts the whole result after
      every micro-batch.
    - per window (`per="window"`, and further columns), on counts with a watermark, in output mode
      `append`: each window is emitted once, when it is closed, with its `n` rows. One task then
      holds all the rows of a window in memory.
    - everything else within `foreachBatch`, where a micro-batch is a batch. The result is right if
      the micro-batch holds whole groups, as counts in mode `complete` and windows in mode `append`
      do; in mode `update` it holds only what has changed, and ranking that is wrong.

    Example:
        counts = tumbling_counts(clicks, "1m", time="time", by="page", watermark="10m")
        top_n(counts, 3, per="window").writeStream.format("console").start()

        def write(batch, number):
            top_n(batch, 3, per="country").write.mode("overwrite").parquet("top")
        by_country.writeStream.outputMode("complete").foreachBatch(write).start()

    Args:
        df: counts, or any DataFrame of a batch.
        n: how many, at least 1.
        by: the column of numbers or times.
        per: the columns of the groups; none for one overall ranking.

    Returns:
        The same columns. An overall ranking is sorted; groups are in no particular order.
    """
    if type(n) is not int or n < 1:
        raise ConfigError("n", f"expected a whole number >= 1, got {n!r}")
    column_type(df, by, "by", (NumericType, TimestampType), "a number or a timestamp")
    groups = require_columns(df, per, "per")
    others = [name for name in df.columns if name not in (by, *groups)]
    order = [named(by).desc_nulls_last(), *(named(name).asc_nulls_first() for name in others)]
    if not groups:
        return prepared(df).orderBy(*order).limit(n)
    if df.isStreaming:
        return _of_closed_groups(prepared(df), n, by, groups, others)
    ranked = sf.row_number().over(Window.partitionBy(*map(named, groups)).orderBy(*order))
    return df.withColumn(_PLACE, ranked).where(named(_PLACE) <= n).drop(_PLACE)


def _of_closed_groups(
    df: DataFrame, n: int, by: str, groups: list[str], others: list[str]
) -> DataFrame:
    if "window" not in groups:
        raise ConfigError(
            "per", "a stream is ranked per window; rank other groups within foreachBatch"
        )
    row = sf.struct(*(named(name) for name in (by, *others)))
    first = sf.slice(sf.array_sort(sf.collect_list(row), _comparator([by, *others])), 1, n)
    ranked = df.groupBy(*map(named, groups)).agg(first.alias(_ROWS))
    flat = ranked.select(*map(named, groups), sf.inline(named(_ROWS)))
    return flat.select(*map(named, df.columns))


def _comparator(names: list[str]) -> Any:
    def compare(left: Column, right: Column) -> Column:
        number, *others = [(left.getField(name), right.getField(name)) for name in names]
        # Swapped, so that the largest comes first and null last.
        steps = [_step(number[1], number[0]), *(_step(*pair) for pair in others)]
        return sf.coalesce(*(sf.when(step != 0, step) for step in steps), sf.lit(0))

    return compare


def _step(one: Column, other: Column) -> Column:
    """-1, 0 or 1; null equals itself and is less than everything else."""
    return (
        sf.when(one.eqNullSafe(other), 0)
        .when(one.isNull(), -1)
        .when(other.isNull(), 1)
        .when(one < other, -1)
        .otherwise(1)
    )


def deduplicate(
    df: DataFrame,
    ids: str | Sequence[str],
    *,
    time: str,
    watermark: Duration,
) -> DataFrame:
    """Keep one row per id: what an at-least-once producer or sink wrote twice appears once.

    Rows without an id are all kept. In a batch the earliest row of each id is kept, however far
    apart the times are.

    In a stream the row that arrives first is kept, and its id is remembered until the watermark has
    passed its time by `watermark`. So of rows with the same id whose times are less than
    `watermark` apart, one is kept; later ones may appear again. Rows older than the watermark are
    dropped. Only ids are compared: choose `watermark` longer than the time within which a producer,
    or a job that is run again, may repeat itself.

    Example:
        once = deduplicate(split_id(messages), "id", time="timestamp", watermark="1h")

    Args:
        ids: the column or columns that together are the id.
        time: the column with the events' times.
        watermark: how late a row may be and how long an id is remembered, at least 1 ms.
    """
    names = require_columns(df, ids, "ids", least=1)
    require_time(df, time, "time")
    if time in names:
        raise ConfigError("ids", "the time can't be part of the id")
    as_ms(watermark, "watermark", least_ms=1)
    # To Spark nulls are equal, so a row without an id gets one that no other row has.
    absent = sf.concat(*(named(name).cast("string") for name in names)).isNull()
    single = df.withColumn(_OWN, sf.when(absent, sf.uuid()))
    if df.isStreaming:
        ready = _watermarked(single, time, watermark)
        return ready.dropDuplicatesWithinWatermark([*names, _OWN]).drop(_OWN)
    earliest = Window.partitionBy(*map(named, names), named(_OWN)).orderBy(named(time))
    ranked = single.withColumn(_PLACE, sf.row_number().over(earliest))
    return ranked.where(named(_PLACE) == 1).drop(_OWN, _PLACE)


# -- watermarks ---------------------------------------------------------------------------------


def _watermarked(
    df: DataFrame, time: str, delay: Duration | None, *, prefix: str = ""
) -> DataFrame:
    """Set a stream's watermark; None leaves it, and a batch has none. Raises ConfigError."""
    require_time(df, time, f"{prefix}time")
    if delay is None:
        return prepared(df)
    delay_ms = as_ms(delay, f"{prefix}watermark")
    return prepared(df).withWatermark(time, as_interval(delay_ms)) if df.isStreaming else df


def late_rows(source: StreamingQuery | StreamingQueryProgress) -> int:
    """Count the rows that were dropped because they were older than the watermark.

    Aggregations count groups rather than rows: Spark combines the rows of a micro-batch with the
    same window and keys before it compares them with the watermark. So 0 means that nothing was
    lost, and more than 0 that something was.

    Example:
        query = clicks.writeStream.format("console").start()
        ...
        if late_rows(query):
            print("choose a longer watermark")

    Args:
        source: the query, for all micro-batches whose reports it still holds
            (`spark.sql.streaming.numRecentProgressUpdates`, by default 100), or the progress of
            one.
    """
    reports = [source] if isinstance(source, StreamingQueryProgress) else source.recentProgress
    return sum(
        state.numRowsDroppedByWatermark for report in reports for state in report.stateOperators
    )
