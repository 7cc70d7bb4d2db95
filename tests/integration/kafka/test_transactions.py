"""Transactions of Kafka's own clients: Java's, whose epochs grow (KIP-890), and librdkafka's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_4 import run_java
from kafka_kills import KafkaBroker
from kafka_loads import PARTITIONS, TOPIC
from kafka_raw import parts
from server_process import DEADLINE_SECONDS
from transactional_clients import TransactionalClients

from hermes.client.kafka_asking import KafkaAsker
from hermes.protocol.kafka_errors import Code
from hermes.testing import RunningKafka, running_kafka

TOPICS = {"source": 1, "paid": 3, "orders": 2, TOPIC: PARTITIONS}
OLD = {"old": {"format": "0.7"}}


@pytest.fixture(scope="module", params=["none", "embedded"])
def kafka(request: pytest.FixtureRequest) -> Iterator[RunningKafka]:
    with running_kafka(TOPICS, {"coordination": request.param, "topics": OLD}) as running:
        yield running


def producer_of(kafka: RunningKafka, name: str, **settings: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": name,
            "log_level": 0,
            **settings,
        }
    )
    producer.init_transactions(60)
    return producer


def values(kafka: RunningKafka, topic: str, *, committed: bool) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "any",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found, left = [], set(range(TOPICS[topic]))
    consumer.assign([TopicPartition(topic, each, 0) for each in left])
    while left:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("client", "coordination"),
    [pytest.param("java", "embedded", marks=pytest.mark.nightly), ("librdkafka", "none")],
)
def test_a_broker_is_killed(tmp_path: Path, client: str, coordination: str) -> None:
    settings = {"log_dir": str(tmp_path / "log"), "coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    broker = KafkaBroker(tmp_path / "broker", settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(DEADLINE_SECONDS)
    clients = TransactionalClients(broker.bootstrap, 6, client)
    try:
        for _ in range(3):
            clients.go_on(30)
            clients.kill_one()
            clients.go_on(30)
            broker.kill()
            broker.start()
        clients.go_on(30)
        clients.check()
    finally:
        clients.abandon()
        broker.stop()


def test_javas_transactions(kafka: RunningKafka) -> None:
    told = run_java("Transactions.java", kafka.bootstrap_servers, "orders", "java")
    assert told.split() == ["committed", "aborted", "offsets", "fenced"]
    assert sorted(values(kafka, "orders", committed=True)) == [b"one", b"three", b"two"]
    everything = values(kafka, "orders", committed=False)
    assert sorted(everything) == [b"aborted", b"fenced", b"one", b"three", b"two"]


def test_servers_share_a_command_topic_as_ksqldbs_do(kafka: RunningKafka) -> None:
    commands = run_java("CommandTopic.java", kafka.bootstrap_servers, "commands", "a service")
    found = commands.split()
    assert [each for each in found if "." not in each] == ["first", "second", "third", "last"]
    for name in ("one", "other"):
        numbers = [each.split(".")[1] for each in found if each.startswith(f"{name}.")]
        assert numbers == list("01234")


def test_a_newer_producer_fences_an_older_one(kafka: RunningKafka) -> None:
    older = producer_of(kafka, "same")
    older.begin_transaction()
    older.produce("source", b"lost")
    assert older.flush(60) == 0
    newer = producer_of(kafka, "same")
    with pytest.raises(KafkaException) as raised:
        older.commit_transaction(60)
    assert raised.value.args[0].code() == KafkaError._FENCED
    newer.begin_transaction()
    newer.produce("source", b"kept")
    newer.commit_transaction(60)
    assert values(kafka, "source", committed=True) == [b"kept"]


def test_a_late_transaction_is_aborted(kafka: RunningKafka) -> None:
    late = producer_of(kafka, "late", **{"transaction.timeout.ms": 1000})
    late.begin_transaction()
    late.produce("paid", b"0", partition=0)
    assert late.flush(60) == 0
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    state = "Ongoing"
    with KafkaAsker(host, int(port)) as asker:
        while state != "CompleteAbort":
            (found,) = asker.ask(
                "DescribeTransactions", 0, transactional_ids=["late"]
            ).transaction_states
            state = found.transaction_state
    with pytest.raises(KafkaException):
        late.commit_transaction(60)


def test_topics_of_0_7_are_part_of_none(kafka: RunningKafka) -> None:
    producer = producer_of(kafka, "old")
    producer.begin_transaction()
    producer.produce("old", b"x")
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_requests_that_no_client_of_ours_sends(kafka: RunningKafka) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with KafkaAsker(host, int(port)) as asker:

        def init(name: str, timeout_ms: int = 1000) -> Code:
            timeout = parts("InitProducerId", 4).timeout(timeout_ms)
            ids = {"producer_id": -1, "producer_epoch": -1}
            asked = {"transactional_id": name, "transaction_timeout": timeout, **ids}
            return Code(asker.ask("InitProducerId", 4, **asked).error_code)

        asker.ask("FindCoordinator", 4, key_type=1, coordinator_keys=["nobody"])
        for wrong_name in ("", "x" * 256):
            assert init(wrong_name) is Code.INVALID_REQUEST
        for wrong in (0, 15 * 60 * 1000 + 1):
            assert init("t", wrong) is Code.INVALID_TRANSACTION_TIMEOUT
        ids = {"transactional_id": "nobody", "producer_id": 5, "producer_epoch": 0}
        ended = asker.ask("EndTxn", 5, committed=True, **ids)
        assert Code(ended.error_code) is Code.INVALID_PRODUCER_ID_MAPPING
        added = asker.ask("AddOffsetsToTxn", 4, group_id="g", **ids)
        assert Code(added.error_code) is Code.INVALID_PRODUCER_ID_MAPPING


def test_offsets_for_a_group_that_is_not_in_the_transaction(kafka: RunningKafka) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with KafkaAsker(host, int(port)) as asker:
        asker.ask("FindCoordinator", 4, key_type=1, coordinator_keys=["lost"])
        timeout = parts("InitProducerId", 4).timeout(1000)
        asked = {"transactional_id": "lost", "transaction_timeout": timeout}
        made = asker.ask("InitProducerId", 4, **asked, producer_id=-1, producer_epoch=-1)
        ids = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        for version, code in ((3, Code.INVALID_TXN_STATE), (4, Code.TRANSACTION_ABORTABLE)):
            make = parts("TxnOffsetCommit", version)
            partition = make.TxnOffsetCommitRequestPartition(
                partition_index=0,
                committed_offset=0,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
            topic = make.TxnOffsetCommitRequestTopic(name="paid", partitions=(partition,))
            answer = asker.ask(
                "TxnOffsetCommit",
                version,
                transactional_id="lost",
                group_id="g",
                **ids,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=(topic,),
            )
            assert Code(answer.topics[0].partitions[0].error_code) is code


def test_the_state_is_the_brokers_own(kafka: RunningKafka) -> None:
    producer_of(kafka, "any")
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    errors: list[KafkaError] = []
    plain.produce("__transaction_state", b"x", on_delivery=lambda error, _: errors.append(error))
    plain.flush(60)
    assert [each.code() for each in errors] == [KafkaError.TOPIC_EXCEPTION]


def test_it_outlives_a_restart(tmp_path: Path) -> None:
    settings = {"coordination": "none"}
    with running_kafka({"orders": 1}, settings, log_dir=tmp_path / "log") as kafka:
        producer = producer_of(kafka, "lasting")
        producer.begin_transaction()
        producer.produce("orders", b"open")
        assert producer.flush(60) == 0
    with running_kafka({"orders": 1}, settings, log_dir=tmp_path / "log") as kafka:
        producer = producer_of(kafka, "lasting")  # which ends what was open
        producer.begin_transaction()
        producer.produce("orders", b"after")
        producer.commit_transaction(60)
        found = read_values(kafka)
    assert found == [b"after"]


def read_values(kafka: RunningKafka) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "any",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found
