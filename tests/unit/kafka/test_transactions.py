"""Coordination of transactions in one broker: what is stored, read again, ended and given up."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import timedelta
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers, flush_in, log_lines
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from kafka_raw import parts
from transacted_logs import transactional
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.errors import NotLeaderError, StorageError
from hermes.groups.offsets import Committed, TopicPartition
from hermes.kafka.transactions.coordinator import TransactionCoordinator
from hermes.kafka.transactions.state_log import StateLog
from hermes.partition.partition import Partition
from hermes.protocol import AlterTopicRequest
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.records import Record, encode_batch
from hermes.protocol.transaction_markers import Marker
from hermes.server.clients import UNKNOWN_CLIENT
from hermes.storage.compaction import CompactionReport, compaction
from hermes.transactions.deciding import EPOCH_GROWS, Producer
from hermes.transactions.state import STATE_TOPIC, State, Transaction, group_place, partition_of

PLACE = ("new", 0)
TOPICS = {"new": {"format": "kafka"}, STATE_TOPIC: {"format": "kafka", "segment_bytes": 100}}
DAY_MS = 24 * 3600 * 1000


class Threads:
    """Calls what belongs into a thread when the test lets it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Any, tuple[Any, ...]]] = []

    def call(self, function: Any, *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, function, args))
        return done

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done, function, args in waiting:
            done.callback(function(*args))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path / "a log", topics=TOPICS)
    bench.shared.topics.create_declared("new")
    yield bench
    bench.server.transactions.stop()
    bench.close()


def coordinator_of(bench: KafkaBench) -> TransactionCoordinator:
    coordinator: TransactionCoordinator = bench.server.transactions.coordinator
    return coordinator


def begun(bench: KafkaBench, work: Coroutine[Any, Any, Any]) -> "Deferred[Any]":
    done = Deferred.fromCoroutine(work)
    bench.turns()
    return done


def made(bench: KafkaBench, work: Coroutine[Any, Any, Any]) -> Any:
    done = begun(bench, work)
    assert done.called, "it waits for something"
    return done.result


def refusal(bench: KafkaBench, done: "Deferred[Any]") -> Code:
    bench.turns()
    found: list[Any] = []
    done.addErrback(found.append)
    assert found, f"it isn't refused: {done}"
    (failure,) = found
    assert isinstance(failure.value, KafkaError)
    return failure.value.code


def initialize(bench: KafkaBench, name: str = "t") -> Producer:
    coordinator = coordinator_of(bench)
    made(bench, coordinator.coordinator_of(name))
    known = made(bench, coordinator.initialize(name, 60_000, None))
    return Producer(known.producer_id, known.epoch)


def state_partition(bench: KafkaBench) -> Partition:
    coordinator = coordinator_of(bench)
    made(bench, coordinator.coordinator_of("t"))
    return bench.cluster.topics.partition(STATE_TOPIC, 0)


def test_what_was_left_meanwhile_is_not_said_to_be_stored(bench: KafkaBench) -> None:
    log = StateLog(bench.shared, state_partition(bench))
    threads = Threads()
    flush_in(bench.flusher, threads.call)
    storing = begun(bench, log.store("t", Transaction(5, 0, 1000, State.EMPTY)))
    assert not storing.called
    log.is_doubtful = True  # and perhaps read again by another, before this was there to be read
    threads.run()
    assert refusal(bench, storing) is Code.NOT_COORDINATOR


def test_nothing_is_read_again_before_what_was_appended_is_committed(bench: KafkaBench) -> None:
    producer, coordinator = initialize(bench), coordinator_of(bench)
    made(bench, coordinator.join("t", producer, [PLACE], EPOCH_GROWS))
    threads = Threads()
    flush_in(bench.flusher, threads.call)
    ending = begun(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=False))
    coordinator._parts[partition_of("t", 16)].log.is_doubtful = True
    joining = begun(bench, coordinator.join("t", producer, [PLACE], EPOCH_GROWS))
    assert refusal(bench, joining) is Code.COORDINATOR_LOAD_IN_PROGRESS
    threads.run()
    assert refusal(bench, ending) is Code.NOT_COORDINATOR
    assert made(bench, coordinator.describe("t")).state is not State.ONGOING


