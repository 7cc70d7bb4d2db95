"""Counting real clusters, as a group, and comparing what is in them."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from hermes.audit.checking import Audit, ClusterAddress
from hermes.client import FetchRequest, Producer, ProducerConfig, SimpleConsumer, SyncProducer
from hermes.protocol import encode_message_set
from hermes.testing import running_broker

SETTINGS = {"coordination": "embedded", "num_partitions": 3}


@pytest.fixture(scope="module")
def broker():
    with running_broker(settings=SETTINGS) as running:
        yield running


def audited(broker, window=0.2, **settings):
    return ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": window},
        **settings,
    )


def send(broker, topic, count, **settings):
    with Producer(audited(broker, **settings)) as producer:
        for first in range(0, count, 100):
            producer.send(topic, [b"x" * 100] * min(100, count - first))
            if not first % 500:
                producer.flush()  # so that not all comes in one append


def audit(broker, name="main", **options):
    return Audit(
        [ClusterAddress(name, broker.zookeeper_connect)],
        **({"grace_seconds": 0, "window_ms": 200} | options),
    )


def judged(auditing, *topics):
    """Count and look until the windows are over and counted."""
    deadline = time.monotonic() + 60
    while True:
        assert auditing.count() == []
        report = auditing.look(topics=topics)
        if report.windows and not states(report) & {"open", "behind"}:
            return report
        assert time.monotonic() < deadline, report


def checked(broker, topic, name="main", **options):
    with audit(broker, name, **options) as auditing:
        return judged(auditing, topic)


def states(report):
    return {each.state for each in report.windows}


def found(report):
    return sum(each.found for each in report.windows)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_was_sent_is_there(broker, compression):
    send(broker, f"whole-{compression}", 1000, compression=compression)
    report = checked(broker, f"whole-{compression}")
    assert (states(report), found(report)) == ({"complete"}, 1000)


def test_counting_goes_on_where_it_stopped(broker):
    send(broker, "twice", 300)
    assert found(checked(broker, "twice")) == 300
    send(broker, "twice", 300)
    report = checked(broker, "twice")
    assert (states(report), found(report)) == ({"complete"}, 600)
    with audit(broker) as auditing:
        auditing.count()
        (tally,) = [auditing.look() and auditing.tiers.topics["cluster:main"]["twice"]]
        logs = tally.logs.values()
        assert all(log.since_ms == 0 and log.holes() == [] for log in logs)


def test_two_members_share_the_work(broker):
    send(broker, "shared", 900)
    with audit(broker, "shared") as one, audit(broker, "shared") as other:
        one.start_counting()
        other.start_counting()
        deadline = time.monotonic() + 60
        while True:
            assert one.count() == other.count() == []
            report = one.look(topics=["shared"])
            both = [len(each._counters[0].claims()) for each in (one, other)]
            if states(report) == {"complete"} and all(both):
                break
            assert time.monotonic() < deadline, (report, both)
    assert found(report) == 900


CHANGES = {
    "dropped": lambda stored: stored[:7] + stored[8:],
    "doubled": lambda stored: [*stored, stored[7]],
    "both": lambda stored: [*stored[:7], stored[9], *stored[8:]],
}


@pytest.mark.parametrize("kind", CHANGES)
def test_one_of_20000_that_a_broker_lost_or_has_twice_is_found(kind):
    with running_broker(settings=SETTINGS) as west, running_broker(settings=SETTINGS) as east:
        send(east, "clicks", 20_000)
        stored = []
        with SimpleConsumer(east.host, east.port) as consumer:
            for partition in range(3):
                fetched = consumer.fetch(FetchRequest("clicks", partition, 0, 1 << 26))
                stored += [message.payload for message, _ in fetched]
        changed = CHANGES[kind](stored)
        assert len(stored) == 20_000
        with SyncProducer(west.host, west.port) as producer:
            for first in range(0, len(changed), 1000):
                data = encode_message_set(changed[first : first + 1000])
                producer.send("clicks", 0, data)
            producer.barrier()
        clusters = [
            ClusterAddress("east", east.zookeeper_connect),
            ClusterAddress("west", west.zookeeper_connect),
        ]
        with Audit(clusters, grace_seconds=0, window_ms=200) as auditing:
            report = judged(auditing)
        by_tier = {}
        for window in report.windows:
            by_tier.setdefault(window.tier, []).append(window)
        assert {each.state for each in by_tier["cluster:east"]} == {"complete"}
        (window,) = [each for each in by_tier["cluster:west"] if each.state != "complete"]
        expected = {
            "dropped": ("short", 1, 0),
            "doubled": ("over", 0, 1),
            "both": ("changed", 1, 1),
        }
        assert (window.state, window.short, window.over) == expected[kind]


def test_what_retention_took_before_it_was_counted_is_named(tmp_path):
    settings = SETTINGS | {
        "num_partitions": 1,
        "segment_bytes": 100_000,
        "retention_time": "unlimited",
        "retention_check_interval": "100ms",
    }
    with running_broker(tmp_path, settings) as broker:
        send(broker, "short-lived", 1000)
        checked(broker, "short-lived")
    with running_broker(tmp_path, settings | {"retention_bytes": 200_000}) as broker:
        send(broker, "short-lived", 9000)
        deadline = time.monotonic() + 60
        with SimpleConsumer(broker.host, broker.port) as consumer:
            while not consumer.get_offsets_before("short-lived", 0, -2)[0] > 500_000:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        report = checked(broker, "short-lived")
    (loss,) = [each for each in report.losses if each.topic == "short-lived"]
    assert (loss.tier, loss.log, loss.why) == ("cluster:main", "0-0", "lost")
    assert sum(each.short for each in report.differences) > 0


@contextmanager
def producing(broker, topic):
    code = """
import itertools, sys
from hermes.client import Producer, ProducerConfig
producer = Producer(ProducerConfig(broker_list=sys.argv[1], producer_type="async",
    callback_handler="audit", callback_handler_options={"window": 0.2}, queue_size=500))
for number in itertools.count():
    producer.send(sys.argv[2], b"x" * 50)
    if number == 1000:
        producer.flush()
        print("going", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, broker.broker_list, topic], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"going\n"
        try:
            yield process
        finally:
            process.kill()


def test_kills_of_producers_make_no_difference_but_an_uncertain_window(broker):
    for _ in range(5):
        with producing(broker, "killed") as process:
            time.sleep(0.25)  # about one window; the kill comes at any moment of one
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    report = checked(broker, "killed")
    assert found(report) > 5000
    assert report.differences == []
    reporters = {part.process for each in report.uncertain for part in each.parts}
    # None of one that was killed as it had just reported all of what it had sent.
    assert 1 <= len(reporters) <= 5
