"""Orders from the data centre that has Hermes, by Spark, as Parquet.

    python load.py HERMES TARGET

Each micro-batch has a directory of its own. A job that was killed repeats its last one, under its
number and with the same messages, so that nothing is there twice.
"""

import sys

from hermes.extras import install_command

try:
    from pyspark.sql import DataFrame, SparkSession
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from hermes import ProducerConfig
from hermes.spark.auditing import audited_batches


def main(hermes: str, target: str) -> None:
    """Load, until stopped."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

    orders = (
        spark.readStream.format("hermes")
        .option("hermes.zookeeper", hermes)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .options(includeKey="true", includeHeaders="true", includeTimestamp="true")
        .load()
    )
    reports = ProducerConfig(zookeeper_connect=hermes)
    (
        orders.writeStream.foreachBatch(audited_batches(write, "orders", reports, window_ms=1000))
        .option("checkpointLocation", f"{target}-checkpoint")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
