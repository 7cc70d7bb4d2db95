"""Produce: batches are appended as they are, or refused with Kafka's own error."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from batches import NOW_MS, holding, resealed
from broker_bench import answers, flush_in, log_lines
from either_core import either_produce
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from kafka_logs import read_records
from pipelining_producer import decode_codes, encode_produce
from storage_fakes import UnsyncedFiles
from twisted.internet.defer import Deferred, maybeDeferred, succeed

from hermes.errors import NotLeaderError, TooFewReplicasError
from hermes.kafka import dispatching
from hermes.kafka.apis import APIS
from hermes.protocol import Acks, ProduceRequest
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import LOG_APPEND_TIME_BIT
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.record_requests import RecordProduceRequest
from hermes.protocol.records import Record, encode_batch, encode_records
from hermes.protocol.responses import decode_acknowledged_produce_response
from hermes.replication.state import first_state
from hermes.storage import FileLayer, Log

__all__ = ["either_produce"]

VERSIONS = range(APIS[0].lowest, APIS[0].highest + 1)
#: What a bench's clock says.
APPEND_TIME_MS = 1_800_000_000_000
BATCH = encode_batch([Record(0, 5, b"key", b"one"), Record(1, 6, None, b"two")])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}}, max_request_bytes="8MiB")
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


def log_of(bench: KafkaBench) -> Log:
    return bench.shared.topics.for_produce("new", 0)


def request(bench: KafkaBench, version: int, *records: bytes | None, **fields: Any) -> bytes:
    """A request for partition 0 of `new`, once for each of `records`."""
    kinds = messages("Produce", version, "request")
    found = bench.server.topics.get("new")
    assert found is not None
    named = {"topic_id": found.id} if version >= 13 else {"name": "new"}
    named.update(fields.pop("named", {}))
    partition = fields.pop("partition", 0)
    data = tuple(kinds.PartitionProduceData(index=partition, records=each) for each in records)
    values = {"transactional_id": None, "acks": -1, "timeout": timedelta(seconds=30), **fields}
    topic = kinds.TopicProduceData(**named, partition_data=data)
    return encode_request("Produce", version, topic_data=(topic,), **values)


def produce(bench: KafkaBench, version: int, *records: bytes | None, **fields: Any) -> Any:
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, version, *records, **fields))
    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Produce", version, answer).responses
    return topic.partition_responses[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_appends(bench: KafkaBench, version: int) -> None:
    for base in (0, 2):
        answer = produce(bench, version, BATCH)
        assert (answer.error_code, answer.base_offset) == (0, base)
        assert getattr(answer, "log_start_offset", 0) == 0
    kept = read_records(log_of(bench))
    assert [(each.offset, each.key, each.value) for each in kept] == [
        (0, b"key", b"one"),
        (1, None, b"two"),
        (2, b"key", b"one"),
        (3, None, b"two"),
    ]
    assert log_of(bench).high_watermark == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_told_what_is_wrong(bench: KafkaBench, version: int) -> None:
    bad = bytearray(BATCH)
    bad[-1] ^= 1
    answer = produce(bench, version, bytes(bad))
    assert (answer.error_code, answer.base_offset) == (2, -1)
    assert "CRC" in getattr(answer, "error_message", "CRC")
    assert log_of(bench).end_offset == 0


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (3, {"named": {"name": "gone"}}),
        (3, {"partition": 1}),
        (3, {"partition": -1}),
        (21, {"acks": 2}),
        (100, {"version": 13, "named": {"topic_id": None}}),
    ],
)
def test_what_is_not_there_is_an_error_of_its_partition(
    bench: KafkaBench, code: int, fields: dict[str, Any]
) -> None:
    others = {name: each for name, each in fields.items() if name != "version"}
    assert produce(bench, fields.get("version", 9), BATCH, **others).error_code == code


@pytest.mark.parametrize(
    ("code", "records"),
    [
        (87, None),
        (87, b""),
        (87, BATCH + BATCH),
        (2, BATCH[:-1]),
        (2, BATCH[:40]),
        (10, encode_batch([Record(0, 5, None, bytes(1_048_588))])),
        (87, BATCH[:16] + b"\1" + BATCH[17:]),  # a message of an older format
    ],
)
def test_what_is_no_single_batch_is_refused(
    bench: KafkaBench, code: int, records: bytes | None
) -> None:
    assert produce(bench, 9, records).error_code == code
    assert log_of(bench).end_offset == 0


def test_zstd_is_for_clients_that_know_it(bench: KafkaBench) -> None:
    batch = encode_batch([Record(0, 5, None, b"one")], RecordCodec.ZSTD)
    assert produce(bench, 6, batch).error_code == 76
    assert produce(bench, 7, batch).error_code == 0


def test_one_entry_is_refused_and_the_others_are_kept(bench: KafkaBench) -> None:
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 9, BATCH, b"?", BATCH))
    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Produce", 9, answer).responses
    assert [each.error_code for each in topic.partition_responses] == [0, 2, 0]
    assert [each.base_offset for each in topic.partition_responses] == [0, -1, 2]


def test_acks_0_is_answered_by_silence_or_by_a_close(bench: KafkaBench) -> None:
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 9, BATCH, acks=0))
    assert transport.value() == b""
    assert log_of(bench).end_offset == 2
    connection.dataReceived(request(bench, 9, b"?", acks=0))
    assert transport.value() == b""
    assert transport.disconnecting


def test_many_more_partitions_than_there_can_be_close(bench: KafkaBench) -> None:
    """Each would take memory: no more are looked at than are believed."""
    connection, transport = bench.connect_kafka()
    # acks | timeout | one topic `new` of 1,000,000 partitions, each of 6 bytes
    body = (
        bytes.fromhex("00 ffff 00007530 02 046e6577")
        + b"\xc1\x84\x3d"
        + b"\0\0\0\0\0\0" * 1_000_000
    )
    header = bytes.fromhex("0000 0009 00000007 ffff 00")
    data = header + body + b"\0\0"
    connection.dataReceived(len(data).to_bytes(4) + data)
    bench.turns(transport)
    assert transport.disconnecting


def test_produces_are_taken_while_others_wait_for_their_flush(tmp_path: Path) -> None:
    """Kafka's own broker would take one after the other."""
    waiting: list[Deferred[None]] = []

    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    produce(bench, 9, BATCH)  # which has loaded what carries it out

    def later(function: Any, *args: Any) -> Any:
        held: Deferred[None] = Deferred()
        waiting.append(held)
        return held.addCallback(lambda _: maybeDeferred(function, *args))

    flush_in(bench.flusher, later)
    connection, transport = bench.connect_kafka()
    for _ in range(3):
        connection.dataReceived(request(bench, 9, BATCH))
    assert log_of(bench).end_offset == 8
    assert transport.value() == b""
    while waiting:
        waiting.pop(0).callback(None)
        bench.clock.advance(1)
    found = [decode_answer("Produce", 9, each) for each in answers(transport)]
    assert [each.responses[0].partition_responses[0].base_offset for each in found] == [2, 4, 6]
    bench.close()


