"""Topics of Kafka's format, by whatever client: counted, stamped in headers, and compared."""

import asyncio
import time
import uuid

import pytest
from kafka_clients import CODECS, Aiokafka, Confluent, Sent

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.clients import AuditedGroup, AuditedProducer
from hermes.audit.consumers import AuditedConnector
from hermes.audit.log_counting import CountingFetcher
from hermes.client import (
    EARLIEST,
    LATEST,
    FetchRequest,
    Producer,
    ProducerConfig,
    SimpleConsumer,
)
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.testing import running_kafka

WINDOW_MS = 1000
#: In a window of its own, long over.
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka():
    with running_kafka(settings={"coordination": "embedded"}) as running:
        yield running


@pytest.fixture
def topic(kafka):
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    with SimpleConsumer(kafka.host, kafka.port) as admin:
        admin.create_topic(name, {"format": "kafka", "partitions": 2})
    return name


def audit_to(kafka):
    return ProducerConfig(zookeeper_connect=kafka.zookeeper_connect)


def judged(kafka, topic, *tiers):
    deadline = time.monotonic() + 60
    addresses = [ClusterAddress("main", kafka.zookeeper_connect)]
    with Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS) as auditing:
        while True:
            assert auditing.count() == []
            report = auditing.look(topics=[topic])
            found = {each.tier for each in report.windows}
            states = {each.state for each in report.windows}
            if found >= set(tiers) and not states & {"open", "behind"}:
                return report
            assert time.monotonic() < deadline, report


def summed(report, tier, against=None):
    """By state how many messages the tier has in windows of that."""
    states = {}
    for each in report.windows:
        if each.tier == tier and against in (None, each.against):
            states[each.state] = states.get(each.state, 0) + each.found
    return states


def consume(kafka, topic, count, group, protocol="classic"):
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < count:
        read += consumer.consume(min(count - len(read), 500), timeout=0.2)
        assert all(each.error() is None for each in read)
    return consumer, read


@pytest.mark.parametrize(
    ("client", "protocol"),
    [(Confluent(), "classic"), (Confluent(), "consumer"), (Aiokafka(), "classic")],
    ids=repr,
)
def test_what_nobody_stamps_is_counted_by_its_timestamp(kafka, topic, client, protocol):
    times = [LONG_AGO_MS + number * 10 for number in range(300)]  # three windows
    records = [Sent(b"x", timestamp_ms=each, partition=n % 2) for n, each in enumerate(times)]
    client.produce(kafka.bootstrap_servers, topic, records)
    consumer, _ = consume(kafka, topic, 300, "by-commits-" + topic, protocol)
    consumer.commit(asynchronous=False)
    consumer.close()
    report = judged(kafka, topic, "group:by-commits-" + topic)
    windows = {each.start_ms: (each.state, each.found) for each in report.windows}
    assert windows == {LONG_AGO_MS + n * 1000: ("complete", 100) for n in range(3)}
    assert {each.against for each in report.windows} == {"cluster:main"}
    assert report.losses == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_producer_of_another_library_takes_part_by_headers(kafka, topic, codec):
    from confluent_kafka import Producer as ConfluentProducer

    producer = ConfluentProducer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
    )
    audit = AuditedProducer(audit_to(kafka), window_ms=WINDOW_MS)
    for number in range(500):
        value, key = b"click %d" % number, b"user" if number % 2 else None
        stamped = audit.stamp(topic, value, key)
        producer.produce(
            topic,
            value,
            key,
            headers=[("source", b"shop"), stamped.header],
            on_delivery=lambda error, _, stamped=stamped: stamped.settle(error is None),
        )
    producer.flush()
    audit.close()
    group = AuditedGroup("counts-" + topic, audit_to(kafka), window_ms=WINDOW_MS)
    consumer, read = consume(kafka, topic, 500, "counts-" + topic)
    for each in read:
        time_ms = each.timestamp()[1]
        group.finished(each.topic(), each.value(), each.key(), each.headers(), time_ms)
    assert group.publish()
    consumer.commit(asynchronous=False)
    consumer.close()
    assert group.close()
    report = judged(kafka, topic, "cluster:main", "group:counts-" + topic)
    assert summed(report, "cluster:main") == {"complete": 500}
    assert summed(report, "group:counts-" + topic) == {"complete": 500}
    assert {each.against for each in report.windows} == {"producers"}


