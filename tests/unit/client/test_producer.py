"""The producer, synchronous and asynchronous, against brokers in memory."""

import socket
import sys
import threading

import pytest
from zope.interface import directlyProvides

from hermes.client import Keys, Producer, ProducerConfig, ProducerData, SendResult
from hermes.client.payloads import InPartition
from hermes.client.sync_producer import SyncProducer
from hermes.errors import (
    ArgumentError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    DeliveryError,
    EncodingError,
    InvalidTopicError,
    MessageTooLargeBrokerError,
    MessageTooLargeError,
    OutcomeUnknownError,
    PluginError,
    QueueFullError,
    RemoteProtocolError,
    RoutingError,
    StorageUnavailableError,
    UnsupportedRequestVersionError,
)
from hermes.interfaces import IEncoder, IPartitioner
from hermes.protocol import ErrorCode, MessageSet, MetadataRequest

BOTH = pytest.mark.parametrize("producer_type", ["sync", "async"])


def producer_of(*brokers, **settings) -> Producer:
    listed = ",".join(f"{number}:{each.host}:{each.port}" for number, each in enumerate(brokers))
    settings = {"retry_backoff": 1, "queue_time": 0, **settings}
    return Producer(ProducerConfig(broker_list=listed, **settings))


@BOTH
@pytest.mark.parametrize("acks", ["none", "written", "flushed"])
def test_everything_sent_arrives_in_order(memory_broker, producer_type, acks) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type=producer_type, acks=acks) as producer:
        producer.send("clicks", b"1")
        producer.send("clicks", [b"2", b"3"])
        producer.send(ProducerData("clicks", b"4", key="user"))
        handle = producer.send("clicks", b"5")
    assert broker.payloads("clicks") == [b"1", b"2", b"3", b"4", b"5"]
    # The first set is answered in any case: that tells the topic's format.
    is_known = acks != "none" or handle.result(0).offset is not None
    assert handle.result(0) == SendResult("clicks", 0, 44 if is_known else None)
    metrics = producer.metrics()
    assert (metrics.queued, metrics.sent, metrics.failed, metrics.dropped) == (0, 5, 0, 0)
    assert metrics.mean_batch_size >= 1
    assert metrics.slowest_batch_seconds >= metrics.mean_latency_seconds > 0


@BOTH
def test_flush_waits_until_the_broker_has_everything(memory_broker, producer_type) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type=producer_type, queue_time="1h") as producer:
        for number in range(100):
            producer.send("clicks", b"%d" % number)
        producer.flush()
        assert broker.payloads("clicks") == [b"%d" % number for number in range(100)]


def test_a_broker_that_moves_while_a_thread_waits_for_its_turn_gets_the_messages(
    memory_broker, monkeypatch
) -> None:
    before, after = memory_broker(), memory_broker()
    send = SyncProducer.send_acknowledged
    with producer_of(before, acks="flushed") as producer:
        brokers = producer._brokers

        def send_after_move(broker, *arguments, **options):
            brokers.place(0, after.host, after.port)  # as another thread does that looks again
            return send(broker, *arguments, **options)

        monkeypatch.setattr(SyncProducer, "send_acknowledged", send_after_move)
        assert producer.send("clicks", b"1").result().offset == 0
    assert (before.payloads("clicks"), after.payloads("clicks")) == ([], [b"1"])


@BOTH
@pytest.mark.parametrize("key", [Keys(["a"]), InPartition(0, Keys(["a", "b"]))])
def test_keys_for_what_is_no_list_are_refused_also_for_a_topic_that_is_known(
    memory_broker, producer_type, key
) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type=producer_type) as producer:
        producer.send("clicks", b"1").result()
        for _ in range(2):
            with pytest.raises(ArgumentError, match="expected one for each message"):
                producer.send("clicks", b"x", key=key)
        producer.send("clicks", b"2").result()
    assert broker.payloads("clicks") == [b"1", b"2"]


