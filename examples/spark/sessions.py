#!/usr/bin/env python3
"""Finds the visits of members in the topic `clicks`: clicks at most half an hour apart.

    python examples/spark/sessions.py --sample 2000 --gap 5m --once

A visit is emitted when the latest click is forty minutes past its last one: the half hour that ends
it, and ten minutes for late clicks. Needs the extra `spark` (docs/install.md), Java, and a
broker.
"""

import argparse
import sys

from hermes.extras import install_command

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sf
    from pyspark.sql.streaming.query import StreamingQuery
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from shop_window import CLICK, arguments, send_sample, session, start, stream

from hermes.spark.streams import session_counts


def visits(clicks: DataFrame, gap: str = "30m") -> DataFrame:
    """Find visits.

    Args:
        clicks: with `click_time`, `page` and `member`.
        gap: the silence that ends a visit.

    Returns:
        The columns `member`, `start`, `seconds` (from the first click to the last), `clicks` and
        `pages` (different ones).
    """
    totals = [
        sf.min("click_time").alias("start"),
        sf.max("click_time").alias("last"),
        sf.size(sf.collect_set("page")).alias("pages"),
    ]
    found = session_counts(
        clicks, gap, time="click_time", by="member", watermark="10m", totals=totals
    )
    seconds = "CAST(last AS DOUBLE) - CAST(start AS DOUBLE) AS seconds"
    return found.selectExpr("member", "start", seconds, "count AS clicks", "pages")


def run(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    clicks = stream(spark, options.bootstrap_servers, "clicks", CLICK)
    return start(visits(clicks, options.gap), options)


def main() -> None:
    """Find visits until stopped, or once."""
    parser = arguments("Finds the visits of members.")
    parser.add_argument("--gap", default="30m", help="the silence that ends a visit")
    options = parser.parse_args()
    if options.sample:
        send_sample(options.bootstrap_servers, options.sample)
    run(session("sessions"), options).awaitTermination()


if __name__ == "__main__":
    main()
