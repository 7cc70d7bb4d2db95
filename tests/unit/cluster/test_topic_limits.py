"""How many topics and partitions clients can create."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import fetch, message, produce

from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    ErrorCode,
    ProduceRequest,
    decode_acknowledged_produce_response,
)

HELLO = message(b"hello")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path, max_topics=3, max_partitions=4, num_partitions=4)
    yield made
    made.close()


def codes(bench: BrokerBench, *entries: tuple[str, int]) -> list[int]:
    connection, transport = bench.connect()
    produces = tuple(ProduceRequest(topic, partition, HELLO) for topic, partition in entries)
    connection.dataReceived(AcknowledgedProduceRequest(Acks.WRITTEN, 0, produces).encode())
    bench.turns(transport)
    (answer,) = answers(transport)
    return [each.error for each in decode_acknowledged_produce_response(answer)]


def test_no_more_topics_than_that(bench: BrokerBench) -> None:
    with log_lines() as lines:
        assert codes(bench, *((f"t{n}", 0) for n in range(5))) == [0, 0, 0, 72, 72]
        assert codes(bench, *((f"u{n}", 0) for n in range(500))) == [72] * 500
    assert [line.count(" created topic ") for line in lines[:4]] == [1, 1, 1, 0]
    assert 0 < len(lines[3:]) <= 5
    assert "max_topics=3" in lines[3]
    assert bench.broker.topics.names() == ["t0", "t1", "t2"]


def test_no_more_partitions_than_that(bench: BrokerBench) -> None:
    assert codes(bench, ("t0", 0), ("t0", 1), ("t0", 2), ("t0", 3)) == [0] * 4
    assert codes(bench, ("t1", 0)) == [ErrorCode.TOO_MANY_TOPICS]


def test_0_7_closes_and_what_is_there_is_served(bench: BrokerBench) -> None:
    codes(bench, *((f"t{n}", 0) for n in range(3)))
    connection, transport = bench.connect()
    connection.dataReceived(produce("t3", 0, HELLO))
    assert transport.disconnecting
    connection, transport = bench.connect()
    connection.dataReceived(produce("t1", 0, HELLO))
    bench.clock.advance(1)
    connection.dataReceived(fetch("t1", 0, 0))
    assert answers(transport)[0][2:] == HELLO * 2


def test_a_deleted_topic_makes_room(bench: BrokerBench) -> None:
    codes(bench, *((f"t{n}", 0) for n in range(3)))
    connection, transport = bench.connect()
    connection.dataReceived(b"\0\0\0\x08\0\x44\0\0\0\x02t1")
    assert answers(transport) == [b"\0\0"]
    assert codes(bench, ("new", 0)) == [0]


def test_a_broker_with_more_than_that_starts_and_serves_them(tmp_path: Path) -> None:
    before = BrokerBench(tmp_path / "logs")
    codes(before, *((f"t{n}", 0) for n in range(5)))
    before.close()
    after = BrokerBench(tmp_path / "logs", max_topics=2)
    assert codes(after, ("t4", 0), ("new", 0)) == [0, 72]
    after.close()
