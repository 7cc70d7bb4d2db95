"""Whatever another broker sends, and in whatever pieces: answers in their order, or a clear end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from outgoing_bench import OutgoingTransport, response
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.errors import BrokerUnavailableError, RemoteProtocolError
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.security import PLAIN

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=6)
ANSWERS = st.tuples(st.integers(0, 4), st.binary(max_size=12)).map(lambda each: response(*each))
STREAMS = st.lists(st.binary(max_size=12) | ANSWERS, max_size=6).map(b"".join)


class Asked:
    """A connection with requests on their way, and what they come to."""

    def __init__(self, count: int, is_flexible: bool) -> None:
        self.clock = Clock()
        limits = OutgoingLimits(response_bytes=64)
        self.connection = OutgoingConnection("there", 9092, PLAIN, self.clock, limits)
        self.transport = OutgoingTransport()
        self.connection.makeConnection(self.transport)
        self.outcomes: list[Any] = []
        for _ in range(count):
            self.connection.ask(KafkaRequest(1, 12, b"", is_flexible)).addBoth(self._note)

    def _note(self, outcome: Any) -> None:
        self.outcomes.append(outcome.value if isinstance(outcome, Failure) else bytes(outcome))

    def receive(self, stream: bytes, cuts: list[int]) -> None:
        ends = sorted({cut % (len(stream) + 1) for cut in cuts} | {len(stream)})
        for start, end in zip([0, *ends], ends, strict=False):
            self.connection.dataReceived(stream[start:end])


@given(BODIES, st.booleans(), st.lists(st.integers(0, 400), max_size=8))
def test_answers_come_in_order_however_they_are_cut(
    bodies: list[bytes], is_flexible: bool, cuts: list[int]
) -> None:
    asked = Asked(len(bodies), is_flexible)
    tags = b"\0" if is_flexible else b""
    stream = b"".join(response(number, body, tags) for number, body in enumerate(bodies, 1))
    asked.receive(stream, cuts)
    assert asked.outcomes == bodies
    asked.clock.advance(1_000)
    assert asked.connection.is_open
    assert asked.clock.getDelayedCalls() == []


@given(STREAMS, st.booleans(), st.lists(st.integers(0, 400), max_size=8))
def test_any_bytes_are_answers_or_the_end(
    stream: bytes, is_flexible: bool, cuts: list[int]
) -> None:
    asked = Asked(3, is_flexible)
    asked.receive(stream, cuts)
    failures = [each for each in asked.outcomes if not isinstance(each, bytes)]
    if asked.connection.is_open:
        assert failures == []
        assert len(asked.clock.getDelayedCalls()) == 1
        asked.connection.close()
    else:
        kinds = [type(each) for each in failures]
        others = [BrokerUnavailableError] * (len(kinds) - 1)
        assert kinds == [RemoteProtocolError, *others][: len(kinds)]
    assert len(asked.outcomes) == 3
    assert asked.transport.is_aborted
    assert asked.clock.getDelayedCalls() == []
