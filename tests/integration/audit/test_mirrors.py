"""The audit over two clusters and the mirror between them, through kills of the mirror."""

import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from audited import FAULTS
from audited_mirror import FaultyMirror
from confluent_kafka import Producer as KafkaProducer
from kafka_4 import KafkaProcess
from kafka_mirrors import create, ends
from mirror_clusters import Clusters, eventually
from server_process import free_port

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.clients import AuditedProducer
from hermes.audit.consumers import AuditedConnector
from hermes.client import Producer, ProducerConfig
from hermes.client.groups import ConsumerConfig
from hermes.errors import ConsumerTimeoutError

WINDOW_MS = 500


@pytest.fixture
def clusters(tmp_path):
    with ExitStack() as stack:
        yield Clusters(tmp_path / "a place", stack)


def judged(auditing, topic, tiers):
    """The windows by tier, once all are over and counted."""
    deadline = time.monotonic() + 100
    while True:
        assert auditing.count() == []
        report = auditing.look(topics=[topic])
        by_tier = {}
        for each in report.windows:
            by_tier.setdefault(each.tier, []).append(each)
        states = {each.state for each in report.windows}
        if by_tier.keys() >= tiers and not states & {"open", "behind"}:
            return by_tier
        assert time.monotonic() < deadline, report.windows


def found_at(by_tier, tiers):
    """How many messages were found at each tier, by what they were compared with."""
    found = Counter()
    for tier in tiers:
        for window in by_tier[tier]:
            found[tier, window.against] += window.found
    return found


def read_all(cluster, topic):
    config = ConsumerConfig(
        group="readers", zookeeper_connect=cluster.connect, consumer_timeout="2s"
    )
    with AuditedConnector(config, window_ms=WINDOW_MS) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        count = 0
        try:
            for _ in stream:
                count += 1
        except ConsumerTimeoutError:
            return count


@pytest.mark.parametrize("kills", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_pipeline_without_losses_is_complete_everywhere(clusters, kills):
    east, west = clusters.cluster("east"), clusters.cluster("west")
    mirror = clusters.mirror(
        east, west, "m", audit=True, audit_window=f"{WINDOW_MS}ms", topics={"prefix": "east."}
    )
    config = ProducerConfig(
        zookeeper_connect=east.connect,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": WINDOW_MS / 1000},
    )
    total = 20_000
    with Producer(config) as producer:
        for number in range(total):
            producer.send("clicks", b"%d" % number)
            if kills and number % (total // (kills + 1)) == total // (kills + 2):
                producer.flush()
                eventually(lambda: west.count("east.clicks"), "nothing was mirrored")
                mirror.kill()
                mirror.start()
    eventually(lambda: west.count("east.clicks") == total, "not everything was mirrored")
    assert read_all(west, "east.clicks") == total
    addresses = [ClusterAddress("east", east.connect), ClusterAddress("west", west.connect)]
    tiers = {"cluster:east", "mirror:m", "cluster:west", "group:readers"}
    with Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS) as auditing:
        by_tier = judged(auditing, "clicks", tiers)
    for tier, windows in by_tier.items():
        wrong = [each for each in windows if each.state != "complete"]
        assert wrong == [], tier
        assert sum(each.found for each in windows) == total


ORDERS = 3000


def with_kafka(clusters, name):
    """A cluster, and where Kafka's clients find it."""
    address = f"127.0.0.1:{free_port()}"
    listener = f"tcp:{address.rpartition(':')[2]}:interface=127.0.0.1"
    return clusters.cluster(name, kafka_listen=listener), address


def order(producer, number, **more):
    producer.produce("orders", b"order %d" % number, partition=number % 2, **more)


def send_orders(address, first=0):
    """Orders without a stamp, a second of them for each thousand; what was aborted is none."""
    settings = {"bootstrap.servers": address, "compression.type": "lz4"}
    began_ms = time.time_ns() // 1_000_000 - 10_000
    producer = KafkaProducer(settings)
    for number in range(first, first + ORDERS):
        order(producer, number, timestamp=began_ms + number)
    assert producer.flush(60) == 0
    aborting = KafkaProducer({**settings, "transactional.id": "aborts"})
    aborting.init_transactions(60)
    aborting.begin_transaction()
    order(aborting, first)
    assert aborting.flush(60) == 0
    aborting.abort_transaction(60)


def send_stamped(address, connect):
    producer = KafkaProducer({"bootstrap.servers": address})
    audited = AuditedProducer(ProducerConfig(zookeeper_connect=connect), window_ms=WINDOW_MS)
    for number in range(ORDERS):
        stamped = audited.stamp("orders", b"order %d" % number)
        settle = partial(lambda stamped, error, _: stamped.settle(error is None), stamped)
        order(producer, number, headers=[stamped.header], on_delivery=settle)
    assert producer.flush(60) == 0
    audited.close()


def mirror_of(address, target):
    return {
        "name": "m",
        "sources": [{"name": "east", "kafka": [address]}],
        "target": {"zookeeper": target.connect},
        "whitelist": "orders",
        "topics": {"prefix": "east."},
        "audit": True,
        "audit_window": f"{WINDOW_MS}ms",
    }


def auditing_both(east, west):
    addresses = [ClusterAddress("east", east.connect), ClusterAddress("west", west.connect)]
    return Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS)


