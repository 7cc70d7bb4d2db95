"""A follower's connection to a leader: what is asked, which answers count, and what ends it."""

from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionRefusedError as TwistedRefusedError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.errors import BrokerNotReachedError, BrokerUnavailableError
from hermes.kafka.replicas.fetches import (
    Answered,
    FollowerRequest,
    Place,
    decode_request,
    encode_answers,
)
from hermes.kafka.replicas.links import Link
from hermes.protocol.kafka_errors import Code
from hermes.replication.electing import Refusals
from hermes.replication.messages import Answer, Records, ReplicaFetch

LEADER = 2


class Connection:
    """The leader's end: requests as they come, answers as the test says."""

    def __init__(self) -> None:
        self.requests: list[FollowerRequest] = []
        self.waiting: list[Deferred[Any]] = []
        self.is_closed = False

    def ask(self, request: Any, seconds: float) -> Deferred[Any]:
        data = request.encode(7)[4:]
        read = decode_request(data, 10 + int.from_bytes(data[8:10]))
        assert read is not None
        self.requests.append(read)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self, *answered: Answered, session: int = 9, code: Code = Code.NONE) -> None:
        (encoded,) = encode_answers(7, session, answered, code)
        assert isinstance(encoded, bytes)
        self.waiting.pop(0).callback(memoryview(encoded)[9:])

    def close(self) -> Deferred[None]:
        if not self.is_closed:
            self.is_closed = True
            waiting, self.waiting = self.waiting, []
            for each in waiting:
                each.errback(BrokerUnavailableError("closed"))
        return succeed(None)


