#!/usr/bin/env python3
"""Turns a web server's access log into numbers per hour: sends it to a topic, reads it, counts.

    python examples/spark/access_log.py --log /var/log/apache2/access.log
    python examples/spark/access_log.py

Without a log a small one is made up. The log is in Apache's combined format. Use a new topic: the
job counts everything in it. Needs the extra `spark` (docs/install.md), Java, and a
broker.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from hermes.extras import install_command

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sf
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from shop_window import send, session

from hermes.spark.decoding import decode_pattern, split_dead_letters
from hermes.spark.streams import top_n, tumbling_counts

# Within quotes Apache writes \" and \\. Repeats are possessive, so that no line runs out of stack.
QUOTED = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
COMBINED = (
    r"(\S+) \S+ (\S+) \[([^\]]+)\] "
    rf'"(\S+) ((?:[^\s"\\]|\\.)++){QUOTED}" (\d{{3}}) (\d+|-) "({QUOTED})" "({QUOTED})"'
)
SCHEMA = (
    "host string not null, user string, time timestamp not null, method string not null, "
    "target string not null, status int not null, bytes bigint, referrer string, agent string"
)
TIME_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def made_up_log(lines: int = 1000) -> Iterator[bytes]:
    """Make up a log, with a line in a hundred that is broken."""
    for number in range(lines):
        if number % 100 == 99:
            yield b"\x16\x03\x01 nothing that a server would log"
            continue
        status, size = (404, b"-") if number % 17 == 0 else (200, b"%d" % (number * 37 % 5000))
        yield (
            b'10.0.0.%d - - [17/May/2015:%02d:%02d:%02d +0000] "GET /page/%d?q=%d HTTP/1.1" %d %s '
            b'"-" "made \\"up\\""'
            % (
                number % 7,
                number // 300,
                number // 5 % 60,
                number % 60,
                number % 9,
                number,
                status,
                size,
            )
        )


def parsed(messages: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Take the lines apart.

    Args:
        messages: with a line in `value`.

    Returns:
        (requests, dead): requests with the columns of `SCHEMA` and `page`, the target without its
        query; and the lines that are none, with the reason.
    """
    lines = decode_pattern(messages, COMBINED, SCHEMA, null_text="-", timestamp_format=TIME_FORMAT)
    good, dead = split_dead_letters(lines)
    page = sf.substring_index("target", "?", 1).alias("page")
    return good.select("decoded.*").select("*", page), dead


def per_hour(requests: DataFrame) -> DataFrame:
    """Count requests and bytes: the columns `hour`, `status`, `requests`, `bytes`."""
    size = sf.coalesce(sf.sum("bytes"), sf.lit(0)).alias("bytes")
    counts = tumbling_counts(requests, "1h", time="time", by="status", totals=[size])
    hours = counts.selectExpr("window.start AS hour", "status", "count AS requests", "bytes")
    return hours.orderBy("hour", "status")


def top_pages(requests: DataFrame, n: int = 3) -> DataFrame:
    """The most wanted pages of each hour: the columns `hour`, `page`, `requests`."""
    counts = tumbling_counts(requests.where("status < 400"), "1h", time="time", by="page")
    best = top_n(counts, n, per="window")
    hours = best.selectExpr("window.start AS hour", "page", "count AS requests")
    return hours.orderBy("hour", sf.desc("requests"), "page")


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """What is in the topic now."""
    reader = spark.read.format("hermes").option("hermes.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load()


def main() -> None:
    """Send, read, count, show."""
    parser = argparse.ArgumentParser(description="Counts an access log's requests per hour.")
    parser.add_argument("--log", type=Path, help="in Apache's combined format; else made up")
    parser.add_argument("--bootstrap-servers", default="localhost:9092", help="HOST:PORT")
    parser.add_argument("--topic", default="access-log", help="a new one")
    options = parser.parse_args()
    lines = options.log.read_bytes().splitlines() if options.log else made_up_log()
    sent = send(options.bootstrap_servers, ((options.topic, line) for line in lines))
    spark = session("access log")
    requests, dead = parsed(read(spark, options.bootstrap_servers, options.topic).persist())
    per_hour(requests).show(1000, truncate=False)
    top_pages(requests).show(1000, truncate=False)
    found = f"{sent} lines sent, {requests.count()} requests, {dead.count()} dead letters"
    sys.stdout.write(f"{found}\n")
    dead.selectExpr("dead_letter", "decode(value, 'ISO-8859-1') AS line").show(10, truncate=False)


if __name__ == "__main__":
    main()
