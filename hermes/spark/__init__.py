"""The data pipeline on Spark, through PySpark: `spark.read.format("hermes")` and what goes with it.

It stands on `hermes.client` and `hermes.coordination`; of Spark it uses the Python Data Source API.
In the order of a reading:

    rows        the columns
    options, offsets
                what a user may say, and how offsets are written
    cluster     brokers, partitions and their ends, as the planning sees them
    planning    which ranges of offsets are read, and by how many tasks
    batches, reading
                what a task does: message sets become Arrow record batches
    source, stream, progress
                the data source that Spark knows: batch, stream, and what a stream publishes

And of a writing:

    sink_options
                what a user may say
    outgoing, envelope
                rows become messages, with ids inside their values
    sink        what Spark knows, and what a task does: sends, and waits for acknowledgements

And of what copies topics to files, each message once:

    files, parquet
                durable steps on a file system; the files that Spark writes
    load        batches that any crash or race leaves whole, to Parquet or Delta
    delta       streams into Delta tables, and reading these without a jar

And of what is done with rows, on DataFrames of any source:

    decoding    JSON, Avro and text become columns; what can't be decoded is told
    streams     windows, joins, ranking, de-duplication
    arguments   what they check before Spark plans

Needs the extra `spark`. docs/spark.md is the guide.
"""

from hermes.spark.envelope import split_id
from hermes.spark.offsets import TopicPartition, format_offsets
from hermes.spark.rows import SCHEMA
from hermes.spark.source import HermesDataSource

__all__ = ["SCHEMA", "HermesDataSource", "TopicPartition", "format_offsets", "split_id"]
