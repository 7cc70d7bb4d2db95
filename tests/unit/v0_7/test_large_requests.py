"""Requests that ask for much with few bytes: served in turns, one at a time, within bounds."""

import gzip
import struct
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import message, produce
from twisted.internet.defer import Deferred, succeed

from hermes.errors import AnswerTooLargeError, TooManyTopicsError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    AppendTimesRequest,
    BoundaryRequest,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    WaitingFetchRequest,
    decode_acknowledged_produce_response,
    decode_metadata_response,
    decode_multifetch_response,
    decode_waiting_fetch_response,
    frame,
)
from hermes.protocol.decoding import SLICE_ENTRIES
from hermes.v0_7 import describing
from hermes.v0_7.set_checker import SetChecker

MOST = 32_767
HELLO = message(b"hello")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path, num_partitions=3)
    yield made
    made.close()


def put(bench: BrokerBench, topic: str, partition: int, messages: bytes) -> None:
    connection, _ = bench.connect()
    connection.dataReceived(produce(topic, partition, messages))
    bench.clock.advance(1)


def ask(bench: BrokerBench, request: Any) -> tuple[list[bytes], int]:
    """The answers to a request, and how many turns they took."""
    connection, transport = bench.connect()
    before = bench.clock.put_off
    connection.dataReceived(request.encode())
    bench.turns(transport)
    return answers(transport), bench.clock.put_off - before


def test_metadata_answers_a_repeated_name_once(bench: BrokerBench) -> None:
    for partition in range(3):
        put(bench, "t", partition, HELLO)
    found, turns = ask(bench, MetadataRequest(("t",) * MOST))
    (topic,) = decode_metadata_response(found[0]).topics
    assert [each.partition for each in topic.partitions] == [0, 1, 2]
    assert turns < 10, "once, not 32,767 times"
    assert len(found[0]) < 300


def test_metadata_of_many_names_takes_turns(bench: BrokerBench) -> None:
    put(bench, "17", 1, HELLO)
    names = tuple(str(number) for number in range(MOST))
    found, turns = ask(bench, MetadataRequest(names))
    topics = decode_metadata_response(found[0]).topics
    assert tuple(each.topic for each in topics) == names
    assert [each.topic for each in topics if each.error == 0] == ["17"]
    assert topics[17].partitions[0].high_watermark == len(HELLO)
    assert turns >= MOST // 256


def test_metadata_of_all_topics_is_in_order(bench: BrokerBench) -> None:
    for number in range(70):
        put(bench, f"t{number:03d}", number % 3, HELLO)
    found, turns = ask(bench, MetadataRequest(None))
    topics = decode_metadata_response(found[0]).topics
    assert [each.topic for each in topics] == [f"t{number:03d}" for number in range(70)]
    assert [each.partitions[0].partition for each in topics[:4]] == [0, 1, 2, 0]
    assert turns >= 1, "a large answer waits for its turn"


def test_metadata_has_a_largest_answer(bench: BrokerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "MAX_RESPONSE_BYTES", 100_000)
    found, _ = ask(bench, MetadataRequest(tuple(str(number) for number in range(MOST))))
    with pytest.raises(AnswerTooLargeError):
        decode_metadata_response(found[0])
    assert ask(bench, MetadataRequest(("a",)))[0], "the next one is answered"


