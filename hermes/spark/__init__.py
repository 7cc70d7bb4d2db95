"""The data pipeline on Spark, through PySpark: `spark.read.format("hermes")` and what goes with it.

It is built on `hermes.client` and `hermes.coordination`, and on Spark's Python Data Source API. In
the order of a read:

    source, micro_batches
                the data source that Spark knows: batches, streams
    options, offsets
                what a user may configure, and how offsets are written
    identity    who a query is, for brokers and coordination
    catalog     tables that remember their options
    cluster     brokers, partitions and their ends, as planning sees them
    planning    which ranges of offsets are read, and by how many tasks
    pushdown    what a query's filters leave of them
    reading     what a task does: fetches a range, whatever breaks
    columns, kafka_records, arrays
                message sets to Arrow record batches, from buffers

Of a write:

    sink        what Spark knows, and what a task does: sends, and waits for acknowledgements
    sink_options
                what a user may configure
    outgoing, envelope
                rows to messages, with schema ids in their values

Of copies of topics in files, each message once:

    load        loads that any crash or race leaves whole, to Parquet or Delta
    delta       streams into Delta tables, and reading these without a jar
    auditing    counts what loads and streams have, for the audit
    parquet, statistics, early_flush
                the files that Spark writes, what they say of their columns, and when they are
                flushed
    stores, files
                where they are kept; durable steps on a file system

And of DataFrames of any source:

    decoding    JSON, Avro and text to columns; undecodable values are reported
    streams     windows, joins, ranking, de-duplication
    starting    streams that start together
    progress    how far streams are behind, for programs and for Prometheus
    arguments   what these check before Spark plans
    versions, plain_errors
                which Spark this is; what users see of errors

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
