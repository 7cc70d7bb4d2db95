"""Fetch, ListOffsets and OffsetForLeaderEpoch: what is visible, as soon as there is enough."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers
from cold_disk import ColdDisk
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from kafka_logs import append_batch, append_values
from twisted.internet.defer import Deferred, succeed

from hermes.kafka.apis import APIS
from hermes.kafka.fetching import fetch as fetching
from hermes.protocol.record_batches import next_in
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.server.fairness import QUANTUM_ENTRIES
from hermes.storage import Log, NotInMemoryError
from hermes.storage.files import FEW_BYTES

VERSIONS = range(APIS[1].lowest, APIS[1].highest + 1)


TOPICS = {"new": {"format": "kafka", "partitions": 3}}


@pytest.fixture
def cold_disk(monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
    return ColdDisk(monkeypatch)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics=TOPICS)
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


def log_of(bench: KafkaBench, partition: int = 0) -> Log:
    return bench.shared.topics.for_produce("new", partition)


def append(bench: KafkaBench, *values: bytes, partition: int = 0) -> None:
    """Append a batch and flush it, as a producer's would be."""
    log = log_of(bench, partition)
    append_values(log, *values)
    bench.flush(log)


def request(bench: KafkaBench, version: int, **options: Any) -> bytes:
    """A request for `places`: (partition, offset) or (partition, offset, most bytes)."""
    kinds = messages("Fetch", version, "request")
    found = bench.server.topics.get("new")
    assert found is not None
    named = {"topic_id": found.id} if version >= 13 else {"topic": "new"}
    places = options.pop("places", ((0, 0),))
    epoch = options.pop("epoch", -1)
    partitions = []
    for partition, offset, *most in places:
        values = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": most[0] if most else 1 << 20,
        }
        if version >= 9:
            values["current_leader_epoch"] = epoch
        partitions.append(kinds.FetchPartition(**values))
    fields: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=options.pop("wait_ms", 0)),
        "min_bytes": 1,
        "topics": (kinds.FetchTopic(**named, partitions=tuple(partitions)),),
        **options,
    }
    if version < 15:
        fields["replica_id"] = -1
    if version >= 7:
        fields["forgotten_topics_data"] = ()
    return encode_request("Fetch", version, **fields)


def fetch(bench: KafkaBench, version: int = 12, **options: Any) -> list[Any]:
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, version, **options))
    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Fetch", version, answer).responses
    return list(topic.partitions)


def values_in(data: bytes) -> list[bytes | None]:
    """The values of whole batches."""
    found: list[bytes | None] = []
    position = 0
    while (header := next_in(data, position)) is not None:
        found += [each.value for each in iterate_records(data, header, position)]
        position += header.size_bytes
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_reads_what_is_there(bench: KafkaBench, version: int) -> None:
    append(bench, b"one", b"two")
    append(bench, b"three")
    (found, empty) = fetch(bench, version, places=((0, 0), (1, 0)))
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert getattr(found, "log_start_offset", 0) == 0
    assert values_in(found.records) == [b"one", b"two", b"three"]
    assert (empty.error_code, empty.high_watermark, empty.records) == (0, 0, b"")


@pytest.mark.parametrize("level", [0, 1])
def test_no_transaction_was_ever_aborted(bench: KafkaBench, level: int) -> None:
    append(bench, b"one")
    (found,) = fetch(bench, isolation_level=level)
    assert found.aborted_transactions == (() if level else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (4, 1), (3, 0)])
def test_offsets_beyond_the_log_are_out_of_range(
    bench: KafkaBench, version: int, offset: int, code: int
) -> None:
    append(bench, b"one", b"two", b"three")
    (found,) = fetch(bench, version, places=((0, offset),))
    assert (found.error_code, found.records) == (code, b"")
    assert found.high_watermark == (-1 if code else 3)


def test_what_is_not_flushed_is_not_there_yet(bench: KafkaBench) -> None:
    append(bench, b"one")
    append_values(log_of(bench), b"two")
    (found,) = fetch(bench, places=((0, 1),))
    assert (found.error_code, found.records, found.high_watermark) == (0, b"", 1)
    (found,) = fetch(bench, places=((0, 2),))  # where a producer was told that it wrote
    assert (found.error_code, found.records) == (0, b"")


