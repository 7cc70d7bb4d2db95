"""The data pipeline on Spark, through PySpark: `spark.read.format("hermes")` and what goes with it.

Built on `hermes.client`, `hermes.coordination` and Spark's Python Data Source API. The order of a
read: `source` or `micro_batches`, `planning`, `reading`, `columns`; of a write: `sink`,
`sink_rows`. `load` and `delta` copy topics to files, each message once, kept in `stores`;
`decoding` and `streams` are for DataFrames of any source.

Needs the extra `spark`. docs/spark.md is the guide.
"""

from hermes.spark.versions import check_spark

try:
    from hermes.spark.columns import SCHEMA
    from hermes.spark.envelope import split_id
    from hermes.spark.offsets import TopicPartition, format_offsets
    from hermes.spark.source import HermesDataSource
    from hermes.spark.starting import prepare_streams
except ImportError:
    check_spark()  # says what an older one lacks
    raise

__all__ = [
    "SCHEMA",
    "HermesDataSource",
    "TopicPartition",
    "format_offsets",
    "prepare_streams",
    "split_id",
]
