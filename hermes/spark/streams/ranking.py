"""The first rows by a number, overall or per group."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import NumericType, TimestampType

from hermes.errors import ConfigError
from hermes.spark.arguments import column_type, named, require_columns

__all__ = ["top_n"]

# Columns on the way. A checkpoint knows them by these names.
_PLACE, _ROWS = "hermes_place", "hermes_rows"


def top_n(
    df: DataFrame,
    n: int,
    *,
    by: str = "count",
    per: str | Sequence[str] = (),
) -> DataFrame:
    """Keep the `n` rows with the largest numbers, overall or for each value of `per`.

    Of equal numbers those rows come first whose other columns are smaller, in the order in which
    they stand, so that the same data give the same result. Nulls come last.

    In a batch this always works. In a stream it depends:

    - overall, on counts, in output mode `complete`: Spark sorts and cuts the whole result after
      every micro-batch.
    - per window (`per="window"`, and further columns), on counts with a watermark, in output mode
      `append`: each window comes once, when it is closed, with its `n` rows. All the rows of one
      window are held in one task's memory then.
    - everything else within `foreachBatch`, where a micro-batch is a batch. It is the right result
      where the micro-batch holds whole groups: counts in mode `complete` do, windows in mode
      `append` do; in mode `update` it holds only what has changed, and ranking that is wrong.

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
        per: the columns of the groups; none for one ranking of all.

    Returns:
        The same columns. A ranking of all is sorted; groups come in no order.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    if type(n) is not int or n < 1:
        raise ConfigError("n", f"expected a whole number >= 1, got {n!r}")
    column_type(df, by, "by", (NumericType, TimestampType), "a number or a timestamp")
    groups = require_columns(df, per, "per")
    others = [name for name in df.columns if name not in (by, *groups)]
    order = [named(by).desc_nulls_last(), *(named(name).asc_nulls_first() for name in others)]
    if not groups:
        return df.orderBy(*order).limit(n)
    if df.isStreaming:
        return _of_closed_groups(df, n, by, groups, others)
    ranked = sf.row_number().over(Window.partitionBy(*map(named, groups)).orderBy(*order))
    return df.withColumn(_PLACE, ranked).where(named(_PLACE) <= n).drop(_PLACE)


def _of_closed_groups(
    df: DataFrame, n: int, by: str, groups: list[str], others: list[str]
) -> DataFrame:
    """Rank by a second aggregation, which Spark puts behind the first in mode `append`."""
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
    """Compare two structs: the first field from the largest down, the others from the least up."""

    def compare(left: Column, right: Column) -> Column:
        number, *others = [(left.getField(name), right.getField(name)) for name in names]
        # Turned round, the largest is the first and null the last.
        steps = [_step(number[1], number[0]), *(_step(*pair) for pair in others)]
        return sf.coalesce(*(sf.when(step != 0, step) for step in steps), sf.lit(0))

    return compare


def _step(one: Column, other: Column) -> Column:
    """-1, 0 or 1; null is equal to itself and less than everything."""
    return (
        sf.when(one.eqNullSafe(other), 0)
        .when(one.isNull(), -1)
        .when(other.isNull(), 1)
        .when(one < other, -1)
        .otherwise(1)
    )
