#!/usr/bin/env python3
"""Counts clicks per page and minute, live, from the topic `clicks`.

    python examples/spark/clicks_per_minute.py --sample 2000
    python examples/spark/clicks_per_minute.py --output counts --checkpoint state --once

A minute is emitted when the latest click is five minutes past its end; clicks that arrive later
than that are dropped. Needs the extra `spark` (docs/install.md), Java, and a broker.
"""

import argparse
import sys

from hermes.extras import install_command

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from shop_window import CLICK, arguments, send_sample, session, start, stream

from hermes.spark.decoding import read_counts
from hermes.spark.streams import late_rows, tumbling_counts


def clicks_per_minute(clicks: DataFrame) -> DataFrame:
    """Count.

    Args:
        clicks: with `click_time` and `page`.

    Returns:
        The columns `minute`, `page`, `clicks`.
    """
    counts = tumbling_counts(clicks, "1m", time="click_time", by="page", watermark="5m")
    return counts.selectExpr("window.start AS minute", "page", "count AS clicks")


def run(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    clicks = stream(spark, options.bootstrap_servers, "clicks", CLICK)
    return start(clicks_per_minute(clicks), options)


def main() -> None:
    """Count until stopped, or once."""
    options = arguments("Counts clicks per page and minute.").parse_args()
    if options.sample:
        send_sample(options.bootstrap_servers, options.sample)
    query = run(session("clicks per minute"), options)
    query.awaitTermination()
    sys.stdout.write(f"{read_counts(query, 'clicks')}, {late_rows(query)} too late\n")


if __name__ == "__main__":
    main()