def awaiting_a_flush(tmp_path: Path) -> tuple[KafkaBench, Any]:
    """A broker whose disk never answers, and the transport of who waits five seconds for it."""
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    produce(bench, 9, BATCH)
    flush_in(bench.flusher, lambda function, *args: Deferred())
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 9, BATCH, timeout=timedelta(seconds=5)))
    return bench, transport


def test_a_flush_that_is_late_is_an_error_that_clients_repeat(tmp_path: Path) -> None:
    bench, transport = awaiting_a_flush(tmp_path)
    bench.clock.advance(4.9)
    assert transport.value() == b""
    bench.clock.advance(0.2)
    (answer,) = answers(transport)
    assert decode_answer("Produce", 9, answer).responses[0].partition_responses[0].error_code == 7


def test_what_a_log_has_lost_is_not_there_since_others_are(tmp_path: Path) -> None:
    """The log failed and came back, and others have appended, before the time was up."""
    bench, transport = awaiting_a_flush(tmp_path)
    log_of(bench).flush()
    log_of(bench).state.openings += 1
    bench.clock.advance(5.1)
    (answer,) = answers(transport)
    assert decode_answer("Produce", 9, answer).responses[0].partition_responses[0].error_code == 7


@pytest.mark.parametrize("version", [3, 8, 13])
def test_the_broker_sets_timestamps_where_a_topic_has_its(tmp_path: Path, version: int) -> None:
    with serving(tmp_path, message_timestamp_type="LogAppendTime") as bench:
        for base, codec in ((0, RecordCodec.NONE), (2, RecordCodec.GZIP)):
            sent = encode_batch([Record(0, 5, b"k", b"one"), Record(1, 6, b"k", b"two")], codec)
            answer = produce(bench, version, sent)
            assert (answer.error_code, answer.base_offset) == (0, base)
            assert int(answer.log_append_time.timestamp() * 1000) == APPEND_TIME_MS
        numbered = encode_batch(
            [Record(0, 5, b"k", b"x")], producer_id=4, producer_epoch=0, base_sequence=0
        )
        for _ in range(2):
            answer = produce(bench, version, numbered)
            assert (answer.base_offset, int(answer.log_append_time.timestamp() * 1000)) == (
                4,
                APPEND_TIME_MS,
            )
        times = [each.timestamp_ms for each in read_records(log_of(bench))]
        assert times == [APPEND_TIME_MS] * 5
        assert log_of(bench).latest_timestamp() == (0, APPEND_TIME_MS)
        refused = produce(bench, version, resealed(BATCH, attributes=LOG_APPEND_TIME_BIT))
        assert refused.error_code == 32
        assert len(getattr(refused, "record_errors", "ab")) == 2


