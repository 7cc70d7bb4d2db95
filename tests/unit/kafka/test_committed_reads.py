"""What requests are told of transactions: Fetch, ListOffsets, DescribeProducers."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from kafka_logs import batches_in
from storage_logs import NOW_MS
from transacted_logs import Writer

from hermes.kafka.apis import APIS, FETCH
from hermes.protocol.transaction_markers import Marker

VERSIONS = range(APIS[FETCH].lowest, APIS[FETCH].highest + 1)
TOPICS = {"new": {"format": "kafka", "partitions": 2}}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics=TOPICS)
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


@pytest.fixture
def writer(bench: KafkaBench) -> Writer:
    return Writer(bench.shared.topics.for_produce("new", 0))


def request(
    bench: KafkaBench,
    version: int,
    offset: int = 0,
    *,
    level: int = 1,
    wait_ms: int = 0,
    numbers: tuple[int, ...] = (0,),
    most: int = 1 << 20,
) -> bytes:
    kinds = messages("Fetch", version, "request")
    found = bench.server.topics.get("new")
    assert found is not None
    named = {"topic_id": found.id} if version >= 13 else {"topic": "new"}
    more: dict[str, Any] = {"current_leader_epoch": -1} if version >= 9 else {}
    parts = tuple(
        kinds.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=most, **more
        )
        for number in numbers
    )
    fields: dict[str, Any] = {} if version >= 15 else {"replica_id": -1}
    if version >= 7:
        fields["forgotten_topics_data"] = ()
    return encode_request(
        "Fetch",
        version,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        isolation_level=level,
        topics=(kinds.FetchTopic(**named, partitions=parts),),
        **fields,
    )


def fetch(bench: KafkaBench, version: int = 12, offset: int = 0, **options: Any) -> Any:
    """What is told of the first partition."""
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, version, offset, **options))
    bench.turns(transport)
    (answer,) = answers(transport)
    return decode_answer("Fetch", version, answer).responses[0].partitions[0]


def bases(records: bytes | None) -> list[int]:
    return [header.base_offset for header, _ in batches_in(records or b"")]


@pytest.mark.parametrize("numbers", [(0,), (0, 1)], ids=["plain", "decoded"])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_tells_what_was_aborted_and_where_all_is_decided(
    bench: KafkaBench, writer: Writer, version: int, numbers: tuple[int, ...]
) -> None:
    writer.send(7, 2)
    writer.send(8)
    writer.end(7)
    writer.end(8, commit=True)
    writer.send(9)
    writer.send(1, plain=True)
    bench.flush(writer.log)
    found = fetch(bench, version, numbers=numbers)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 7, 5)
    assert bases(found.records) == [0, 2, 3, 4]
    (aborted,) = found.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (7, 0)
    found = fetch(bench, version, numbers=numbers, level=0)
    assert (found.high_watermark, found.last_stable_offset) == (7, 5)
    assert bases(found.records) == [0, 2, 3, 4, 5, 6]
    assert found.aborted_transactions is None
    for offset in (5, 6):
        found = fetch(bench, version, offset, numbers=numbers)
        assert (found.error_code, found.records or b"", found.last_stable_offset) == (0, b"", 5)
        assert found.aborted_transactions == ()


def test_of_a_part_only_its_own_is_told(bench: KafkaBench, writer: Writer) -> None:
    for _ in range(20):
        writer.send(7)
        writer.end(7)
    bench.flush(writer.log)
    found = fetch(bench, most=300)
    assert bases(found.records) == [0, 1, 2, 3]
    assert [each.first_offset for each in found.aborted_transactions] == [0, 2]
    found = fetch(bench, offset=7, most=1)
    assert bases(found.records) == [7]
    assert [each.first_offset for each in found.aborted_transactions] == [6]


@pytest.mark.parametrize("numbers", [(0,), (0, 1)], ids=["plain", "decoded"])
def test_who_waits_is_woken_by_the_marker(
    bench: KafkaBench, writer: Writer, numbers: tuple[int, ...]
) -> None:
    fetch(bench)
    writer.send(7)
    bench.flush(writer.log)
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000, numbers=numbers))
    bench.turns(transport)
    for _ in range(3):
        writer.send(1, plain=True)
        bench.flush(writer.log)
        bench.turns(transport)
        assert transport.value() == b""
    writer.send(8)
    writer.end(8)  # of another one
    bench.flush(writer.log)
    bench.turns(transport)
    assert transport.value() == b""
    writer.end(7, commit=True)
    bench.flush(writer.log)
    bench.turns(transport)
    (answer,) = answers(transport)
    found = decode_answer("Fetch", 12, answer).responses[0].partitions[0]
    assert bases(found.records) == [0, 1, 2, 3, 4, 5, 6]
    assert [each.producer_id for each in found.aborted_transactions] == [8]
    assert found.last_stable_offset == 7


def list_offset(bench: KafkaBench, time_ms: int, level: int) -> int:
    kinds = messages("ListOffsets", 7, "request")
    part = kinds.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=time_ms)
    topic = kinds.ListOffsetsTopic(name="new", partitions=(part,))
    answer = bench.ask("ListOffsets", 7, replica_id=-1, isolation_level=level, topics=(topic,))
    return int(answer.topics[0].partitions[0].offset)


def test_the_end_is_where_all_is_decided(bench: KafkaBench, writer: Writer) -> None:
    writer.send(1, plain=True)
    writer.send(7)
    bench.flush(writer.log)
    assert [list_offset(bench, -1, level) for level in (0, 1)] == [2, 1]
    assert [list_offset(bench, NOW_MS, level) for level in (0, 1)] == [0, 0]
    writer.log.delete_records(1)
    assert [list_offset(bench, NOW_MS, level) for level in (0, 1)] == [1, -1]
    writer.end(7)
    bench.flush(writer.log)
    assert [list_offset(bench, -1, level) for level in (0, 1)] == [3, 3]


def test_producers_are_told_with_their_transactions(bench: KafkaBench, writer: Writer) -> None:
    writer.send(7)
    writer.end(7, coordinator=5)
    writer.send(7)
    writer.send(8)
    bench.flush(writer.log)
    kinds = messages("DescribeProducers", 0, "request")
    topic = kinds.TopicRequest(name="new", partition_indexes=(0,))
    (found,) = bench.ask("DescribeProducers", 0, topics=(topic,)).topics[0].partitions
    assert [
        (each.producer_id, each.coordinator_epoch, each.current_txn_start_offset)
        for each in found.active_producers
    ] == [(7, 5, 2), (8, -1, 3)]


def test_a_coordinators_marker_is_flushed_and_told(bench: KafkaBench, writer: Writer) -> None:
    partition = bench.shared.partitions.of(writer.log)
    writer.send(7)
    bench.flush(writer.log)
    assert partition.append_marker(Marker(7, 0, True, 1), 1) == 2
    bench.turns()
    assert writer.log.stable_end == 2
