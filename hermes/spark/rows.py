"""What a message is to Spark: the columns of the source, as Spark and as Arrow name their types.

(topic, broker, partition, offset, index) is unique. The messages of a compressed set share the
offsets of the set, since only its ends are places to resume from; `index` counts within it, and is
0 for a message of its own. Columns that later versions of the message format make possible (a key)
will stand behind these.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

__all__ = ["ARROW_SCHEMA", "SCHEMA", "TIMESTAMP", "arrow_schema", "spark_schema"]

#: The name of the column that `includeTimestamp` adds.
TIMESTAMP: Final = "timestamp"

#: The columns of `spark.read.format("hermes")`.
SCHEMA: Final = (
    StructType()
    .add("topic", StringType())
    .add("broker", IntegerType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("next_offset", LongType())
    .add("index", IntegerType())
    .add("value", BinaryType())
)

#: The same for Arrow; Spark compares the two to the letter.
ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("index", pa.int32()),
        ("value", pa.binary()),
    ]
)


def spark_schema(*, timestamp: bool) -> StructType:
    """The columns of a source; with `timestamp`, the time of the broker's append behind them."""
    if not timestamp:
        return SCHEMA
    return StructType(list(SCHEMA.fields)).add(TIMESTAMP, TimestampType())


def arrow_schema(*, timestamp: bool) -> pa.Schema:
    """As `spark_schema`, for Arrow."""
    if not timestamp:
        return ARROW_SCHEMA
    return ARROW_SCHEMA.append(pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC")))
