"""A connection to another broker: requests in flight, and whatever ends them."""

from itertools import accumulate
from typing import Any

import pytest
from outgoing_bench import OutgoingTransport, response
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.errors import (
    BrokerNotReachedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    LocalProtocolError,
    RemoteProtocolError,
    is_retriable,
)
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.security import PLAIN
from hermes.server.carriers import SendfileCarrier

OLD = KafkaRequest(3, 1, b"old")
NEW = KafkaRequest(1, 18, b"new", is_flexible=True)


class Place:
    """One connection without a socket, and what became of its requests."""

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.connection = OutgoingConnection(
            "there", 9092, PLAIN, self.clock, OutgoingLimits(**limits)
        )
        self.transport = OutgoingTransport()
        self.connection.makeConnection(self.transport)
        self.outcomes: dict[str, Any] = {}

    def ask(self, name: str, request: KafkaRequest = OLD, **options: Any) -> "Deferred[memoryview]":
        asked = self.connection.ask(request, **options)

        def note(outcome: Any) -> None:
            assert name not in self.outcomes
            failed = isinstance(outcome, Failure)
            self.outcomes[name] = outcome.value if failed else bytes(outcome)

        asked.addBoth(note)
        return asked

    def lose(self, why: Exception | None = None) -> None:
        self.connection.connectionLost(Failure(why or ConnectionDone()))

    def nobody_waits(self) -> bool:
        """Whether time passes without an end, and without a timer once nobody is late."""
        self.clock.advance(1_000)
        return self.connection.is_open and not self.clock.getDelayedCalls()

    def has_ended(self) -> bool:
        """Whether nothing is left of it: neither the socket nor a timer."""
        assert self.connection.is_open is not self.transport.is_aborted
        return self.transport.is_aborted and not self.clock.getDelayedCalls()


@pytest.fixture
def place() -> Place:
    return Place()


def test_requests_go_out_without_waiting_and_are_answered_in_order(place: Place) -> None:
    for name, request in (("a", OLD), ("b", NEW), ("c", OLD)):
        place.ask(name, request)
    assert place.transport.value() == OLD.encode(1) + NEW.encode(2) + OLD.encode(3)
    assert place.transport.options == [("no delay", True), ("keep alive", True)]
    place.connection.dataReceived(response(1, b"first") + response(2, b"second", b"\0"))
    assert place.outcomes == {"a": b"first", "b": b"second"}
    place.connection.dataReceived(response(3, b""))
    assert place.outcomes["c"] == b""
    assert place.nobody_waits()


class Socket(SendfileCarrier):
    """Takes so many bytes of what it is given each time, None: fails."""

    def __init__(self, *takes: int | None) -> None:
        self.takes = list(takes)
        self.taken: list[bytes] = []

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        count = self.takes.pop(0)
        if count is None:
            raise ConnectionResetError
        self.taken.append(bytes(data[:count]))
        return min(count, len(data))


def test_a_request_leaves_at_once_where_nothing_is_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    socket = Socket(1000, 5, None)
    monkeypatch.setattr("hermes.kafka.outgoing.carrier_for", lambda _: socket)
    place = Place()
    place.ask("all of it")
    assert (socket.taken, place.transport.value()) == ([OLD.encode(1)], b"")
    place.ask("behind it")
    assert place.transport.value() == OLD.encode(2)
    place.connection.dataReceived(response(1, b"") + response(2, b""))
    place.transport.clear()
    place.ask("a part of it")
    assert (socket.taken[1], place.transport.value()) == (OLD.encode(3)[:5], OLD.encode(3)[5:])
    place.connection.dataReceived(response(3, b""))
    place.transport.clear()
    place.ask("nothing of it")
    assert place.transport.value() == OLD.encode(4)


ANSWERS = (response(1, b"one"), response(2, b"two", b"\1\7\2ab"), response(3, b"three" * 9))
ENDS = list(accumulate(map(len, ANSWERS)))
STREAM = b"".join(ANSWERS)
EXPECTED = {"a": b"one", "b": b"two", "c": b"three" * 9}


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_responses_may_come_in_any_pieces(place: Place, cut: int) -> None:
    for name, request in (("a", OLD), ("b", NEW), ("c", OLD)):
        place.ask(name, request)
    place.connection.dataReceived(STREAM[:cut])
    assert len(place.outcomes) == sum(cut >= end for end in ENDS)
    place.connection.dataReceived(STREAM[cut:])
    assert place.outcomes == EXPECTED
    assert place.nobody_waits()


def test_responses_may_come_byte_by_byte(place: Place) -> None:
    for name, request in (("a", OLD), ("b", NEW), ("c", OLD)):
        place.ask(name, request)
    for byte in STREAM:
        place.connection.dataReceived(bytes((byte,)))
    assert place.outcomes == EXPECTED


