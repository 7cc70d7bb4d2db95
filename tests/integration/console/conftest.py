"""One broker with prepared topics and groups, which all tests of the console look at."""

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest
from replicated_cluster import ReplicatedCluster

from hermes.client import EARLIEST, FetchRequest, SendResult, SimpleConsumer, SyncProducer
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.client.retrying import Letter
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import MIRRORS, BrokerPartition
from hermes.coordination.mirrors import MirroredPartition, MirrorProcess
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, Codec, ProduceRequest, encode_message_set
from hermes.schemas import RegistryClient
from hermes.schemas.registered import SchemaReference
from hermes.testing import RunningBroker, running_broker

HOSTILE_GROUP = "<img src=x onerror=alert(1)>\"'&{{7*7}}"
HOSTILE_PAYLOADS = (
    b"<script>alert(document.domain)</script>",
    b"\"><svg onload=alert(1)>' {{ 7*7 }} {% raw %}",
    b'{"</pre><script>x": "<b>\\u202e"}',
    "\u202ereversed\u200b\x1b]0;title\x07".encode(),
    b"\xff\xfe\x00\x01binary",
)
MANY = 120


class Prepared(NamedTuple):
    """A broker that has everything that there are pages for."""

    broker: RunningBroker
    damaged_offset: int


@pytest.fixture(scope="module")
def prepared() -> Iterator[Prepared]:
    settings = {
        "coordination": "embedded",
        "http_listen": "tcp:0:interface=127.0.0.1",
        "num_partitions": 1,
        "topics": {"activity": {"partitions": 3, "retention_time": "30d"}},
    }
    with running_broker(settings=settings) as broker:
        with SyncProducer(broker.host, broker.port) as producer:

            def publish(
                topic: str, payloads: list[bytes], partition: int = 0, codec: Codec = Codec.NONE
            ) -> None:
                messages = encode_message_set(payloads, codec)
                (result,) = producer.send_acknowledged(
                    [ProduceRequest(topic, partition, messages)], Acks.FLUSHED
                )
                assert isinstance(result, SendResult)

            for partition in range(3):
                for first in (0, 100):
                    publish("activity", _events(partition, first), partition)
            publish("compressed", [b"first", b"second", b"third"], codec=Codec.GZIP)
            publish("hostile", list(HOSTILE_PAYLOADS))
            publish(
                "hostile.g.dead",
                [
                    Letter("g", "hostile", 0, 0, 7, 3, 1, 2, HOSTILE_GROUP, payload).encode()
                    for payload in HOSTILE_PAYLOADS
                ],
            )
            publish("packed", [msgpack.packb({"user": 7})])
            for number in range(MANY):
                publish(f"many-{number:03d}", [b"x" * number])
            publish("damaged", [b"good one"])
            damaged_offset = _end(broker, "damaged")
            publish("damaged", [b"bad one!"])
            publish("damaged", [b"good again"])
        _damage(broker.log_dir / "damaged-0", damaged_offset)
        _schemas(f"{broker.http}/registry")
        assert broker.zookeeper_connect is not None
        session = Session(broker.zookeeper_connect)
        session.start()
        place = "activity", BrokerPartition(0, 0)
        for group in ("billing", "movable", "clicked"):
            store_offsets(session, group, {place: 0, ("activity", BrokerPartition(0, 1)): 0})
        store_offsets(session, HOSTILE_GROUP, {("hostile", BrokerPartition(0, 0)): 0})
        store_offsets(session, "beyond", {("hostile", BrokerPartition(0, 0)): 10**9})
        _mirrors(session)
        config = ConsumerConfig(
            group="active", zookeeper_connect=broker.zookeeper_connect, auto_commit=False
        )
        with Consumer.create(config) as member:
            member.create_message_streams({"activity": 1})
            yield Prepared(broker, damaged_offset)
        session.stop()


_clusters = itertools.count()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, coordination_server: Any
) -> Iterator[ReplicatedCluster]:
    """Three brokers that keep copies."""
    tree = f"{coordination_server('zookeeper').address}/console-{next(_clusters)}"
    # Longer than usual: pages ask a leader once, who has to be sure that it leads, at any load.
    made = ReplicatedCluster(
        tmp_path_factory.mktemp("three brokers"), tree, zookeeper_session_timeout="6s"
    )
    yield made
    made.close()


def _schemas(url: str) -> None:
    """Two versions of a schema, and one of whose names are hostile and that stands on it."""
    registry = RegistryClient(url)
    fields = [{"name": "user", "type": "string"}]
    for _ in range(2):
        schema = {"type": "record", "name": "Event", "doc": HOSTILE_GROUP, "fields": fields}
        registry.register("activity-value", json.dumps(schema))
        fields = [*fields, {"name": "page", "type": "string", "default": ""}]
    referring = {"type": "record", "name": "R", "fields": [{"name": "e", "type": "Event"}]}
    references = [SchemaReference("Event", "activity-value", 2)]
    registry.register(HOSTILE_GROUP, json.dumps(referring), references=references)
    registry.close()


def _mirrors(session: Session) -> None:
    """One without a process, and one of which everything is hostile or long."""
    session.ensure_path(f"{MIRRORS}/gone")
    rows = [
        MirroredPartition("far", "activity", f"0-{n}", "activity", 10, 1_034, 2_048.0)
        for n in range(250)
    ]
    hostile = MirroredPartition("<b>", "<i>t", "0-0", HOSTILE_GROUP, 0, None, 0.0, "<script>1")
    process = MirrorProcess(
        "west",
        "<u>p\u202e",
        pid=7,
        started_ms=1,
        time_ms=time.time_ns() // 1_000_000 + 86_400_000,
        sources={"<s>": "id"},
        messages=1_234_567,
        rate_bytes=2_048.0,
        lag_bytes=256_000,
        damaged=3,
        count=3_000,
        partitions=(*rows, hostile),
        errors={"<e>": "</pre><script>2"},
        refused={"<s>/loop": "it would make a loop"},
    )
    session.create_ephemeral(process.path, process.format())


def _events(partition: int, first: int) -> list[bytes]:
    return [
        json.dumps({"user": {"id": number}, "page": f"/p/{partition}"}).encode()
        for number in range(first, first + 100)
    ]


def _end(broker: RunningBroker, topic: str) -> int:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        (start,) = consumer.get_offsets_before(topic, 0, EARLIEST)
        return consumer.fetch(FetchRequest(topic, 0, start, 1 << 20)).next_offset


def _damage(directory: Path, offset: int) -> None:
    """Flip a byte of the payload of the message at an offset."""
    descriptor = os.open(directory / f"{0:020d}.kafka", os.O_RDWR)
    try:
        os.pwrite(descriptor, b"B", offset + 10)
    finally:
        os.close(descriptor)
