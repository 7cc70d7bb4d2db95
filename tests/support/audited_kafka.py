"""A topic of Kafka's format, its clients all confluent-kafka's, and its audit, through kills.

Idempotent producers with stamps in headers and others without any, a process that counts, one group
that counts and one that only commits. The broker, the counter and producers are killed. Then the
same messages again, as tiers that lost one, have one twice, or both in the same window: the audit
must name each of them, and nothing else.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

from audited import FAULTY_TIERS, check_faults, report_faults
from confluent_kafka import Consumer
from kafka_mirror_kills import Leaders
from mirror_clusters import HERMES, ClusterProcess, eventually
from replicated_cluster import ReplicatedCluster
from server_process import free_ports

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.clients import AuditedGroup
from hermes.audit.comparing import Report
from hermes.audit.counting import TierCounter
from hermes.client import FetchRequest, ProducerConfig
from hermes.protocol import RecordSet
from hermes.protocol.records import Record, encode_batch
from hermes.protocol.stamps import read_stamp
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.options import ConnectionOptions, RetryOptions

__all__ = ["AuditedKafkaTopic"]

_TOPIC = "clicks"
_WINDOW_MS = 1000
_PRODUCERS = 3
_PARTITIONS = 2
_PATIENCE_SECONDS = 300.0
_BATCH = 500

_PRODUCER = """
import os, signal, sys
import confluent_kafka
from hermes.audit.clients import AuditedProducer
from hermes.client import ProducerConfig
address, connect, count, window_ms, kind = sys.argv[1:]
producer = confluent_kafka.Producer(
    {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "compression.type": "lz4",
        "log_level": 0,
    }
)
if kind != "plain":
    audited = AuditedProducer(ProducerConfig(zookeeper_connect=connect), window_ms=int(window_ms))
    print(f"{audited._producer.tier.process:016x}", flush=True)
stored = 0
for number in range(int(count)):
    value, options = b"click %d" % number + b"x" * 50, {}
    def told(error, _, stamped=None):
        global stored
        assert error is None, error
        stored += 1
        if stamped is not None:
            stamped.settle(True)
    if kind != "plain":
        stamped = audited.stamp("clicks", value)
        options["headers"] = [stamped.header]
        told.__defaults__ = (stamped,)
    while True:
        try:
            producer.produce("clicks", value, on_delivery=told, **options)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)
    if kind == "dies" and number > 1000 and stored:
        os.kill(os.getpid(), signal.SIGKILL)
assert producer.flush() == 0
if kind != "plain":
    audited.close()
