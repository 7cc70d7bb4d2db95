"""A driver process whose memory others watch: it reads or loads one topic after the other.

    python memory_driver.py SETTINGS.json

It says `ready TOPIC` before each, waits for a line on its standard input, and says `done ROWS`
afterwards.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from hermes.spark.load import load


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def started(settings: dict[str, Any]) -> SparkSession:
    """A session with a small heap that is there from the start: it can't hide what grows."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "512m")
    temporary = f'"-Djava.io.tmpdir={settings["local"]}"'
    builder = builder.config(
        "spark.driver.extraJavaOptions", f"-Xms512m -XX:+AlwaysPreTouch {temporary}"
    )
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.config("spark.local.dir", settings["local"]).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def read(spark: SparkSession, options: dict[str, str]) -> int:
    """Read all columns of all messages in the workers and the JVM; how many they are."""
    frame = spark.read.format("hermes").options(**options).load()
    return int(frame.selectExpr("count(hash(*))").collect()[0][0])


def loaded(spark: SparkSession, options: dict[str, str], target: Path) -> int:
    """Load all messages, and remove them again; how many they are."""
    result = load(spark, target, options, sink="parquet")
    shutil.rmtree(target)
    return result.messages


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = started(settings)
    for topic in settings["topics"]:
        say(f"ready {topic}")
        sys.stdin.readline()
        options = {"hermes.bootstrap.servers": settings["servers"], "subscribe": topic}
        if settings["does"] == "read":
            count = read(spark, options)
        else:
            count = loaded(spark, options, Path(settings["local"], f"target-{topic}"))
        say(f"done {count}")
    spark.stop()


if __name__ == "__main__":
    main()
