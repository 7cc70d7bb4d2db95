"""A topic of 0.7 between both kinds of clients: each reads what the other has written."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import InvalidRecordError

from hermes.client import FetchRequest, MessageSet, SimpleConsumer, SyncProducer
from hermes.errors import WrongFormatError
from hermes.protocol import Codec, ProduceRequest
from hermes.testing import RunningBroker, running_broker

SETS = [
    MessageSet.of([b"plain %d" % n for n in range(300)]),
    MessageSet.of([b"zipped %d" % n for n in range(300)], Codec.GZIP),
    MessageSet.of([b"snappy %d" % n for n in range(300)], Codec.SNAPPY),
    MessageSet.of([b"", b"x" * 200_000, b"last"]),
]
PAYLOADS = [message.payload for each in SETS for message, _ in each]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {
        "kafka_listen": "tcp:0:interface=127.0.0.1",
        "coordination": "none",
        "group_initial_rebalance_delay": "0s",
        "topics": {"new": {"format": "kafka"}},
    }
    with running_broker(settings=settings) as broker:
        with SyncProducer(broker.host, broker.port) as producer:
            for each in SETS:
                producer.send_acknowledged([ProduceRequest("old", 0, each.data)])
        yield broker


def consumer(broker: RunningBroker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def take(reader: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < count:
        found = reader.poll(60)
        assert found is not None
        assert found.error() is None
        taken.append(found)
    return taken


def test_kafkas_clients_read_it_all(broker: RunningBroker) -> None:
    reader = consumer(broker, "all")
    reader.subscribe(["old"])
    assert [each.value() for each in take(reader, len(PAYLOADS))] == PAYLOADS
    low, high = reader.get_watermark_offsets(TopicPartition("old", 0))
    assert (low, high) == (0, sum(len(each.data) for each in SETS))
    reader.close()


def test_who_commits_anywhere_goes_on_there(broker: RunningBroker) -> None:
    read: list[bytes | None] = []
    while len(read) < len(PAYLOADS):
        reader = consumer(broker, "stopping")
        reader.subscribe(["old"])
        some = take(reader, min(97, len(PAYLOADS) - len(read)))
        read += [each.value() for each in some]
        reader.commit(message=some[-1], asynchronous=False)
        reader.close()
    assert read == PAYLOADS


def test_a_value_of_kafkas_is_a_message_of_0_7(broker: RunningBroker) -> None:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with SyncProducer(broker.host, broker.port) as writer:
        writer.send_acknowledged([ProduceRequest("values", 0, MessageSet.of([b"first"]).data)])
    producer.produce("values", b"second", on_delivery=lambda e, _: outcomes.append(e))
    assert producer.flush(60) == 0
    producer.produce("values", b"third", key=b"k", on_delivery=lambda e, _: outcomes.append(e))
    assert producer.flush(60) == 0
    assert outcomes[0] is None
    assert outcomes[1] is not None
    assert outcomes[1].code() == KafkaError.INVALID_RECORD
    with SimpleConsumer(broker.host, broker.port) as reader:
        found = reader.fetch(FetchRequest("values", 0, 0, 1 << 20))
        assert [message.payload for message, _ in found] == [b"first", b"second"]


def test_who_sends_what_0_7_cannot_keep_is_told_why(broker: RunningBroker) -> None:
    with SyncProducer(broker.host, broker.port) as writer:
        writer.send_acknowledged([ProduceRequest("unfit", 0, MessageSet.of([b"first"]).data)])
    outcomes: dict[bytes, KafkaError | None] = {}
    settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}
    producer = Producer(settings)
    for value, key in ((b"fits", None), (b"doesn't", b"k"), (b"nor", b"k")):
        producer.produce(
            "unfit", value, key, on_delivery=lambda e, m: outcomes.update({m.value(): e})
        )
    assert producer.flush(60) == 0
    codes = {value: error and error.code() for value, error in outcomes.items()}
    assert codes == {
        b"fits": KafkaError._INVALID_DIFFERENT_RECORD,
        b"doesn't": KafkaError.INVALID_RECORD,
        b"nor": KafkaError.INVALID_RECORD,
    }
    with (
        closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as other,
        pytest.raises(InvalidRecordError, match=r"has headers.*format of Kafka 0\.7"),
    ):
        other.send("unfit", b"x", headers=[("h", b"1")]).get(60)
    with SimpleConsumer(broker.host, broker.port) as reader:
        lines = [each.message for each in reader.recent_log_lines(max_lines=1000).lines]
    assert len([each for each in lines if "refused messages of" in each and "unfit" in each]) == 2


def test_a_client_of_our_own_is_told_what_the_topic_is(broker: RunningBroker) -> None:
    with SyncProducer(broker.host, broker.port) as producer:
        data = MessageSet.of([b"x"]).data
        (outcome,) = producer.send_acknowledged([ProduceRequest("new", 0, data)])
    assert isinstance(outcome, WrongFormatError)