@pytest.mark.parametrize("method", ["flush", "close"])
def test_a_callback_cannot_wait_for_what_it_holds_up(memory_broker, method) -> None:
    broker = memory_broker()
    refused = []

    def wait(_) -> None:
        try:
            getattr(producer, method)(0)
        except Exception as error:
            refused.append(error)

    with producer_of(broker, producer_type="async") as producer:
        broker.paused.clear()
        handle = producer.send("clicks", b"1")
        handle.add_done_callback(wait)
        broker.paused.set()
        handle.result(10)
        producer.flush()
        assert [type(each) for each in refused] == [ClientError]
        assert producer.send("clicks", b"2").result(10).offset == 11, "it is still open"


def test_a_callback_that_exits_does_not_end_the_sender(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type="async") as producer:
        broker.paused.clear()
        heard = []
        handle = producer.send("clicks", b"1")
        handle.add_done_callback(lambda _: sys.exit(1))
        handle.add_done_callback(heard.append)
        broker.paused.set()
        assert producer.send("clicks", b"2").result(10).offset == 11
    assert heard == [handle]


def test_a_fault_of_the_sender_is_told_by_flush_as_any_other_failure(
    memory_broker, monkeypatch
) -> None:
    with producer_of(memory_broker(), producer_type="async") as producer:

        def send(batches: object) -> None:
            raise MemoryError

        monkeypatch.setattr(producer._sender, "send", send)
        producer.send("clicks", [b"1", b"2"])
        with pytest.raises(DeliveryError, match="2 messages were not sent"):
            producer.flush()
        assert producer.metrics().failed == 2
        assert isinstance(producer.send("clicks", b"3").exception(10), MemoryError)


def test_a_full_batch_leaves_without_waiting(memory_broker) -> None:
    broker = memory_broker()
    settings = {"producer_type": "async", "queue_time": "1h", "batch_size": 10}
    with producer_of(broker, acks="written", **settings) as producer:
        handles = [producer.send("clicks", b"x") for _ in range(10)]
        assert handles[-1].result(10) == SendResult("clicks", 0, 99)


def test_a_lonely_message_leaves_after_the_queue_time(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type="async", queue_time=1, acks="written") as producer:
        assert producer.send("clicks", b"x").result(10).offset == 0


def test_batches_grow_while_the_broker_is_slow(memory_broker) -> None:
    broker = memory_broker()
    settings = {"producer_type": "async", "acks": "written", "batch_size": 2}
    with producer_of(broker, supports_hermes_requests=True, **settings) as producer:
        producer.send("clicks", b"warm").result(10)
        broker.paused.clear()
        handles = [producer.send("clicks", b"x") for _ in range(50)]
        broker.paused.set()
        assert [each.result(10).offset for each in handles] == [14 + 11 * n for n in range(50)]
    assert broker.request_types().count(64) <= 4


def test_topics_that_wait_together_leave_in_one_request(memory_broker) -> None:
    broker = memory_broker()
    settings = {"producer_type": "async", "acks": "written", "partition_counts": {"*": 1}}
    with producer_of(broker, supports_hermes_requests=True, **settings) as producer:
        broker.paused.clear()
        handles = [producer.send("warm", b"x")]
        while producer.metrics().queued:  # until the sender has taken it
            threading.Event().wait(0.001)
        handles += [producer.send(topic, b"x") for topic in ("a", "b", "a", "c")]
        broker.paused.set()
        assert [each.result(10).offset for each in handles] == [0, 0, 0, 11, 0]
    assert broker.request_types().count(64) == 2


@BOTH
@pytest.mark.parametrize("compression", ["gzip", "snappy"])
def test_compression_of_chosen_topics(memory_broker, producer_type, compression) -> None:
    broker = memory_broker()
    settings = {"compression": compression, "compressed_topics": ["big"]}
    with producer_of(broker, producer_type=producer_type, **settings) as producer:
        producer.send("big", [b"x" * 1000] * 10)
        producer.send("small", b"x" * 1000)
        producer.flush()
    assert broker.payloads("big") == [b"x" * 1000] * 10
    assert len(broker.logs["big", 0]) < 1000
    assert len(broker.logs["small", 0]) == 1010


def test_an_encoder_by_name(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, encoder="json") as producer:
        producer.send("clicks", {"user": 7}, key="user-7")
        producer.send("clicks", [[1, 2], "text"])
        producer.flush()
        with pytest.raises(EncodingError, match="set"):
            producer.send("clicks", {1, 2})
    assert broker.payloads("clicks") == [b'{"user":7}', b"[1,2]", b'"text"']


