"""Counts per window of time: tumbling, sliding and session windows."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hermes.errors import ConfigError
from hermes.spark.arguments import (
    Duration,
    as_interval,
    as_ms,
    named,
    require_columns,
    require_new,
)
from hermes.spark.streams.lateness import watermarked

__all__ = ["session_counts", "sliding_counts", "tumbling_counts"]

_WINDOW, _COUNT = "window", "count"


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

    A window holds its start and not its end; windows start at multiples of their width since 1970
    in UTC. Windows without rows don't appear. A row without a time belongs to no window and is left
    out.

    In a stream, rows behind the watermark still count while their window is open, that is, until
    the watermark has passed the window's end; afterwards they are dropped.

    Example:
        clicks = good.select("decoded.*")
        per_minute = tumbling_counts(clicks, "1m", time="time", by="page", watermark="10m")
        per_minute.select("window.start", "page", "count").writeStream.format("console").start()

    Args:
        df: a DataFrame, of a batch or of a stream.
        width: of a window: `1m`, `10 minutes`, a timedelta; at least 1 ms.
        time: the column with the events' times.
        by: columns to count apart.
        watermark: how late a row may be. None when the stream has a watermark already; without any
            a stream can't write in mode `append`, and keeps all windows for ever.
        totals: further aggregates with names, such as `sf.sum("bytes").alias("bytes")`.

    Returns:
        The columns `window` (a struct of `start` and `end`), those of `by`, `count`, and `totals`.

    Raises:
        ConfigError: an argument is wrong; the text names it.
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
    """Count rows in windows that overlap: a row counts in each that it lies in.

    Otherwise as `tumbling_counts`; windows start at multiples of `slide` since 1970 in UTC.

    Example:
        recent = sliding_counts(clicks, "10m", "1m", time="time", by="page", watermark="10m")

    Args:
        df: a DataFrame, of a batch or of a stream.
        width: of a window; at least `slide`.
        slide: from one window's start to the next; at least 1 ms.
        time: the column with the events' times.
        by: columns to count apart.
        watermark: as for `tumbling_counts`.
        totals: as for `tumbling_counts`.

    Returns:
        As `tumbling_counts`.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    slide_ms = as_ms(slide, "slide", least_ms=1)
    # Spark would leave rows between the windows out without a word.
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
    its neighbours, but in time, lengthens a session, or makes one of two.

    In a stream, a session is put out when the watermark has passed its end. A row behind the
    watermark still counts if it lies less than `gap` behind it; what comes later is dropped. Spark
    has no output mode `update` for sessions: use `append`.

    Example:
        visits = session_counts(clicks, "30m", time="time", by="member", watermark="10m")
        visits.select("member", "window.start", "window.end", "count")

    Args:
        df: a DataFrame, of a batch or of a stream.
        gap: the silence that ends a session; at least 1 ms.
        time: the column with the events' times.
        by: the columns of the key, at least one.
        watermark: as for `tumbling_counts`.
        totals: as for `tumbling_counts`.

    Returns:
        As `tumbling_counts`; `window` is the session.

    Raises:
        ConfigError: an argument is wrong; the text names it.
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
    """Count the rows of each window and key."""
    ready = watermarked(df, time, watermark)
    keys = require_columns(df, by, "by")
    for key in keys:
        require_new([_WINDOW, _COUNT], key, "by")
    if not all(isinstance(total, Column) for total in totals):
        raise ConfigError("totals", "expected aggregates, such as sf.sum('bytes').alias('bytes')")
    grouped = ready.where(named(time).isNotNull()).groupBy(window, *(named(key) for key in keys))
    return grouped.agg(sf.count(sf.lit(1)).alias(_COUNT), *totals)
