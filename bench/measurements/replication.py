"""Topics with three copies on three brokers, beside Kafka 4 and NATS likewise, in turns.

Hermes has flushed a message on each in-sync broker when it acknowledges it; Kafka has it in their
page caches, and on their disks only with `flush.messages=1`. Both keep their defaults otherwise;
coordination is one ZooKeeper. 200-byte messages by confluent-kafka with its defaults, acks=all.
NATS has what nobody has flushed for two minutes, or with `sync_interval: always` what all have;
its client is nats.go, with 4,000 messages under way.
"""

import os
import statistics
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count as numbers
from typing import Any

from bench.measurements.kafka import end_to_end, produce, quantile
from bench.peers.kafka import create_topics
from bench.peers.nats import NatsCluster
from bench.peers.system import NotInstalled
from bench.support.clusters import Cluster, HermesCluster, KafkaCluster
from bench.support.load import MESSAGE_BYTES, make_payloads
from bench.support.report import Row, bound_row, ratio_row, skipped_row
from bench.support.servers import ZooKeeper
from bench.support.settings import Settings

__all__ = ["measure"]

Side = Cluster | NatsCluster

_HERMES, _ALONE = "Hermes", "Hermes, one copy"
_KAFKA, _FLUSHING = "Kafka", "Kafka, flush.messages=1"
_NATS, _NATS_FLUSHING = "NATS", "NATS, sync_interval: always"
_COPIES = 3
_RATE = 100
_WARM_UP_MESSAGES = 100
_DISTINCT_PAYLOADS = 1_000
_PATIENCE_SECONDS = 120.0

_OF_KAFKA, _OF_FLUSHING = 0.5, 1.5
_OF_NATS = 0.3
_TIMES_ONE_COPY = 3.2
_TIMES_LATENCY = 2.0
_P50_SECONDS, _P99_SECONDS = 1.0, 2.0


def measure(settings: Settings) -> list[Row]:
    """Throughput and what it costs, latency, and how soon a killed leader is replaced."""
    if find_spec("confluent_kafka") is None:
        return [skipped_row("confluent-kafka", "pip install confluent-kafka")]
    if not ZooKeeper.is_installed():
        return [skipped_row("replication", "apt-get install zookeeper")]
    missing: list[Row] = []
    with settings.workspace() as directory, ExitStack() as stack:
        hermes = stack.enter_context(HermesCluster(directory))
        sides: dict[str, Side] = {_HERMES: hermes, _ALONE: hermes}
        try:
            kafka = stack.enter_context(KafkaCluster(directory))
            sides |= {_KAFKA: kafka, _FLUSHING: kafka}
        except NotInstalled as error:
            missing.append(skipped_row(_KAFKA, str(error)))
        try:
            for name, flushes in ((_NATS, False), (_NATS_FLUSHING, True)):
                place = directory / f"nats-{flushes}"
                sides[name] = stack.enter_context(NatsCluster(place, flushes))
        except NotInstalled as error:
            missing.append(skipped_row(_NATS, str(error)))
        rows = _throughput(sides, settings.rounds, int(settings.messages * 1e6))
        rows += _latencies(sides, int(settings.latency_seconds * _RATE))
        rows += _killed_leaders(sides, settings.rounds)
    return [*rows, *missing]


def _make_topic(name: str, cluster: Cluster, topic: str) -> None:
    more: dict[str, object] = {"flush_messages": 1} if name == _FLUSHING else {}
    copies = 1 if name == _ALONE else _COPIES
    create_topics(cluster.address, [topic], 1, copies, **more)
    if copies == _COPIES:
        cluster.wait_until_in_sync(topic)


# -- throughput ---------------------------------------------------------------------------------


def _throughput(sides: dict[str, Side], rounds: int, count: int) -> list[Row]:
    rates: defaultdict[str, list[float]] = defaultdict(list)
    taken: defaultdict[str, list[float]] = defaultdict(list)
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    for number in range(rounds + 1):
        for name, cluster in sides.items():
            topic = f"bench-{number}-{list(sides).index(name)}"
            if isinstance(cluster, NatsCluster):
                before = cluster.cpu_seconds()
                rate = cluster.produce(topic, count)
            else:
                _make_topic(name, cluster, topic)
                before = cluster.cpu_seconds()
                rate = _produce(name, cluster, topic, payloads, count)
            if number:  # the first one warms up
                rates[name].append(rate)
                taken[name].append((cluster.cpu_seconds() - before) * 1e6 / count)
    what = f"produce, acks=all, {_COPIES} copies"
    targets = {_KAFKA: _OF_KAFKA, _NATS: _OF_NATS}
    targets |= dict.fromkeys((_FLUSHING, _NATS_FLUSHING), _OF_FLUSHING)
    rows = [
        ratio_row(
            what,
            "messages/s",
            rates[_HERMES],
            rates[name],
            beside_name=name,
            at_least=targets.get(name),
            note=f"{statistics.median(taken[name]):.1f} s of processor time a million beside it",
        )
        for name in sides
        if name != _HERMES
    ]
    alone = statistics.median(taken[_ALONE])
    rows.append(
        bound_row(
            "processor time of all brokers, a million messages",
            "s",
            statistics.median(taken[_HERMES]),
            below=round(_TIMES_ONE_COPY * alone, 2),
            beside=alone,
            beside_name=_ALONE,
        )
    )
    return rows


