"""What a leader sends of its copy, on a real log."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_logs import append_values, batches_in, open_kafka_log

from hermes.kafka.replicas.copy_leadership import CopyLeadership
from hermes.replication.messages import LogEnds, Records, ReplicaFetch, StartsLater
from hermes.storage import Log

EPOCH = 3


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Ten messages in five batches of two."""
    log, _ = open_kafka_log(tmp_path / "t-0")
    for number in range(5):
        append_values(log, b"%d" % number, b"and %d" % number)
    log.flush()
    return log


def leadership_of(log: Log) -> CopyLeadership:
    leading = SimpleNamespace(epoch=EPOCH, records=lambda start: Records(log.high_watermark, start))
    copy: Any = SimpleNamespace(
        replica=SimpleNamespace(leading=leading),
        log=log,
        ends=lambda: LogEnds(log.replica.first_base(), log.flushed_end, log.end_offset),
        is_behind=lambda _: False,
    )
    around: Any = SimpleNamespace()
    return CopyLeadership(copy, around)


def fetch(offset: int) -> ReplicaFetch:
    return ReplicaFetch(2, 7, EPOCH, offset, -1, 0, 0)


def test_who_waits_before_what_is_deleted_meanwhile_begins_anew(log: Log) -> None:
    """Else it would miss, among what is deleted, the ends of transactions that it has."""
    leadership = leadership_of(log)
    log.delete_records(5)
    answer, data = leadership.answer(fetch(3), 1 << 20, resident=False)
    assert (answer, data) == (StartsLater(4), b"")

    # Who is at the batch in which the log begins goes on with that.
    leadership.answer(fetch(4), 1 << 20, resident=False)  # by which the index is loaded
    answer, data = leadership.answer(fetch(4), 1 << 20, resident=True)
    assert answer == Records(10, 5, until=10)
    assert isinstance(data, bytes)
    assert [header.base_offset for header, _ in batches_in(data)] == [4, 6, 8]