@pytest.mark.parametrize("cut", range(len(STREAM)))
@pytest.mark.parametrize("why", [ConnectionDone(), ConnectionLost()])
def test_a_lost_connection_fails_all_that_wait(place: Place, cut: int, why: Exception) -> None:
    for name, request in (("a", OLD), ("b", NEW), ("c", OLD)):
        place.ask(name, request)
    place.connection.dataReceived(STREAM[:cut])
    answered = len(place.outcomes)
    assert answered == sum(cut >= end for end in ENDS)
    place.lose(why)
    assert list(place.outcomes) == ["a", "b", "c"]
    for outcome in list(place.outcomes.values())[answered:]:
        assert type(outcome) is BrokerUnavailableError
        assert "there:9092 closed the connection before it had answered" in str(outcome)
        assert is_retriable(outcome)
    assert place.has_ended()
    place.ask("d")
    assert type(place.outcomes["d"]) is BrokerNotReachedError
    assert "the connection to there:9092 has ended: there:9092 closed" in str(place.outcomes["d"])
    assert place.has_ended()


def test_an_answer_that_does_not_come_ends_the_connection(place: Place) -> None:
    place.ask("patient", timeout_seconds=20)
    place.ask("late", timeout_seconds=2)
    place.ask("usual")
    place.clock.advance(1.9)
    assert place.connection.is_open
    place.clock.advance(0.1)
    assert place.has_ended()
    assert list(place.outcomes) == ["patient", "late", "usual"]
    assert type(place.outcomes["late"]) is BrokerTimeoutError
    assert "there:9092 did not answer within 2 s" in str(place.outcomes["late"])
    for name in ("patient", "usual"):
        assert type(place.outcomes[name]) is BrokerUnavailableError
        assert "did not answer within 2 s" in str(place.outcomes[name])
    place.connection.dataReceived(response(1, b"too late"))
    place.lose()
    assert place.has_ended()


def test_each_request_has_all_of_its_time(place: Place) -> None:
    place.ask("first")
    place.clock.advance(20)
    place.connection.dataReceived(response(1, b""))
    place.ask("second")
    place.ask("short", timeout_seconds=25)
    place.clock.advance(24.9)
    assert place.connection.is_open
    place.connection.dataReceived(response(2, b""))
    place.clock.advance(0.1)
    assert place.has_ended()
    assert type(place.outcomes["short"]) is BrokerTimeoutError


def test_a_request_without_a_time_of_its_own_has_that_of_the_limits() -> None:
    place = Place(request_seconds=7)
    place.ask("a")
    place.clock.advance(6.9)
    place.connection.dataReceived(response(1, b"in time"))
    place.ask("b")
    place.clock.advance(7)
    assert place.outcomes["a"] == b"in time"
    assert type(place.outcomes["b"]) is BrokerTimeoutError


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (response(2, b""), "there:9092: there is an answer to request 2, where that to 1 belongs"),
        (response(-1, b""), "an answer to request -1"),
        (response(0, b""), "an answer to request 0"),
        (bytes(4), "sent an answer of 0 bytes"),
        (b"\xff" * 4, "sent an answer of -1 bytes"),
        (b"\x7f\xff\xff\xff", "sent an answer of 2147483647 bytes; up to 1000 are allowed"),
        ((1001).to_bytes(4), "sent an answer of 1001 bytes; up to 1000 are allowed"),
        (b"\0\0\0\3\0\0\0", "there:9092: 3 bytes are left"),
        (HTTP, "there:9092 speaks HTTP"),
        (b"\x15\x03\x03\0\2\2\x50", "there:9092"),
    ],
)
def test_what_is_no_answer_ends_the_connection_and_says_why(data: bytes, words: str) -> None:
    place = Place(response_bytes=1000)
    place.ask("a")
    place.ask("b")
    place.connection.dataReceived(data)
    assert type(place.outcomes["a"]) is RemoteProtocolError
    assert words in str(place.outcomes["a"])
    assert type(place.outcomes["b"]) is BrokerUnavailableError
    assert words in str(place.outcomes["b"])
    assert place.has_ended()
    place.connection.dataReceived(response(1, b"more") + HTTP)
    assert place.has_ended()


@pytest.mark.parametrize("tags", [b"", b"\xff\xff\xff\xff\xff", b"\x41" + bytes(65), b"\1\7\5\0"])
def test_tags_that_do_not_fit_end_the_connection(place: Place, tags: bytes) -> None:
    place.ask("a", NEW)
    place.connection.dataReceived(response(1, b"", tags))
    assert type(place.outcomes["a"]) is RemoteProtocolError
    assert place.has_ended()


def test_an_answer_of_the_largest_size_is_one() -> None:
    place = Place(response_bytes=1000)
    place.ask("a")
    place.connection.dataReceived(response(1, bytes(996)))
    assert place.outcomes["a"] == bytes(996)