class _StrangeEncoder:
    def encode(self, topic, value):
        if value == "raise":
            raise ZeroDivisionError("oops")
        return value


def test_a_faulty_encoder_is_an_encoding_error(memory_broker) -> None:

    encoder = _StrangeEncoder()
    directlyProvides(encoder, IEncoder)
    with producer_of(memory_broker(), encoder=encoder) as producer:
        with pytest.raises(EncodingError, match="ZeroDivisionError: oops"):
            producer.send("clicks", "raise")
        with pytest.raises(EncodingError, match="made a str instead of bytes"):
            producer.send("clicks", "text")


@BOTH
def test_bad_input_raises_at_the_call(memory_broker, producer_type) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type=producer_type, max_message_bytes=10) as producer:
        for messages, error in (
            ("text", EncodingError),
            (None, EncodingError),
            ([b"good", 7], EncodingError),
            (b"x" * 11, MessageTooLargeError),
            ([b"good", b"x" * 11], MessageTooLargeError),
        ):
            with pytest.raises(error):
                producer.send("clicks", messages)
        for topic in ("", "..", "a/b"):
            with pytest.raises(InvalidTopicError):
                producer.send(topic, b"x")
    assert broker.logs == {}


def test_lists_may_be_changed_after_the_call(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type="async", queue_time="1h") as producer:
        messages = [b"1", b"2"]
        producer.send("clicks", messages)
        messages.clear()
    assert broker.payloads("clicks") == [b"1", b"2"]


# -- routing ------------------------------------------------------------------------------------


def test_keys_go_where_the_jvm_puts_them_over_all_brokers(memory_broker) -> None:
    first, second = memory_broker(partition_count=3), memory_broker(partition_count=4)
    with producer_of(first, second, acks="written") as producer:
        # 7 partitions; abs(hash) % 7: "a" 6, "user-7" 0, the hash of -2^31 gets 2.
        assert producer.send("t", b"x", key="a").result() == SendResult("t", 3, 0)
        assert producer.send("t", b"x", key="user-7").result() == SendResult("t", 0, 0)
        assert producer.send("t", b"x", key="polygenelubricants").result().partition == 2
    assert set(first.logs) == {("t", 0), ("t", 2)}
    assert set(second.logs) == {("t", 3)}


@BOTH
@pytest.mark.parametrize("count", [1, 2, 3, 500])
def test_a_key_for_each_message_sends_each_where_it_alone_would_go(
    memory_broker, producer_type, count
) -> None:
    one_by_one, together = (memory_broker(partition_count=7) for _ in range(2))
    keys = [f"user-{number % 11}" for number in range(count)]
    payloads = [b"%d" % number for number in range(count)]
    settings = {"acks": "written", "producer_type": producer_type}
    with producer_of(one_by_one, **settings) as producer:
        for payload, key in zip(payloads, keys, strict=True):
            first = producer.send("t", payload, key=key)
            if payload == b"0":
                expected = first.result(10)
    with producer_of(together, **settings) as producer:
        handle = producer.send("t", payloads, key=Keys(keys))
        assert handle.result(10) == expected
        producer.send(ProducerData("t", payloads, Keys(keys))).result(10)
        assert producer.metrics().sent == 2 * count
    for partition in range(7):
        assert together.payloads("t", partition) == 2 * one_by_one.payloads("t", partition)


def test_many_keys_fill_sets_as_far_as_they_may(memory_broker) -> None:
    broker = memory_broker(partition_count=3)
    keys = [f"user-{number}" for number in range(60)]
    payloads = [b"%02d" % number * 150_000 for number in range(60)]  # 18 MB in all
    with producer_of(broker, acks="written") as producer:
        producer.send("t", payloads, key=Keys(keys))
    kept = [broker.payloads("t", number) for number in range(3)]
    assert sorted(each for some in kept for each in some) == payloads
    assert all(some == sorted(some) for some in kept)