def test_a_batch_that_is_too_large_comes_whole_if_it_is_the_first(bench: KafkaBench) -> None:
    append(bench, b"x" * 1000)
    append(bench, b"y" * 1000, partition=1)
    first, second = fetch(bench, places=((0, 0, 10), (1, 0, 10)))
    assert values_in(first.records) == [b"x" * 1000]
    assert values_in(second.records) == []


def test_a_response_is_no_larger_than_it_may_be(bench: KafkaBench) -> None:
    for partition in range(3):
        append(bench, b"x" * 1000, partition=partition)
    found = fetch(bench, places=((0, 0), (1, 0), (2, 0)), max_bytes=1100)
    assert [len(values_in(each.records)) for each in found] == [1, 0, 0]
    assert sum(len(each.records) for each in found) < 2300


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 0), (2, 75)])
def test_who_knows_another_leader_is_told(bench: KafkaBench, epoch: int, code: int) -> None:
    append(bench, b"one")
    (found,) = fetch(bench, epoch=epoch)
    assert found.error_code == code


def test_what_is_not_there_is_an_error_of_its_partition(bench: KafkaBench) -> None:
    append(bench, b"one")
    found, missing = fetch(bench, places=((0, 0), (9, 0)), wait_ms=1000)
    assert (found.error_code, values_in(found.records)) == (0, [b"one"])
    assert missing.error_code == 3
    kinds = messages("Fetch", 13, "request")
    (gone,) = fetch(
        bench,
        13,
        topics=(
            kinds.FetchTopic(
                topic_id=None,
                partitions=(
                    kinds.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1),
                ),
            ),
        ),
    )
    assert gone.error_code == 100


@pytest.mark.parametrize(
    ("session", "epoch", "code"), [(0, 0, 0), (0, -1, 0), (7, 1, 70), (7, -1, 0)]
)
def test_sessions_are_refused_as_kafka_does(
    bench: KafkaBench, session: int, epoch: int, code: int
) -> None:
    append(bench, b"one")
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, session_id=session, session_epoch=epoch))
    bench.turns(transport)
    (answer,) = answers(transport)
    answered = decode_answer("Fetch", 12, answer)
    assert (answered.error_code, answered.session_id) == (code, 0)
    assert bool(answered.responses) is (code == 0)


# -- waiting ------------------------------------------------------------------------------------


def test_a_fetch_waits_for_a_message(bench: KafkaBench) -> None:
    fetch(bench)  # which has loaded what carries it out
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000, places=((0, 0), (1, 0))))
    bench.turns(transport)
    assert transport.value() == b""
    assert len(bench.server.shared.waiting) == 1
    append(bench, b"one", partition=1)
    bench.turns(transport)
    (answer,) = answers(transport)
    _, found = decode_answer("Fetch", 12, answer).responses[0].partitions
    assert values_in(found.records) == [b"one"]
    assert len(bench.server.shared.waiting) == 0


def test_a_fetch_waits_for_enough_or_until_its_time_is_up(bench: KafkaBench) -> None:
    fetch(bench)
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=1000, min_bytes=100_000))
    append(bench, b"one")
    bench.turns(transport)
    assert transport.value() == b""
    bench.clock.advance(1.1)
    bench.turns(transport)
    (answer,) = answers(transport)
    (found,) = decode_answer("Fetch", 12, answer).responses[0].partitions
    assert values_in(found.records) == [b"one"]


def test_a_fetch_of_one_partition_waits_as_one_of_many(bench: KafkaBench) -> None:
    append(bench, b"one")
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000, places=((0, 1),), min_bytes=150))
    for values, is_answered in (([b"two"], False), ([b"x" * 100], True)):
        assert len(bench.server.shared.waiting) == 1
        append(bench, *values)
        bench.turns(transport)
        assert (transport.value() != b"") is is_answered
    (answer,) = answers(transport)
    (found,) = decode_answer("Fetch", 12, answer).responses[0].partitions
    assert (found.high_watermark, values_in(found.records)) == (3, [b"two", b"x" * 100])
    assert len(bench.server.shared.waiting) == 0
    assert bench.shared.metrics.fetches == 2


