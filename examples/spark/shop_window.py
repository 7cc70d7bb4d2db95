"""What the streaming examples share: their arguments, made-up events, reading and writing.

Not a script. The events are those of a site that shows advertisements: an impression when one is
shown, a click when somebody follows it.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hermes.extras import install_command

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from hermes.client import Producer, ProducerConfig
from hermes.spark import HermesDataSource
from hermes.spark.decoding import count_dead_letters, decode_json, split_dead_letters

IMPRESSION = "impression string not null, time timestamp not null, ad string not null"
CLICK = (
    "impression string not null, click_time timestamp not null, page string not null, "
    "member string not null"
)

PAGES = ("/", "/jobs", "/people", "/groups", "/news", "/help")
START = datetime(2011, 6, 13, 8, tzinfo=UTC)


def events(count: int, seed: int = 2011) -> Iterator[tuple[str, dict[str, str]]]:
    """Make up events.

    Args:
        count: how many impressions, >= 0. About a third is clicked, up to two minutes later.
        seed: another seed, other events.

    Yields:
        (topic, event): the topic is `impressions` or `clicks`. Clicks come a little out of order,
        as they do in life; the same count and seed give the same events.
    """
    chance = random.Random(seed)
    time = START
    for number in range(count):
        time += timedelta(milliseconds=chance.randint(0, 10_000))
        identity = f"i-{number:06}"
        ad = f"ad-{chance.randrange(5)}"
        yield "impressions", {"impression": identity, "time": time.isoformat(), "ad": ad}
        if chance.random() < 0.35:
            clicked = time + timedelta(milliseconds=chance.randint(500, 120_000))
            yield (
                "clicks",
                {
                    "impression": identity,
                    "click_time": clicked.isoformat(),
                    "page": chance.choice(PAGES),
                    "member": f"member-{chance.randrange(20)}",
                },
            )


def send(servers: str, messages: Iterable[tuple[str, bytes]]) -> int:
    """Send messages to their topics and wait until they are on disk.

    Args:
        servers: `host:port` of the brokers, separated by commas.
        messages: (topic, payload).

    Returns:
        How many there were.
    """
    brokers = ",".join(f"{number}:{server}" for number, server in enumerate(servers.split(",")))
    sent = 0
    config = ProducerConfig(broker_list=brokers, producer_type="async", acks="flushed")
    with Producer(config) as producer:
        for topic, payload in messages:
            producer.send(topic, payload)
            sent += 1
    return sent


def send_sample(servers: str, count: int) -> int:
    """Send `count` made-up impressions and their clicks; how many messages that were comes back."""
    made = ((topic, json.dumps(event).encode()) for topic, event in events(count))
    return send(servers, made)


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that the examples have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--bootstrap-servers", default="localhost:9092", help="HOST:PORT of the brokers"
    )
    parser.add_argument("--checkpoint", help="a directory to go on from after a restart")
    parser.add_argument("--output", help="a directory for Parquet files; the terminal without it")
    parser.add_argument(
        "--once", action="store_true", help="end when everything that is there has been read"
    )
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="first send N made-up impressions"
    )
    return parser


def session(name: str) -> SparkSession:
    """A session that knows Hermes and shows times in UTC."""
    # Without this Spark starts its workers with whatever `python3` is first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(HermesDataSource)
    return spark


def stream(spark: SparkSession, servers: str, topic: str, schema: str) -> DataFrame:
    """A topic's events as columns, from the beginning; dead letters are counted and left out."""
    reader = spark.readStream.format("hermes").option("hermes.bootstrap.servers", servers)
    messages = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    counted = count_dead_letters(decode_json(messages, schema), topic)
    good, _ = split_dead_letters(counted)
    return good.select("decoded.*")


def start(result: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Start writing results as the arguments say."""
    writer: Any = result.writeStream.outputMode("append")
    if options.checkpoint:
        writer = writer.option("checkpointLocation", options.checkpoint)
    if options.once:
        writer = writer.trigger(availableNow=True)
    if options.output:
        return writer.format("parquet").option("path", options.output).start()
    return writer.format("console").option("truncate", "false").start()