@pytest.mark.parametrize("version", [7, 8, 13])
@pytest.mark.parametrize("codec", [RecordCodec.NONE, RecordCodec.LZ4])
def test_messages_without_keys_are_named_where_there_must_be_some(
    tmp_path: Path, version: int, codec: RecordCodec
) -> None:
    with serving(tmp_path, cleanup_policy="compact") as bench:
        keyed = encode_batch([Record(0, 5, b"k", b"one")], codec)
        assert produce(bench, version, keyed).error_code == 0
        keys = [b"k", None, *[b"k"] * 200, None]
        sent = encode_batch([Record(n, 5, key, b"v") for n, key in enumerate(keys)], codec)
        answer = produce(bench, version, sent)
        assert (answer.error_code, answer.base_offset) == (87, -1)
        if version >= 8:
            assert [each.batch_index for each in answer.record_errors] == [1, 202]
            assert "2 of 203 messages have no key" in answer.error_message
        assert log_of(bench).end_offset == 1


def test_no_more_messages_are_named_than_a_response_has_room_for(tmp_path: Path) -> None:
    with serving(tmp_path, cleanup_policy="compact") as bench:
        sent = encode_batch([Record(n, 5, None, b"v") for n in range(300)])
        connection, transport = bench.connect_kafka()
        connection.dataReceived(request(bench, 9, *[sent] * 12))
        bench.turns(transport)
        (answer,) = answers(transport)
        (topic,) = decode_answer("Produce", 9, answer).responses
        counts = [len(each.record_errors) for each in topic.partition_responses]
        assert counts == [100] * 10 + [0] * 2
        assert {each.error_code for each in topic.partition_responses} == {87}


def test_compressed_batches_are_read_in_a_thread_and_only_where_they_have_to_be(
    tmp_path: Path,
) -> None:
    sent = encode_batch([Record(0, 5, b"k", b"one")], RecordCodec.ZSTD)
    for policy, is_read in (("delete", False), ("compact", True)):
        with serving(tmp_path / policy, cleanup_policy=policy) as bench:
            produce(bench, 9, BATCH)  # which has loaded what carries it out
            calls: list[Any] = []

            def later(function: Any, *args: Any, calls: list[Any] = calls) -> Any:
                calls.append(function)
                return maybeDeferred(function, *args)

            bench.server.in_thread = later
            assert produce(bench, 9, sent).error_code == 0
            assert bool(calls) == is_read


def make(bench: KafkaBench, name: str, log_format: str) -> None:
    """Create a topic: a compacted one of Kafka's format, or one of 0.7's."""
    if log_format == "0.7":
        bench.shared.topics.create(name)
        return
    kinds = messages("CreateTopics", 5, "request")
    topic = kinds.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(kinds.CreatableTopicConfig(name="cleanup.policy", value="compact"),),
    )
    wait = timedelta(seconds=1)
    bench.ask("CreateTopics", 5, topics=(topic,), timeout=wait, validate_only=False)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize(("before", "after"), [("kafka", "0.7"), ("0.7", "kafka")])
