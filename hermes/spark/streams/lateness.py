"""Watermarks: setting them, and counting what came too late."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from hermes.spark.arguments import Duration, as_interval, as_ms, require_time

__all__ = ["late_rows", "watermarked"]


def watermarked(df: DataFrame, time: str, delay: Duration | None, *, prefix: str = "") -> DataFrame:
    """Set a stream's watermark.

    Args:
        df: a stream, or a batch, which has none.
        time: the column with the events' times.
        delay: how late a row may be; None to leave the watermark as it is.
        prefix: of the arguments' names in errors.

    Raises:
        ConfigError: the column is no timestamp, or the delay no duration.
    """
    require_time(df, time, f"{prefix}time")
    if delay is None:
        return df
    delay_ms = as_ms(delay, f"{prefix}watermark")
    return df.withWatermark(time, as_interval(delay_ms)) if df.isStreaming else df


def late_rows(source: StreamingQuery | StreamingQueryProgress) -> int:
    """Count what was dropped because it came behind the watermark.

    Aggregations count groups rather than rows: Spark adds up the rows of a micro-batch with the
    same window and keys before it looks at the watermark. So 0 means that nothing was lost, and
    more than 0 that something was.

    Example:
        query = clicks.writeStream.format("console").start()
        ...
        if late_rows(query):
            print("choose a longer watermark")

    Args:
        source: the query, for all micro-batches that it still has reports of
            (`spark.sql.streaming.numRecentProgressUpdates`, 100 unless set otherwise), or the
            progress of one.

    Returns:
        The count over all stateful steps of the query.
    """
    reports = [source] if isinstance(source, StreamingQueryProgress) else source.recentProgress
    return sum(
        state.numRowsDroppedByWatermark for report in reports for state in report.stateOperators
    )
