"""What operators ask of a broker, and change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers
from hermes_testkit import message, produce

from hermes.errors import UnknownTopicError
from hermes.protocol import (
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    SettingDescription,
    decode_partitions_response,
    decode_settings_response,
)

HELLO = message(b"hello")
NOW_MS = 1_800_000_000_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    made = BrokerBench(
        tmp_path, num_partitions=200, retention_time="3d", topics={"t": {"flush_messages": 7}}
    )
    yield made
    made.close()


def ask(bench: BrokerBench, request: Any) -> bytes:
    connection, transport = bench.connect()
    connection.dataReceived(request.encode())
    bench.turns()
    (answer,) = answers(transport)
    return answer


def write(bench: BrokerBench, topic: str, *partitions: int) -> None:
    connection, _ = bench.connect()
    for partition in partitions:
        connection.dataReceived(produce(topic, partition, HELLO))
    bench.clock.advance(1)


def settings_of(bench: BrokerBench, topic: str) -> dict[str, SettingDescription]:
    described = decode_settings_response(ask(bench, DescribeSettingsRequest(topic)))
    return {each.name: each for each in described}


def test_settings_of_the_broker(bench: BrokerBench) -> None:
    found = settings_of(bench, "")
    assert found["num_partitions"] == ("num_partitions", "200", "broker.yaml", True)
    assert found["retention_time"] == ("retention_time", "3d", "broker.yaml", True)
    assert found["segment_bytes"] == ("segment_bytes", "1GiB", "default", True)
    assert found["broker_id"] == ("broker_id", "0", "broker.yaml", False)


def test_settings_of_a_topic(bench: BrokerBench) -> None:
    write(bench, "t", 0)
    found = settings_of(bench, "t")
    assert found["partitions"] == ("partitions", "200", "broker.yaml", True)
    assert found["flush_messages"] == ("flush_messages", "7", "broker.yaml, topics", True)
    assert found["segment_bytes"] == ("segment_bytes", "1GiB", "default", True)
    with pytest.raises(UnknownTopicError):
        settings_of(bench, "unknown")


def test_partitions_are_described_some_at_a_time(bench: BrokerBench) -> None:
    write(bench, "t", *range(0, 140, 2))
    first = decode_partitions_response(ask(bench, DescribePartitionsRequest("t", -5)))
    assert first.partition_count == 200
    assert [each.partition for each in first.partitions] == list(range(0, 128, 2))
    assert first.partitions[0] == (0, 0, 15, 15, 1, NOW_MS, NOW_MS, "", "")
    assert first.next_partition == 128
    rest = decode_partitions_response(ask(bench, DescribePartitionsRequest("t", 128)))
    assert [each.partition for each in rest.partitions] == list(range(128, 140, 2))
    assert rest.next_partition == -1
    beyond = decode_partitions_response(ask(bench, DescribePartitionsRequest("t", 2**31 - 1)))
    assert beyond == (200, -1, [])
    with pytest.raises(UnknownTopicError):
        decode_partitions_response(ask(bench, DescribePartitionsRequest("unknown", 0)))


def test_a_partition_that_is_offline_says_why(bench: BrokerBench) -> None:
    write(bench, "t", 0)
    log = bench.directory.get("t", 0)
    assert log is not None
    log.append([HELLO], len(HELLO), 1, NOW_MS)
    for path in Path(log.directory).iterdir():
        path.unlink()
    bench.flusher.flush_now(log).addErrback(lambda _: None)
    (described,) = decode_partitions_response(ask(bench, DescribePartitionsRequest("t", 0)))[2]
    assert "was removed" in described.offline_reason
    assert described.size_bytes == 30