def test_messages_without_a_key_may_be_among_those_with_one(memory_broker) -> None:
    broker = memory_broker(partition_count=3)
    with producer_of(broker, acks="written") as producer:
        producer.send("t", [b"a", b"b", b"c"], key=Keys(["x", None, "x"]))
    everything = [each for number in range(3) for each in broker.payloads("t", number)]
    assert sorted(everything) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("messages", "keys"), [(b"a", ["x"]), ([b"a"], []), ([b"a", b"b"], ["x"]), ([], [])]
)
def test_there_must_be_a_key_for_each_message(memory_broker, messages, keys) -> None:
    broker = memory_broker()
    with producer_of(broker) as producer, pytest.raises(ArgumentError, match="expected one"):
        producer.send("t", messages, key=Keys(keys))
    assert broker.payloads("t") == []


@BOTH
def test_of_many_keys_the_first_failure_is_the_outcome(memory_broker, producer_type) -> None:
    broker = memory_broker(partition_count=5)
    broker.errors = [0, ErrorCode.MESSAGE_TOO_LARGE]  # of the sets for two of the partitions
    settings = {"acks": "written", "producer_type": producer_type}
    with producer_of(broker, **settings) as producer:
        with pytest.raises(MessageTooLargeBrokerError):
            producer.send("t", [b"x"] * 50, key=Keys(map(str, range(50)))).result(10)
        assert 0 < producer.metrics().failed < 50


@BOTH
def test_of_many_keys_none_is_sent_when_one_has_no_partition(memory_broker, producer_type) -> None:
    broker = memory_broker(partition_count=5)
    settings = {"acks": "written", "producer_type": producer_type, "num_retries": 0}
    keys = Keys([f"user-{number}" for number in range(50)])
    partitioner = _Wrong(9)
    directlyProvides(partitioner, IPartitioner)
    with (
        producer_of(broker, partitioner=partitioner, **settings) as producer,
        pytest.raises(RoutingError, match="chose partition 9 of 5"),
    ):
        producer.send("t", [b"x"] * 50, key=keys).result(10)
    assert not any(broker.payloads("t", number) for number in range(5))


def test_a_0_7_broker_chooses_for_messages_without_key(memory_broker) -> None:
    broker = memory_broker(hermes=False)
    with producer_of(broker) as producer:
        producer.send("clicks", b"x")
        producer.flush()
        with pytest.raises(RoutingError, match="set partition_counts"):
            producer.send("clicks", b"x", key="user")
    (produce,) = [each for each in broker.requests if each[4:6] == b"\x00\x00"]
    assert produce[14:18] == b"\xff\xff\xff\xff"


def test_with_partition_counts_keys_work_on_a_0_7_broker(memory_broker) -> None:
    broker = memory_broker(hermes=False, partition_count=7)
    with producer_of(broker, partition_counts={"*": 7}, acks="none") as producer:
        producer.send("clicks", b"x", key="a")
        producer.flush()
    assert broker.payloads("clicks", 6) == [b"x"]
    assert [each for each in broker.request_types() if each != 66] == [4, 0, 4]


def test_a_0_7_broker_can_not_acknowledge(memory_broker) -> None:
    with producer_of(memory_broker(hermes=False), acks="written") as producer:
        with pytest.raises(UnsupportedRequestVersionError, match="acknowledgement"):
            producer.send("clicks", b"x")
        assert producer.metrics().failed == 1


@BOTH
def test_by_default_a_message_is_on_disk_where_the_broker_can_say_so(
    memory_broker, producer_type, caplog
) -> None:
    able, old = memory_broker(), memory_broker(hermes=False)
    for broker, offset in ((able, 11), (old, None)):
        with producer_of(broker, producer_type=producer_type) as producer:
            for _ in range(2):
                result = producer.send("clicks", b"x").result(10)
            assert result.offset == offset
        assert broker.payloads("clicks") == [b"x", b"x"]
    produces = [each for each in able.requests if each[4:6] == b"\x00\x40"]
    assert [each[8:10] for each in produces] == [b"\x00\x02"] * 2  # flushed
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith(f"{old.host}:{old.port} can't acknowledge")
    assert 64 not in old.request_types()


class _Wrong:
    def __init__(self, answer):
        self._answer = answer

    def partition(self, topic, key, partition_count):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("answer", [2, -1, None, "0", ZeroDivisionError("oops")])
