"""Responses that come later, or in turns."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.web.resource import Resource

from hermes.limited_log import LimitedLog
from hermes.web import AcceptedHosts, Root, Site, respond_later, stream
from hermes.web.responses import STALLED_SECONDS, TURN_SECONDS


class _Answer(Resource):
    isLeaf = True

    def __init__(self, render: Any) -> None:
        super().__init__()
        self.render = render  # type: ignore[method-assign]


class _Conversation:
    """One request of one client whose answer is up to the test."""

    def __init__(self, render: Any, clock: Clock, method: str = "GET") -> None:
        root = Root()
        root.fallback = _Answer(render)
        self.transport = StringTransport()
        self.transport.abortConnection = self._abort  # type: ignore[method-assign]
        self.is_aborted = False
        self.channel = Site(root, AcceptedHosts(), clock).buildProtocol(None)
        self.channel.makeConnection(self.transport)
        self.channel.dataReceived(f"{method} / HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())

    @property
    def body(self) -> bytes:
        return self.transport.value().partition(b"\r\n\r\n")[2]

    def leave(self) -> None:
        self.channel.connectionLost(Failure(ConnectionDone()))

    def _abort(self) -> None:
        self.is_aborted = True
        self.leave()


class _Chunks:
    """A thousand chunks, each of which takes a millisecond of a test's clock."""

    def __init__(self, clock: Clock, fail_at: int = -1) -> None:
        self.clock, self.fail_at = clock, fail_at
        self.made = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for number in range(1000):
                if number == self.fail_at:
                    raise ValueError("no more")
                self.made += 1
                self.clock.rightNow += 0.001
                yield b"%03d\n" % number
        finally:
            self.is_closed = True


def turn(clock: Clock) -> None:
    """Run the one call that is due next; `advance` would run those that it makes as well."""
    call = clock.calls.pop(0)
    call.called = 1
    call.func(*call.args, **call.kw)


ALL = b"".join(b"%03d\n" % number for number in range(1000))


def test_a_stream_takes_turns(clock: Clock) -> None:
    chunks = _Chunks(clock)
    ended: list[bool] = []
    talk = _Conversation(
        lambda request: stream(request, clock, iter(chunks), lambda: ended.append(True)), clock
    )
    turns = 0
    while not ended:
        before = chunks.made
        turn(clock)
        assert 0 < chunks.made - before <= TURN_SECONDS / 0.001 + 1 or chunks.made == 1000
        turns += 1
    assert turns >= 1000 / (TURN_SECONDS / 0.001 + 1)
    assert talk.body == ALL
    talk.leave()
    assert not clock.getDelayedCalls()


def test_a_stream_waits_for_a_client_that_reads_slowly(clock: Clock) -> None:
    chunks = _Chunks(clock)
    talk = _Conversation(lambda request: stream(request, clock, iter(chunks)), clock)
    turn(clock)
    talk.transport.producer.pauseProducing()
    made = chunks.made
    clock.advance(STALLED_SECONDS / 2)
    assert chunks.made == made
    talk.transport.producer.resumeProducing()
    while clock.getDelayedCalls():
        turn(clock)
    assert talk.body == ALL


def test_a_client_that_takes_nothing_for_long_is_cut_off(clock: Clock) -> None:
    chunks = _Chunks(clock)
    talk = _Conversation(lambda request: stream(request, clock, iter(chunks)), clock)
    turn(clock)
    talk.transport.producer.pauseProducing()
    clock.advance(STALLED_SECONDS)
    assert talk.is_aborted
    assert chunks.is_closed
    assert not clock.getDelayedCalls()


def test_a_client_that_leaves_ends_the_stream(clock: Clock) -> None:
    chunks = _Chunks(clock)
    ended: list[bool] = []
    talk = _Conversation(
        lambda request: stream(request, clock, iter(chunks), lambda: ended.append(True)), clock
    )
    turn(clock)
    talk.leave()
    assert chunks.is_closed
    assert ended == [True]
    assert not clock.getDelayedCalls()


