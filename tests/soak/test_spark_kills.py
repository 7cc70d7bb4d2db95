"""Ten kills of the driver under streams and loads."""

import os
import random

import pytest
from driver_kills import check_exactly_once
from prompt_worker import spark_environment

from hermes.testing import running_broker


@pytest.mark.soak
def test_each_message_is_in_each_sink_once(tmp_path) -> None:
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", str(tmp_path / "warehouse")).getOrCreate()
    try:
        with running_broker(settings={"num_partitions": 2}) as broker:
            check_exactly_once(spark, broker, tmp_path, random.getrandbits(32), kills=10)
    finally:
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