def test_a_partitioner_that_is_wrong_is_named(memory_broker, answer) -> None:

    partitioner = _Wrong(answer)
    directlyProvides(partitioner, IPartitioner)
    with (
        producer_of(memory_broker(partition_count=2), partitioner=partitioner) as producer,
        pytest.raises(RoutingError, match="_Wrong"),
    ):
        producer.send("clicks", b"x", key="k")


@pytest.mark.parametrize(
    "settings",
    [
        {"partitioner": "no-such"},
        {"partitioner": object()},
        {"encoder": object()},
        {"encoder": "avro"},
        {"event_handler": object()},
        {"partitioner": "sticky", "partitioner_options": {"calls": 0}},
        {"partitioner": "sticky", "partitioner_options": {"what": 1}},
    ],
)
def test_wrong_plugins_fail_at_the_start(settings) -> None:
    with pytest.raises(PluginError):
        Producer(ProducerConfig(broker_list="0:localhost:9092", **settings))


@BOTH
@pytest.mark.parametrize("count", [10_001, 2**31 - 1])
def test_partitions_that_nobody_has_are_not_believed(memory_broker, producer_type, count) -> None:
    broker = memory_broker(partition_count=count)
    with producer_of(broker, producer_type=producer_type) as producer:
        with pytest.raises(RemoteProtocolError, match="up to 10000 are believed"):
            producer.send("clicks", b"x").result(10)
        assert producer.metrics().failed == 1


@pytest.mark.parametrize("names", [("other",), ("clicks", "other"), ()])
def test_metadata_of_other_topics_is_not_believed(memory_broker, monkeypatch, names) -> None:
    broker = memory_broker()
    honest = broker.metadata

    def metadata(request):
        return honest(MetadataRequest(names) if request.topics else request)

    monkeypatch.setattr(broker, "metadata", metadata)
    with producer_of(broker) as producer, pytest.raises(RemoteProtocolError, match="asked for 1"):
        producer.send("clicks", b"x")


# -- failures -----------------------------------------------------------------------------------


@BOTH
def test_a_failure_that_may_pass_is_tried_again(memory_broker, producer_type) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.STOPPING]
    with producer_of(broker, producer_type=producer_type, acks="written") as producer:
        assert producer.send("clicks", b"x").result(10) == SendResult("clicks", 0, 0)
    assert broker.payloads("clicks") == [b"x"]


@BOTH
def test_retries_are_bounded_and_the_error_is_the_last_one(memory_broker, producer_type) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.STORAGE_UNAVAILABLE] * 3
    settings = {"producer_type": producer_type, "num_retries": 2, "acks": "flushed"}
    with producer_of(broker, **settings) as producer:
        with pytest.raises(StorageUnavailableError):
            producer.send("clicks", b"x").result(10)
        assert producer.send("clicks", b"y").result(10).offset == 0
        assert (producer.metrics().failed, producer.metrics().sent) == (1, 1)


@BOTH
@pytest.mark.parametrize("last", [ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.UNKNOWN_TOPIC])
def test_a_refusal_after_an_unknown_outcome_does_not_say_that_nothing_was_written(
    memory_broker, producer_type, last
) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.OUTCOME_UNKNOWN, last]
    settings = {"producer_type": producer_type, "num_retries": 1, "acks": "flushed"}
    with producer_of(broker, **settings) as producer, pytest.raises(OutcomeUnknownError):
        producer.send("clicks", b"x").result(10)


def test_a_failure_that_stays_is_not_tried_again(memory_broker) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.MESSAGE_TOO_LARGE]
    with (
        producer_of(broker, acks="written") as producer,
        pytest.raises(MessageTooLargeBrokerError),
    ):
        producer.send("clicks", b"x")
    assert broker.request_types().count(64) == 1


@pytest.mark.parametrize("acks", ["none", "written"])
def test_a_lost_connection_is_tried_again(memory_broker, acks) -> None:
    broker = memory_broker()
    with producer_of(broker, acks=acks) as producer:
        producer.send("clicks", b"1")
        producer.flush()
        broker.drop = [64, 64] if acks == "written" else []
        if acks == "none":
            broker.drop_connections()
        producer.send("clicks", b"2")
        if acks == "written":
            assert broker.payloads("clicks") == [b"1", b"2"]