def test_the_state_is_read_where_compaction_has_left_nothing(bench: KafkaBench) -> None:
    partition = state_partition(bench)
    state = StateLog(bench.shared, partition)
    kept = Transaction(5, 0, 1000, State.EMPTY, updated_ms=1, started_ms=-1)
    for name, transaction in (("a", kept), ("b", kept), ("b", None), ("a", kept), ("a", None)):
        made(bench, state.store(name, transaction))
        made(bench, state.store("c", kept))
    log = partition.log
    for now_ms in (0, 10 * DAY_MS):
        for _ in compaction(log, 0, now_ms, DAY_MS, CompactionReport()):
            pass
    assert len(log.state.view.segments) > 1
    assert state.read() == {"c": kept}


def test_an_end_that_fails_unexpectedly_begins_anew(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, markers = coordinator_of(bench), bench.server.transactions.markers
    producer = initialize(bench)
    made(bench, coordinator.join("t", producer, [PLACE], EPOCH_GROWS))
    with monkeypatch.context() as patch, log_lines() as lines:
        patch.setattr(markers, "_append", lambda *_: 1 / 0)
        made(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
        assert any("division by zero" in line for line in lines)
    coordinator.begin()
    bench.clock.advance(0.5)
    bench.turns()
    assert made(bench, coordinator.describe("t")).state is State.COMPLETE_COMMIT


def test_who_stops_says_nothing_of_ends_under_way(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = coordinator_of(bench)
    producer = initialize(bench)
    made(bench, coordinator.join("t", producer, [PLACE, group_place("g")], EPOCH_GROWS))
    held: list[Deferred[Any]] = [Deferred()]
    monkeypatch.setattr(bench.server.transactions.markers, "write", lambda *_: held[0])
    with log_lines() as lines:
        ending = begun(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
        assert ending.called
        bench.server.transactions.stop()
        bench.turns()
        gc.collect()
    assert [line for line in lines if "Error" in line] == []


def test_a_join_of_several_waits_for_no_end(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = coordinator_of(bench)
    producers = {name: initialize(bench, name) for name in ("ends", "begins")}
    ending = producers["ends"]
    made(bench, coordinator.join("ends", ending, [PLACE], EPOCH_GROWS))
    monkeypatch.setattr(bench.server.transactions.markers, "write", lambda *_: Deferred())
    after = made(bench, coordinator.end("ends", ending, EPOCH_GROWS, commits=True))
    make = parts("AddPartitionsToTxn", 5)
    transactions = tuple(
        make.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=each.id,
            producer_epoch=each.epoch,
            verify_only=False,
            topics=(make.AddPartitionsToTxnTopic(name="new", partitions=(0,)),),
        )
        for name, each in {**producers, "ends": after}.items()
    )
    answer = bench.ask("AddPartitionsToTxn", 5, transactions=transactions)
    codes = [
        Code(partition.partition_error_code)
        for each in answer.results_by_transaction
        for topic in each.topic_results
        for partition in topic.results_by_partition
    ]
    assert codes == [Code.CONCURRENT_TRANSACTIONS, Code.NONE]


def produce(bench: KafkaBench, producer: Producer, version: int = 12) -> Callable[[], Code | None]:
    """Begin to produce in a transaction of `t`; says what came of it, None until something has."""
    batch = encode_batch(
        [Record(0, 1, None, b"x")],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
    )
    kinds = messages("Produce", version, "request")
    data = kinds.PartitionProduceData(index=0, records=transactional(batch))
    connection, transport = bench.connect_kafka()
    fields = {"transactional_id": "t", "acks": -1, "timeout": timedelta(seconds=30)}
    topics = (kinds.TopicProduceData(name="new", partition_data=(data,)),)
    connection.dataReceived(encode_request("Produce", version, **fields, topic_data=topics))

    def code() -> Code | None:
        bench.turns(transport)
        for answer in answers(transport):
            (topic,) = decode_answer("Produce", version, answer).responses
            return Code(topic.partition_responses[0].error_code)
        return None

    return code


def test_a_producer_goes_on_before_the_marker_of_its_last_transaction_is_there(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, markers = coordinator_of(bench), bench.server.transactions.markers
    producer, write, held = initialize(bench), markers.write, Deferred[None]()
    assert produce(bench, producer)() is Code.NONE

    async def later(*marker: Any) -> Any:
        await held
        return await write(*marker)

    monkeypatch.setattr(markers, "write", later)
    after = made(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
    code = produce(bench, after)
    assert code() is None
    held.callback(None)
    assert code() is Code.NONE
    assert produce(bench, producer)() is Code.INVALID_PRODUCER_EPOCH


def test_what_comes_after_the_end_of_an_older_producers_transaction_is_part_of_no_other(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch stays the same: nobody would ever end what such a batch begins."""
    coordinator, held = coordinator_of(bench), Deferred[None]()
    producer, found_joined = initialize(bench), coordinator.joined
    made(bench, coordinator.join("t", producer, [PLACE], 0))

    async def joined(*asked: Any) -> Any:
        found = await found_joined(*asked)
        await held
        return found

    monkeypatch.setattr(coordinator, "joined", joined)
    late = produce(bench, producer, 11)
    assert late() is None
    made(bench, coordinator.end("t", producer, 0, commits=False))
    assert made(bench, coordinator.describe("t")).state is State.COMPLETE_ABORT
    held.callback(None)
    assert late() is Code.INVALID_TXN_STATE
    assert not bench.cluster.topics.log(*PLACE).state.transactions.open


def test_who_comes_to_lead_while_a_partition_joins_does_not_refuse_its_transaction(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, topics = initialize(bench), bench.server.topics
    partition = topics.partition

    def later(*place: Any) -> Partition:
        monkeypatch.setattr(topics, "partition", partition)
        raise NotLeaderError("not yet")

    monkeypatch.setattr(topics, "partition", later)
    assert produce(bench, producer)() is Code.NOT_LEADER_OR_FOLLOWER
    assert produce(bench, producer)() is Code.NONE


def test_a_group_whose_store_does_not_answer_holds_up_no_other_group(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker asks about one after the other, together with what comes meanwhile."""
    groups, stuck, begun_ends = bench.server.groups, Deferred[None](), list[str]()
    end_transaction = groups.end_transaction

    async def end(name: str, producer_id: int, *, commits: bool) -> Code:
        begun_ends.append(name)
        if name == "stuck":
            await stuck
        return await end_transaction(name, producer_id, commits=commits)

    monkeypatch.setattr(groups, "end_transaction", end)
    first = write_markers(bench, {5: ["stuck", "other"], 6: ["works"]})
    bench.clock.advance(0.4)
    assert first() is None
    bench.clock.advance(0.1)
    waits = Code.CONCURRENT_TRANSACTIONS
    assert first() == {5: [waits, Code.NONE], 6: [Code.NONE]}
    again = write_markers(bench, {5: ["stuck"], 7: ["works"]})
    assert again() == {5: [waits], 7: [Code.NONE]}
    assert sorted(begun_ends) == ["other", "stuck", "works", "works"]
    stuck.callback(None)
    assert write_markers(bench, {5: ["stuck"]})() == {5: [Code.NONE]}


def write_markers(
    bench: KafkaBench, groups: dict[int, list[str]]
) -> Callable[[], dict[int, list[Code]] | None]:
    """Ask for markers in groups, by producers; says what came of it, None until something has."""
    make = parts("WriteTxnMarkers", 2)
    markers = tuple(
        make.WritableTxnMarker(
            producer_id=producer,
            producer_epoch=1,
            transaction_result=True,
            topics=tuple(
                make.WritableTxnMarkerTopic(name=group_place(each)[0], partition_indexes=(0,))
                for each in names
            ),
            coordinator_epoch=0,
            transaction_version=2,
        )
        for producer, names in groups.items()
    )
    connection, transport = bench.connect_kafka()
    connection.dataReceived(encode_request("WriteTxnMarkers", 2, markers=markers))

    def codes() -> dict[int, list[Code]] | None:
        bench.turns(transport)
        for answer in answers(transport):
            return {
                each.producer_id: [
                    Code(partition.error_code)
                    for topic in each.topics
                    for partition in topic.partitions
                ]
                for each in decode_answer("WriteTxnMarkers", 2, answer).markers
            }
        return None

    return codes


def test_a_topic_that_is_deleted_keeps_no_transaction_from_its_end(bench: KafkaBench) -> None:
    coordinator = coordinator_of(bench)
    producer = initialize(bench)
    made(bench, coordinator.join("t", producer, [PLACE, ("new", 99)], EPOCH_GROWS))
    bench.ask("DeleteTopics", 3, topic_names=("new",), timeout=timedelta(seconds=1))
    assert bench.cluster.topics.get("new") is None
    made(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
    bench.clock.advance(0.1)
    bench.turns()
    assert made(bench, coordinator.describe("t")).state is State.COMPLETE_COMMIT


def test_a_new_coordinator_ends_what_was_decided(tmp_path: Path) -> None:
    settings = {"topics": {"new": {"format": "kafka"}}}
    bench = KafkaBench(tmp_path / "a log", **settings)
    bench.shared.topics.create_declared("new")
    producer = initialize(bench)
    partition = bench.cluster.topics.partition(STATE_TOPIC, partition_of("t", 16))
    decided = made(bench, coordinator_of(bench).describe("t"))._replace(
        state=State.PREPARE_ABORT, places=frozenset({PLACE}), epoch=producer.epoch + 1, version=2
    )
    made(bench, StateLog(bench.shared, partition).store("t", decided))
    bench.server.transactions.stop()
    bench.close()
    bench = KafkaBench(tmp_path / "a log", **settings)
    try:
        coordinator_of(bench).begin()
        bench.clock.advance(1)
        bench.turns()
        assert made(bench, coordinator_of(bench).describe("t")).state is State.COMPLETE_ABORT
        log = bench.cluster.topics.log(*PLACE)
        assert log.producers is not None
        assert log.producers.states[producer.id].epoch == producer.epoch + 1
    finally:
        bench.server.transactions.stop()
        bench.close()


def test_a_new_coordinator_knows_who_asks_again(tmp_path: Path) -> None:
    """A producer goes on after an error (KIP-360), and the answer was lost with the coordinator."""
    bench = KafkaBench(tmp_path / "a log")
    producer = initialize(bench)
    goes_on = coordinator_of(bench).initialize("t", 60_000, producer)
    assert made(bench, goes_on).epoch == producer.epoch + 1
    bench.server.transactions.stop()
    bench.close()
    bench = KafkaBench(tmp_path / "a log")
    try:
        again = coordinator_of(bench).initialize("t", 60_000, producer)
        assert made(bench, again).epoch == producer.epoch + 1
        made(bench, coordinator_of(bench).initialize("t", 60_000, None))
        late = begun(bench, coordinator_of(bench).initialize("t", 60_000, producer))
        assert refusal(bench, late) is Code.PRODUCER_FENCED
    finally:
        bench.server.transactions.stop()
        bench.close()


def test_a_state_that_the_disk_does_not_give_back_is_refused(bench: KafkaBench) -> None:
    initialize(bench)
    partition = bench.cluster.topics.partition(STATE_TOPIC, partition_of("t", 16))

    def pread(*_: int) -> bytes:
        raise OSError(EIO, "Input/output error")

    log = partition.log
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log.files, "pread", pread)
        with pytest.raises(StorageError, match="Input/output error"):
            StateLog(bench.shared, partition).read()


def test_a_damaged_state_is_believed_in_nothing(bench: KafkaBench, tmp_path: Path) -> None:
    initialize(bench)
    number = partition_of("t", 16)
    partition = bench.cluster.topics.partition(STATE_TOPIC, number)
    (path,) = (tmp_path / "a log" / f"{STATE_TOPIC}-{number}").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-12] ^= 1  # of a time
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged at offset 0"):
        StateLog(bench.shared, partition).read()
    coordinator = coordinator_of(bench)
    coordinator._leave(number, coordinator._parts[number])
    with log_lines() as lines:
        first = begun(bench, coordinator.describe("t"))
    assert refusal(bench, first) is Code.NOT_COORDINATOR
    assert any("is damaged at offset 0" in line for line in lines)
    again = begun(bench, coordinator.describe("t"))
    assert refusal(bench, again) is Code.COORDINATOR_NOT_AVAILABLE
    listed = begun(bench, coordinator.all())
    assert refusal(bench, listed) is Code.COORDINATOR_NOT_AVAILABLE
    data[-12] ^= 1
    path.write_bytes(data)
    bench.clock.advance(11)
    assert made(bench, coordinator.describe("t")).state is State.EMPTY


def test_late_ones_are_aborted_and_old_ones_forgotten(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = coordinator_of(bench)
    producer = initialize(bench)
    made(bench, coordinator.join("t", producer, [PLACE], EPOCH_GROWS))
    monkeypatch.setattr("hermes.kafka.transactions.coordinator._EXPIRY_LOOKS", 1)
    coordinator.begin()
    now_ms = bench.shared.now_ms()

    def look(later_ms: int) -> None:
        bench.shared.now_ms = lambda: now_ms + later_ms
        bench.clock.advance(0.5)
        bench.turns()

    look(60_000)
    assert made(bench, coordinator.describe("t")).state is State.ONGOING
    look(60_001)
    bench.clock.advance(0.1)
    bench.turns()
    assert made(bench, coordinator.describe("t")).state is State.COMPLETE_ABORT
    look(60_001 + 7 * DAY_MS)
    asked = begun(bench, coordinator.describe("t"))
    assert refusal(bench, asked) is Code.TRANSACTIONAL_ID_NOT_FOUND
    assert made(bench, coordinator.all()) == []
    assert sum(each.places for each in coordinator._parts.values()) == 0


def test_transactions_have_so_many_partitions_together(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.kafka.transactions.coordinator._MOST_PLACES", 2)
    coordinator = coordinator_of(bench)
    producer = initialize(bench)
    groups = [group_place(name) for name in "abc"]
    made(bench, coordinator.join("t", producer, groups[:2], EPOCH_GROWS))
    asked = begun(bench, coordinator.join("t", producer, groups[2:], EPOCH_GROWS))
    assert refusal(bench, asked) is Code.POLICY_VIOLATION
    made(bench, coordinator.join("t", producer, groups[:1], EPOCH_GROWS))
    made(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
    known = made(bench, coordinator.describe("t"))
    producer = Producer(known.producer_id, known.epoch)
    made(bench, coordinator.join("t", producer, groups[2:], EPOCH_GROWS))


@pytest.mark.parametrize(
    ("brokers", "factor", "copies"), [(1, 1, 1), (2, 1, 2), (5, 1, 3), (5, 4, 4), (1, 3, 3)]
)
def test_the_state_gets_as_many_copies_as_other_topics_and_up_to_three(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch, brokers: int, factor: int, copies: int
) -> None:
    asked: list[Any] = []

    async def create(*given: Any) -> None:
        asked.append(given[-1])

    config = replace(bench.shared.config, default_replication_factor=factor)
    monkeypatch.setattr(bench.shared.settings, "config", config)
    monkeypatch.setattr(ClusterTopics, "broker_ids", property(lambda _: list(range(brokers))))
    monkeypatch.setattr(bench.cluster.topic_changes, "create", create)
    assert made(bench, coordinator_of(bench).coordinator_of("t")) == -1
    assert asked == [copies]


def test_the_state_gets_no_further_partitions(bench: KafkaBench) -> None:
    initialize(bench)
    make = parts("CreatePartitions", 3)
    topic = make.CreatePartitionsTopic(name=STATE_TOPIC, count=17, assignments=None)
    asked = {"topics": (topic,), "timeout": make.timeout(1000), "validate_only": False}
    answer = bench.ask("CreatePartitions", 3, **asked)
    assert [Code(each.error_code) for each in answer.results] == [Code.INVALID_PARTITIONS]
    for settings, reset in (([("partitions", "17")], ()), ([], ("partitions",)), ([], None)):
        altering = AlterTopicRequest(STATE_TOPIC, tuple(settings), reset)
        done = bench.cluster.alter_topic(altering, UNKNOWN_CLIENT)
        assert isinstance(done.result, Failure)
        assert "partitions: those of transactional ids stay" in str(done.result.value)
        done.addErrback(lambda _: None)
    topic = bench.cluster.topics.get(STATE_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == 16


def test_a_topic_that_is_made_again_in_another_format_keeps_no_transaction_from_its_end(
    bench: KafkaBench,
) -> None:
    coordinator = coordinator_of(bench)
    producer = initialize(bench)
    create = messages("CreateTopics", 5, "request").CreatableTopic
    topic = create(name="x", num_partitions=1, replication_factor=1, assignments=(), configs=())
    wait = timedelta(seconds=1)
    bench.ask("CreateTopics", 5, topics=(topic,), timeout=wait, validate_only=False)
    made(bench, coordinator.join("t", producer, [("x", 0)], EPOCH_GROWS))
    bench.ask("DeleteTopics", 3, topic_names=("x",), timeout=wait)
    bench.shared.topics.create("x")  # as a client of 0.7 does
    found = bench.cluster.topics.get("x")
    assert found is not None
    assert found.format == "0.7"
    made(bench, coordinator.end("t", producer, EPOCH_GROWS, commits=True))
    for _ in range(10):
        bench.clock.advance(1)
        bench.turns()
    assert made(bench, coordinator.describe("t")).state is State.COMPLETE_COMMIT


def test_a_late_marker_of_an_earlier_coordinator_ends_nothing_in_a_group(
    bench: KafkaBench,
) -> None:
    """In partitions their logs see to that."""
    groups, markers = bench.server.groups, bench.server.transactions.markers
    clicks = TopicPartition("new", 0)

    def pend(offset: int) -> None:
        offsets = {clicks: Committed(offset, -1, "", 1)}
        asked = ("g", "", None, -1, 5, offsets, lambda: succeed(Code.NONE))
        assert made(bench, groups.commit_in_transaction(*asked)) is Code.NONE

    def end(epoch: int, coordinator: int) -> Code:
        marker = Marker(5, epoch, True, coordinator)
        codes = made(bench, markers.write(marker, 2, [group_place("g")]))
        return Code(codes[group_place("g")])

    pend(10)
    assert end(1, 7) is Code.NONE  # by the new coordinator; that of before is asleep
    pend(20)  # the producer goes on, in epoch 1
    end(1, 6)  # and the one that was asleep sends what it still had to send
    _, found = made(bench, groups.fetch("g", None))
    assert {place: each.offset for place, each in found.items()} == {clicks: 10}
    assert set(groups.unstable("g")) == {clicks}
    assert end(2, 7) is Code.NONE
    _, found = made(bench, groups.fetch("g", None))
    assert {place: each.offset for place, each in found.items()} == {clicks: 20}
