"""What clients of 0.7 are told of topics with Kafka's format: an error, no more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers, log_lines
from hermes_testkit import fetch, message, produce, produce_acknowledged, waiting_fetch
from kafka_bench import KafkaBench
from kafka_logs import append_values, read_records


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    bench.shared.topics.create("old")
    log = bench.directory.get("new", 0)
    assert log is not None
    append_values(log, b"a value")
    log.flush()
    yield bench
    bench.close()


def test_a_fetch_is_answered_with_0_7s_error_and_one_line(bench: KafkaBench) -> None:
    connection, transport = bench.connect()
    with log_lines() as lines:
        connection.dataReceived(fetch("new", 0, 0))
    assert [each.hex() for each in answers(transport)] == ["0002"]
    assert len([line for line in lines if "has Kafka's format" in line]) == 1
    connection.dataReceived(produce("old", 0, message(b"x")) + fetch("old", 0, 0))
    assert [each[:2] for each in answers(transport)] == [b"\0\0"]


def test_a_request_of_our_own_is_answered_with_a_code_of_our_own(bench: KafkaBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(waiting_fetch(("new", 0, 0, 1000)))
    (answer,) = answers(transport)
    assert answer[4:6] == (81).to_bytes(2)


def test_nothing_of_0_7_is_appended(bench: KafkaBench) -> None:
    log: Any = bench.directory.get("new", 0)
    before = log.end_offset, log.size_bytes
    connection, transport = bench.connect()
    connection.dataReceived(produce_acknowledged(("new", 0, message(b"x"))))
    bench.turns(transport)
    (answer,) = answers(transport)
    assert (81).to_bytes(2) in answer
    connection.dataReceived(produce("new", 0, message(b"x")))
    assert transport.disconnecting
    assert (log.end_offset, log.size_bytes) == before
    assert [each.value for each in read_records(log)] == [b"a value"]
