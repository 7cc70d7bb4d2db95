"""A mirror between two brokers: how much passes, how much later, and in how much memory.

Two brokers, each a cluster with its own coordination, and `hermes mirror` between them, are three
processes with their default settings. Of a topic that is there already the mirror's rate counts
from the target's first byte on. Beside that, in turns: one consumer (`SimpleConsumer`, iterated
over) that reads such a topic at the source and one producer (`Producer`, lists of 50, unanswered)
that writes such a one to the target, two processes at the same time; their rate is that of the
slower one.
"""

import multiprocessing
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.measurements.latency import median, message_latencies
from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    connect,
    encoded_produces,
    latest_offset,
    make_payloads,
    produce,
    wait_until_visible,
)
from bench.support.processes import Program
from bench.support.report import Row, bound_row, floor_row, ratio_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, PeakMemory
from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer

__all__ = ["measure"]

_TARGET_RATE = 200.0
_TARGET_SHARE = 0.6
_TARGET_ADDED_MS = 20.0
# Python with what it has imported, and the mirror's default buffer twice.
_TARGET_MEGABYTES = 150.0
_LIST = 50
_FETCH_BYTES = 1 << 20
_LATENCY_RATE = 100
_DISTINCT_PAYLOADS = 1_000
_THOUSAND, _MILLION = 1e3, 1e6
_MOST_ROUNDS = 3
_COORDINATED = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}


def measure(settings: Settings) -> list[Row]:
    """Measure the rate, the memory while it is reached, and the added latency."""
    count = int(settings.messages * _MILLION) // 5_000 * 5_000
    mirrored: list[float] = []
    beside: list[float] = []
    peaks: list[float] = []
    for _ in range(min(settings.rounds, _MOST_ROUNDS)):
        with _two_brokers(settings) as (directory, source, target):
            produce(source.address, encoded_produces(_LIST), count)
            wait_until_visible(source.address, count * STORED_BYTES)
            beside.append(_consumer_and_producer(source.address, target.address, count))
            with _mirror(directory, source, target) as mirror, PeakMemory(mirror.pid) as memory:
                mirrored.append(_rate_of_arrival(target.address, count))
            peaks.append(memory.peak_bytes / MEGABYTE)
    added, direct, through = _latencies(settings)
    name, unit = "mirror, 200-byte messages in batches of 50", "k messages/s"
    return [
        floor_row(name, unit, mirrored, at_least=_TARGET_RATE),
        ratio_row(
            name,
            unit,
            mirrored,
            beside,
            beside_name="a consumer and a producer",
            at_least=_TARGET_SHARE,
        ),
        bound_row(
            "mirror, added latency at 100 messages/s, p50",
            "ms",
            added,
            below=_TARGET_ADDED_MS,
            note=f"{through:.1f} ms through the mirror, {direct:.1f} ms without",
        ),
        bound_row(
            "mirror, resident memory while it catches up",
            "MB",
            statistics.median(peaks),
            below=_TARGET_MEGABYTES,
            note=f"{count * STORED_BYTES / MEGABYTE:.0f} MB passed",
        ),
    ]


@contextmanager
def _two_brokers(settings: Settings) -> Iterator[tuple[Path, HermesBroker, HermesBroker]]:
    with (
        settings.workspace() as directory,
        HermesBroker(directory / "source", **_COORDINATED) as source,
        HermesBroker(directory / "target", **_COORDINATED) as target,
    ):
        yield directory, source, target


@contextmanager
def _mirror(directory: Path, source: HermesBroker, target: HermesBroker) -> Iterator[Program]:
    """Run a mirror of the topics `bench` and `latency`."""
    values: dict[str, Any] = {
        "name": "bench",
        "sources": [{"name": "source", "brokers": "{}:{}".format(*source.address)}],
        "target": {"brokers": "{}:{}".format(*target.address)},
        "whitelist": f"{TOPIC},latency",
    }
    path = directory / "mirror.yaml"
    path.write_text(yaml.safe_dump(values))
    hermes = shutil.which("hermes", path=str(Path(sys.executable).parent)) or "hermes"
    with Program("mirror", [hermes, "mirror", "--config", str(path)], directory=directory) as made:
        yield made


def _rate_of_arrival(target: Address, count: int) -> float:
    """Thousands of messages per second, from the first that is there to the last."""
    end = count * STORED_BYTES
    before = _end(target)
    with connect(target) as connection:
        while (first := latest_offset(connection)) == before:
            time.sleep(0.001)
        began = time.perf_counter()
        while (reached := latest_offset(connection)) < before + end:
            time.sleep(0.001)
    return (reached - first) / STORED_BYTES / (time.perf_counter() - began) / _THOUSAND


def _end(address: Address) -> int:
    with connect(address) as connection:
        return latest_offset(connection)


def _consumer_and_producer(source: Address, target: Address, count: int) -> float:
    """Thousands of messages per second of the slower one, while both work."""
    spawning = multiprocessing.get_context("spawn")
    results: Any = spawning.Queue()
    together = spawning.Barrier(2)
    works = [
        spawning.Process(target=work, args=(address, count, together, results))
        for work, address in ((_consume, source), (_publish, target))
    ]
    for each in works:
        each.start()
    seconds = [results.get() for _ in works]
    for each in works:
        each.join()
    return count / max(seconds) / _THOUSAND


def _consume(address: Address, count: int, together: Any, results: Any) -> None:
    offset = consumed = 0
    with SimpleConsumer(*address) as consumer:
        consumer.metadata([TOPIC])
        together.wait()
        began = time.perf_counter()
        while consumed < count:
            for message, next_offset in consumer.fetch(
                FetchRequest(TOPIC, 0, offset, _FETCH_BYTES)
            ):
                if message.payload:
                    consumed += 1
                offset = next_offset
    results.put(time.perf_counter() - began)


def _publish(address: Address, count: int, together: Any, results: Any) -> None:
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    lists = [payloads[start : start + _LIST] for start in range(0, len(payloads), _LIST)]
    with Producer(ProducerConfig(broker_list="0:{}:{}".format(*address), acks="none")) as producer:
        together.wait()
        began = time.perf_counter()
        for number in range(count // _LIST):
            producer.send("beside", lists[number % len(lists)])
        producer.flush()
    wait_until_visible(address, count * STORED_BYTES, topic="beside")
    results.put(time.perf_counter() - began)


def _latencies(settings: Settings) -> tuple[float, float, float]:
    """The added median, that without the mirror, and that through it, in ms."""
    count = int(settings.latency_seconds * _LATENCY_RATE / 2)
    with _two_brokers(settings) as (directory, source, target):
        message_latencies(source.address, source.address, _LATENCY_RATE)
        with _mirror(directory, source, target):
            behind = _end_of_latency(source.address)
            while _end_of_latency(target.address) < behind:
                time.sleep(0.05)
            through = median(message_latencies(source.address, target.address, count))
        direct = median(message_latencies(source.address, source.address, count))
    return through - direct, direct, through


def _end_of_latency(address: Address) -> int:
    with connect(address) as connection:
        return latest_offset(connection, "latency")