def test_a_producer_of_aiokafka_takes_part_and_a_message_that_nobody_acknowledged_is_found(
    kafka, topic
):
    from aiokafka import AIOKafkaProducer

    async def produce():
        audit = AuditedProducer(audit_to(kafka), window_ms=WINDOW_MS)
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            sent = []
            for number in range(200):
                value = b"click %d" % number
                stamped = audit.stamp(topic, value)
                if number == 7:  # told as stored, and never sent
                    stamped.settle(True)
                    continue
                future = await producer.send(topic, value, headers=[stamped.header])
                future.add_done_callback(lambda f, s=stamped: s.settle(f.exception() is None))
                sent.append(future)
            await asyncio.gather(*sent)
        await asyncio.to_thread(audit.close)

    asyncio.run(produce())
    report = judged(kafka, topic, "cluster:main")
    (window,) = report.differences
    assert (window.state, window.short, window.over) == ("short", 1, 0)


def test_hermes_own_producers_and_groups_take_part_as_ever(kafka, topic):
    options = {"callback_handler": "audit", "callback_handler_options": {"window": 1}}
    config = ProducerConfig(
        zookeeper_connect=kafka.zookeeper_connect, producer_type="async", **options
    )
    with Producer(config) as producer:
        for number in range(300):
            producer.send(topic, b"click %d" % number)
    records = [Sent(b"x", timestamp_ms=LONG_AGO_MS)] * 20
    Confluent().produce(kafka.bootstrap_servers, topic, records)
    consuming = ConsumerConfig(
        group="own-" + topic, zookeeper_connect=kafka.zookeeper_connect, consumer_timeout="20s"
    )
    with AuditedConnector(consuming, window_ms=WINDOW_MS) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        found = [next(stream).message for _ in range(320)]
        connector.commit_offsets()
    assert sorted(found) == sorted([b"click %d" % n for n in range(300)] + [b"x"] * 20)
    report = judged(kafka, topic, "group:own-" + topic)
    assert summed(report, "group:own-" + topic, "producers") == {"complete": 300}
    assert summed(report, "group:own-" + topic, "cluster:main") == {"complete": 20}


def test_a_group_of_hermes_own_is_judged_by_its_offsets_as_well(kafka, topic):
    records = [Sent(b"x", timestamp_ms=LONG_AGO_MS + n, partition=n % 2) for n in range(40)]
    Confluent().produce(kafka.bootstrap_servers, topic, records)
    group = "plain-" + topic
    config = ConsumerConfig(
        group=group, zookeeper_connect=kafka.zookeeper_connect, consumer_timeout="20s"
    )
    with Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        for _ in range(40):
            next(stream)
        connector.commit_offsets()
    report = judged(kafka, topic, "group:" + group)
    assert summed(report, "group:" + group) == {"complete": 40}


def test_a_group_that_lags_is_behind_and_one_that_is_set_back_is_told(kafka, topic):
    records = [Sent(b"x", timestamp_ms=LONG_AGO_MS + n, partition=0) for n in range(2000)]
    Confluent().produce(kafka.bootstrap_servers, topic, records)
    group = "lags-" + topic
    consumer, read = consume(kafka, topic, 1500, group)
    consumer.commit(message=read[999], asynchronous=False)
    addresses = [ClusterAddress("main", kafka.zookeeper_connect)]
    with Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS) as auditing:
        assert auditing.count() == []
        report = auditing.look(topics=[topic])
        assert summed(report, "group:" + group) == {"behind": 0}
        windows = [each for each in report.windows if each.tier == "group:" + group]
        assert {part.who for each in windows for part in each.parts} == {"without a stamp"}
        consumer.commit(message=read[499], asynchronous=False)
        consumer.close()
        assert auditing.count() == []
        (loss,) = auditing.look(topics=[topic]).losses
    assert (loss.tier, loss.start, loss.end, loss.why) == (f"group:{group}", 500, 1000, "set back")