@BOTH
def test_a_flush_tells_of_a_loss_also_after_later_messages_were_sent_again(
    memory_broker, monkeypatch, producer_type
) -> None:
    monkeypatch.setattr("hermes.client.connection.closed_when_idle", lambda *given: False)
    broker = memory_broker()
    with producer_of(broker, producer_type=producer_type, acks="none") as producer:
        for payload in (b"answered", b"perhaps lost"):
            producer.send("clicks", payload).result(10)
        broker.drop_connections()
        connection = producer._brokers[0].channel.connection
        while not connection._poll.poll(10_000):
            pass  # what came was of TLS itself
        producer.send("clicks", b"sent again").result(10)
        with pytest.raises(BrokerUnavailableError, match="may be lost"):
            producer.flush()
        producer.flush()


def test_a_flush_tells_of_what_was_sent_to_where_a_broker_no_longer_is(memory_broker) -> None:
    before, after = memory_broker(), memory_broker()
    with producer_of(before, acks="none") as producer:
        for payload in (b"answered", b"perhaps lost"):
            producer.send("clicks", payload)
        producer._brokers.place(0, after.host, after.port)
        producer.send("clicks", b"elsewhere")
        with pytest.raises(BrokerUnavailableError, match="may be lost"):
            producer.flush()


@BOTH
def test_a_broker_that_is_down_is_an_error_for_every_message(unused_port, producer_type) -> None:
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{unused_port}",
        producer_type=producer_type,
        num_retries=3,
        retry_backoff=0,
        queue_time=0,
    )
    with Producer(config) as producer:
        for _ in range(2):
            with pytest.raises(BrokerUnavailableError, match="running there"):
                producer.send("clicks", b"x").result(10)
        assert producer.metrics().failed == 2


@BOTH
def test_a_broker_that_can_not_be_asked_at_first_is_asked_again(
    memory_broker, producer_type
) -> None:
    broker = memory_broker()
    broker.drop = [66] * 4  # a question is repeated once within a try, so this is two tries
    settings = {"producer_type": producer_type, "acks": "written", "queue_time": "1h"}
    with producer_of(broker, supports_hermes_requests=True, **settings) as producer:
        for payload in (b"1", b"2", b"3"):
            producer.send("clicks", payload, key=payload)
        producer.flush()
        assert (producer.metrics().sent, producer.metrics().failed) == (3, 0)
    assert broker.payloads("clicks") == [b"1", b"2", b"3"]


def test_messages_without_key_go_to_the_brokers_that_live(memory_broker, unused_port) -> None:
    broker = memory_broker()
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{unused_port},1:{broker.host}:{broker.port}",
        num_retries=3,
        retry_backoff=0,
        acks="written",
    )
    with Producer(config) as producer:
        for _ in range(20):
            assert producer.send("clicks", b"x").result().partition == 0
        with pytest.raises(BrokerUnavailableError):
            producer.send("clicks", b"x", key="k")
    assert len(broker.payloads("clicks")) == 20


@pytest.fixture
def silent_port(unused_port, monkeypatch) -> tuple[int, list[float]]:
    """A port that swallows connections without an answer, and the timeouts of who tried."""
    tried: list[float] = []
    connect = socket.create_connection

    def create_connection(address, timeout):
        if address[1] != unused_port:
            return connect(address, timeout)
        tried.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", create_connection)
    return unused_port, tried


def test_a_silent_broker_holds_up_the_others_once(memory_broker, silent_port) -> None:
    port, tried = silent_port
    broker = memory_broker()
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{port},1:{broker.host}:{broker.port}",
        num_retries=3,
        retry_backoff=0,
    )
    with Producer(config) as producer:
        for topic in ("clicks", "views", "clicks"):
            producer.send(topic, b"x")
            with pytest.raises(BrokerUnavailableError, match="a moment ago"):
                producer.send(topic, b"x", key="k")
    assert tried == [config.connect_timeout_seconds]
    assert broker.payloads("clicks") == [b"x"] * 2


def test_every_try_for_the_only_broker_is_one(silent_port) -> None:
    port, tried = silent_port
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{port}",
        retry_backoff=0,
        num_retries=2,
        supports_hermes_requests=False,
    )
    with Producer(config) as producer, pytest.raises(BrokerUnavailableError, match="within"):
        producer.send("clicks", b"x")
    assert len(tried) == 3


