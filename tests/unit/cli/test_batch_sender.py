import os

import pytest

from hermes.cli.batch_sender import BatchSender, choose_acks
from hermes.cli.line_batches import LineBatch
from hermes.client import SendResult
from hermes.client.conversations import KAFKA_07_REQUESTS
from hermes.errors import (
    BrokerUnavailableError,
    ClientError,
    MessageTooLargeBrokerError,
    StorageUnavailableError,
)
from hermes.protocol import (
    REQUEST_VERSIONS,
    Acks,
    BrokerMetadata,
    Codec,
    MessageSet,
    PartitionLeader,
    TopicMetadata,
)


class FakeProducer:
    """Keeps what is sent; fails the n-th send with the n-th failure, if there is one."""

    address = "broker:9092"

    def __init__(self, *, hermes=True, failures=(), max_message_bytes=1000):
        self.channel = self
        self.hermes = hermes
        self.failures = list(failures)
        self.max_message_bytes = max_message_bytes
        self.sent = []
        self.barriers = 0

    def versions(self):
        return dict(REQUEST_VERSIONS) if self.hermes else KAFKA_07_REQUESTS

    def run(self, conversation):
        request = next(conversation)
        assert request.request[4:6] == b"\0\x42"
        conversation.close()
        return BrokerMetadata(1, "0", 1 << 20, self.max_message_bytes, 1, (), ())

    def can_acknowledge(self):
        return self.hermes

    def send(self, topic, partition, message_set):
        self._keep(topic, partition, None, message_set)

    def send_acknowledged(self, produces, acks):
        (produce,) = produces
        failure = self._keep(produce.topic, produce.partition, acks, produce.message_set)
        return [failure or SendResult(produce.topic, produce.partition, 0)]

    def barrier(self):
        self.barriers += 1
        self._fail()

    def _keep(self, topic, partition, acks, message_set):
        failure = self._fail()
        self.sent.append((topic, partition, acks, MessageSet(message_set)))
        return failure

    def _fail(self):
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, BrokerUnavailableError):
            raise failure
        return failure

    def payloads(self):
        return [[message.payload for message, _ in each] for _, _, _, each in self.sent]


def batch(*lines):
    return LineBatch(list(lines), sum(map(len, lines)))


def test_an_acknowledged_batch_is_stored(capsys):
    producer = FakeProducer()
    sender = BatchSender(producer, "t", -1, Acks.FLUSHED)
    sender.send(batch(b"a", b"b"))
    assert sender.stored_count == 2
    assert [(each[:3]) for each in producer.sent] == [("t", -1, Acks.FLUSHED)]
    assert producer.payloads() == [[b"a", b"b"]]
    sender.finish()
    assert producer.barriers == 0


def test_without_acknowledgement_a_barrier_proves_that_all_was_read():
    producer = FakeProducer()
    sender = BatchSender(producer, "t", 0, None)
    sender.send(batch(b"a"))
    sender.send(batch(b"b"))
    # Which format the topic has shows in an answer only, so the first is asked for.
    assert [acks for _, _, acks, _ in producer.sent] == [Acks.WRITTEN, None]
    assert sender.stored_count == 0
    sender.finish()
    assert (sender.stored_count, producer.barriers) == (2, 1)


@pytest.mark.parametrize(
    "failure",
    [BrokerUnavailableError("gone"), StorageUnavailableError("full"), MessageTooLargeBrokerError()],
)
def test_a_failure_tells_which_lines_are_stored(failure):
    sender = BatchSender(FakeProducer(failures=[None, failure]), "t", 0, Acks.WRITTEN)
    sender.send(batch(b"a", b"b", b"c"))
    with pytest.raises(ClientError, match="; lines 1 to 3 are stored"):
        sender.send(batch(b"d"))


def test_a_broker_that_closes_before_the_end_leaves_it_open():
    sender = BatchSender(FakeProducer(failures=[None, BrokerUnavailableError("x")]), "t", 0, None)
    sender.send(batch(b"a"))
    with pytest.raises(ClientError, match="x; no line is known to be stored"):
        sender.finish()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_a_compressed_batch_is_one_message(codec):
    producer = FakeProducer()
    sender = BatchSender(producer, "t", 0, Acks.FLUSHED, codec)
    sender.send(batch(*[b"x" * 100] * 50))
    ((_, _, _, messages),) = producer.sent
    assert len(list(messages.iterate(deep=False))) == 1
    assert producer.payloads() == [[b"x" * 100] * 50]


def test_what_does_not_compress_is_halved_until_the_broker_takes_it():
    producer = FakeProducer(max_message_bytes=1000)
    sender = BatchSender(producer, "t", 0, Acks.FLUSHED, Codec.GZIP)
    lines = [os.urandom(300) for _ in range(9)] + [os.urandom(1000)]
    sender.send(batch(*lines))
    assert [line for each in producer.payloads() for line in each] == lines
    assert sender.stored_count == 10
    for _, _, _, messages in producer.sent:
        for message, _ in messages.iterate(deep=False):
            assert len(message.payload) <= 1000


def test_the_largest_message_is_asked_for_where_that_is_possible():
    assert BatchSender(FakeProducer(), "t", 0, None).max_message_bytes == 1000
    assert BatchSender(FakeProducer(hermes=False), "t", 0, None).max_message_bytes == 1_000_000


@pytest.mark.parametrize(
    ("name", "acks"), [("none", None), ("written", Acks.WRITTEN), ("flushed", Acks.FLUSHED)]
)
def test_a_hermes_broker_acknowledges_as_asked(name, acks, capsys):
    assert choose_acks(FakeProducer(), name, is_required=True) is acks
    assert capsys.readouterr().err == ""


def test_a_kafka_07_acknowledges_nothing_and_that_is_said(capsys):
    producer = FakeProducer(hermes=False)
    assert choose_acks(producer, "none", is_required=True) is None
    assert capsys.readouterr().err == ""
    assert choose_acks(producer, "flushed", is_required=False) is None
    assert "acknowledges nothing; sending with --acks none" in capsys.readouterr().err
    with pytest.raises(ClientError, match="use --acks none"):
        choose_acks(producer, "flushed", is_required=True)


def test_keys_are_refused_where_the_broker_has_no_partition():
    producer = FakeProducer()
    elsewhere = TopicMetadata("t", 0, 3, (), True, 1, (PartitionLeader(0, 2, 2, 0),))
    producer.run = lambda _: BrokerMetadata(1, "0", 1 << 20, 1000, 1, (), (elsewhere,))
    sender = BatchSender(producer, "t", -1, Acks.FLUSHED)
    with pytest.raises(ClientError, match="broker:9092 has no partition of topic 't'"):
        sender.choose_by_key(b":")