def test_the_brokers_timestamps_decide_where_it_sets_them(kafka):
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    with SimpleConsumer(kafka.host, kafka.port) as admin:
        settings = {"format": "kafka", "message_timestamp_type": "LogAppendTime"}
        admin.create_topic(name, settings)
    began = time.time_ns() // 1_000_000
    records = [Sent(b"x", timestamp_ms=LONG_AGO_MS + n) for n in range(50)]
    Confluent().produce(kafka.bootstrap_servers, name, records)
    consumer, _ = consume(kafka, name, 50, "times-" + name)
    consumer.commit(asynchronous=False)
    consumer.close()
    report = judged(kafka, name, "group:times-" + name)
    assert summed(report, "group:times-" + name) == {"complete": 50}
    assert min(each.start_ms for each in report.windows) >= began - WINDOW_MS


CHECKED_OFTEN = {
    "coordination": "embedded",
    "segment_bytes": 20_000,
    "retention_check_interval": "100ms",
}


def test_what_was_compacted_away_before_it_was_counted_is_said_and_no_difference():
    with running_kafka(settings=CHECKED_OFTEN) as kafka:
        with SimpleConsumer(kafka.host, kafka.port) as admin:
            admin.create_topic("table", {"format": "kafka", "cleanup_policy": "compact"})
        audit = AuditedProducer(audit_to(kafka), window_ms=WINDOW_MS)
        for _ in range(20):
            sent = []
            for number in range(50):
                stamped = audit.stamp("table", b"x" * 100, b"%d" % (number % 7))
                sent.append((stamped, Sent(b"x" * 100, b"%d" % (number % 7), None)))
            records = [each._replace(headers=(stamped.header,)) for stamped, each in sent]
            Confluent().produce(kafka.bootstrap_servers, "table", records)
            for stamped, _ in sent:
                stamped.settle(True)
        audit.close()
        deadline = time.monotonic() + 60
        while len(records_of(kafka, "table")) > 500:
            assert time.monotonic() < deadline
        report = judged(kafka, "table", "cluster:main")
    assert report.removed["cluster:main", "table"] > 400
    assert report.differences == report.losses == []
    assert {each.state for each in report.windows} <= {"complete", "uncertain"}
    assert "compaction took" in report.uncertain[0].parts[-1].why


def records_of(kafka, topic):
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        (offset,) = consumer.get_offsets_before(topic, 0, EARLIEST)
        (end,) = consumer.get_offsets_before(topic, 0, LATEST)
        found = []
        while offset < end:
            fetched = consumer.fetch(FetchRequest(topic, 0, offset, 1 << 20))
            found += list(fetched)
            offset = fetched.next_offset
        return found


def test_what_retention_took_before_a_group_had_committed_it_is_named():
    with running_kafka(settings=CHECKED_OFTEN) as kafka:
        with SimpleConsumer(kafka.host, kafka.port) as admin:
            admin.create_topic("short-lived", {"format": "kafka"})
        records = [Sent(b"x" * 100, timestamp_ms=LONG_AGO_MS + n) for n in range(100)]
        Confluent().produce(kafka.bootstrap_servers, "short-lived", records)
        consumer, read = consume(kafka, "short-lived", 100, "slow")
        consumer.commit(message=read[49], asynchronous=False)
        consumer.close()
        addresses = [ClusterAddress("main", kafka.zookeeper_connect)]
        with Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS) as auditing:
            assert auditing.count() == []  # before they are deleted
        for _ in range(20):
            Confluent().produce(kafka.bootstrap_servers, "short-lived", records)
        with SimpleConsumer(kafka.host, kafka.port) as admin:
            admin.alter_topic("short-lived", {"retention_bytes": 30_000})
            deadline = time.monotonic() + 60
            while not admin.get_offsets_before("short-lived", 0, EARLIEST)[0] > 100:
                assert time.monotonic() < deadline
        with Audit(addresses, grace_seconds=0, window_ms=WINDOW_MS) as auditing:
            assert auditing.count() == []
            losses = auditing.look(topics=["short-lived"]).losses
    (loss,) = [each for each in losses if each.tier == "group:slow"]
    assert (loss.log, loss.start, loss.why) == ("0-0", 50, "lost")
    assert loss.end > 100


