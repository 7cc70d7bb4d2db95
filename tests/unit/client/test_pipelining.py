"""Several requests on their way over one connection: answers in order, and what a failure costs."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes.client.conversations import BrokerVersions
from hermes.client.mirrored import MirroredPartitions
from hermes.errors import BrokerUnavailableError, ClientError, ConfigError, RemoteProtocolError
from hermes.protocol import (
    MirroredEntry,
    MirroredSet,
    encode_error_response,
    encode_mirrored_produce_response,
)

Scripted = Callable[..., Any]

# Steps of a script; see conftest.py.
READ = "read one request"
CLOSE = "close the connection"
HOLD = "read until the client closes"


def ranged(end: int) -> MirroredSet:
    return MirroredSet("clicks", 0, "u/t/0-0", 0, end, 0, b"")


def answer(*entries: tuple[int, int, int]) -> bytes:
    return encode_mirrored_produce_response([MirroredEntry(*each) for each in entries])


def test_answers_come_in_order(scripted: Scripted) -> None:
    broker = scripted([READ, READ, READ, answer((0, 7, 10)) + answer((0, -1, 20)), HOLD])
    with MirroredPartitions(broker.host, broker.port) as target:
        for end in (10, 20, 30):
            target.begin([ranged(end)])
        assert target.finish() == [(7, 10, None)]
        assert target.finish() == [(None, 20, None)]
        assert target.in_flight == 1


def test_a_broken_connection_costs_what_is_in_flight_and_the_next_request_connects(
    scripted: Scripted,
) -> None:
    broker = scripted([READ, READ, answer((0, 7, 10)), CLOSE], [READ, answer((0, 9, 40))])
    with MirroredPartitions(broker.host, broker.port) as target:
        target.begin([ranged(10)])
        target.begin([ranged(20)])
        target.finish()
        with pytest.raises(BrokerUnavailableError):
            target.finish()
        assert target.in_flight == 0
        with pytest.raises(ClientError, match="no request"):
            target.finish()
        target.begin([ranged(40)])
        assert target.finish() == [(9, 40, None)]


def test_other_calls_wait_for_none_and_lose_none(scripted: Scripted) -> None:
    broker = scripted([READ, answer((0, 7, 10)), HOLD])
    with MirroredPartitions(broker.host, broker.port) as target:
        target.begin([ranged(10)])
        with pytest.raises(ClientError, match=r"1 requests .* wait for answers"):
            target.is_supported()
        assert target.finish() == [(7, 10, None)]


@pytest.mark.parametrize(
    "nonsense",
    [answer(), answer((0, 1, 10), (0, 1, 10)), answer((0, 1, 9)), b"\0\0\0\4\0\0\0\1"],
    ids=["no entry", "two", "not as far as it was", "cut short"],
)
def test_nonsense_is_refused(scripted: Scripted, nonsense: bytes) -> None:
    broker = scripted([READ, nonsense, HOLD])
    with MirroredPartitions(broker.host, broker.port) as target:
        target.begin([ranged(10)])
        with pytest.raises(RemoteProtocolError):
            target.finish()
        assert target.in_flight == 0


def test_a_request_that_is_refused_as_a_whole_costs_no_other(scripted: Scripted) -> None:
    broker = scripted([READ, READ, encode_error_response(68), answer((0, 7, 10)), HOLD])
    with MirroredPartitions(broker.host, broker.port) as target:
        target.begin([ranged(10)])
        target.begin([ranged(10)])
        with pytest.raises(Exception, match="mirrored produce"):
            target.finish()
        assert target.finish() == [(7, 10, None)]


def test_what_is_no_request_is_not_sent(scripted: Scripted) -> None:
    broker = scripted()
    with MirroredPartitions(broker.host, broker.port) as target:
        for sets in ([], [ranged(1)] * 65):
            with pytest.raises(ConfigError, match="expected 1 to 64"):
                target.begin(sets)
        with pytest.raises(TypeError):
            target.begin(["clicks"])  # type: ignore[list-item]
    assert broker.connection_count == 0


def test_what_waits_for_its_answer_can_not_be_told_what_others_in_flight_came_to(
    scripted: Scripted,
) -> None:
    broker = scripted([READ, READ, answer((0, 7, 20)) + answer((0, 9, 20)), HOLD])
    with MirroredPartitions(broker.host, broker.port) as target:
        target._channel.broker_versions = BrokerVersions(True)  # as after the first question
        target.begin([ranged(10)])
        with pytest.raises(ClientError, match="1 requests"):
            target.send([ranged(20)])