"""


class AuditedKafkaTopic:
    """One run.

    Args:
        directory: for the broker.
        messages: how many the producers send that aren't killed; as many more, a tenth, unstamped.
        kills: how often each of the broker, the counter and a producer is killed.
        copies: brokers that keep copies, instead of one; then it is who leads that is killed.
    """

    def __init__(
        self,
        directory: Path,
        messages: int,
        kills: int,
        copies: ReplicatedCluster | None = None,
    ) -> None:
        self._messages = messages
        self._kills = kills
        self._killed: set[str] = set()
        self._victim: Any
        if copies is None:
            (port,) = free_ports(1)
            self._address = f"127.0.0.1:{port}"
            listener = f"tcp:{port}:interface=127.0.0.1"
            self._victim = cluster = ClusterProcess(directory, kafka_listen=listener)
            self._connect, self._stop = cluster.connect, cluster.stop
        else:
            self._address = copies.bootstrap
            self._victim = Leaders(copies, _TOPIC, _PARTITIONS)
            self._connect, self._stop = copies.coordination, lambda: 0

    def run(self) -> dict[str, int]:
        """Run it all; raises AssertionError for whatever isn't as it must be."""
        try:
            with self._reader() as reader:
                settings = {"format": "kafka", "partitions": _PARTITIONS}
                reader.ask(min(reader.brokers()), lambda each: each.create_topic(_TOPIC, settings))
            self._produce()
            stored = sum(len(records) for _, _, _, records in self._stored())
            self._read(stored)
            windows = self._without_faults(stored)
            self._with_faults()
        finally:
            self._stop()
        return {"messages": stored, "windows": windows, "kills": 3 * self._kills}

    # -- the pipeline ---------------------------------------------------------------------------

    def _produce(self) -> None:
        share = self._messages // _PRODUCERS
        counts = [share] * (_PRODUCERS - 1) + [self._messages - share * (_PRODUCERS - 1)]
        running = [self._producer(count, "counts") for count in counts]
        running.append(self._producer(self._messages // 10, "plain"))
        counter = self._counter()
        for _ in range(self._kills):
            with self._producer(10**9, "dies") as victim:
                assert victim.stdout is not None
                self._killed.add(victim.stdout.readline().strip())
                assert victim.wait() == -signal.SIGKILL
            counter.kill()
            counter.wait()
            self._victim.kill()
            self._victim.start()
            counter = self._counter()
        for process in running:
            with process:
                assert process.wait() == 0
        counter.terminate()
        counter.wait()

    def _producer(self, count: int, kind: str) -> "subprocess.Popen[str]":
        places = [self._address, self._connect, str(count), str(_WINDOW_MS), kind]
        return subprocess.Popen(
            [sys.executable, "-c", _PRODUCER, *places], stdout=subprocess.PIPE, text=True
        )

    def _counter(self) -> "subprocess.Popen[bytes]":
        where = ["-Z", self._connect, "--window", str(_WINDOW_MS / 1000)]
        return subprocess.Popen([HERMES, "audit", *where, "count", "-q"], stderr=subprocess.DEVNULL)

    def _read(self, count: int) -> None:
        config = ProducerConfig(zookeeper_connect=self._connect)
        counted = AuditedGroup("counts", config, window_ms=_WINDOW_MS)
        for group in ("counts", "commits"):
            consumer = Consumer(
                {
                    "bootstrap.servers": self._address,
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe([_TOPIC])
            read = 0
            while read < count:
                for each in consumer.consume(min(10_000, count - read), timeout=0.2):
                    assert each.error() is None, each.error()
                    read += 1
                    if group == "counts":
                        time_ms = each.timestamp()[1]
                        counted.finished(
                            each.topic(), each.value(), each.key(), each.headers(), time_ms
                        )
            assert counted.publish()
            consumer.commit(asynchronous=False)
            consumer.close()
        assert counted.close()

    # -- its audit ------------------------------------------------------------------------------

    def _audit(self) -> Audit:
        addresses = [ClusterAddress("main", self._connect)]
        return Audit(addresses, grace_seconds=0, window_ms=_WINDOW_MS)

    def _judged(self, auditing: Audit, tiers: set[str]) -> Report:
        """The report, once all windows are over and counted by these tiers."""

        def judged() -> Report | None:
            assert auditing.count() == []
            report = auditing.look(topics=[_TOPIC])
            states = {each.state for each in report.windows}
            found = {each.tier for each in report.windows}
            return report if found >= tiers and not states & {"open", "behind"} else None

        found: Report = eventually(judged, "windows stay open", _PATIENCE_SECONDS)
        return found

    def _without_faults(self, stored: int) -> int:
        tiers = {"cluster:main", "group:counts", "group:commits"}
        with self._audit() as auditing:
            report = self._judged(auditing, tiers)
        assert report.differences == []
        assert report.losses == []
        plain = self._messages // 10
        for tier in tiers:
            of_tier = [each for each in report.windows if each.tier == tier]
            stamped = sum(each.found for each in of_tier if each.against == "producers")
            assert stamped == stored - plain, tier
            unsure = {part.process for each in of_tier for part in each.parts}
            assert unsure <= self._killed, tier
        for tier in tiers - {"cluster:main"}:
            of_tier = [each for each in report.windows if each.tier == tier]
            found = [each for each in of_tier if each.against == "cluster:main"]
            assert sum(each.found for each in found) == plain, tier
            assert {each.state for each in found} == {"complete"}
        return len({each.start_ms for each in report.windows})

    def _with_faults(self) -> None:
        report_faults(self._connect, _WINDOW_MS, self._count)
        with self._audit() as auditing:
            check_faults(self._judged(auditing, set(FAULTY_TIERS)), _TOPIC)

    def _count(self, counter: TierCounter, fault: str, *, in_ranges: bool) -> None:
        """Count what there is, with a fault at the first place that is fit for it."""
        is_done = False
        for log, start, end, records in self._stored():
            if not is_done and (place := self._fit(records)) is not None:
                is_done = True
                records = _faulty(records, place, fault)
            if not in_ranges:
                counter.add_messages(_TOPIC, records)
                continue
            renumbered = [each._replace(offset=n) for n, each in enumerate(records)]
            whole = RecordSet(encode_batch(renumbered), 0)
            counter.add_records(_TOPIC, whole, log=log, start=start, end=end)
            counter.reached(_TOPIC, log)
        assert is_done

    def _fit(self, records: Sequence[Record]) -> int | None:
        """The first of two neighbours of a window and of a process that ended well."""

        def place_of(record: Record) -> tuple[str, int]:
            values = [value for name, value in record.headers if name == "hermes-audit"]
            stamp = read_stamp(values[0] or b"")[0] if values else None
            if stamp is None:
                return "", 0
            return f"{stamp.process:016x}", stamp.time_ms // _WINDOW_MS

        places = [place_of(each) for each in records]
        for place, (one, following) in enumerate(pairwise(places)):
            if one == following and one[0] and one[0] not in self._killed:
                return place
        return None

    def _reader(self) -> ClusterReader:
        return ClusterReader(ConnectionOptions(zookeeper=self._connect), RetryOptions(60, 0.1))

    def _stored(self) -> Iterator[tuple[str, int, int, list[Record]]]:
        """What there is: log, first offset, that after the last, and some records."""
        with self._reader() as reader:
            for partition in reader.partitions([_TOPIC])[_TOPIC]:
                log, number = f"{partition.broker_id}-{partition.partition}", partition.partition
                held = reader.bounds([partition])[partition]
                assert held is not None
                offset = held.earliest
                while offset < held.latest:
                    request = FetchRequest(_TOPIC, number, offset, 1 << 20)
                    fetched = reader.ask_leader(partition, methodcaller("fetch", request))
                    assert isinstance(fetched, RecordSet)
                    for records in fetched.runs(_BATCH):
                        if records:
                            start, following = records[0].offset, records[-1].offset + 1
                            yield log, start, following, records
                    offset = fetched.next_offset


def _faulty(records: list[Record], place: int, fault: str) -> list[Record]:
    if fault == "dropped":
        return [*records[:place], *records[place + 1 :]]
    if fault == "doubled":
        return [*records, records[place]]
    return [*records[:place], records[place + 1], *records[place + 1 :]]