def test_an_answer_that_nobody_asked_for_ends_the_connection(place: Place) -> None:
    place.ask("a")
    place.connection.dataReceived(response(1, b"mine") + response(2, b"whose?"))
    assert place.outcomes == {"a": b"mine"}
    assert place.has_ended()
    place.ask("b")
    assert "sent an answer that nobody asked for" in str(place.outcomes["b"])
    assert type(place.outcomes["b"]) is BrokerNotReachedError


def test_only_so_many_may_wait() -> None:
    place = Place(waiting=2)
    place.ask("a")
    place.ask("b")
    sent = place.transport.value()
    place.ask("c")
    assert type(place.outcomes["c"]) is ClientError
    assert "has 2 requests to answer, which is the limit" in str(place.outcomes["c"])
    assert place.transport.value() == sent
    place.connection.dataReceived(response(1, b"one"))
    place.ask("d")
    place.connection.dataReceived(response(2, b"two") + response(3, b"three"))
    assert place.outcomes["d"] == b"three"


def test_a_cancelled_request_leaves_its_turn_to_its_answer(place: Place) -> None:
    cancelled = place.ask("a")
    place.ask("b")
    cancelled.cancel()
    assert isinstance(place.outcomes["a"], CancelledError)
    assert place.connection.is_open
    place.connection.dataReceived(response(1, b"unheard") + response(2, b"heard"))
    assert place.outcomes["b"] == b"heard"
    assert place.nobody_waits()
    place.ask("c").cancel()
    place.clock.advance(30)  # the other broker owes an answer all the same
    assert place.has_ended()


def test_closing_fails_all_that_wait_and_tells_when_the_socket_is_gone(place: Place) -> None:
    place.ask("a")
    place.ask("b")
    closed: list[None] = []
    for _ in range(2):
        place.connection.close().addCallback(closed.append)
    assert place.has_ended()
    assert closed == []
    for outcome in place.outcomes.values():
        assert type(outcome) is BrokerUnavailableError
        assert "the connection to there:9092 was closed here" in str(outcome)
    place.lose()
    assert closed == [None, None]
    place.connection.close().addCallback(closed.append)
    assert closed == [None] * 3


def test_who_hears_an_answer_may_ask_again_or_close(place: Place) -> None:
    first = place.connection.ask(OLD)
    first.addCallback(lambda _: place.ask("next") and None)
    second = place.connection.ask(OLD)
    second.addCallback(lambda _: place.connection.close() and None)
    place.connection.dataReceived(response(1, b"") + response(2, b"") + response(3, b"unheard"))
    assert type(place.outcomes["next"]) is BrokerUnavailableError
    assert "was closed here" in str(place.outcomes["next"])
    assert place.has_ended()


def test_who_hears_of_the_end_may_ask_again_in_vain(place: Place) -> None:
    def again(failure: Failure) -> None:
        assert failure.check(BrokerUnavailableError)
        place.ask("again")

    place.connection.ask(OLD).addErrback(again)
    place.lose()
    assert type(place.outcomes["again"]) is BrokerNotReachedError
    assert place.has_ended()


def test_ids_begin_anew_before_they_are_negative(place: Place) -> None:
    place.connection._last_id = (1 << 31) - 2
    for name in "abc":
        place.ask(name)
    sent = b"".join(OLD.encode(each) for each in (0x7FFFFFFF, 0, 1))
    assert place.transport.value() == sent
    place.connection.dataReceived(b"".join(response(each, b"") for each in (0x7FFFFFFF, 0, 1)))
    assert place.outcomes == {"a": b"", "b": b"", "c": b""}


def test_what_can_not_be_encoded_leaves_no_trace(place: Place) -> None:
    with pytest.raises(LocalProtocolError):
        place.connection.ask(KafkaRequest(1 << 20, 0, b""))
    assert place.clock.getDelayedCalls() == []
    assert place.transport.value() == b""
    place.ask("a")
    place.connection.dataReceived(response(1, b"one"))
    assert place.outcomes == {"a": b"one"}


def test_an_answer_that_is_coming_is_not_late(place: Place) -> None:
    """A follower far away gets 4 MiB at a time: it would begin again and again."""
    place.ask("first", timeout_seconds=3)
    place.ask("second", timeout_seconds=3)
    answer = response(1, b"x" * 50) + response(2, b"y" * 50)
    for position in range(len(answer)):
        place.clock.advance(1)
        place.connection.dataReceived(answer[position : position + 1])
    assert place.outcomes == {"first": b"x" * 50, "second": b"y" * 50}
    place.ask("third", timeout_seconds=3)
    place.clock.advance(3)
    assert type(place.outcomes["third"]) is BrokerTimeoutError
