"""A log that has other copies: what is flushed here is neither shown nor acknowledged before it is
committed."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bench import answers
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from twisted.internet.defer import Deferred, succeed

from hermes.errors import LogOfflineError, NotLeaderError
from hermes.protocol.records import Record, encode_batch
from hermes.storage import Log
from hermes.transactions.state import State, Transaction

BATCH = encode_batch([Record(0, 5, None, b"one"), Record(1, 6, None, b"two")])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    log = log_of(bench)
    log.is_sole_copy = False
    bench.shared.partitions.of(log).leadership = Leading()
    yield bench
    bench.close()


def log_of(bench: KafkaBench) -> Log:
    return bench.shared.topics.for_produce("new", 0)


class Leading:
    """Leads for certain, with enough others; until it leads no more."""

    epoch = 1
    is_end_known = True
    is_over = False

    def check(self) -> None:
        if self.is_over:
            raise NotLeaderError("another broker leads")

    check_append = check_enough = appended = check

    def when_confirmed(self) -> Deferred[bool]:
        return succeed(True)


class Client:
    """A connection that has one request under way."""

    def __init__(self, bench: KafkaBench, name: str, version: int, **fields: Any) -> None:
        self.name, self.version = name, version
        self._bench = bench
        connection, self._transport = bench.connect_kafka()
        connection.dataReceived(encode_request(name, version, **fields))

    def answer(self) -> Any:
        """What is said of the partition; None while nothing is."""
        self._bench.turns(self._transport)
        found = answers(self._transport)
        if not found:
            return None
        (topic,) = decode_answer(self.name, self.version, found[0]).responses
        return (topic.partition_responses if self.name == "Produce" else topic.partitions)[0]


def produce(bench: KafkaBench, *, acks: int = -1, seconds: int = 30) -> Client:
    kinds = messages("Produce", 9, "request")
    data = kinds.PartitionProduceData(index=0, records=BATCH)
    topic = kinds.TopicProduceData(name="new", partition_data=(data,))
    return Client(
        bench,
        "Produce",
        9,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=seconds),
        topic_data=(topic,),
    )


def fetch(bench: KafkaBench, times: int = 1) -> Client:
    kinds = messages("Fetch", 12, "request")
    wanted = kinds.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return Client(
        bench,
        "Fetch",
        12,
        replica_id=-1,
        max_wait=timedelta(seconds=60),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(kinds.FetchTopic(topic="new", partitions=(wanted,) * times),),
        forgotten_topics_data=(),
        rack_id="",
    )


def test_a_flush_wakes_neither_a_consumer_nor_a_producer_and_a_commit_does(
    bench: KafkaBench,
) -> None:
    log = log_of(bench)
    consumer, producer = fetch(bench), produce(bench)
    assert (log.flushed_end, log.high_watermark) == (2, 0)
    assert (consumer.answer(), producer.answer()) == (None, None)
    bench.flusher.commit(log, 1)  # another copy has the first batch in part
    assert producer.answer() is None

    bench.flusher.commit(log, 2)

    assert (producer.answer().error_code, producer.answer()) == (0, None)
    read = consumer.answer()
    assert (read.high_watermark, read.records[-3:]) == (2, BATCH[-3:])


def test_acks_1_waits_for_nobody(bench: KafkaBench) -> None:
    assert produce(bench, acks=1).answer().error_code == 0
    assert log_of(bench).high_watermark == 0


def test_what_is_not_committed_in_time_may_be_later(bench: KafkaBench) -> None:
    producer = produce(bench, seconds=3)
    bench.clock.advance(3)
    assert producer.answer().error_code == 7  # REQUEST_TIMED_OUT
    bench.flusher.commit(log_of(bench), 2)
    assert log_of(bench).high_watermark == 2


def test_what_is_committed_already_is_acknowledged_at_once(bench: KafkaBench) -> None:
    log = log_of(bench)
    produce(bench)
    bench.flusher.commit(log, 2)
    told: list[object] = []
    bench.flusher.when_committed(log, lambda error: told.append(error or log.high_watermark))
    assert told == [2]


def test_who_waits_for_a_commit_of_a_log_that_is_deleted_is_told(bench: KafkaBench) -> None:
    log = log_of(bench)
    produce(bench)
    told: list[Any] = []
    bench.flusher.when_committed(log, told.append)
    assert told == []
    bench.flusher.forget(log)
    assert isinstance(told[0], LogOfflineError)


def test_the_last_copy_commits_what_waits_with_its_next_flush(bench: KafkaBench) -> None:
    """The others have left."""
    log = log_of(bench)
    waiting = produce(bench)
    log.is_sole_copy = True
    produce(bench)
    assert log.high_watermark == 4
    assert waiting.answer().error_code == 0


@pytest.mark.parametrize("times", [1, 2], ids=["a plain fetch", "one of several partitions"])
def test_a_consumer_that_waits_hears_at_once_that_another_broker_leads(
    bench: KafkaBench, times: int
) -> None:
    log = log_of(bench)
    consumer = fetch(bench, times)
    bench.flusher.commit(log, 0)
    assert consumer.answer() is None
    leadership: Any = bench.shared.partitions.of(log).leadership
    leadership.is_over = True

    bench.flusher.end_epoch(log)

    assert consumer.answer().error_code == 6  # NOT_LEADER_OR_FOLLOWER


def test_a_marker_is_written_again_whose_epoch_ended_before_anybody_waited_for_it(
    bench: KafkaBench,
) -> None:
    """The other places of its transaction had their turn in between."""
    log, leadership = log_of(bench), bench.shared.partitions.of(log_of(bench)).leadership
    transactions, ended = bench.server.transactions, list[bool]()
    append = transactions.markers._append

    def append_last(*args: Any) -> Any:
        transactions.markers._append = append
        appended = append(*args)
        leadership.is_over = True
        bench.flusher.end_epoch(log)
        return appended

    transactions.markers._append = append_last
    decided = Transaction(7, 1, 1000, State.PREPARE_COMMIT, places=frozenset({("new", 0)}))
    state_log: Any = SimpleNamespace(is_current=True, epoch=1)

    async def then() -> None:
        ended.append(True)

    transactions.ending.begin(state_log, "id", decided, then)
    assert log.flushed_end == log.end_offset == 1
    log.replica.cut_to(0, 0)  # whoever led meanwhile has no marker
    leadership.is_over = False
    bench.flusher.begin_epoch(log)
    for _ in range(60):
        bench.clock.advance(1)
        bench.flusher.commit(log, log.flushed_end)
    assert ended
    assert log.high_watermark == 1
