"""What copies cost at rest, how fast one that lost all catches up, and many that lose a broker."""

import os
import shutil
import socket
import statistics
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from bench.measurements.kafka import produce
from bench.peers.kafka import create_topics
from bench.support.clusters import HermesCluster
from bench.support.load import MESSAGE_BYTES, make_payloads
from bench.support.report import Row, bound_row, ratio_row, skipped_row
from bench.support.servers import ZooKeeper
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE

__all__ = ["measure"]

_PARTITIONS = 3
_AT_ONCE = 50
_IDLE_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20

_CATCHING_UP = 0.5
_LED_SECONDS, _LED_CPU_SECONDS, _WRITES = 5.0, 3.0, 200
_IDLE_CORES, _IDLE_MEGABYTES = 0.03, 40.0


def measure(settings: Settings) -> list[Row]:
    """On three brokers, each with a copy of everything."""
    if find_spec("confluent_kafka") is None:
        return [skipped_row("confluent-kafka", "pip install confluent-kafka")]
    if not ZooKeeper.is_installed():
        return [skipped_row("replicas", "apt-get install zookeeper")]
    rows: list[Row] = []
    with settings.workspace() as directory:
        with HermesCluster(directory / "full") as cluster:
            rows += _catching_up(cluster, directory, settings)
        with HermesCluster(directory / "many") as cluster:
            rows += _many(cluster, settings.topics)
    return rows


# -- catching up --------------------------------------------------------------------------------


def _catching_up(cluster: HermesCluster, directory: Path, settings: Settings) -> list[Row]:
    """A follower's disk is wiped; beside it as much goes through a socket to a disk."""
    size, topic = int(settings.copied_gigabytes * 1e9), "full"
    create_topics(cluster.address, [topic], 1, 3)
    cluster.wait_until_in_sync(topic)
    produce(cluster.bootstrap, topic, make_payloads(1_000), size // MESSAGE_BYTES)
    cluster.wait_until_in_sync(topic)
    follower = min({1, 2, 3} - {cluster.leader(topic)})
    copied: list[float] = []
    raw: list[float] = []
    for _ in range(settings.rounds):
        raw.append(size / MEGABYTE / _raw_copy(directory, size))
        cluster.kill(follower)
        cluster.wait_until(lambda: len(cluster.partition(topic).isrs) == 2, "it stays in sync")
        shutil.rmtree(cluster.log_dir(follower))
        cluster.start(follower)  # what its start takes isn't counted
        begun = time.perf_counter()
        cluster.wait_until_in_sync(topic)
        taken = time.perf_counter() - begun
        copied.append(cluster.stored_bytes(follower, topic) / MEGABYTE / taken)
    return [
        ratio_row(
            f"a copy of {settings.copied_gigabytes:g} GB is made anew",
            "MB/s",
            copied,
            raw,
            beside_name="a socket to a file, one fdatasync",
            at_least=_CATCHING_UP,
        )
    ]


def _raw_copy(directory: Path, size: int) -> float:
    """Copy a file over loopback into another one, and flush that; the seconds that it takes."""
    source, target = directory / "source", directory / "target"
    chunk = os.urandom(_CHUNK_BYTES)
    with source.open("wb") as file:
        for _ in range(size // _CHUNK_BYTES):
            file.write(chunk)
    begun = time.perf_counter()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sending = threading.Thread(target=_send, args=(source, server.getsockname()[1]))
        sending.start()
        connection, _ = server.accept()
        with connection, target.open("wb", buffering=0) as file:
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            while got := connection.recv_into(buffer):
                file.write(buffer[:got])
            os.fdatasync(file.fileno())
        sending.join()
    taken = time.perf_counter() - begun
    source.unlink()
    target.unlink()
    return taken


def _send(source: Path, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, source.open("rb") as file:
        connection.sendfile(file)


# -- many topics --------------------------------------------------------------------------------


def _many(cluster: HermesCluster, count: int) -> list[Row]:
    """At rest, without and with copies; then a broker is killed."""
    before = _rest(cluster)
    names = [f"topic-{number}" for number in range(count)]
    for first in range(0, count, _AT_ONCE):
        create_topics(cluster.address, names[first : first + _AT_ONCE], _PARTITIONS, 3)
    cluster.wait_until(lambda: _are_in_sync(cluster), "not all copies are in sync")
    after = _rest(cluster)
    replicas = count * _PARTITIONS
    rows = [
        bound_row(f"idle, {replicas:,} copies on each broker: {what}", unit, value, below=below)
        for what, unit, value, below in (
            ("processor", "cores", after[0] - before[0], _IDLE_CORES),
            ("memory", "MB", after[1] - before[1], _IDLE_MEGABYTES),
        )
    ]
    return rows + _losing_one(cluster, count)


def _rest(cluster: HermesCluster) -> tuple[float, float]:
    """What a broker needs that nobody asks for anything: cores, and MB; the mean of all."""
    begun, before = time.perf_counter(), cluster.cpu_seconds()
    time.sleep(_IDLE_SECONDS)
    used = (cluster.cpu_seconds() - before) / (time.perf_counter() - begun)
    return used / 3, statistics.mean(cluster.resident_megabytes())


def _are_in_sync(cluster: HermesCluster) -> bool:
    return all(len(each.isrs) == 3 and each.leader != -1 for each in cluster.partitions())


def _losing_one(cluster: HermesCluster, count: int) -> list[Row]:
    lost = 3  # clients keep asking the first
    writes, used = cluster.coordination_writes(), cluster.cpu_seconds(but=lost)
    cluster.kill(lost)
    begun = time.perf_counter()
    cluster.wait_until(_led_without(cluster, lost), "not all are led")
    taken = time.perf_counter() - begun
    what = f"{count:,} topics of {_PARTITIONS} partitions lose a broker"
    return [
        bound_row(f"{what}: {label}", unit, value, below=below)
        for label, unit, value, below in (
            ("all led again", "s", taken, _LED_SECONDS),
            ("processor of the others", "s", cluster.cpu_seconds() - used, _LED_CPU_SECONDS),
            ("writes to ZooKeeper", "", cluster.coordination_writes() - writes, _WRITES),
        )
    ]


def _led_without(cluster: HermesCluster, lost: int) -> Callable[[], bool]:
    return lambda: all(each.leader not in (-1, lost) for each in cluster.partitions())