def test_at_the_end_of_a_log_a_counter_rests(kafka, topic, monkeypatch):
    """A fetch for each produce would cost the broker nearly as much as the produce."""
    fetches = []
    fetch = CountingFetcher._fetch

    def noted(self, requests, wait_ms):
        fetches.append(len(requests))
        return fetch(self, requests, wait_ms)

    monkeypatch.setattr(CountingFetcher, "_fetch", noted)
    with Audit(
        [ClusterAddress("rests", kafka.zookeeper_connect)]
    ) as auditing:  # a minute's windows
        assert auditing.count() == []
        before = len(fetches)
        for _ in range(50):
            Confluent().produce(kafka.bootstrap_servers, topic, [Sent(b"x")])
        assert len(fetches) - before < 10
        assert auditing.count() == []
        auditing.look(topics=[topic])
        (tally,) = [each[topic] for each in auditing.tiers.topics.values() if topic in each]
    assert sum(count for count, _ in tally.tallies().values()) == 50


def test_a_damaged_batch_is_told(tmp_path):
    settings = {"coordination": "embedded"}
    with running_kafka(settings=settings, log_dir=tmp_path) as kafka:
        with SimpleConsumer(kafka.host, kafka.port) as admin:
            admin.create_topic("damaged", {"format": "kafka"})
        for _ in range(3):
            records = [Sent(b"x" * 100, timestamp_ms=LONG_AGO_MS)] * 5
            Confluent().produce(kafka.bootstrap_servers, "damaged", records)
    (segment,) = tmp_path.glob("damaged-0/*.log")
    data = bytearray(segment.read_bytes())
    data[-200] ^= 1
    segment.write_bytes(data)
    with (
        running_kafka(settings=settings, log_dir=tmp_path) as kafka,
        Audit([ClusterAddress("main", kafka.zookeeper_connect)], window_ms=WINDOW_MS) as auditing,
    ):
        assert auditing.count() == []
        assert auditing.look(topics=["damaged"]).damaged == {("cluster:main", "damaged"): 1}
        tallies = auditing.tiers.topics["cluster:main"]["damaged"].tallies()
    assert [(key, count) for key, (count, _) in tallies.items()] == [((LONG_AGO_MS, 0), 10)]


def test_what_was_counted_and_is_gone_with_the_end_of_its_log_is_told(tmp_path):
    settings = {"coordination": "embedded"}
    records = [Sent(b"x" * 100, timestamp_ms=LONG_AGO_MS)] * 5

    def gone(kafka):
        address = ClusterAddress("main", kafka.zookeeper_connect)
        with Audit([address], window_ms=WINDOW_MS) as auditing:
            assert auditing.count() == []
            return auditing.look(topics=["cut"]).losses

    with running_kafka(settings=settings, log_dir=tmp_path) as kafka:
        with SimpleConsumer(kafka.host, kafka.port) as admin:
            admin.create_topic("cut", {"format": "kafka"})
        for _ in range(3):
            Confluent().produce(kafka.bootstrap_servers, "cut", records)
        assert gone(kafka) == []
    (segment,) = tmp_path.glob("cut-0/*.log")
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size * 2 // 3])
    with running_kafka(settings=settings, log_dir=tmp_path) as kafka:
        (loss,) = gone(kafka)
        assert (loss.log, loss.start, loss.end, loss.why) == ("0-0", 10, 15, "cut")
        assert gone(kafka) == [loss]
