"""Topics that broker.yaml declares are there from the start, and creation is told."""

import time
from collections.abc import Callable
from pathlib import Path

import yaml
from hermes_testkit import DEADLINE_SECONDS, BrokerProcess, message, produce_acknowledged

from hermes import Producer, ProducerConfig, SimpleConsumer

StartBroker = Callable[..., BrokerProcess]

HELLO = message(b"hello")
EMBEDDED = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}


def test_a_declared_topic_is_there_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(topics={"clicks": {"partitions": 8}}, auto_create_topics=False)
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        (topic,) = consumer.metadata().topics
    assert (topic.topic, topic.partition_count) == ("clicks", 8)
    line = broker.wait_for_line("that broker.yaml declares")
    assert "created 1 of the topics that broker.yaml declares: clicks\n" in line
    assert broker.stop() == 0
    broker.start()
    assert not any("created" in line for line in broker.lines[broker._started_at :])


def test_it_is_registered_so_that_a_key_never_changes_its_partition(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(topics={"clicks": {"partitions": 8}}, **EMBEDDED)
    where = broker.wait_for_line("coordination is embedded").partition(" at ")[2].split()[0]
    config = ProducerConfig(zookeeper_connect=where, acks="flushed")
    with Producer(config) as producer, SimpleConsumer("127.0.0.1", broker.port) as consumer:
        for _ in range(20):
            producer.send("clicks", b"x", key=b"the same key")
        producer.flush()
        (topic,) = consumer.metadata(["clicks"]).topics
    ends = [each.high_watermark for each in topic.partitions]
    assert sum(end > 0 for end in ends) == 1, ends


def test_one_of_kafkas_format_that_is_declared_later_is_there_for_the_whole_cluster(
    start_broker: StartBroker,
) -> None:
    listen = {"kafka_listen": "tcp:0:interface=127.0.0.1", "format": "kafka"}
    broker = start_broker(topics={"clicks": {}}, **EMBEDDED, **listen)
    broker.wait_for_line("created topic clicks")
    config = yaml.safe_load(broker.config_file.read_text())
    config["topics"] = {"clicks": {}, "views": {"partitions": 3}}
    broker.config_file.write_text(yaml.safe_dump(config))
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        consumer.reload_config()
        broker.wait_for_line("created topic views (3 partitions) with 1 copies of each")
        # It is told before this broker has made its part.
        ends = time.monotonic() + DEADLINE_SECONDS
        while len((topic := consumer.metadata(["views"]).topics[0]).partitions) < 3:
            assert time.monotonic() < ends
    assert (topic.partition_count, topic.holds_records) == (3, True)


def test_each_topic_that_is_created_is_told(start_broker: StartBroker) -> None:
    broker = start_broker(num_partitions=2, topics={f"declared-{n}": {} for n in range(50)})
    with broker.connect() as client:
        for partition in (1, 0):
            client.call(produce_acknowledged(("clicks", partition, HELLO)))
    assert broker.stop() == 0
    told = [line for line in broker.lines if "created" in line]
    assert len(told) == 2
    assert "created 50 of the topics" in told[0]
    assert len(told[0]) < 400
    assert "created topic clicks (2 partitions)" in told[1]


def test_a_declared_topic_that_can_not_be_created_stops_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "clicks-0").write_text("no directory")
    broker = start_broker(topics={"clicks": {}, "views": {}})
    assert "error" in broker.wait_for_line("can't create clicks")
    with broker.connect() as client:
        client.call(produce_acknowledged(("views", 0, HELLO)))
    assert broker.stop() == 0


def test_a_number_of_partitions_that_was_lowered_is_said_to_have_no_effect(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    log_dir = str(tmp_path / "logs")
    broker = start_broker(log_dir=log_dir, topics={"clicks": {"partitions": 4}})
    with broker.connect() as client:
        client.call(produce_acknowledged(("clicks", 3, HELLO)))
    assert broker.stop() == 0
    broker = start_broker(log_dir=log_dir, topics={"clicks": {"partitions": 2}})
    line = broker.wait_for_line("topics keep the partitions that they have")
    assert line.endswith("though broker.yaml says fewer: clicks 4, not 2\n")
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        (topic,) = consumer.metadata(["clicks"]).topics
    assert topic.partition_count == 4
