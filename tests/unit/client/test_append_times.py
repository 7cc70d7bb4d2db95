"""Asking for append times until the range is told: the conversation, without a broker."""

from collections.abc import Sequence

import pytest

from hermes.client.append_times import AppendTime, append_times
from hermes.client.conversations import Exchange
from hermes.errors import ConfigError, OffsetOutOfRangeBrokerError, RemoteProtocolError
from hermes.protocol import (
    AppendRun,
    AppendTimesRequest,
    AppendTimesResponse,
    decode_request,
    encode_append_times_response,
    encode_error_response,
)

Answer = tuple[int, Sequence[tuple[int, int | None]]]


def converse(*answers: Answer, end: int = 1000) -> tuple[list[AppendTime], list[tuple[int, int]]]:
    """Ask for [0, end) and answer: (the result, the ranges that were asked for)."""
    conversation = append_times("clicks", 3, 0, end, 60_000)
    asked = []
    step = next(conversation)
    for number, (stop, runs) in enumerate(answers, start=1):
        assert isinstance(step, Exchange)
        assert step.repeatable
        request = decode_request(step.request[4:])
        assert isinstance(request, AppendTimesRequest)
        assert (request.topic, request.partition, request.interval_ms) == ("clicks", 3, 60_000)
        asked.append((request.start, request.end))
        answer = AppendTimesResponse(stop, [AppendRun(*run) for run in runs])
        try:
            step = conversation.send(step.decode(encode_append_times_response(answer)[4:]))
        except StopIteration as stopped:
            assert number == len(answers)
            return stopped.value, asked
    raise AssertionError("the conversation goes on")


def test_one_answer_may_be_all() -> None:
    times, asked = converse((300, [(100, 60_000), (250, None), (300, 120_000)]))
    assert times == [(0, 100, 60_000), (100, 250, None), (250, 300, 120_000)]
    assert times[1] == AppendTime(start_offset=100, end_offset=250, time_ms=None)
    assert asked == [(0, 1000)]


def test_the_next_question_goes_on_to_the_end_that_the_first_answer_told() -> None:
    times, asked = converse(
        (300, [(100, 60_000), (200, 120_000)]), (300, [(250, 120_000)]), (300, [(300, None)])
    )
    assert times == [(0, 100, 60_000), (100, 250, 120_000), (250, 300, None)]
    assert asked == [(0, 1000), (200, 300), (250, 300)]


def test_an_empty_range_has_no_times() -> None:
    assert converse((0, [])) == ([], [(0, 1000)])
    assert converse((0, []), end=-5) == ([], [(0, -5)])


@pytest.mark.parametrize(
    "answers",
    [
        [(300, [])],
        [(300, [(100, 0), (100, 60_000)])],
        [(300, [(100, 0), (50, 60_000)])],
        [(300, [(100, 0)]), (300, [])],
        [(300, [(100, 0)]), (300, [(100, 0)])],
    ],
)
def test_answers_that_lead_nowhere_are_refused(answers: list[Answer]) -> None:
    with pytest.raises(RemoteProtocolError, match="append times"):
        converse(*answers)


def test_an_error_names_the_partition() -> None:
    step = next(append_times("clicks", 3, 0, 10, 1))
    assert isinstance(step, Exchange)
    with pytest.raises(OffsetOutOfRangeBrokerError, match="topic 'clicks' partition 3"):
        step.decode(encode_error_response(1)[4:])


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_is_at_least_one_ms(interval_ms: int) -> None:
    with pytest.raises(ConfigError, match="interval_ms"):
        next(append_times("clicks", 3, 0, 10, interval_ms))
