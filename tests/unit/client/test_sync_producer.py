"""The producer of one broker: what arrives, what fails, and what is known about the rest."""

import pytest

from hermes.client import SendResult, SyncProducer
from hermes.errors import (
    BrokerUnavailableError,
    RemoteProtocolError,
    StorageUnavailableError,
    UnsupportedRequestVersionError,
    WrongPartitionError,
)
from hermes.protocol import (
    Acks,
    ErrorCode,
    ProducedEntry,
    ProduceRequest,
    encode_acknowledged_produce_response,
    encode_message_set,
)

ONE = encode_message_set([b"one"])
TWO = encode_message_set([b"two"])


def producer_of(broker, **options) -> SyncProducer:
    return SyncProducer(broker.host, broker.port, **options)


def send_and_wait(producer: SyncProducer, topic: str, partition: int) -> None:
    producer.send(topic, partition, ONE)
    producer.barrier()


@pytest.mark.parametrize("hermes", [True, False])
def test_unanswered_sends_have_arrived_behind_a_barrier(memory_broker, hermes: bool) -> None:
    broker = memory_broker(hermes=hermes)
    with producer_of(broker) as producer:
        producer.send("clicks", -1, ONE)
        producer.multi_send([ProduceRequest("clicks", 0, TWO), ProduceRequest("views", 0, ONE)])
        producer.barrier()
    assert broker.payloads("clicks") == [b"one", b"two"]
    assert broker.payloads("views") == [b"one"]
    assert broker.request_types() == [0, 3, 4]


def test_a_refused_send_shows_at_the_barrier_at_the_latest(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker) as producer:
        with pytest.raises(BrokerUnavailableError, match=producer.address):
            send_and_wait(producer, "clicks", 5)
        producer.send("clicks", 0, TWO)
        producer.barrier()
    assert broker.payloads("clicks") == [b"two"]


@pytest.mark.parametrize("acks", list(Acks))
def test_acknowledged_sends_tell_where_they_went(memory_broker, acks: Acks) -> None:
    broker = memory_broker()
    with producer_of(broker) as producer:
        produces = [ProduceRequest("clicks", -1, ONE), ProduceRequest("clicks", 0, TWO)]
        results = producer.send_acknowledged(produces, acks)
    assert results == [SendResult("clicks", 0, 0), SendResult("clicks", 0, len(ONE))]


def test_acknowledged_sends_fail_one_by_one(memory_broker) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.STORAGE_UNAVAILABLE]
    with producer_of(broker) as producer:
        produces = [ProduceRequest("clicks", partition, ONE) for partition in (0, 0, 3)]
        full, good, wrong = producer.send_acknowledged(produces)
    assert isinstance(full, StorageUnavailableError)
    assert full.retriable
    assert good == SendResult("clicks", 0, 0)
    assert isinstance(wrong, WrongPartitionError)
    assert "'clicks' partition 3" in str(wrong)


def test_a_0_7_broker_can_not_acknowledge(memory_broker) -> None:
    broker = memory_broker(hermes=False)
    with producer_of(broker) as producer:
        with pytest.raises(UnsupportedRequestVersionError, match="acknowledgement"):
            producer.send_acknowledged([ProduceRequest("clicks", 0, ONE)])
        producer.send("clicks", 0, ONE)
        producer.barrier()
    assert broker.payloads("clicks") == [b"one"]


def test_an_acknowledged_send_is_never_repeated_by_itself(memory_broker) -> None:
    broker = memory_broker()
    broker.drop = [64]
    with (
        producer_of(broker, supports_hermes_requests=True) as producer,
        pytest.raises(BrokerUnavailableError),
    ):
        producer.send_acknowledged([ProduceRequest("clicks", 0, ONE)])
    assert broker.request_types() == [64]


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_with_another_number_of_entries_is_refused(scripted, count: int) -> None:
    answer = encode_acknowledged_produce_response([ProducedEntry(0, 0, 0)] * count)
    broker = scripted(["read one request", answer, "read until the client closes"])
    with (
        producer_of(broker, supports_hermes_requests=True) as producer,
        pytest.raises(RemoteProtocolError, match="1 message sets"),
    ):
        producer.send_acknowledged([ProduceRequest("clicks", 0, ONE)])


@pytest.mark.parametrize(
    ("asked", "entry"), [(0, (99, 5)), (0, (0, -1)), (0, (-1, 5)), (-1, (0, -1)), (-1, (-7, 7))]
)
def test_an_acknowledgement_that_can_not_be_true_is_refused(scripted, asked, entry) -> None:
    partition, offset = entry
    answer = encode_acknowledged_produce_response([ProducedEntry(partition, 0, offset)])
    broker = scripted(["read one request", answer, "read until the client closes"])
    with (
        producer_of(broker, supports_hermes_requests=True) as producer,
        pytest.raises(RemoteProtocolError, match=f"offset {offset} of partition {partition}"),
    ):
        producer.send_acknowledged([ProduceRequest("clicks", asked, ONE)])
    assert not producer.channel.connection.is_connected


def test_the_broker_gives_up_before_the_client_does(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, timeout_seconds=10, supports_hermes_requests=True) as producer:
        producer.send_acknowledged([ProduceRequest("clicks", 0, ONE)], Acks.FLUSHED)
    (request,) = broker.requests
    assert request[8:14] == bytes.fromhex("000200001f40")  # flushed, 8,000 ms