def test_a_stream_that_fails_before_its_first_piece_is_an_error_page(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    monkeypatch.setattr(LimitedLog, "failure", lambda *given, **rest: logged.append(given))
    globalLogPublisher.addObserver(logged.append)
    try:
        conversation = _Conversation(
            lambda request: stream(request, clock, iter(_Chunks(clock, fail_at=0))), clock
        )
        turn(clock)
    finally:
        globalLogPublisher.removeObserver(logged.append)
    assert conversation.transport.value().startswith(b"HTTP/1.0 500 ")
    assert len(logged) == 1  # and not that the request still had a producer


def test_a_stream_that_fails_is_cut_off(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    monkeypatch.setattr(
        LimitedLog, "failure", lambda _, kind, text, failure, **rest: logged.append(failure)
    )
    talk = _Conversation(
        lambda request: stream(request, clock, iter(_Chunks(clock, fail_at=50))), clock
    )
    while clock.getDelayedCalls() and not talk.is_aborted:
        turn(clock)
    assert talk.is_aborted
    assert ALL.startswith(talk.body)
    assert len(logged) == 1


class _Later:
    """Pieces that come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Deferred[bytes | None]] = []
        self.is_closed = False

    def __iter__(self) -> Iterator["Deferred[bytes | None]"]:
        try:
            while True:
                self.asked.append(Deferred())
                yield self.asked[-1]
        finally:
            self.is_closed = True


def test_pieces_that_come_later_are_asked_for_one_by_one(clock: Clock) -> None:
    later = _Later()
    ended: list[bool] = []
    talk = _Conversation(
        lambda request: stream(request, clock, iter(later), lambda: ended.append(True)), clock
    )
    turn(clock)
    talk.transport.producer.pauseProducing()
    talk.transport.producer.resumeProducing()
    turn(clock)
    assert len(later.asked) == 1
    later.asked[0].callback(b"one")
    assert talk.body == b"one"
    turn(clock)
    talk.transport.producer.pauseProducing()
    later.asked[1].callback(b"two")
    clock.advance(STALLED_SECONDS / 2)
    assert (talk.body, len(later.asked)) == (b"onetwo", 2)
    talk.transport.producer.resumeProducing()
    turn(clock)
    assert not ended
    later.asked[2].callback(None)
    assert ended == [True]
    assert later.is_closed
    assert talk.transport.disconnecting
    talk.leave()
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize("result", [b"too late", None, ValueError("no more")])
def test_a_piece_that_is_being_made_for_who_has_left_is_waited_for(
    clock: Clock, result: bytes | Exception | None
) -> None:
    later = _Later()
    ended: list[bool] = []
    talk = _Conversation(
        lambda request: stream(request, clock, iter(later), lambda: ended.append(True)), clock
    )
    turn(clock)
    talk.leave()
    assert not ended
    assert not later.is_closed
    if isinstance(result, Exception):
        later.asked[0].errback(result)
    else:
        later.asked[0].callback(result)
    assert ended == [True]
    assert later.is_closed
    assert talk.body == b""
    assert not clock.getDelayedCalls()


def test_what_is_found_out_later_is_answered_then(clock: Clock) -> None:
    body: Deferred[bytes] = Deferred()
    talk = _Conversation(lambda request: respond_later(request, body), clock)
    assert not talk.transport.value()
    body.callback(b"found")
    assert talk.body == b"found"


def test_what_nobody_waits_for_is_cancelled(clock: Clock) -> None:
    cancelled: list[Any] = []
    body: Deferred[bytes] = Deferred(cancelled.append)
    talk = _Conversation(lambda request: respond_later(request, body), clock)
    talk.leave()
    assert cancelled == [body]
    body.addErrback(lambda failure: failure.trap(CancelledError))


def test_what_a_thread_finds_out_for_nobody_is_dropped(clock: Clock) -> None:
    body: Deferred[bytes] = Deferred(lambda deferred: deferred.callback(b"too late"))
    talk = _Conversation(lambda request: respond_later(request, body), clock)
    talk.leave()
    assert talk.transport.value() == b""


@pytest.fixture
def clock() -> Clock:
    return Clock()
