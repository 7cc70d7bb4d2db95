"""A driver process that others kill: streams and loads, all from the same topic, until the end.

    python load_driver.py SETTINGS.json [drain]

It says `ready` once Spark runs, and then a line for each thing that got done. With `drain` it ends
when everything is copied that there is.
"""

import json
import sys
import threading
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hermes.errors import HermesError
from hermes.spark.delta import write_stream_to_delta
from hermes.spark.load import load


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Streams:
    """A stream into each table; one that fails with the broker is started again."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any], is_last: bool) -> None:
        options = {"hermes.bootstrap.servers": settings["servers"], "subscribe": "clicks"}
        reader = spark.readStream.format("hermes").options(**options)
        limit = {} if is_last else {"maxBytesPerTrigger": "20kB"}
        self._source = reader.options(startingOffsets="earliest", **limit).load()
        self._trigger = {"availableNow": True} if is_last else {"processingTime": "0 seconds"}
        self._settings = settings
        self.queries: dict[str, StreamingQuery] = {}

    def start(self) -> None:
        """Start those that don't run, one after the other."""
        for name, address in self._settings["sinks"].items():
            query = self.queries.get(name)
            if name.startswith("load") or (query is not None and query.isActive):
                continue
            if query is not None:
                say(f"{name} starts again")
            checkpoint = f"{self._settings['checkpoints']}/{name}"
            if "delta" in name:
                self.queries[name] = write_stream_to_delta(
                    self._source, address, checkpoint, trigger=self._trigger
                )
            else:
                writer = self._source.writeStream.format("parquet").trigger(**self._trigger)
                self.queries[name] = writer.start(address, checkpointLocation=checkpoint)

    def drain(self) -> None:
        """Wait for their ends."""
        for query in self.queries.values():
            query.awaitTermination()


def load_all(spark: SparkSession, settings: dict[str, Any], is_last: bool) -> None:
    """Load into each target; the last time until there is nothing new."""
    options = {"hermes.bootstrap.servers": settings["servers"], "subscribe": "clicks"}
    for name, address in settings["sinks"].items():
        if not name.startswith("load"):
            continue
        sink: Any = name.removeprefix("load-")
        again = True
        while again:
            try:
                result = load(spark, address, options, sink=sink)
            except HermesError as error:
                if is_last:
                    raise
                say(f"{name}: {error}")
                break
            if result.number is not None:
                say(f"{name} {result.number} repeated={result.repeated}")
            again = is_last and result.repeated


def killed_session(local: str) -> SparkSession.Builder:
    """What makes a session that is to be killed: whatever it leaves is in that folder."""
    builder = SparkSession.builder.master("local[2,4]").appName("killed")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        # A JVM that is killed leaves what it has there.
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={local}"',
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": local,
        "spark.sql.warehouse.dir": local,
    }.items():
        builder = builder.config(key, value)
    return builder


def main(settings: dict[str, Any], is_last: bool) -> None:
    spark = killed_session(settings["local"]).getOrCreate()
    streams = Streams(spark, settings, is_last)
    streams.start()
    say("ready")
    pause = threading.Event()
    while True:
        load_all(spark, settings, is_last)
        if is_last:
            break
        for name, query in streams.queries.items():
            if progress := query.lastProgress:
                say(f"{name} batch {progress['batchId']}")
        streams.start()
        pause.wait(0.05)
    streams.drain()
    spark.stop()


if __name__ == "__main__":
    started = time.monotonic()
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file), sys.argv[2:] == ["drain"])
    say(f"drained after {time.monotonic() - started:.1f} s")
