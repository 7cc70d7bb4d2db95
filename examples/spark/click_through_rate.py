#!/usr/bin/env python3
"""Joins the topics `impressions` and `clicks`: what share of an advertisement's views is clicked?

    python examples/spark/click_through_rate.py --sample 2000 --once

A click belongs to its impression if it comes within two minutes. Impressions are counted in windows
of ten minutes, clicked or not; a window is emitted when no more clicks on it can arrive. Needs
the extra `spark` (docs/install.md), Java, and a broker.
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

from shop_window import CLICK, IMPRESSION, arguments, send_sample, session, start, stream

from hermes.spark.streams import join_within, tumbling_counts


def click_through_rate(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """Count impressions and clicks.

    Args:
        impressions: with `impression`, `time` and `ad`.
        clicks: with `impression` and `click_time`; at most one for an impression.

    Returns:
        The columns `start` (of ten minutes), `ad`, `impressions`, `clicks` and `rate`.
    """
    seen = join_within(
        impressions,
        clicks.select("impression", "click_time"),
        "2m",
        on="impression",
        left_time="time",
        right_time="click_time",
        how="left_outer",
        left_watermark="1m",
        right_watermark="1m",
    )
    clicked = sf.count("click_time").alias("clicks")
    counts = tumbling_counts(seen, "10m", time="time", by="ad", totals=[clicked])
    return counts.selectExpr(
        "window.start", "ad", "count AS impressions", "clicks", "clicks / count AS rate"
    )


def run(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    impressions = stream(spark, options.bootstrap_servers, "impressions", IMPRESSION)
    clicks = stream(spark, options.bootstrap_servers, "clicks", CLICK)
    return start(click_through_rate(impressions, clicks), options)


def main() -> None:
    """Count until stopped, or once."""
    options = arguments("Joins impressions with clicks.").parse_args()
    if options.sample:
        send_sample(options.bootstrap_servers, options.sample)
    run(session("click-through rate"), options).awaitTermination()


if __name__ == "__main__":
    main()
