"""DeleteRecords: which topics' records may be deleted, and what is said of the others."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench, messages
from kafka_logs import append_values
from twisted.internet.defer import Deferred, fail, succeed

from hermes.errors import NotLeaderError
from hermes.protocol.kafka_errors import Code
from hermes.storage import Log
from hermes.transactions.state import STATE_TOPIC

TOPICS = {
    "new": {"format": "kafka"},
    "latest": {"format": "kafka", "cleanup_policy": "compact"},
    "both": {"format": "kafka", "cleanup_policy": "compact,delete"},
    STATE_TOPIC: {"format": "kafka", "cleanup_policy": "compact,delete"},
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics=TOPICS)
    for name in TOPICS:
        bench.shared.topics.create_declared(name)
        log = bench.shared.topics.for_produce(name, 0)
        append_values(log, b"one", b"two")
        bench.flush(log)
    yield bench
    bench.close()


def delete(bench: KafkaBench, topic: str, offset: int) -> tuple[int, int]:
    """The error, and where the partition begins."""
    kinds = messages("DeleteRecords", 2, "request")
    part: Any = kinds.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = (kinds.DeleteRecordsTopic(name=topic, partitions=(part,)),)
    answer = bench.ask("DeleteRecords", 2, topics=topics, timeout=timedelta(seconds=30))
    (result,) = answer.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("topic", ["new", "both"])
def test_a_log_begins_later_where_segments_are_deleted(bench: KafkaBench, topic: str) -> None:
    assert delete(bench, topic, 1) == (Code.NONE, 1)
    assert bench.server.topics.log(topic, 0).earliest == 1


class Leading:
    """Leads for certain, until it does no more."""

    is_over = False

    def check(self) -> None:
        if self.is_over:
            raise NotLeaderError("another broker leads")

    def when_deleted(self, offset: int) -> Deferred[int]:
        return fail(NotLeaderError("another broker leads"))


@pytest.mark.parametrize("offset", [3, -1])
def test_nothing_is_deleted_once_another_broker_leads(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """What is visible here then isn't what the client may know of."""
    log, leadership = bench.server.topics.partition("new", 0).log, Leading()
    log.is_sole_copy = False
    bench.shared.partitions.of(log).leadership = leadership  # type: ignore[assignment]
    append_values(log, b"three")

    def flush_long(log: Log) -> Deferred[None]:
        log.flush()
        leadership.is_over = True
        log.commit(3)  # on the word of who leads now
        return succeed(None)

    monkeypatch.setattr(bench.flusher, "flush_now", flush_long)
    assert delete(bench, "new", offset) == (Code.NOT_LEADER_OR_FOLLOWER, -1)
    assert log.earliest == 0


@pytest.mark.parametrize("offset", [1, -1])
@pytest.mark.parametrize(
    ("topic", "code"),
    [("latest", Code.POLICY_VIOLATION), (STATE_TOPIC, Code.INVALID_TOPIC_EXCEPTION)],
)
def test_nothing_goes_of_what_keeps_the_latest_of_each_key(
    bench: KafkaBench, topic: str, code: Code, offset: int
) -> None:
    """Of a topic that is only compacted, and of the brokers' own whatever is set for it."""
    assert delete(bench, topic, offset) == (code, -1)
    assert bench.server.topics.log(topic, 0).earliest == 0
