"""A mirror of Kafka's format that drops or doubles a single message: does its tier say so?

The clusters and the mirror are real, and messages have no stamps, so that nothing but the mirror's
tier is compared with the source's cluster. One of the mirror's stretches is changed on its way.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

from audited import FAULTS
from confluent_kafka import Producer
from kafka_mirrors import create
from mirror_clusters import ClusterProcess, Clusters, eventually
from server_process import free_port

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.comparing import Report
from hermes.config.mirror import parse_mirror_config
from hermes.mirror import Mirror, source_claim
from hermes.mirror.mirror_counter import MirrorCounter
from hermes.mirror.stretches import Stretch
from hermes.protocol import RecordSet
from hermes.protocol.records import encode_batch

__all__ = ["FaultyMirror"]

_WINDOW_MS = 1000
_PATIENCE_SECONDS = 300.0


class FaultyMirror:
    """One run.

    Args:
        clusters: makes what is needed.
        messages: how many there are in the source, a thousand for each second.
        fault: of `FAULTS`.
    """

    def __init__(self, clusters: Clusters, messages: int, fault: str) -> None:
        self._messages = messages
        self._fault = fault
        self._east, self._address = _with_kafka(clusters, "east")
        self._west, _ = _with_kafka(clusters, "west")
        self._seen = 0
        self._is_done = False

    def run(self) -> dict[str, int]:
        """Run it all; raises AssertionError for whatever isn't as it must be."""
        create(self._address, "orders", 2)
        self._produce()
        config = parse_mirror_config(
            {
                "name": "m",
                "sources": [{"name": "east", "kafka": [self._address]}],
                "target": {"zookeeper": self._west.connect},
                "whitelist": "orders",
                "audit": True,
                "audit_window": f"{_WINDOW_MS}ms",
            }
        )
        with patch.object(source_claim, "record_stretches", self._stretches):
            counter = MirrorCounter(config)
            mirror = Mirror(config, counter=counter)
            mirror.start()
            try:
                return self._judge()
            finally:
                mirror.stop()
                assert counter.close()

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._address, "compression.type": "lz4"}
        producer = Producer(settings)
        began_ms = time.time_ns() // 1_000_000 - self._messages - 10_000
        for number in range(self._messages):
            while True:
                try:
                    producer.produce(
                        "orders",
                        b"order %d" % number,
                        partition=number % 2,
                        timestamp=began_ms + number,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0

    def _stretches(self, *arguments: Any) -> Iterator[Stretch]:
        """As the mirror makes them; the first behind half of the messages has the fault."""
        for each in _record_stretches(*arguments):
            self._seen += each.messages
            if self._is_done or each.messages < 2 or self._seen < self._messages / 2:
                yield each
                continue
            self._is_done = True
            first, *rest = RecordSet(bytes(each.data), 0).records()
            kept = {
                "dropped": rest,
                "doubled": [first, first, *rest],
                "both": [first, first, *rest[1:]],
            }[self._fault]
            data = encode_batch([record._replace(offset=n) for n, record in enumerate(kept)])
            yield each._replace(data=data, messages=len(kept), is_verbatim=False)

    def _judge(self) -> dict[str, int]:
        clusters = {"east": self._east, "west": self._west}
        addresses = [ClusterAddress(name, each.connect) for name, each in clusters.items()]
        short, over = FAULTS[self._fault]
        found = self._messages - short + over
        with Audit(addresses, grace_seconds=0, window_ms=_WINDOW_MS) as auditing:

            def judged(tier: str, *chosen: str) -> Report | None:
                assert auditing.count() == []
                report = auditing.look(chosen=chosen, topics=["orders"])
                windows = [each for each in report.windows if each.tier == tier]
                is_over = not {each.state for each in report.windows} & {"open", "behind"}
                return report if is_over and sum(each.found for each in windows) == found else None

            def waited_for(*given: str) -> Report:
                look = partial(judged, *given)
                return eventually(look, f"{given}: windows stay open", _PATIENCE_SECONDS)

            report = waited_for("mirror:m")
            # What the mirror said last may be of messages that came behind the last count.
            onward = waited_for("cluster:west", "mirror:m", "cluster:west")
        assert self._is_done
        of_mirror = [each for each in report.windows if each.tier == "mirror:m"]
        (window,) = [each for each in of_mirror if each.state != "complete"]
        assert (window.against, window.short, window.over) == ("cluster:east", short, over)
        # What the mirror has sent is there: the fault is its own.
        assert {each.state for each in onward.windows} == {"complete"}
        return {"messages": self._messages, "windows": len(of_mirror)}


def _with_kafka(clusters: Clusters, name: str) -> tuple[ClusterProcess, str]:
    address = f"127.0.0.1:{free_port()}"
    listener = f"tcp:{address.rpartition(':')[2]}:interface=127.0.0.1"
    return clusters.cluster(name, kafka_listen=listener), address


_record_stretches = source_claim.record_stretches
