"""Spark's memory over ten gigabytes and over a thousand partitions: a read's and a load's.

The full length takes 11 GB of disk, and a load's Parquet as much again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hermes_testkit import BrokerProcess
from process_memory import PeakMemory
from prompt_worker import spark_environment
from soak import report, times

from hermes import Producer, ProducerConfig

pytestmark = pytest.mark.soak

_DRIVER = Path(__file__).parents[1] / "support" / "memory_driver.py"
_MEGABYTE = 1_000_000
_LIST = 5_000
_MESSAGE_BYTES = 200
_PARTITIONS = 1_000
# How much more memory ten times as much may take.
_DRIVER_MB = 200
_WORKER_MB = 50


def fill(port: int, topic: str, megabytes: int) -> int:
    """Produce messages over all partitions, and wait until they are on disk; how many."""
    lists = max(1, megabytes * _MEGABYTE // (_LIST * _MESSAGE_BYTES))
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{port}", partitioner="round-robin", acks="flushed"
    )
    rests = [os.urandom(_MESSAGE_BYTES - 4) for _ in range(_LIST)]
    with Producer(config) as producer:
        for number in range(lists):
            producer.send(topic, [number.to_bytes(4) + rest for rest in rests])
    return lists * _LIST


def peaks(folder: Path, broker: BrokerProcess, does: str, topics: dict[str, int]) -> list[Any]:
    """The most memory that Spark took for each topic, after a first one that warms it up."""
    settings = {
        "servers": f"127.0.0.1:{broker.port}",
        "local": str(folder),
        "topics": list(topics),
        "does": does,
    }
    file = folder / "settings.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    errors = folder / "driver.err"
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            [sys.executable, str(_DRIVER), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **spark_environment()},
        ) as driver,
    ):
        assert driver.stdin is not None
        assert driver.stdout is not None
        found = []
        try:
            for topic, count in topics.items():
                assert driver.stdout.readline() == f"ready {topic}\n", errors.read_text()[-3000:]
                with PeakMemory(driver.pid) as memory:
                    driver.stdin.write("go\n")
                    driver.stdin.flush()
                    assert driver.stdout.readline() == f"done {count}\n", errors.read_text()[-3000:]
                assert memory.samples
                found.append({name: memory.peaks[name] for name in ("java", "python")})
        finally:
            driver.stdin.close()
            driver.wait(60)
    return found


def check_flat(what: str, little: dict[str, int], much: dict[str, int], **figures: Any) -> None:
    in_mb = {
        f"{name}_{size}": peak[name] // _MEGABYTE
        for name in ("java", "python")
        for size, peak in (("little", little), ("much", much))
    }
    report(what, **figures, **in_mb)
    assert in_mb["java_much"] - in_mb["java_little"] < _DRIVER_MB
    assert in_mb["python_much"] - in_mb["python_little"] < _WORKER_MB


@pytest.mark.parametrize("does", ["read", "load"])
def test_ten_gigabytes_take_no_more_memory_than_one(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, does: str
) -> None:
    broker = start_broker(num_partitions=2)
    megabytes = times(10_000)
    topics = {
        "first": fill(broker.port, "first", 100),
        "tenth": fill(broker.port, "tenth", megabytes // 10),
        "whole": fill(broker.port, "whole", megabytes),
    }
    _, little, much = peaks(tmp_path, broker, does, topics)
    check_flat(f"spark memory, {does}", little, much, megabytes=megabytes)


@pytest.mark.parametrize("does", ["read", "load"])
def test_a_thousand_partitions_take_no_more_memory_than_two(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, does: str
) -> None:
    partitions = times(_PARTITIONS)
    broker = start_broker(num_partitions=2, topics={"many": {"partitions": partitions}})
    megabytes = max(100, partitions * _LIST * _MESSAGE_BYTES // _MEGABYTE)
    topics = {
        "first": fill(broker.port, "first", 100),
        "two": fill(broker.port, "two", megabytes),
        "many": fill(broker.port, "many", megabytes),
    }
    _, little, much = peaks(tmp_path, broker, does, topics)
    check_flat(f"spark memory, {does}", little, much, partitions=partitions)
