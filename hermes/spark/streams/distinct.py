"""De-duplication by id: what an at-least-once producer or sink wrote twice comes once."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from hermes.errors import ConfigError
from hermes.spark.arguments import (
    Duration,
    as_ms,
    named,
    require_columns,
    require_time,
)
from hermes.spark.streams.lateness import watermarked

__all__ = ["deduplicate"]

# Columns on the way. A checkpoint knows them by these names.
_OWN, _PLACE = "hermes_own_id", "hermes_place"


def deduplicate(
    df: DataFrame,
    ids: str | Sequence[str],
    *,
    time: str,
    watermark: Duration,
) -> DataFrame:
    """Keep one row of those with the same id. Rows without an id are all kept.

    In a batch the earliest row stays, whatever lies between it and the others.

    In a stream the row that comes first stays, and its id is remembered until the watermark has
    passed its time by `watermark`. So of rows with the same id and the same time, or times less
    than `watermark` apart, one stays; later ones may come again. Rows behind the watermark are
    dropped. The id is all that is compared: choose `watermark` longer than the time within which a
    producer, or a job that is run again, may repeat itself.

    Example:
        once = deduplicate(split_id(messages), "id", time="timestamp", watermark="1h")

    Args:
        df: a DataFrame, of a batch or of a stream.
        ids: the column or columns that together are the id.
        time: the column with the events' times.
        watermark: how late a row may be and how long an id is remembered, at least 1 ms.

    Returns:
        The same columns.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    names = require_columns(df, ids, "ids", least=1)
    require_time(df, time, "time")
    if time in names:
        raise ConfigError("ids", "the time is no part of the id")
    as_ms(watermark, "watermark", least_ms=1)
    # To Spark nulls are equal, so that a row without an id gets one that no other row has.
    absent = sf.concat(*(named(name).cast("string") for name in names)).isNull()
    single = df.withColumn(_OWN, sf.when(absent, sf.uuid()))
    if df.isStreaming:
        ready = watermarked(single, time, watermark)
        return ready.dropDuplicatesWithinWatermark([*names, _OWN]).drop(_OWN)
    earliest = Window.partitionBy(*map(named, names), named(_OWN)).orderBy(named(time))
    ranked = single.withColumn(_PLACE, sf.row_number().over(earliest))
    return ranked.where(named(_PLACE) == 1).drop(_OWN, _PLACE)
