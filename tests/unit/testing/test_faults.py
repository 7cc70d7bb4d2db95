"""Failures on demand, without a broker: which request meets which."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.errors import ConfigError
from hermes.server.outcomes import CloseConnection
from hermes.testing.faults import Faults

DONE = "carried out"


class Requests:
    """Requests that a broker with these faults carries out, if they let it."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.clock = Clock()
        self.carried_out = 0

    def begin(self, name: str = "Heartbeat") -> Any:
        """A coroutine with the outcome of a request."""
        shared = SimpleNamespace(clock=self.clock)
        call: Any = SimpleNamespace(
            api=SimpleNamespace(name=name), server=SimpleNamespace(shared=shared)
        )
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        return self.faults.around(self._carry_out, lambda: request, call)

    def ask(self, name: str = "Heartbeat") -> Any:
        """The outcome: what was returned, an error's name, or "cut"."""
        try:
            answer = asyncio.run(self.begin(name))
        except CloseConnection:
            return "cut"
        return answer if answer == DONE else answer.error_code.name

    def _carry_out(self) -> str:
        self.carried_out += 1
        return DONE


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    # The table of requests grows; these are in Kafka whether they are in it or not.
    names = {"heartbeat": "Heartbeat", "metadata": "Metadata", "joingroup": "JoinGroup"}
    monkeypatch.setattr("hermes.testing.faults._NAMES", names)
    return Requests(Faults())


def test_nothing_happens_unless_asked_for(requests: Requests) -> None:
    assert [requests.ask(), requests.faults.count("Heartbeat")] == [DONE, 1]


def test_an_error_is_answered_as_often_as_was_said(requests: Requests) -> None:
    requests.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS", times=2)
    assert [requests.ask("JoinGroup"), requests.carried_out] == [DONE, 1]
    assert [requests.ask() for _ in range(3)] == [*2 * ["rebalance_in_progress"], DONE]
    assert requests.carried_out == 2


def test_faults_come_in_their_order(requests: Requests) -> None:
    requests.faults.fail("Heartbeat", ErrorCode.unknown_member_id.value)
    requests.faults.cut("Heartbeat")
    requests.faults.cut("Heartbeat", after=True)
    assert [requests.ask(), requests.ask(), requests.carried_out] == ["unknown_member_id", "cut", 0]
    assert [requests.ask(), requests.carried_out, requests.ask()] == ["cut", 1, DONE]


def test_any_request_can_be_meant(requests: Requests) -> None:
    requests.faults.cut(None, times=2)
    assert [requests.ask(), requests.ask("JoinGroup"), requests.ask()] == ["cut", "cut", DONE]


def test_until_cleared(requests: Requests) -> None:
    requests.faults.cut(None, times=None)
    assert {requests.ask() for _ in range(5)} == {"cut"}
    requests.faults.clear()
    assert requests.ask() == DONE


def test_delays_add_up_to_what_else_happens(requests: Requests) -> None:
    requests.faults.delay("Heartbeat", seconds=2, times=1)
    requests.faults.delay(None, seconds=1, times=1)
    requests.faults.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
    answer = Deferred.fromCoroutine(requests.begin())
    requests.clock.advance(2)
    assert not answer.called
    requests.clock.advance(1)
    assert answer.result.error_code is ErrorCode.unknown_member_id
    assert requests.ask() == DONE


def test_nothing_is_delayed_beyond_the_end_of_a_test(requests: Requests) -> None:
    requests.faults.delay("Heartbeat", seconds=3600)
    answers = [Deferred.fromCoroutine(requests.begin()) for _ in range(2)]
    requests.faults.end_delays()
    for each in answers:
        assert isinstance(each.result.value, CloseConnection)
        each.addErrback(lambda _: None)
    assert requests.carried_out == 0
    assert not requests.clock.getDelayedCalls()


def test_a_delay_of_nothing_changes_nothing(requests: Requests) -> None:
    requests.faults.delay("Heartbeat", seconds=0)
    assert requests.ask() == DONE
    requests.faults.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
    assert requests.ask() == "unknown_member_id"


def test_no_delay_goes_back_in_time(requests: Requests) -> None:
    with pytest.raises(ConfigError, match="seconds: -1 is less than 0"):
        requests.faults.delay("Heartbeat", seconds=-1)
    assert requests.ask() == DONE


@pytest.mark.parametrize(
    ("name", "error", "times", "words"),
    [
        ("Heartbaet", 6, 1, "there is no 'Heartbaet'"),
        ("Heartbeat", "OOPS", 1, "Kafka has no 'OOPS'"),
        ("Heartbeat", 12345, 1, "Kafka has no 12345"),
        ("Heartbeat", 6, 0, "times: 0 is less than 1"),
    ],
)
def test_what_can_not_be_is_refused(
    requests: Requests, name: str, error: str | int, times: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        requests.faults.fail(name, error, times=times)
    assert requests.ask() == DONE
