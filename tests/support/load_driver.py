"""A driver process that others kill: two streams and loads, all from the same topic, until the end.

    python load_driver.py SETTINGS.json [drain]

It says `ready` once Spark runs, and then a line for each thing that got done. With `drain` it ends
when everything is copied that there is.
"""

import json
import sys
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from hermes.spark.delta import write_stream_to_delta
from hermes.spark.load import load


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Teller(StreamingQueryListener):
    """Says which batches were done."""

    def __init__(self) -> None:
        self.is_going = threading.Event()

    def onQueryStarted(self, event) -> None: ...

    def onQueryIdle(self, event) -> None: ...

    def onQueryTerminated(self, event) -> None:
        self.is_going.set()

    def onQueryProgress(self, event) -> None:
        self.is_going.set()
        if event.progress.numInputRows:
            say(f"batch {event.progress.batchId}")


def main(settings: dict[str, str], is_last: bool) -> None:
    builder = SparkSession.builder.master("local[2,4]").appName("killed")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": settings["local"],
        "spark.sql.warehouse.dir": settings["local"],
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    teller = Teller()
    spark.streams.addListener(teller)
    options = {"hermes.bootstrap.servers": settings["servers"], "subscribe": "clicks"}
    reader = spark.readStream.format("hermes").options(**options)
    limit = {} if is_last else {"maxBytesPerTrigger": "20kB"}
    stream = reader.options(startingOffsets="earliest", **limit).load()
    trigger = {"availableNow": True} if is_last else {"processingTime": "0 seconds"}
    to_parquet = (
        stream.writeStream.format("parquet")
        .trigger(**trigger)
        .start(settings["parquet"], checkpointLocation=settings["parquet"] + "-checkpoint")
    )
    # Streams that start at the same moment can break a map of Spark's that they share, see
    # docs/spark-operate.md.
    assert teller.is_going.wait(120)
    to_delta = write_stream_to_delta(
        stream, settings["delta"], settings["delta"] + "-checkpoint", trigger=trigger
    )
    say("ready")
    pause = threading.Event()
    while True:
        for target, sink in ((settings["load"], "parquet"), (settings["load-delta"], "delta")):
            result = load(spark, target, options, sink=sink)
            if result.number is not None:
                say(f"load {result.number} repeated={result.repeated}")
            while is_last and result.repeated:
                result = load(spark, target, options, sink=sink)
        if is_last:
            break
        for query in (to_parquet, to_delta):
            if query.exception() is not None:
                raise query.exception()
        pause.wait(0.05)
    for query in (to_parquet, to_delta):
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    started = time.monotonic()
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file), sys.argv[2:] == ["drain"])
    say(f"drained after {time.monotonic() - started:.1f} s")