def test_sets_behind_one_that_is_tried_again_wait_for_it(memory_broker) -> None:
    # 9 MB in three sets of one partition: the second fails once, the third must not overtake.
    broker = memory_broker()
    broker.errors = [0, ErrorCode.STORAGE_UNAVAILABLE]
    parts = [b"%d" % number * 900_000 for number in range(1, 10)] * 2
    with producer_of(broker, acks="written") as producer:
        producer.send("clicks", parts)
    assert broker.payloads("clicks") == parts


@BOTH
def test_a_delivery_ends_at_its_timeout(unused_port, producer_type) -> None:
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{unused_port}",
        producer_type=producer_type,
        delivery_timeout="50ms",
        retry_backoff=1,
        queue_time=0,
    )
    with Producer(config) as producer, pytest.raises(BrokerUnavailableError):
        producer.send("clicks", b"x").result(30)


def test_a_request_gets_no_more_time_than_its_delivery(memory_broker) -> None:
    broker = memory_broker()
    settings = {"timeout_seconds": 30, "delivery_timeout": "10s", "acks": "flushed"}
    with producer_of(broker, supports_hermes_requests=True, **settings) as producer:
        producer.send("clicks", b"x")
    (produce,) = [each for each in broker.requests if each[4:6] == b"\x00\x40"]
    timeout_ms = int.from_bytes(produce[10:14], "big")
    assert 0 < timeout_ms <= 8_000  # the broker's share


def test_a_silent_broker_costs_the_timeout(memory_broker) -> None:
    broker = memory_broker()
    settings = {"num_retries": 0, "acks": "written"}
    with producer_of(broker, supports_hermes_requests=True, **settings) as producer:
        producer.send("clicks", b"1")
        broker.paused.clear()
        producer._brokers[0].channel.connection.timeout_seconds = 0.05
        with pytest.raises(BrokerTimeoutError):
            producer.send("clicks", b"2")


@BOTH
def test_what_a_silent_broker_may_have_stored_is_called_unknown(
    memory_broker, producer_type
) -> None:
    """Though nothing was sent in the last try, which waited for the end of the first."""
    broker = memory_broker()
    settings = {"delivery_timeout": "400ms", "acks": "written", "timeout_seconds": 0.1}
    with producer_of(broker, producer_type=producer_type, **settings) as producer:
        producer.send("clicks", b"1").result(30)
        broker.paused.clear()
        with pytest.raises(BrokerTimeoutError, match="may or may not have been carried out"):
            producer.send("clicks", b"2").result(30)
        broker.paused.set()


# -- the queue ----------------------------------------------------------------------------------


def filled(broker, **settings) -> Producer:
    """A producer whose sender is stuck and whose queue of 5 messages is full."""
    producer = producer_of(
        broker,
        producer_type="async",
        acks="written",
        supports_hermes_requests=True,
        partition_counts={"*": 1},
        queue_size=5,
        batch_size=1,
        **settings,
    )
    broker.paused.clear()
    producer.send("clicks", b"stuck")
    while producer.metrics().queued:  # until the sender has taken it
        threading.Event().wait(0.001)
    for _ in range(5):
        producer.send("clicks", b"x")
    return producer


def test_a_full_queue_blocks_until_there_is_room(memory_broker) -> None:
    broker = memory_broker()
    with filled(broker) as producer:
        release = threading.Timer(0.01, broker.paused.set)
        release.start()
        assert producer.send("clicks", b"last").result(10)
        release.join()
    assert broker.payloads("clicks") == [b"stuck", *[b"x"] * 5, b"last"]


@pytest.mark.parametrize("settings", [{"queue_full": "raise"}, {"enqueue_timeout": "1ms"}])
def test_a_full_queue_raises(memory_broker, settings) -> None:
    broker = memory_broker()
    with filled(broker, **settings) as producer:
        with pytest.raises(QueueFullError, match="5 messages"):
            producer.send("clicks", b"too many")
        assert producer.metrics().dropped == 1
        broker.paused.set()
    assert len(broker.payloads("clicks")) == 6