@pytest.mark.parametrize("kills", [0, 2])
def test_a_mirror_counts_topics_of_kafkas_format_once(clusters, kills):
    (east, address), (west, _) = with_kafka(clusters, "east"), with_kafka(clusters, "west")
    create(address, "orders", 2)
    mirror = clusters.process(mirror_of(address, west))
    for number in range(1 + kills):
        send_orders(address, number * ORDERS)
        if number < kills:
            eventually(lambda seen=number: west.end("east.orders") > seen * ORDERS / 2)
            mirror.kill()
            mirror.start()
    send_stamped(address, east.connect)
    plain, tiers = (1 + kills) * ORDERS, {"cluster:east", "mirror:m", "cluster:west"}
    with auditing_both(east, west) as auditing:
        by_tier = judged(auditing, "orders", tiers)
        report = auditing.look(topics=["orders"])
        onward = auditing.look(chosen=["mirror:m", "cluster:west"], topics=["orders"])
    wrong = [each for each in report.windows if each.state != "complete"]
    assert (wrong, report.losses, report.removed) == ([], [], {})
    assert found_at(by_tier, tiers) == {
        ("cluster:east", "producers"): ORDERS,
        ("mirror:m", "producers"): ORDERS,
        ("cluster:west", "producers"): ORDERS,
        ("mirror:m", "cluster:east"): plain,
    }
    assert {each.state for each in onward.windows} == {"complete"}
    assert sum(each.found for each in onward.windows) == ORDERS + plain


def test_what_went_into_a_kafka_is_counted_where_audit_to_says(clusters):
    east, address = with_kafka(clusters, "east")
    kafka = clusters.started(KafkaProcess(clusters.directory / "kafka"))
    create(address, "orders", 2)
    settings = mirror_of(address, east) | {"target": {"kafka": [kafka.address]}}
    mirror = clusters.process({**settings, "audit_to": {"zookeeper": east.connect}})
    send_orders(address)
    eventually(lambda: sum(ends(kafka.address, "east.orders", 2)) > ORDERS / 2)
    mirror.kill()  # what was on its way is sent again
    mirror.start()
    send_orders(address, ORDERS)
    send_stamped(address, east.connect)
    tiers = {"cluster:east", "mirror:m"}
    with Audit(
        [ClusterAddress("east", east.connect)], grace_seconds=0, window_ms=WINDOW_MS
    ) as auditing:
        by_tier = judged(auditing, "orders", tiers)
        report = auditing.look(topics=["orders"])
    wrong = [each for each in report.windows if each.state != "complete"]
    assert (wrong, report.losses) == ([], [])
    assert found_at(by_tier, tiers) == {
        ("cluster:east", "producers"): ORDERS,
        ("mirror:m", "producers"): ORDERS,
        ("mirror:m", "cluster:east"): 2 * ORDERS,
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_mirror_loses_or_repeats_is_found_at_its_tier(clusters, fault):
    FaultyMirror(clusters, ORDERS, fault).run()