def _produce(name: str, cluster: Cluster, topic: str, payloads: list[bytes], count: int) -> float:
    """Produce; how many messages a second."""
    rate = produce(cluster.bootstrap, topic, payloads, count)
    if name != _ALONE and cluster.least_stored_bytes(topic) < count * MESSAGE_BYTES:
        raise RuntimeError(f"{name} has acknowledged what isn't in all copies")
    return rate


# -- latency ------------------------------------------------------------------------------------


def _latencies(sides: dict[str, Side], count: int) -> list[Row]:
    taken = {}
    for name, cluster in sides.items():
        # Else a flush waits for what sides that don't flush have written before.
        os.sync()
        for what, each in (("warm", _WARM_UP_MESSAGES), ("latency", count)):
            topic = f"{what}-{list(sides).index(name)}"
            if isinstance(cluster, NatsCluster):
                taken[name] = cluster.end_to_end(topic, each)
            else:
                _make_topic(name, cluster, topic)
                taken[name] = end_to_end(cluster.bootstrap, topic, each)
    rows = []
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        values = {name: quantile(each, share) for name, each in taken.items()}
        what = f"end to end at {_RATE}/s, linger.ms=0, {_COPIES} copies, {label}"
        below = {_ALONE: _TIMES_LATENCY * values[_ALONE]}
        if label == "p99":
            flushing = (_FLUSHING, _NATS_FLUSHING)
            below |= {name: values[name] for name in flushing if name in values}
        for name in values:
            if name in below:
                bound = round(below[name], 2)
                rows.append(
                    bound_row(
                        what,
                        "ms",
                        values[_HERMES],
                        below=bound,
                        beside=values[name],
                        beside_name=name,
                    )
                )
            elif name != _HERMES:
                rows.append(Row(what, "ms", values[_HERMES], values[name], name))
    return rows


# -- killed leaders -----------------------------------------------------------------------------


def _killed_leaders(sides: dict[str, Side], kills: int) -> list[Row]:
    gaps: dict[str, list[float]] = {}
    for name, cluster in sides.items():
        topic = "killed"
        if isinstance(cluster, NatsCluster):
            gaps[name] = cluster.gaps(topic, kills)
            continue
        if name not in (_HERMES, _KAFKA):
            continue
        _make_topic(name, cluster, topic)
        with _SteadyLoad(cluster.bootstrap, topic) as load:
            gaps[name] = [_kill_leader(cluster, topic, load) for _ in range(kills)]
    note = "; ".join(
        f"{name}: " + " ".join(f"{each:.2f}" for each in sorted(runs))
        for name, runs in gaps.items()
    )
    what = "leader killed to the next acknowledged message"
    middle = {name: statistics.median(runs) for name, runs in gaps.items()}
    longest = {name: max(runs) for name, runs in gaps.items()}
    return [
        bound_row(
            f"{what}, {label}",
            "s",
            values[_HERMES],
            below=below,
            beside=values.get(_KAFKA),
            beside_name=_KAFKA,
            note=note if label == "p50" else "",
        )
        for label, values, below in (
            ("p50", middle, _P50_SECONDS),
            ("longest", longest, _P99_SECONDS),
        )
    ]


def _kill_leader(cluster: Cluster, topic: str, load: "_SteadyLoad") -> float:
    """Kill it; the seconds until a message is acknowledged that was sent after that."""
    cluster.wait_until_in_sync(topic)
    load.next_acknowledged(time.perf_counter())
    leader = cluster.leader(topic)
    cluster.kill(leader)
    killed = time.perf_counter()
    taken = load.next_acknowledged(killed) - killed
    cluster.start(leader)
    return taken


class _SteadyLoad:
    """Sends a hundred messages a second, until the block ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topic = topic
        self._known = threading.Condition()
        self._newest: tuple[float, float] = (0.0, 0.0)
        self._failures: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()

    def next_acknowledged(self, sent_after: float) -> float:
        """Wait for a message that was sent after a moment; when it was acknowledged."""
        with self._known:
            if not self._known.wait_for(
                lambda: self._failures or self._newest[0] > sent_after, _PATIENCE_SECONDS
            ):
                raise TimeoutError(f"nothing is acknowledged in {_PATIENCE_SECONDS} s")
        if self._failures:
            raise RuntimeError(f"a message failed: {self._failures[0]}")
        return self._newest[1]

    def _run(self) -> None:
        begin = time.perf_counter()
        for number in numbers():
            while (left := begin + number / _RATE - time.perf_counter()) > 0:
                self._producer.poll(left)
            if self._stopping.is_set():
                break
            sent = time.perf_counter()
            self._producer.produce(
                self._topic,
                b"%f" % sent,
                on_delivery=lambda error, _, sent=sent: self._told(sent, error),
            )
        self._producer.flush(_PATIENCE_SECONDS)

    def _told(self, sent: float, error: Any) -> None:
        with self._known:
            if error is not None:
                self._failures.append(error)
            elif sent > self._newest[0]:
                self._newest = (sent, time.perf_counter())
            self._known.notify_all()