class Other:
    """Where the leader listens."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.error: Exception | None = None

    def connect(self) -> Deferred[Any]:
        if self.error is not None:
            failed: Deferred[Any] = Deferred()
            failed.errback(Failure(self.error))  # type: ignore[no-untyped-call]
            return failed
        self.connections.append(Connection())
        return succeed(self.connections[-1])


class Copy:
    def __init__(self, number: int) -> None:
        self.place: Place = UUID(int=5).bytes, number
        self.told: list[tuple[int, Answer | None]] = []

    def answered(self, token: int, answer: Answer, data: Any, sources: Any) -> None:
        self.told.append((token, answer))

    def broken_off(self, token: int) -> None:
        self.told.append((token, None))


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.other = Other()
        self.life: int | None = 77
        self.suspected: list[int] = []
        self.refused: list[str] = []
        self.refusals = Refusals()
        self.link = Link(
            self.clock,
            1,
            LEADER,
            lambda: self.life,
            lambda leader: self.other,  # type: ignore[arg-type,return-value]
            self.refusals,
            self.suspected.append,
            lambda leader, why: self.refused.append(why),
        )
        self.tokens = iter(range(100))

    @property
    def connection(self) -> Connection:
        return self.other.connections[-1]

    def ask(self, copy: Copy, offset: int = 0) -> int:
        token = next(self.tokens)
        self.link.ask(copy, ReplicaFetch(1, 77, 3, offset, 2, 0, token))
        return token

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.clock.advance(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def records(copy: Copy, high_watermark: int = 4) -> Answered:
    return Answered(copy.place, Records(high_watermark, 0))


def test_what_is_asked_in_one_turn_goes_in_one_request(bench: Bench) -> None:
    first, second = Copy(0), Copy(1)
    bench.ask(first, 10)
    bench.ask(second, 20)
    bench.turn()

    (request,) = bench.connection.requests
    assert [(each.place, each.offset) for each in request.wanted] == [
        (first.place, 10),
        (second.place, 20),
    ]
    assert (request.session, request.session_epoch, request.life) == (0, 0, 77)


def test_only_what_is_new_is_said_again(bench: Bench) -> None:
    first, second = Copy(0), Copy(1)
    asked = bench.ask(first)
    bench.ask(second)
    bench.turn()
    bench.connection.answer(records(first))
    again = bench.ask(first, 5)
    bench.turn()

    assert first.told == [(asked, Records(4, 0))]
    assert not second.told
    request = bench.connection.requests[-1]
    assert [each.place for each in request.wanted] == [first.place]
    assert (request.session, request.session_epoch) == (9, 1)
    bench.connection.answer(records(second), records(first, 6))
    assert first.told[-1] == (again, Records(6, 0))
    assert second.told


def test_something_new_is_said_while_a_request_waits(bench: Bench) -> None:
    first, second = Copy(0), Copy(1)
    bench.ask(first)
    bench.turn()
    bench.connection.answer()
    bench.turn()
    assert len(bench.connection.waiting) == 1, "the session goes on, with nothing to say"

    bench.ask(second)
    bench.turn()
    assert len(bench.connection.waiting) == 2
    bench.ask(Copy(2))
    bench.turn()
    assert len(bench.connection.waiting) == 2, "the leader answers the first of these at once"


def test_an_answer_to_an_earlier_question_does_not_count(bench: Bench) -> None:
    """What the leader said before it heard of the new question may not hold any more."""
    copy = Copy(0)
    bench.ask(copy, 10)
    bench.turn()
    bench.connection.answer()
    bench.turn()
    again = bench.ask(copy, 12)  # in another epoch, perhaps
    bench.turn()

    bench.connection.answer(records(copy))  # the one that waited when it was asked again
    assert not copy.told
    bench.connection.answer(records(copy))
    assert copy.told == [(again, Records(4, 0))]


def test_who_follows_no_more_is_forgotten_by_the_leader(bench: Bench) -> None:
    first, second = Copy(0), Copy(1)
    bench.ask(first)
    bench.ask(second)
    bench.turn()
    bench.connection.answer()
    bench.link.ask_no_more(first)
    bench.turn()

    assert bench.connection.requests[-1].forgotten == [first.place]
    bench.connection.answer(records(first))
    assert not first.told


def test_a_lost_connection_breaks_off_what_was_asked(bench: Bench) -> None:
    copy = Copy(0)
    asked = bench.ask(copy)
    bench.turn()
    bench.connection.close()
    assert copy.told == [(asked, None)]

    bench.ask(copy)
    bench.turn(0.1)
    assert len(bench.other.connections) == 2
    assert bench.connection.requests[0].session_epoch == 0, "a session ends with its connection"


def test_a_new_life_has_a_new_session(bench: Bench) -> None:
    copy = Copy(0)
    bench.ask(copy)
    bench.turn()
    bench.connection.answer()
    bench.life = 78
    bench.turn()
    bench.ask(copy)
    bench.turn(0.1)

    assert len(bench.other.connections) == 2
    assert bench.connection.requests[0].life == 78


def test_refused_connections_are_told_and_tried_again(bench: Bench) -> None:
    error = BrokerNotReachedError("nobody listens")
    error.__cause__ = TwistedRefusedError()
    bench.other.error = error
    bench.ask(Copy(0))
    bench.turn()
    bench.turn(0.06)

    assert bench.suspected == [LEADER, LEADER]
    assert bench.refusals.is_gone(LEADER, 0.0)
    bench.other.error = None
    bench.turn(0.06)
    bench.connection.answer()
    assert not bench.refusals.is_gone(LEADER, 0.0)


def test_one_that_does_not_answer_is_not_suspected(bench: Bench) -> None:
    bench.other.error = BrokerNotReachedError("too late")
    bench.ask(Copy(0))
    bench.turn()
    assert not bench.suspected


def test_a_refusal_of_all_is_told_and_tried_again_later(bench: Bench) -> None:
    copy = Copy(0)
    bench.ask(copy)
    bench.turn()
    bench.connection.answer(code=Code.CLUSTER_AUTHORIZATION_FAILED)
    assert len(bench.refused) == 1
    assert bench.connection.is_closed
    bench.ask(copy)
    bench.turn(0.5)
    assert len(bench.other.connections) == 1
    bench.turn(0.6)
    assert len(bench.other.connections) == 2


def test_a_stop_leaves_nothing(bench: Bench) -> None:
    copy = Copy(0)
    bench.ask(copy)
    bench.turn()
    bench.link.stop()
    assert bench.connection.is_closed
    assert not copy.told
    assert not bench.clock.getDelayedCalls()
