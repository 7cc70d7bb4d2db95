"""From producers in one cluster over a mirror to a load by Spark in another, and the proof.

    python examples/pipeline.py [MESSAGES]

Two brokers, each a cluster of its own, run in this process for as long as that takes, and a mirror
in one beside it. At the end the audit says, window by window, that every tier has every message
once; the status is 1 if it can't. Needs the extra `spark`.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.extras import install_command

try:
    from pyspark.sql import SparkSession
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from hermes import Producer, ProducerConfig
from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.comparing import Report
from hermes.spark.auditing import audit_loads, without_stamps
from hermes.spark.load import load, read_loaded
from hermes.testing import running_broker

WINDOW_MS = 1000
PATIENCE_SECONDS = 120.0


@contextmanager
def mirror(folder: Path, east: str, west: str) -> Iterator[None]:
    """Mirror everything from one cluster into the other."""
    config = folder / "mirror.yaml"
    config.write_text(
        "name: east-to-west\n"
        f"sources: [{{name: east, zookeeper: '{east}'}}]\n"
        f"target: {{zookeeper: '{west}'}}\n"
        f"audit: true\naudit_window: {WINDOW_MS}ms\n"
    )
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("hermes")), "mirror", "--config", str(config)]
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def produce(connect: str, messages: int) -> None:
    """Send numbers, stamped and counted."""
    config = ProducerConfig(
        zookeeper_connect=connect,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": WINDOW_MS / 1000},
    )
    with Producer(config) as producer:
        for number in range(messages):
            producer.send("clicks", b"%d" % number)


def load_all(spark: SparkSession, target: Path, connect: str, messages: int) -> None:
    """Load until everything has come, and count each load."""
    to = ProducerConfig(zookeeper_connect=connect)
    options = {"hermes.zookeeper": connect, "subscribePattern": "clicks"}
    loaded, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    while loaded < messages and time.monotonic() < deadline:
        result = load(spark, target, options)
        if result.committed:
            loaded += audit_loads(
                spark, target, "clicks", to, loads=result.number, window_ms=WINDOW_MS
            )


def prove(east: str, west: str) -> Report:
    """Count both clusters and compare all tiers, once the windows are over."""
    clusters = [ClusterAddress("east", east), ClusterAddress("west", west)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Audit(clusters, grace_seconds=0, window_ms=WINDOW_MS) as audit:
        while True:
            audit.count()
            report = audit.look()
            states = {window.state for window in report.windows}
            if not states & {"open", "behind"} or time.monotonic() > deadline:
                return report


def main() -> int:
    """Run it; 0 if every tier is proved to be complete."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    settings = {"coordination": "embedded", "num_partitions": 2}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(settings=settings) as source,
        running_broker(settings=settings) as target,
    ):
        east, west = source.zookeeper_connect, target.zookeeper_connect
        assert east is not None
        assert west is not None
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers' as well
        spark = SparkSession.builder.master("local[2]").getOrCreate()
        loaded = Path(folder) / "clicks"
        with mirror(Path(folder), east, west):
            produce(east, messages)
            load_all(spark, loaded, west, messages)
        values = without_stamps(read_loaded(spark, loaded)).selectExpr("cast(value AS string)")
        print(f"{values.distinct().count()} different messages were loaded")  # noqa: T201
        report = prove(east, west)
        spark.stop()
    for each in report.windows:
        print(f"{each.tier:20} {each.start_ms}  {each.state}  {each.found} messages")  # noqa: T201
    tiers = {window.tier for window in report.windows}
    wanted = {"cluster:east", "cluster:west", "mirror:east-to-west", "spark:clicks"}
    is_proved = all(window.state == "complete" for window in report.windows) and tiers == wanted
    print("proved: all is there, and once" if is_proved else "not proved")  # noqa: T201
    return 0 if is_proved else 1


if __name__ == "__main__":
    sys.exit(main())
