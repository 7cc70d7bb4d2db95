"""The audit over two clusters and the mirror between them, through kills of the mirror."""

import time
from contextlib import ExitStack

import pytest
from mirror_clusters import Clusters, eventually

from hermes.audit.checking import Audit, ClusterAddress
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
        if by_tier.keys() == tiers and not states & {"open", "behind"}:
            return by_tier
        assert time.monotonic() < deadline, report.windows


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


@pytest.mark.parametrize("kills", [0, 2])
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
