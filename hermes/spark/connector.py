"""Rows of Spark's own connector for Kafka with the columns that Hermes' source has."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hermes.spark.starting import prepared

__all__ = ["connector_columns", "from_connector"]


def connector_columns() -> dict[str, Column]:
    """Hermes' columns by the connector's; where a message is, is said to be never null."""
    time = sf.col("timestamp")
    return {
        "topic": sf.coalesce(sf.col("topic"), sf.lit("")),
        "partition": sf.coalesce(sf.col("partition"), sf.lit(0)),
        "offset": sf.coalesce(sf.col("offset"), sf.lit(0).cast("long")),
        "next_offset": sf.coalesce(sf.col("offset") + 1, sf.lit(0).cast("long")),
        "index": sf.lit(0),
        "value": sf.col("value"),
        "timestamp": sf.when(time >= sf.timestamp_millis(sf.lit(0)), time),
        "key": sf.col("key"),
        "headers": sf.col("headers"),
    }


def from_connector(rows: DataFrame) -> DataFrame:
    """Give a batch or stream of `format("kafka")` the columns of `format("hermes")`.

    But for `broker`: Kafka's partitions are numbered through. What is for Hermes' rows, decoding
    and the audit for instance, takes them then; `headers` are there with `includeHeaders`.

    Example:
        rows = from_connector(spark.readStream.format("kafka").options(**options).load())
        good, dead = split_dead_letters(decode_json(rows, "page string not null"))
    """
    columns = connector_columns()
    if "headers" not in rows.columns:
        del columns["headers"]
    return prepared(rows).select([column.alias(name) for name, column in columns.items()])