def test_a_full_queue_drops_and_counts(memory_broker) -> None:
    broker = memory_broker()
    with filled(broker, queue_full="drop") as producer:
        handle = producer.send("clicks", b"too many")
        assert isinstance(handle.exception(0), QueueFullError)
        assert producer.metrics().dropped == 1
        assert producer.metrics().queued == 5
        broker.paused.set()
    assert len(broker.payloads("clicks")) == 6


def test_the_bytes_in_the_queue_are_bounded_too(memory_broker) -> None:
    broker = memory_broker()
    with filled(broker, queue_full="raise", queue_bytes=6) as producer:
        broker.paused.set()
        producer.flush()
        broker.paused.clear()
        producer.send("clicks", b"stuck").add_done_callback(lambda handle: None)
        while producer.metrics().queued:
            threading.Event().wait(0.001)
        producer.send("clicks", b"12345")
        with pytest.raises(QueueFullError):
            producer.send("clicks", b"12")
        broker.paused.set()


def test_an_item_larger_than_the_queue_passes_alone(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type="async", queue_size=3, acks="written") as producer:
        producer.send("clicks", [b"x"] * 10).result(10)
    assert len(broker.payloads("clicks")) == 10


def test_threads_share_a_producer(memory_broker) -> None:
    broker = memory_broker()
    with producer_of(broker, producer_type="async", queue_size=50) as producer:

        def send(name: int) -> None:
            for number in range(200):
                producer.send("clicks", b"%d %d" % (name, number))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    arrived = [tuple(map(int, each.split())) for each in broker.payloads("clicks")]
    assert len(arrived) == 800
    for name in range(4):
        assert [number for who, number in arrived if who == name] == list(range(200))


# -- the end ------------------------------------------------------------------------------------


@BOTH
def test_after_close_a_send_says_so(memory_broker, producer_type) -> None:
    producer = producer_of(memory_broker(), producer_type=producer_type)
    producer.close()
    producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send("clicks", b"x")


def test_close_sends_what_waits(memory_broker) -> None:
    broker = memory_broker()
    producer = producer_of(broker, producer_type="async", queue_time="1h")
    handles = [producer.send("clicks", b"x") for _ in range(20)]
    producer.close()
    assert all(each.done for each in handles)
    assert len(broker.payloads("clicks")) == 20


def test_what_close_can_not_send_fails_and_nothing_vanishes(memory_broker) -> None:
    broker = memory_broker()
    producer = filled(broker)
    last = producer.send  # the queue is full; what is in it must be reported
    with pytest.raises(DeliveryError, match="6 messages") as raised:
        producer.close(timeout_seconds=0.01)
    assert raised.value.failed_count == 6
    metrics = producer.metrics()
    assert (metrics.queued, metrics.sent, metrics.failed) == (0, 0, 6)
    with pytest.raises(ClientError):
        last("clicks", b"x")


def test_flush_ends_at_its_timeout(memory_broker) -> None:
    broker = memory_broker()
    producer = filled(broker)
    with pytest.raises(BrokerTimeoutError, match="sending continues"):
        producer.flush(0.01)
    broker.paused.set()
    producer.close()
    assert producer.metrics().sent == 6


def test_a_refused_message_shows_when_the_producer_closes(memory_broker) -> None:
    broker = memory_broker()
    producer = producer_of(broker, num_retries=0, acks="none")
    producer.send("clicks", b"first")
    broker.errors = [ErrorCode.INVALID_MESSAGE]
    with pytest.raises(BrokerUnavailableError):
        send_and_close(producer)
    producer.close()
    assert broker.payloads("clicks") == [b"first"]


def send_and_close(producer: Producer) -> None:
    producer.send("clicks", b"x")
    producer.close()


def test_large_lists_are_split_for_the_broker(memory_broker) -> None:
    broker = memory_broker()
    messages = [b"x" * 300_000] * 10
    with producer_of(broker, acks="none") as producer:
        producer.send("clicks", messages)
        producer.flush()
    assert broker.payloads("clicks") == messages
    assert max(map(len, broker.requests)) < 1 << 20
    assert MessageSet(bytes(broker.logs["clicks", 0])).valid_bytes == 3_000_100