def test_nothing_goes_into_a_topic_that_was_made_again_while_a_batch_was_looked_at(
    bench: KafkaBench, version: int, before: str, after: str
) -> None:
    """It may have another format by now, and who names it by its id doesn't mean it."""
    produce(bench, version, BATCH, BATCH)  # which loads what carries it out
    make(bench, "made", before)
    found = bench.server.topics.get("made")
    assert found is not None
    in_thread, under_way = bench.server.in_thread, Deferred[None]()

    def later(function: Any, *args: Any) -> Any:
        bench.server.in_thread = in_thread
        return under_way.addCallback(lambda _: in_thread(function, *args))

    bench.server.in_thread = later
    key = b"key" if before == "kafka" else None
    sent = encode_batch([Record(0, 5, key, b"one")], RecordCodec.ZSTD)
    named = {"topic_id": found.id} if version >= 13 else {"name": "made"}
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, version, sent, named=named))
    bench.ask("DeleteTopics", 3, topic_names=("made",), timeout=timedelta(seconds=1))
    make(bench, "made", after)
    under_way.callback(None)
    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Produce", version, answer).responses
    code = Code.UNKNOWN_TOPIC_ID if version >= 13 else Code.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.partition_responses[0].error_code == code
    assert bench.shared.topics.for_produce("made", 0).end_offset == 0


def test_a_topic_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path, max_batch_bytes=len(BATCH)) as bench:
        assert produce(bench, 9, BATCH).error_code == 0
        larger = encode_batch([Record(0, 5, b"key", b"one"), Record(1, 6, None, b"three")])
        answer = produce(bench, 9, larger)
        assert (answer.error_code, log_of(bench).end_offset) == (10, 2)
        assert f"the limit is {len(BATCH)}" in answer.error_message


@contextmanager
def serving(
    tmp_path: Path, files: FileLayer | None = None, **settings: Any
) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, files=files, topics={"new": {"format": "kafka", **settings}})
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


# -- plain ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_request_takes_no_more_than_it_must(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch, either_produce: str, version: int, acks: int
) -> None:
    calls: list[object] = []

    class Call(dispatching.Call):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            calls.append(self)

    monkeypatch.setattr(dispatching, "Call", Call)
    connection, transport = bench.connect_kafka()
    sent = request(bench, version, BATCH, acks=acks)
    for place in (0, 9, len(sent) - 1):
        connection.dataReceived(sent + sent[:place])
        connection.dataReceived(sent[place:])
    assert log_of(bench).end_offset == 12
    bench.turns(transport)
    assert len(answers(transport)) == (6 if acks else 0)
    assert bool(calls) == (either_produce == "decoded")


