"""Loads, compacts, lets expire and cleans up a target, in any order, until it is killed.

Arguments: the target, a directory with the file `count`, the sink, and `drain` to do each once.
"""

import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from loaded_topic import LoadedTopic

from hermes.errors import LoadError
from hermes.spark.load import clean_up, compact, expire
from hermes.spark.load.load_target import TargetSettings
from hermes.spark.stores import open_store

__all__ = ["FIRST_KEPT", "PER_DAY"]

PER_DAY = 40
FIRST_KEPT = "2023-11-03"


def main(target: str, folder: Path, sink: str, is_last: bool) -> None:
    spark = started_spark(folder) if target.startswith("hdfs:") else None
    store, topic = open_store(target, spark), LoadedTopic(PER_DAY)

    def load() -> None:
        topic.count = int((folder / "count").read_text())
        topic.load(store, TargetSettings(sink))  # type: ignore[arg-type]

    works = [
        load,
        lambda: compact(target, spark=spark),
        lambda: expire(target, FIRST_KEPT, spark=spark),
        lambda: clean_up(target, spark=spark),
    ]
    chance = random.Random()
    print("ready", flush=True)  # noqa: T201
    while not is_last:
        with suppress(LoadError):  # another one was first
            chance.choices(works, (6, 2, 1, 1))[0]()
    for work in [load, load, *works[1:]]:
        work()
    if spark is not None:
        spark.stop()


def started_spark(folder: Path) -> Any:
    """A session, whose JVM has the client of HDFS; what that leaves when killed is in a folder."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "600m").config("spark.local.dir", str(folder))
    temporary = f'"-Djava.io.tmpdir={folder}"'
    session = builder.config("spark.driver.extraJavaOptions", temporary).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:] == ["drain"])
