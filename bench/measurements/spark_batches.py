"""What a micro-batch of a stream costs over many partitions, nearly all of them empty.

Each batch has one message; its time is Spark's own figure for the whole of it: the offsets, the
plan, the tasks, and what Spark writes to the checkpoint.
"""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.support.load import TOPIC
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import HermesBroker
from hermes.client import Producer, ProducerConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["micro_batches"]

_FEW = 4
_MANY = 200
_BATCHES = 5
_MS = 1000


def micro_batches(spark: "SparkSession", directory: Path, rounds: int) -> Row:
    """Run streams over 200 partitions and over 4, in turns.

    Args:
        spark: runs them, one at a time.
        directory: for the brokers and checkpoints.
        rounds: how many streams of each kind, of five batches each.
    """
    with (
        HermesBroker(directory / "many", num_partitions=_MANY) as many,
        HermesBroker(directory / "few", num_partitions=_FEW) as few,
    ):
        numbers = count()

        def rate(broker: HermesBroker) -> float:
            checkpoint = str(directory / f"checkpoint-{next(numbers)}")
            return _MS / _batch_ms(spark, broker, checkpoint)

        rates = interleaved(rounds, lambda: rate(many), lambda: rate(few))
    return ratio_row(
        f"Spark, micro-batch over {_MANY} partitions",
        "/s",
        *rates,
        beside_name=f"over {_FEW}",
        at_least=1 / 2,
    )


def _batch_ms(spark: "SparkSession", broker: HermesBroker, checkpoint: str) -> float:
    """How long a batch of one stream took, on average; the first ones don't count."""
    host, port = broker.address
    config = ProducerConfig(broker_list=f"0:{host}:{port}", acks="flushed")
    with Producer(config) as producer:
        producer.send(TOPIC, b"there is such a topic")
        reader = spark.readStream.format("hermes")
        reader.option("hermes.bootstrap.servers", f"{host}:{port}").option("subscribe", TOPIC)
        query = (
            reader.option("startingOffsets", "latest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            for _ in range(1 + _BATCHES):
                query.processAllAvailable()
                producer.send(TOPIC, b"x")
            query.processAllAvailable()
            took = [
                each["durationMs"]["triggerExecution"]
                for each in query.recentProgress
                if each["numInputRows"]
            ]
        finally:
            query.stop()
    if len(took) < 1 + _BATCHES:
        raise RuntimeError(f"a stream ran {len(took)} batches with messages")
    return sum(took[1:]) / len(took[1:])