FIRST = resealed(BATCH, producer_id=5, producer_epoch=1, base_sequence=0)
UNKEYED = encode_records([Record(0, NOW_MS, None, b"one")], 0, NOW_MS)
#: What a plain request may meet after `FIRST`: of the topic, of its own, and the error.
MET: dict[str, tuple[dict[str, Any], dict[str, Any], Code]] = {
    "nothing": ({}, {}, Code.NONE),
    "a topic of 0.7": ({"format": "0.7"}, {"batch": holding(UNKEYED)}, Code.NONE),
    "a compacted topic": ({"cleanup_policy": "compact"}, {}, Code.INVALID_RECORD),
    "a topic of small batches": ({"max_batch_bytes": 80}, {}, Code.MESSAGE_TOO_LARGE),
    "a topic with times": ({"message_timestamp_type": "LogAppendTime"}, {}, Code.NONE),
    "no topic": ({}, {"named": {"name": "gone"}}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    "no partition": ({}, {"partition": 1}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    "no id": ({}, {"version": 13, "named": {"topic_id": uuid4()}}, Code.UNKNOWN_TOPIC_ID),
    "a later epoch": (
        {},
        {"batch": resealed(FIRST, producer_epoch=0)},
        Code.INVALID_PRODUCER_EPOCH,
    ),
    "a gap": (
        {},
        {"batch": resealed(FIRST, base_sequence=9)},
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    "itself": ({}, {"batch": FIRST}, Code.NONE),
}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("cleanup.policy", "compact", Code.INVALID_RECORD),
        ("max.message.bytes", "80", Code.MESSAGE_TOO_LARGE),
        ("message.timestamp.type", "LogAppendTime", Code.NONE),
    ],
)
def test_what_is_set_for_a_topic_holds_for_the_next_request(
    bench: KafkaBench, name: str, value: str, code: Code
) -> None:
    assert produce(bench, 9, BATCH).error_code == 0
    kinds = messages("IncrementalAlterConfigs", 1, "request")
    config = kinds.AlterableConfig(name=name, config_operation=0, value=value)
    topic = kinds.AlterConfigsResource(resource_type=2, resource_name="new", configs=(config,))
    bench.ask("IncrementalAlterConfigs", 1, resources=(topic,), validate_only=False)
    answer = produce(bench, 9, BATCH)
    assert answer.error_code == code
    assert log_of(bench).end_offset == (2 if code else 4)
    if not code:
        assert round(answer.log_append_time.timestamp() * 1000) == APPEND_TIME_MS


@pytest.mark.parametrize("version", [9, 13])
def test_what_never_comes_again_leaves_the_requests_of_others_plain(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch, either_produce: str, version: int
) -> None:
    """Its producer may be gone, or have found another leader."""
    gone = produce(bench, version, FIRST, partition=1)
    assert gone.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    calls: list[object] = []

    class Call(dispatching.Call):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            calls.append(self)

    monkeypatch.setattr(dispatching, "Call", Call)
    assert produce(bench, version, FIRST).error_code == 0
    assert produce(bench, version, BATCH).error_code == 0
    assert bool(calls) == (either_produce == "decoded")


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("met", MET)
def test_what_a_plain_request_meets_is_told(tmp_path: Path, met: str, acks: int) -> None:
    topic, fields, code = MET[met]
    version, batch = fields.get("version", 9), fields.get("batch", BATCH)
    named = {name: each for name, each in fields.items() if name in ("named", "partition")}
    with serving(tmp_path, **topic) as bench:
        bench.connect_kafka()[0].dataReceived(request(bench, 9, FIRST, acks=0))
        assert_told(bench, request(bench, version, batch, acks=acks, **named), version, code, acks)


def assert_told(bench: KafkaBench, sent: bytes, version: int, code: Code, acks: int) -> None:
    """That a request is answered with an error or appended, and either counted once."""
    bench.shared.metrics.refusals.clear()
    connection, transport = bench.connect_kafka()
    connection.dataReceived(sent)
    bench.turns(transport)
    assert transport.disconnecting == (acks == 0 and code is not Code.NONE)
    if acks:
        (answer,) = answers(transport)
        (topic,) = decode_answer("Produce", version, answer).responses
        assert topic.partition_responses[0].error_code == code
    refusals = {} if code is Code.NONE else {("kafka_produce", code.name.lower()): 1}
    if transport.disconnecting:
        refusals["kafka", code.name.lower()] = 1
    assert bench.shared.metrics.refusals == refusals
    assert bench.dispatcher.kinds["Produce"].taken == 2


def test_who_may_not_produce_is_told_and_counted_once(tmp_path: Path) -> None:
    rules = [{"principal": "alice", "operations": ["produce"], "topic": "new"}]
    topics = {"new": {"format": "kafka"}}
    bench = KafkaBench(tmp_path, access=rules, topics=topics)
    bench.shared.topics.create_declared("new")
    for acks in (1, -1):
        refusal = produce(bench, 9, BATCH, acks=acks)
        assert refusal.error_code == Code.TOPIC_AUTHORIZATION_FAILED
    refusals = {("kafka_produce", "topic_authorization_failed"): 2, ("kafka", "not_authorized"): 2}
    assert bench.shared.metrics.refusals == refusals
    assert log_of(bench).end_offset == 0
    bench.close()


def test_a_disk_that_is_full_is_told_in_the_log(tmp_path: Path) -> None:
    files = FailingFiles()
    with serving(tmp_path, files=files) as bench:
        assert produce(bench, 9, BATCH, acks=1).error_code == 0
        files.is_full = True
        with log_lines() as lines:
            assert produce(bench, 9, BATCH, acks=1).error_code == Code.KAFKA_STORAGE_ERROR
        assert any("could not append to new-0: " in each for each in lines)


# -- by a request of our own --------------------------------------------------------------------


def produce_own(bench: KafkaBench, *records: bytes) -> list[tuple[int, int]]:
    connection, transport = bench.connect()
    entries = tuple(ProduceRequest("new", 0, each) for each in records)
    connection.dataReceived(RecordProduceRequest(Acks.FLUSHED, 5000, entries).encode())
    bench.turns(transport)
    (answer,) = answers(transport)
    found = decode_acknowledged_produce_response(answer)
    return [(each.error, each.offset) for each in found]


def test_our_own_request_is_held_to_the_same(tmp_path: Path) -> None:
    unkeyed = encode_batch([Record(0, 5, None, b"one")], RecordCodec.GZIP)
    keyed = encode_batch([Record(0, 5, b"k", b"one")], RecordCodec.GZIP)
    damaged = resealed(holding(b"no message"))
    settings = {
        "cleanup_policy": "compact",
        "message_timestamp_type": "LogAppendTime",
        "max_batch_bytes": 120,
    }
    with serving(tmp_path, **settings) as bench:
        large = encode_batch([Record(0, 5, b"k", bytes(100))])
        found = produce_own(bench, keyed, unkeyed, damaged, large, keyed)
        assert found == [(0, 0), (82, -1), (82, -1), (64, -1), (0, 1)]
        kept = read_records(log_of(bench))
        assert [(each.key, each.timestamp_ms) for each in kept] == [(b"k", APPEND_TIME_MS)] * 2


class FailingFiles(UnsyncedFiles):
    """A disk that is full, or fails to sync, while a test wants that."""

    is_full = fails_to_sync = False

    def pwrite(self, *args: Any) -> int:
        if self.is_full:
            raise OSError(ENOSPC, "No space left on device")
        return os.pwrite(*args)

    def pwritev(self, *args: Any) -> int:
        if self.is_full:
            raise OSError(ENOSPC, "No space left on device")
        return os.pwritev(*args)

    def fdatasync(self, descriptor: int) -> None:
        if self.fails_to_sync:
            raise OSError(EIO, "Input/output error")


class Pipeline:
    """One connection of an idempotent producer to a broker whose disk fails.

    Attributes:
        files: the disk.
        bench: the broker.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self.files = FailingFiles()
        topics = options.pop("topics", {"new": {"format": "kafka"}})
        self.bench = KafkaBench(path, files=self.files, topics=topics, **options)
        for topic in topics:
            self.bench.shared.topics.create_declared(topic)
        self._connection, self._transport = self.bench.connect_kafka()

    def send(self, number: int, topic: str = "new", epoch: int = 0) -> None:
        """Send a message without waiting for the answer."""
        record = Record(0, APPEND_TIME_MS, None, b"%d" % number)
        data = encode_batch([record], producer_id=7, producer_epoch=epoch, base_sequence=number)
        self._connection.dataReceived(encode_produce(topic, 0, data))

    def codes(self) -> list[int]:
        """What was answered since the last call."""
        return [decode_codes("new", each)[0] for each in answers(self._transport)]

    def values(self) -> list[bytes | None]:
        """What the log holds."""
        return [each.value for each in read_records(log_of(self.bench))]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    yield pipeline
    pipeline.bench.close()


def test_what_may_be_stored_is_not_sent_in_a_new_epoch(pipeline: Pipeline) -> None:
    """librdkafka begins one after OUT_OF_ORDER_SEQUENCE_NUMBER (45), and sends all of it again."""
    pipeline.send(0)
    assert pipeline.codes() == [0]
    pipeline.files.fails_to_sync = True
    pipeline.send(1)  # the log keeps it, but goes offline
    pipeline.send(2)
    pipeline.send(3)
    assert pipeline.codes() == [20, 56, 56]
    pipeline.files.fails_to_sync = False
    log_of(pipeline.bench).reopen(APPEND_TIME_MS)
    pipeline.send(4)
    assert pipeline.codes() == [56]

    for number in range(1, 6):
        pipeline.send(number)

    assert pipeline.codes() == [0] * 5
    assert pipeline.values() == [b"%d" % number for number in range(6)]


def test_no_later_batch_is_taken_for_a_producers_first_one(pipeline: Pipeline) -> None:
    """librdkafka takes its acknowledgement for that of the earlier ones, too."""
    pipeline.files.is_full = True
    pipeline.send(0)
    pipeline.files.is_full = False
    pipeline.send(1)
    assert pipeline.codes() == [56, 56]

    pipeline.send(0)
    pipeline.send(1)

    assert pipeline.codes() == [0, 0]
    assert pipeline.values() == [b"0", b"1"]


def test_what_came_too_early_for_its_topic_goes_first(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, topics={})
    pipeline.send(0)
    pipeline.bench.shared.topics.create_numbered("new", 0, uuid4())
    pipeline.send(1)
    assert pipeline.codes() == [3, 56]

    pipeline.send(0)
    pipeline.send(1)

    assert pipeline.codes() == [0, 0]
    pipeline.bench.close()


class FewReplicas:
    """Leads a partition, for which too few replicas are in sync at first."""

    epoch = leader = 1
    is_end_known = True
    is_handing_over = False
    are_enough = False

    def check(self) -> None:
        pass

    check_append = appended = check

    def check_enough(self) -> None:
        if not self.are_enough:
            raise TooFewReplicasError("one replica is in sync")

    def when_confirmed(self) -> "Deferred[bool]":
        return succeed(True)


def test_what_too_few_replicas_were_in_sync_for_goes_first(pipeline: Pipeline) -> None:
    log, leadership = log_of(pipeline.bench), FewReplicas()
    pipeline.bench.shared.partitions.of(log).leadership = leadership  # type: ignore[assignment]
    pipeline.send(0)
    leadership.are_enough = True
    pipeline.send(1)
    assert pipeline.codes() == [19, 56]

    pipeline.send(0)
    pipeline.send(1)

    assert pipeline.codes() == [0, 0]
    assert pipeline.values() == [b"0", b"1"]


class HandingOver(FewReplicas):
    """Leads a partition, and is about to let broker 2 do so."""

    are_enough = is_handing_over = True

    def __init__(self) -> None:
        self.waiting: list[Deferred[bool]] = []

    def check_append(self) -> None:
        raise NotLeaderError("another broker is about to lead")

    def when_handed_over(self) -> "Deferred[bool]":
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def end(self) -> None:
        """Broker 2 leads."""
        self.leader, self.epoch, self.is_handing_over = 2, 2, False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(False)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("is_plain", [True, False])
def test_who_produces_in_a_hand_over_hears_who_leads_after_it(
    bench: KafkaBench, *, is_plain: bool, acks: int
) -> None:
    leadership, log = HandingOver(), log_of(bench)
    bench.shared.partitions.of(log).leadership = leadership  # type: ignore[assignment]
    topics = bench.cluster.topics
    (name,) = topics.names()
    found = topics.get(name)
    assert found is not None
    topics._topics[name] = found._replace(copies=(first_state((1, 2), {1: 7}, epoch=1),))
    topics.live |= {2}
    connection, transport = bench.connect_kafka()
    batch = BATCH if is_plain else holding(UNKEYED)
    connection.dataReceived(request(bench, 10, batch, acks=acks))
    bench.turns(transport)
    assert not answers(transport)

    leadership.end()

    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Produce", 10, answer).responses
    (partition,) = topic.partition_responses
    assert partition.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 2)


def test_what_was_acknowledged_meanwhile_is_not_awaited(pipeline: Pipeline) -> None:
    """A log failed and came back while somebody waited who had sent it a second time."""
    flushes: list[Deferred[int]] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[int]":
        flushes.append(Deferred())
        return flushes[-1]

    flush_in(pipeline.bench.flusher, in_thread)
    pipeline.send(0)
    log = log_of(pipeline.bench)
    log.flush()
    log.state.openings += 1
    assert pipeline.codes() == []
    flushes[0].callback(log.high_watermark)
    assert pipeline.codes() == [20]

    pipeline.send(1)
    flushes[-1].callback(log.flush())

    assert pipeline.codes() == [0]


def test_a_new_epoch_waits_for_nothing(pipeline: Pipeline) -> None:
    pipeline.files.is_full = True
    pipeline.send(0)
    pipeline.files.is_full = False
    pipeline.send(0, epoch=1)
    pipeline.send(1, epoch=1)
    assert pipeline.codes() == [56, 0, 0]