def test_what_a_fetch_with_much_in_it_holds_while_it_waits_is_counted(bench: KafkaBench) -> None:
    fetch(bench)
    connection, _ = bench.connect_kafka()
    for client_id, counted in (("c", 0), ("c" * 10_000, 10_000)):
        connection.dataReceived(request(bench, 12, wait_ms=10_000, client_id=client_id))
        assert bench.connections.memory.used_bytes >= counted
        assert (bench.connections.memory.used_bytes > 0) is (counted > 0)
        bench.server.shared.waiting.wake_all()
        bench.server.shared.waiting.is_stopping = False


def test_who_waits_hears_that_the_topic_is_deleted(bench: KafkaBench) -> None:
    append(bench, b"one")
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000, places=((0, 1),)))
    assert len(bench.server.shared.waiting) == 1
    delete(bench)
    bench.shared.waiting.changed("new", 0)
    bench.turns(transport)
    (answer,) = answers(transport)
    (found,) = decode_answer("Fetch", 12, answer).responses[0].partitions
    assert found.error_code == 3


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", [0, 1])
def test_a_plain_fetch_is_answered_as_one_that_is_decoded(
    bench: KafkaBench, version: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(bench, b"one")
    append(bench, b"x" * 100)
    append(bench, *[b"y" * 1000] * 20)
    places = [(0, 0), (0, 0, 0), (0, 0, 100), (0, 1), (0, 1, 300), (0, 2), (0, 22), (0, 23), (1, 0)]
    asked = [
        request(bench, version, isolation_level=level, places=(place,), max_bytes=max_bytes)
        for place in places
        for max_bytes in (0, 50, 300, 1 << 20)
    ]

    def answered() -> list[bytes]:
        connection, transport = bench.connect_kafka()
        connection.dataReceived(b"".join(asked))
        bench.turns(transport)
        return [bytes(each) for each in answers(transport)]

    plain = answered()
    monkeypatch.setattr(bench.server.fetches, "carry_out", lambda *_: NotImplemented)
    assert answered() == plain
    assert len(plain) == len(asked)


def test_a_topic_that_is_deleted_before_a_fetch_waits_is_an_error_of_its_partition(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = bench.server.topics.log

    def find_and_delete(topic: str, number: int) -> Log:
        found = find(topic, number)
        monkeypatch.undo()
        bench.shared.topics.begin_delete(topic)
        bench.shared.directory.delete_topic(topic)
        return found

    monkeypatch.setattr(bench.server.topics, "log", find_and_delete)
    (gone,) = fetch(bench, wait_ms=1000)
    assert gone.error_code == 3


def delete(bench: KafkaBench) -> None:
    bench.shared.topics.begin_delete("new")
    bench.shared.directory.delete_topic("new")
    bench.shared.topics.end_delete("new")


@pytest.fixture
def cold_partition(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Nothing of partition 0 is in memory; `then`: what happens as partition 1 is read."""
    more: dict[str, Any] = {"then": lambda: None}
    find = fetching.batches_of

    def find_warm(log: Log, offset: int, size: int, is_first: bool, resident: bool, *_: Any) -> Any:
        if log.partition == 0 and resident:
            raise NotInMemoryError
        if log.partition == 1:
            more.pop("then", lambda: None)()
        return find(log, offset, size, is_first, resident, *_)

    monkeypatch.setattr(fetching, "batches_of", find_warm)
    return more


@pytest.mark.usefixtures("cold_partition")
def test_a_topic_that_is_made_anew_while_a_thread_reads_is_another_one(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_anew(reads: object) -> "Deferred[None]":
        delete(bench)
        bench.shared.topics.create_declared("new")
        append(bench, b"another")
        return succeed(None)

    append(bench, b"one")
    monkeypatch.setattr(bench.shared.reader, "warm", make_anew)
    found, _ = fetch(bench, 13, places=((0, 0), (1, 0)))
    assert (found.error_code, values_in(found.records or b"")) == (100, [])


def test_a_topic_that_is_deleted_before_a_thread_reads_is_an_error_of_its_partition(
    bench: KafkaBench, cold_partition: dict[str, Any]
) -> None:
    append(bench, b"one")
    cold_partition["then"] = lambda: delete(bench)
    found, _ = fetch(bench, places=((0, 0), (1, 0)))
    assert found.error_code == 3


@pytest.mark.usefixtures("cold_partition")
def test_what_comes_while_a_thread_reads_is_not_waited_for(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(bench, b"one")
    fetch(bench, places=((1, 0), (2, 0)))
    warmed: Deferred[None] = Deferred()
    monkeypatch.setattr(bench.shared.reader, "warm", lambda reads: warmed)
    connection, transport = bench.connect_kafka()
    places = (1, 0), (0, 0)
    connection.dataReceived(request(bench, 12, min_bytes=200, wait_ms=60_000, places=places))
    append(bench, b"x" * 200, partition=1)
    warmed.callback(None)
    bench.turns(transport)
    assert len(answers(transport)) == 1
    assert len(bench.server.shared.waiting) == 0


@pytest.mark.parametrize("places", [((0, 0),), ((0, 0), (1, 0))])
def test_what_is_read_while_a_fetch_waits_is_counted_when_it_leaves(
    bench: KafkaBench, places: Any
) -> None:
    append(bench, b"one")
    connection, transport = bench.connect_kafka()
    counts = bench.server.topics.partition("new", 0).counts
    connection.dataReceived(request(bench, 12, min_bytes=1000, wait_ms=1000, places=places))
    assert counts.bytes_out == 0
    append(bench, b"two")
    bench.clock.advance(1)
    bench.turns(transport)
    (answer,) = answers(transport)
    (topic,) = decode_answer("Fetch", 12, answer).responses
    assert values_in(topic.partitions[0].records) == [b"one", b"two"]
    assert counts.bytes_out == len(topic.partitions[0].records)


def test_who_leaves_waits_no_longer(bench: KafkaBench) -> None:
    fetch(bench)
    connection, _ = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000))
    assert len(bench.server.shared.waiting) == 1
    connection.connectionLost()
    assert len(bench.server.shared.waiting) == 0
    assert connection not in bench.connections._unfinished


def test_who_leaves_while_a_fetch_of_very_many_partitions_begins_to_wait_holds_no_file(
    tmp_path: Path,
) -> None:
    count = QUANTUM_ENTRIES + 1
    bench = KafkaBench(
        tmp_path,
        topics={"new": {"format": "kafka", "partitions": count}},
        fetch_session_memory="0",
    )
    bench.shared.topics.create_declared("new")
    append(bench, b"x" * 2 * FEW_BYTES, partition=count - 1)
    file = log_of(bench, count - 1).view.segments[-1].file
    fetch(bench)
    places = [(number, 0) for number in range(count)]
    options = {"max_bytes": 1 << 20, "min_bytes": 1 << 20, "wait_ms": 1000, "places": places}
    users, turns, waits = file.users, 0, False
    while not waits:
        connection, transport = bench.connect_kafka()
        connection.dataReceived(request(bench, 12, **options))
        for _ in range(turns):
            call = min(bench.clock.getDelayedCalls(), key=lambda each: each.getTime())
            bench.clock.calls.remove(call)
            call.func(*call.args, **call.kw)
        waits = len(bench.server.shared.waiting) == 1
        connection.connectionLost()
        bench.turns(transport)
        assert file.users == users, f"left after {turns} turns"
        turns += 1
    assert turns > 1
    bench.close()


def test_nothing_waits_for_who_has_left_behind_much_that_is_not_read(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = [False]
    monkeypatch.setattr("hermes.broker.connection.has_left", lambda transport: left[0])
    fetch(bench)
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=300_000) * 1000)
    assert transport.producerState == "paused"
    for has_left in (False, True):
        left[0] = has_left
        assert len(bench.server.shared.waiting) == 1
        bench.clock.advance(1)
    bench.turns(transport)
    assert transport.producerState == "producing"
    connection.connectionLost()
    assert len(bench.server.shared.waiting) == 0
    assert connection not in bench.connections._unfinished


def test_a_broker_that_stops_answers_what_waits(bench: KafkaBench) -> None:
    fetch(bench)
    connection, transport = bench.connect_kafka()
    connection.dataReceived(request(bench, 12, wait_ms=10_000))
    bench.server.shared.waiting.wake_all()
    bench.turns(transport)
    assert len(answers(transport)) == 1


# -- questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(APIS[2].lowest, APIS[2].highest + 1))
def test_offsets_by_time(bench: KafkaBench, version: int) -> None:
    times = [Record(n, time_ms, None, b"") for n, time_ms in enumerate((1000, 3000, 2000))]
    append_batch(log_of(bench), encode_batch(times))
    log_of(bench).flush()
    kinds = messages("ListOffsets", version, "request")
    asked = {-2: (0, -1), -1: (3, -1), 500: (0, 1000), 1001: (1, 3000), 3001: (-1, -1)}
    if version >= 7:
        asked[-3] = (1, 3000)
    for time_ms, expected in asked.items():
        partition = kinds.ListOffsetsPartition(partition_index=0, timestamp=time_ms)
        topic = kinds.ListOffsetsTopic(name="new", partitions=(partition,))
        fields = {"isolation_level": 0} if version >= 2 else {}
        if version >= 10:
            fields["timeout"] = timedelta(seconds=1)  # type: ignore[assignment]
        answer = bench.ask("ListOffsets", version, replica_id=-1, topics=(topic,), **fields)
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.offset, found.timestamp) == (0, *expected)


def test_a_partition_that_is_asked_about_twice_is_refused(bench: KafkaBench) -> None:
    kinds = messages("ListOffsets", 5, "request")
    partitions = tuple(
        kinds.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (0, 1, 0, 9)
    )
    topic = kinds.ListOffsetsTopic(name="new", partitions=partitions)
    answer = bench.ask("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=(topic,))
    assert [each.error_code for each in answer.topics[0].partitions] == [42, 0, 3]


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 0, 2)), (1, (0, 1, 2)), (2, (0, -1, -1))])
def test_the_leaders_only_term_ends_where_the_log_does(
    bench: KafkaBench, epoch: int, expected: tuple[int, int, int]
) -> None:
    append(bench, b"one", b"two")
    kinds = messages("OffsetForLeaderEpoch", 4, "request")
    partition = kinds.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    topic = kinds.OffsetForLeaderTopic(topic="new", partitions=(partition,))
    answer = bench.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=(topic,))
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected


def test_what_says_where_batches_lie_is_read_from_a_disk_in_a_thread(
    tmp_path: Path, cold_disk: ColdDisk
) -> None:
    written = KafkaBench(tmp_path, topics=TOPICS)
    written.shared.topics.create_declared("new")
    for partition in (0, 1):
        for number in range(40):
            append_values(log_of(written, partition), b"%d" % number + bytes(10_000))
        log_of(written, partition).flush()
    written.close()

    bench = KafkaBench(tmp_path, in_thread=cold_disk.in_thread, topics=TOPICS)
    try:
        places = ((0, 30, 25_000), (1, 5, 25_000), (2, 0, 25_000))
        with cold_disk.watched():
            first, second, empty = fetch(bench, places=places)
        found = [[value[:2] for value in values_in(each.records)] for each in (first, second)]
        assert found == [[b"30", b"31"], [b"5\0", b"6\0"]]
        assert (empty.error_code, empty.records) == (0, b"")
        assert cold_disk.waited == []
    finally:
        bench.close()


def test_a_fetch_that_waits_looks_at_no_disk(tmp_path: Path, cold_disk: ColdDisk) -> None:
    bench = KafkaBench(tmp_path, in_thread=cold_disk.in_thread, topics=TOPICS)
    bench.shared.topics.create_declared("new")
    try:
        append(bench, b"first")
        connection, transport = bench.connect_kafka()
        connection.dataReceived(request(bench, 12, places=((0, 1),), wait_ms=5_000))
        log = log_of(bench)
        append_values(log, b"second")
        log.flush()
        with cold_disk.watched():
            bench.flusher._tell_committed(log)
            bench.turns(transport)
        (answer,) = answers(transport)
        (partition,) = decode_answer("Fetch", 12, answer).responses[0].partitions
        assert values_in(partition.records) == [b"second"]
        assert cold_disk.waited == []
        connection.connectionLost()
    finally:
        bench.close()