def test_a_name_that_no_answer_can_hold_is_refused(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    name = struct.pack(">h", 10_923) + b"\xff" * 10_923
    body = struct.pack(">hhh", 66, 0, 1) + name
    with log_lines() as lines:
        connection.dataReceived(struct.pack(">i", len(body)) + body)
        bench.turns()
    assert answers(transport) == [struct.pack(">h", ErrorCode.INVALID_TOPIC)]
    assert not transport.disconnecting
    assert lines == []


def test_a_long_multifetch_is_answered_in_order(bench: BrokerBench) -> None:
    put(bench, "t", 0, HELLO)
    fetches = tuple(FetchRequest("t" if n % 5000 == 7 else "u", n % 3, 0, 100) for n in range(MOST))
    found, turns = ask(bench, MultiFetchRequest(fetches))
    entries = decode_multifetch_response(found[0])
    assert len(entries) == MOST
    with_messages = [n for n, entry in enumerate(entries) if entry.messages]
    assert with_messages == [n for n in range(MOST) if n % 5000 == 7 and n % 3 == 0]
    assert turns >= MOST // 256


def test_a_multifetch_of_two_gigabytes_closes_and_lets_go(bench: BrokerBench) -> None:
    put(bench, "t", 0, message(bytes(900_000)))
    fetches = (FetchRequest("t", 0, 0, 1 << 20),) * 2400
    connection, transport = bench.connect()
    with log_lines() as lines:
        connection.dataReceived(MultiFetchRequest(fetches).encode())
        bench.turns()
    assert transport.disconnecting
    assert not transport.value()
    assert len(lines) == 1
    assert "2 GiB" in lines[0]


def test_a_waiting_fetch_of_two_gigabytes_is_refused(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bench, "t", 0, message(bytes(900_000)))
    monkeypatch.setattr("hermes.v0_7.long_polls.LARGEST_BYTES", 100_000_000)
    fetches = (FetchRequest("t", 0, 0, 1 << 20),) * 200
    found, _ = ask(bench, WaitingFetchRequest(1000, 1, fetches))
    assert found == [struct.pack(">h", ErrorCode.ANSWER_TOO_LARGE)]


def test_a_long_multiproduce_appends_in_order(bench: BrokerBench) -> None:
    count = 5000
    sets = [message(b"%d" % n) for n in range(count)]
    connection, transport = bench.connect()
    produces = tuple(ProduceRequest("t", 0, each) for each in sets)
    connection.dataReceived(MultiProduceRequest(produces).encode())
    bench.turns()
    assert not transport.disconnecting
    log = bench.directory.get("t", 0)
    assert log is not None
    assert log.end_offset == sum(map(len, sets))


def test_a_producer_may_leave_behind_a_long_multiproduce(bench: BrokerBench) -> None:
    connection, _ = bench.connect()
    produces = (ProduceRequest("t", 0, HELLO),) * 2000
    connection.dataReceived(MultiProduceRequest(produces).encode())
    connection.connectionLost()
    bench.turns()
    log = bench.directory.get("t", 0)
    assert log is not None
    assert log.end_offset == 2000 * len(HELLO)


@pytest.mark.parametrize("acks", list(Acks))
def test_a_long_acknowledged_produce_is_answered_entry_by_entry(
    bench: BrokerBench, acks: Acks
) -> None:
    topics = [f"t{n % 50}" for n in range(3000)]
    produces = tuple(ProduceRequest(topic, 0, HELLO) for topic in topics)
    found, _ = ask(bench, AcknowledgedProduceRequest(acks, 0, produces))
    entries = decode_acknowledged_produce_response(found[0])
    assert [each.error for each in entries] == [0] * 3000
    assert [each.offset for each in entries] == [len(HELLO) * (n // 50) for n in range(3000)]


def test_a_long_request_cut_short_closes(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    whole = MultiFetchRequest((FetchRequest("t", 0, 0, 1),) * 2000).encode()
    connection.dataReceived(struct.pack(">i", len(whole) - 5) + whole[4:-1])
    bench.turns()
    assert transport.disconnecting


@pytest.mark.parametrize("acks", [None, *Acks])
def test_of_a_long_produce_cut_short_nothing_is_appended(
    bench: BrokerBench, acks: Acks | None
) -> None:
    produces = (ProduceRequest("t", 0, HELLO),) * (SLICE_ENTRIES + 65)
    request = (
        MultiProduceRequest(produces)
        if acks is None
        else AcknowledgedProduceRequest(acks, 0, produces)
    )
    connection, transport = bench.connect()
    connection.dataReceived(frame(request.encode()[4:-1]))
    bench.turns()
    assert transport.disconnecting
    assert bench.directory.get("t", 0) is None


def test_a_long_produce_of_a_later_version_is_refused(bench: BrokerBench) -> None:
    data = bytearray(long_produce("t").encode())
    data[6:8] = b"\0\1"
    connection, transport = bench.connect()
    connection.dataReceived(bytes(data))
    bench.turns(transport)
    (answer,) = answers(transport)
    assert struct.unpack(">h", answer[:2]) == (ErrorCode.UNSUPPORTED_VERSION,)
    assert bench.directory.get("t", 0) is None


def test_few_entries_of_a_long_produce_are_held_at_a_time(bench: BrokerBench) -> None:
    held = 0
    check = SetChecker.check

    def counting(self: SetChecker, produces: Any) -> Any:
        nonlocal held
        held = max(held, len(produces))
        return check(self, produces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SetChecker, "check", counting)
        (answer,), _ = ask(bench, long_produce("t", MOST))
    assert len(decode_acknowledged_produce_response(answer)) == MOST
    assert held == SLICE_ENTRIES


def test_a_reader_that_stalls_holds_up_nobody_for_long(bench: BrokerBench) -> None:
    bench.broker.large_responses.limit_bytes = 100_000
    names = tuple(str(number) for number in range(MOST))
    stalled, transport = bench.connect()
    stalled.dataReceived(MetadataRequest(names).encode())
    bench.turns()
    assert bench.broker.large_responses.used_bytes > 100_000
    other, answered = bench.connect()
    other.dataReceived(MetadataRequest(names).encode())
    bench.turns()
    assert not answered.value()
    for _ in range(2):
        bench.broker.large_responses.sweep()
    assert transport.disconnected
    stalled.connectionLost()
    bench.turns()
    assert answered.value()


QUESTIONS = {
    "offsets": OffsetsRequest("t", 0, 1, 10),
    "boundary": BoundaryRequest("t", 0, 0),
    "append times": AppendTimesRequest("t", 0, 0, 1 << 40, 1),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_few_look_ups_run_at_a_time(tmp_path: Path, question: str) -> None:
    running: list[tuple[Deferred[Any], Any]] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        running.append((Deferred(), partial(function, *args)))
        return running[-1][0]

    bench = BrokerBench(tmp_path, in_thread)
    put(bench, "t", 0, HELLO)
    clients = [bench.connect() for _ in range(100)]
    for connection, _ in clients:
        connection.dataReceived(QUESTIONS[question].encode() * 5)
    gone, _ = clients[50]
    gone.connectionLost()
    count = 0
    while running:
        assert len(running) <= 2
        finished, work = running.pop(0)
        finished.callback(work())
        count += 1
    assert count == 5 * 99, "nothing is looked up for who has gone"
    for connection, transport in clients:
        assert len(answers(transport)) == (0 if connection is gone else 5)
    bench.close()


def test_a_long_waiting_fetch_holds_up_no_other_while_it_waits(bench: BrokerBench) -> None:
    put(bench, "t", 0, HELLO)
    fetches = tuple(FetchRequest("t", 0, len(HELLO), 100) for _ in range(500))
    waiting, transport = bench.connect()
    waiting.dataReceived(WaitingFetchRequest(60_000, 1, fetches).encode())
    bench.turns()
    assert len(bench.broker.waiting) == 1
    found, _ = ask(bench, MetadataRequest(tuple(str(number) for number in range(500))))
    assert found
    put(bench, "t", 0, HELLO)
    bench.turns(transport)
    (answer,) = answers(transport)
    assert [len(each.messages) for each in decode_waiting_fetch_response(answer)] == [15] * 500


def test_decoded_requests_are_few_however_many_arrive(tmp_path: Path) -> None:
    """Each connection's bytes wait in the budget of requests; one request at a time is decoded."""
    work: list[tuple[Deferred[Any], Any]] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        work.append((Deferred(), partial(function, *args)))
        return work[-1][0]

    bench = BrokerBench(tmp_path, in_thread)
    produces = MultiProduceRequest((ProduceRequest("t", 0, HELLO),) * 65).encode()
    for _ in range(20):
        connection, _ = bench.connect()
        connection.dataReceived(produces)
    assert bench.connections.memory.used_bytes >= 20 * (len(produces) - 4)
    while work:
        (done, do) = work.pop()
        assert not work, "one at a time"
        done.callback(do())
    log = bench.directory.get("t", 0)
    assert log is not None
    assert log.end_offset == 20 * 65 * len(HELLO)
    bench.close()


def test_who_leaves_while_a_long_request_is_decoded_makes_room_for_nobody(tmp_path: Path) -> None:
    """A thread goes on, and keeps the request in memory, which its connection counts no more."""
    work: list[tuple[Deferred[Any], Any]] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        work.append((Deferred(), partial(function, *args)))
        return work[-1][0]

    bench = BrokerBench(tmp_path, in_thread)
    request = MultiFetchRequest((FetchRequest("t", 0, 0, 100),) * 65).encode()
    for _ in range(20):
        connection, _ = bench.connect()
        connection.dataReceived(request)
        connection.connectionLost()
        bench.turns()
    stays, transport = bench.connect()
    stays.dataReceived(request)
    bench.turns()
    assert len(work) == 1
    for done, do in work:
        done.callback(do())
    bench.turns(transport)
    assert len(work) == 2, "nothing is decoded for who has gone meanwhile"
    assert len(answers(transport)) == 1
    bench.close()


def long_produce(topic: str, count: int = 65) -> AcknowledgedProduceRequest:
    return AcknowledgedProduceRequest(
        Acks.FLUSHED, 0, tuple(ProduceRequest(topic, 0, HELLO) for _ in range(count))
    )


@pytest.mark.parametrize("count", [65, 1024])
def test_a_disk_that_hangs_holds_up_no_long_request_but_its_own(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    hung: list[Any] = []
    when_committed = bench.flusher.when_committed

    def flush(log: Any, notify: Any, urgent: bool) -> None:
        if log.topic == "hangs":
            hung.append(notify)
        else:
            when_committed(log, notify, urgent)

    monkeypatch.setattr(bench.flusher, "when_committed", flush)
    waiting, transport = bench.connect()
    waiting.dataReceived(long_produce("hangs", count).encode())
    bench.turns(transport)
    (answer,), _ = ask(bench, long_produce("t"))
    assert len(decode_acknowledged_produce_response(answer)) == 65
    (answer,), _ = ask(bench, MetadataRequest(tuple(str(n) for n in range(100))))
    assert len(decode_metadata_response(answer).topics) == 100
    assert answers(transport) == []
    (notify,) = hung
    notify(None)
    bench.turns(transport)
    (answer,) = answers(transport)
    assert len(decode_acknowledged_produce_response(answer)) == count


def test_coordination_that_stands_still_holds_up_no_long_produce_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = BrokerBench(tmp_path, topics={"t": {"format": "0.7"}}, format="kafka")
    asked: list[tuple[str, Deferred[Any]]] = []

    def create(topic: str, *_: object) -> "Deferred[Any]":
        asked.append((topic, Deferred()))
        return asked[-1][1]

    monkeypatch.setattr(bench.cluster, "create_topic", create)
    waiting, transport = bench.connect()
    waiting.dataReceived(long_produce("of-kafka").encode())
    bench.turns(transport)
    (answer,), _ = ask(bench, long_produce("t"))
    assert len(decode_acknowledged_produce_response(answer)) == 65
    assert answers(transport) == []
    ((topic, created),) = asked
    created.errback(TooManyTopicsError("there are many already"))
    bench.turns(transport)
    (answer,) = answers(transport)
    codes = {each.error for each in decode_acknowledged_produce_response(answer)}
    assert (topic, codes) == ("of-kafka", {ErrorCode.TOO_MANY_TOPICS})
    assert len(asked) == 1, "its entries ask for it once"
    bench.close()


def test_a_long_produce_waits_for_no_reader_of_large_answers(bench: BrokerBench) -> None:
    bench.broker.large_responses.make(Deferred)  # it never ends
    (answer,), _ = ask(bench, long_produce("t"))
    assert len(decode_acknowledged_produce_response(answer)) == 65


def test_a_long_produce_holds_up_no_other_while_its_topic_is_deleted(bench: BrokerBench) -> None:
    put(bench, "t", 0, HELLO)
    bench.broker.topics.begin_delete("t")
    waiting, transport = bench.connect()
    waiting.dataReceived(long_produce("t").encode())
    bench.turns(transport)
    (answer,), _ = ask(bench, long_produce("other"))
    assert len(decode_acknowledged_produce_response(answer)) == 65
    assert answers(transport) == []
    bench.directory.delete_topic("t")
    bench.broker.topics.end_delete("t")
    bench.turns(transport)
    (answer,) = answers(transport)
    assert [each.offset for each in decode_acknowledged_produce_response(answer)] == [
        number * len(HELLO) for number in range(65)
    ]


def test_the_outcome_of_a_check_holds_nothing_of_what_was_expanded(tmp_path: Path) -> None:
    """Outcomes wait for their turn in the reactor, a thousand at a time if need be."""
    outcomes: list[Any] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        outcomes.append(function(*args))
        return succeed(outcomes[-1])

    bench = BrokerBench(tmp_path, in_thread, max_expanded_bytes="4MiB")
    bomb = message(gzip.compress(message(bytes(64 << 20)), 1), attributes=1)
    connection, transport = bench.connect()
    tracemalloc.start()
    try:
        connection.dataReceived(produce("t", 0, bomb))
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        bench.close()
    assert outcomes
    assert transport.disconnecting
    assert held_bytes < 1 << 20 < peak_bytes
