"""The lag of groups in `/metrics`: of Kafka's clients, and where offsets count messages."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from mirrored_pair import eventually
from scraping import until

from hermes.client import SyncProducer
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.testing import RunningKafka, running_kafka


def commit(kafka: RunningKafka, group: str, *places: TopicPartition) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    consumer = Consumer(settings)
    try:
        # In a cluster what a client of 0.7 has created is there for Kafka's in a moment.
        def are_there() -> bool:
            topics = consumer.list_topics(timeout=30).topics
            return all(
                each.topic in topics
                and topics[each.topic].error is None
                and each.partition in topics[each.topic].partitions
                for each in places
            )

        eventually(are_there)
        consumer.commit(offsets=list(places), asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("coordination", ["none", "embedded"])
def test_lags_have_the_unit_of_their_offsets(coordination: str) -> None:
    settings = {"coordination": coordination, "http_listen": "tcp:0:interface=127.0.0.1"}
    settings["format"] = "0.7"  # of `old`
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    with running_kafka(topics={"orders": 2}, settings=settings) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        for _ in range(10):
            producer.produce("orders", b"x" * 100, partition=1)
        assert producer.flush(60) == 0
        with SyncProducer(kafka.host, kafka.port) as old:
            messages = encode_message_set([b"of 2012"])  # 17 bytes with what is before them
            old.send_acknowledged([ProduceRequest("old", 0, messages)], Acks.FLUSHED)
        commit(kafka, "tills", TopicPartition("orders", 1, 7), TopicPartition("old", 0, 0))
        expected = {
            ("hermes_group_lag_messages", "tills", "orders", "1"): 3.0,
            ("hermes_group_lag_bytes", "tills", "old", "0"): 17.0,
        }
        if coordination == "embedded":
            session = Session(str(kafka.zookeeper_connect))
            session.start()
            try:
                places = {("orders", BrokerPartition(0, 1)): 4, ("old", BrokerPartition(0, 0)): 17}
                store_offsets(session, "search", places)
                # Of an earlier topic of that name: nobody knows how far behind that is.
                store_offsets(session, "beyond", {("orders", BrokerPartition(0, 1)): 99})
            finally:
                session.stop()
            expected["hermes_group_lag_messages", "search", "orders", "1"] = 6.0
            expected["hermes_group_lag_bytes", "search", "old", "0"] = 0.0
        found = until(
            str(kafka.http),
            lambda now: (
                sum(name.startswith("hermes_group_lag") for name, _ in now.samples) >= len(expected)
            ),
        )
        lags = {
            (name, *(dict(labels)[each] for each in ("group", "topic", "partition"))): value
            for (name, labels), value in found.samples.items()
            if name.startswith("hermes_group_lag")
        }
        assert lags == expected
