"""A pipeline from producers over a mirror to a group, with kills of producers, and its audit.

Then the same messages again, as tiers that lost one, have one twice, or both in the same window:
the audit must name each of them, and nothing else.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

from audited import FAULTY_TIERS, check_faults, report_faults
from mirror_clusters import ClusterProcess, Clusters, eventually

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.comparing import Report
from hermes.audit.consumers import AuditedConnector
from hermes.audit.counting import TierCounter
from hermes.audit.events import hex_id
from hermes.client import EARLIEST, LATEST, FetchRequest, MessageSet, SimpleConsumer
from hermes.client.groups import ConsumerConfig
from hermes.errors import ConsumerTimeoutError
from hermes.protocol import encode_message_set
from hermes.protocol.stamps import read_stamp

__all__ = ["AuditedPipeline"]

_TOPIC = "clicks"
_WINDOW_MS = 1000
_PRODUCERS = 4
_PARTITIONS = 2
_PATIENCE_SECONDS = 300.0

_PRODUCER = """
import os, signal, sys, time
from hermes.client import Producer, ProducerConfig
connect, count, window, dies = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
with Producer(ProducerConfig(zookeeper_connect=connect, producer_type="async",
        callback_handler="audit", callback_handler_options={"window": window})) as producer:
    for first in range(0, count, 100):
        begun = time.time() // window
        producer.send("clicks", [b"x" * 100] * min(100, count - first))
        if dies and first >= 1000:
            producer.flush()
            producer.send("clicks", [b"x" * 100] * 1000)  # of which nobody knows what arrives
            if time.time() // window == begun:  # so what was flushed isn't reported yet
                os.kill(os.getpid(), signal.SIGKILL)
"""


class AuditedPipeline:
    """One run.

    Args:
        clusters: makes what is needed.
        messages: how many the producers send that aren't killed.
        kills: how many producers are killed.
    """

    def __init__(self, clusters: Clusters, messages: int, kills: int) -> None:
        self._messages = messages
        self._kills = kills
        self._killed: set[str] = set()
        self._east, self._west = clusters.cluster("east"), clusters.cluster("west")
        self._mirror = clusters.mirror(
            self._east, self._west, audit=True, audit_window=f"{_WINDOW_MS}ms"
        )

    def run(self) -> dict[str, int]:
        """Run it all; raises AssertionError for whatever isn't as it must be."""
        self._produce()
        sent = self._east.count(_TOPIC, _PARTITIONS)
        assert sent >= self._messages
        eventually(
            lambda: self._west.count(_TOPIC, _PARTITIONS) == sent, "not everything was mirrored"
        )
        self._read(sent)
        windows = self._without_faults(sent)
        self._with_faults()
        return {"messages": sent, "windows": windows, "kills": self._kills}

    def _produce(self) -> None:
        share = self._messages // _PRODUCERS
        counts = [share] * (_PRODUCERS - 1) + [self._messages - share * (_PRODUCERS - 1)]
        running = [self._producer(count) for count in counts]
        for _ in range(self._kills):
            with self._producer(10**9, "dies") as victim:
                assert victim.wait() == -signal.SIGKILL
        for process in running:
            assert process.wait() == 0

    def _producer(self, count: int, *dies: str) -> "subprocess.Popen[bytes]":
        arguments = [self._east.connect, str(count), str(_WINDOW_MS / 1000), *dies]
        return subprocess.Popen([sys.executable, "-c", _PRODUCER, *arguments])

    def _read(self, count: int) -> None:
        config = ConsumerConfig(
            group="readers", zookeeper_connect=self._west.connect, consumer_timeout="10s"
        )
        with AuditedConnector(config, window_ms=_WINDOW_MS) as connector:
            (stream,) = connector.create_message_streams({_TOPIC: 1})[_TOPIC]
            read = 0
            try:
                for read, _ in enumerate(stream, 1):
                    if read == count:
                        break
                connector.commit_offsets()
            except ConsumerTimeoutError:
                pass
        assert read == count

    def _audit(self) -> Audit:
        addresses = [
            ClusterAddress("east", self._east.connect),
            ClusterAddress("west", self._west.connect),
        ]
        return Audit(addresses, grace_seconds=0, window_ms=_WINDOW_MS)

    def _judged(self, auditing: Audit, tiers: set[str]) -> Report:
        """The report, once all windows are over and counted by these tiers."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            assert auditing.count() == []
            report = auditing.look(topics=[_TOPIC])
            states = {each.state for each in report.windows}
            if {each.tier for each in report.windows} >= tiers and not states & {"open", "behind"}:
                return report
            assert time.monotonic() < deadline, states

    def _without_faults(self, sent: int) -> int:
        tiers = {"cluster:east", "mirror:m", "cluster:west", "group:readers"}
        with self._audit() as auditing:
            report = self._judged(auditing, tiers)
        assert report.differences == []
        assert report.losses == []
        for tier in tiers:
            of_tier = [each for each in report.windows if each.tier == tier]
            assert sum(each.found for each in of_tier) == sent, tier
            uncertain = {part.process for each in of_tier for part in each.parts}
            assert len(uncertain) == self._kills, tier
            self._killed |= uncertain
        return len({each.start_ms for each in report.windows})

    def _with_faults(self) -> None:
        report_faults(self._west.connect, _WINDOW_MS, self._count)
        with self._audit() as auditing:
            check_faults(self._judged(auditing, set(FAULTY_TIERS)), _TOPIC)

    def _count(self, counter: TierCounter, fault: str, *, in_ranges: bool) -> None:
        """Count what there is, with a fault in the first set that is fetched."""
        for partition in range(_PARTITIONS):
            for number, fetched in enumerate(_sets(self._east, partition)):
                data = fetched.data[: fetched.valid_bytes]
                if not partition and not number:
                    data = _faulty(fetched, fault, self._killed)
                log = f"east/0-{partition}" if in_ranges else ""
                start, end = fetched.base_offset, fetched.next_offset
                counter.add_set(_TOPIC, data, log=log, start=start, end=end)
            if in_ranges:
                counter.reached(_TOPIC, f"east/0-{partition}")


def _sets(cluster: ClusterProcess, partition: int) -> Iterator[MessageSet]:
    with SimpleConsumer("127.0.0.1", cluster.port) as consumer:
        (offset,) = consumer.get_offsets_before(_TOPIC, partition, EARLIEST)
        (end,) = consumer.get_offsets_before(_TOPIC, partition, LATEST)
        while offset < end:
            fetched = consumer.fetch(FetchRequest(_TOPIC, partition, offset, 4 << 20))
            yield fetched
            offset = fetched.next_offset


def _faulty(fetched: MessageSet, fault: str, killed: set[str]) -> bytes:
    """The set with one message missing, one twice, or one in place of another of its window.

    They are messages of a process that ended well: of others nothing is certain.
    """
    payloads = [message.payload for message, _ in fetched]

    def place_of(payload: bytes) -> tuple[str, int]:
        stamp = read_stamp(payload)[0]
        assert stamp is not None
        return hex_id(stamp.process), stamp.time_ms // _WINDOW_MS

    places = [place_of(payload) for payload in payloads]
    place = next(
        place
        for place, (one, following) in enumerate(pairwise(places))
        if one == following and one[0] not in killed
    )
    if fault == "dropped":
        del payloads[place]
    elif fault == "doubled":
        payloads.append(payloads[place])
    else:
        payloads[place] = payloads[place + 1]
    return encode_message_set(payloads)
