"""Produces that meet a topic while it is being deleted."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, flush_in, log_lines
from hermes_testkit import message
from twisted.internet.defer import Deferred, maybeDeferred

from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    DeleteTopicRequest,
    ErrorCode,
    ProduceRequest,
)
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.v0_7.producing import DELETION_WAIT_SECONDS

HELLO = message(b"hello")


class HeldThreads:
    """Worker threads that the test can stop."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []
        self.is_holding = False

    def __call__(self, function: Any, *args: Any) -> "Deferred[Any]":
        if not self.is_holding:
            return maybeDeferred(function, *args)
        result: Deferred[Any] = Deferred()
        self.held.append(lambda: maybeDeferred(function, *args).chainDeferred(result))
        return result

    def run(self) -> None:
        self.held.pop(0)()


@pytest.fixture
def threads() -> HeldThreads:
    return HeldThreads()


@pytest.fixture
def bench(tmp_path: Path, threads: HeldThreads) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path / "logs", threads)
    yield made
    made.close()
    assert not made.clock.getDelayedCalls()


def outcome_of(bench: BrokerBench, request: Any) -> list[Any]:
    """What a request is answered with: a list that fills when the answer is there."""
    outcome = bench.broker.serve(request)
    if not isinstance(outcome, DeferredResponse):
        return [outcome]
    answers: list[Any] = []
    outcome.to_deferred().addBoth(answers.append)
    return answers


def produce(bench: BrokerBench, *topics: str) -> list[Any]:
    sets = tuple(ProduceRequest(topic, 0, HELLO) for topic in topics)
    return outcome_of(bench, AcknowledgedProduceRequest(Acks.FLUSHED, 0, sets))


def entries(answer: bytes) -> list[tuple[int, int]]:
    """The codes and offsets of an acknowledged produce's answer."""
    (count,) = struct.unpack_from(">h", answer, 6)
    return [struct.unpack_from(">hq", answer, 12 + 14 * n) for n in range(count)]


def code_of(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer, 4)[0])


def begin_delete(bench: BrokerBench, threads: HeldThreads, topic: str = "t") -> list[Any]:
    threads.is_holding = True
    answers = outcome_of(bench, DeleteTopicRequest(topic))
    assert answers == []
    return answers


def test_a_produce_waits_for_the_delete_and_begins_the_topic_again(
    bench: BrokerBench, threads: HeldThreads
) -> None:
    produce(bench, "t")
    deleted = begin_delete(bench, threads)
    first, second = produce(bench, "t"), produce(bench, "u", "t")
    assert (first, second) == ([], [])
    threads.run()
    assert code_of(deleted[0]) == ErrorCode.NONE
    assert entries(first[0]) == [(0, 0)], "of the topic that is new"
    assert entries(second[0]) == [(0, 0), (0, len(HELLO))]


def test_a_delete_that_takes_long_is_answered_with_a_code_of_its_own(
    bench: BrokerBench, threads: HeldThreads
) -> None:
    produce(bench, "t")
    begin_delete(bench, threads)
    answers = produce(bench, "t", "u")
    bench.clock.advance(DELETION_WAIT_SECONDS)
    assert entries(answers[0]) == [(ErrorCode.TOPIC_BEING_DELETED, -1), (0, 0)]
    assert code_of(outcome_of(bench, DeleteTopicRequest("t"))[0]) == ErrorCode.TOPIC_BEING_DELETED
    threads.run()
    assert entries(produce(bench, "t")[0]) == [(0, 0)]


def test_an_unanswered_produce_for_another_topic_is_not_held_up(
    bench: BrokerBench, threads: HeldThreads
) -> None:
    produce(bench, "t")
    begin_delete(bench, threads)
    bench.broker.serve(ProduceRequest("u", 0, HELLO))
    with pytest.raises(CloseConnection, match="being deleted"):
        bench.broker.serve(ProduceRequest("t", 0, HELLO))
    threads.run()


def test_who_keeps_deleting_a_topic_does_not_starve_who_writes_to_it(
    bench: BrokerBench, threads: HeldThreads
) -> None:
    """Every delete is followed by another one as soon as the topic is there again."""
    produce(bench, "t")
    for _ in range(50):
        deleted = begin_delete(bench, threads)
        answers = produce(bench, "t")
        threads.run()
        assert code_of(deleted[0]) == ErrorCode.NONE
        assert entries(answers[0])[0][0] == ErrorCode.NONE


def test_a_delete_under_a_flush_logs_no_failure(bench: BrokerBench, threads: HeldThreads) -> None:
    held: list[Any] = []

    def hold(function: Any, *args: Any) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        held.append((function, args, result))
        return result

    flush_in(bench.flusher, hold)
    answers = produce(bench, "t")
    with log_lines() as lines:
        outcome_of(bench, DeleteTopicRequest("t"))
        for function, args, result in held:
            maybeDeferred(function, *args).chainDeferred(result)
    assert not [line for line in lines if "flushing" in line]
    assert [line for line in lines if "deleted topic t" in line]
    assert entries(answers[0]) == [(ErrorCode.OUTCOME_UNKNOWN, -1)]
