"""What is known of sets that went to a Kafka 0.7, which says nothing of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerError, MessageTooLargeBrokerError, OutcomeUnknownError
from hermes.mirror import links
from hermes.mirror.links import AppendBatch, PlainLink

TOO_LARGE = 100


class Producer:
    """Of a broker with one partition, which drops what is too large."""

    address = "localhost:1"
    channel: Any

    def __init__(self) -> None:
        self.log = b""
        self.channel = self

    def multi_send(self, requests: list[Any]) -> None:
        self.log += b"".join(r.message_set for r in requests if len(r.message_set) < TOO_LARGE)

    def run(self, asked: object) -> list[int]:
        return [len(self.log)]


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(links, "_FLUSH_SECONDS", 0.0)
    return Producer()


def batch(size: int, text: bytes = b"x") -> AppendBatch:
    entry: Any = SimpleNamespace(topic="t", target=BrokerPartition(0, 0))
    return AppendBatch([entry], 0, size, text * size, True)


def outcomes(link: PlainLink, count: int) -> list[type[BrokerError] | None]:
    found = [each.error for _ in range(count) for each in link.finish()]
    return [None if each is None else type(each) for each in found]


def test_what_was_dropped_does_not_count_for_what_came_behind_it(producer: Any) -> None:
    link = PlainLink(producer)
    for each in ([batch(TOO_LARGE)], [batch(60), batch(60)]):
        link.begin(each)
    assert outcomes(link, 2) == [OutcomeUnknownError] * 3


def test_which_one_is_too_large_is_found_out_and_what_is_not_arrives(producer: Any) -> None:
    link = PlainLink(producer)
    for _ in range(2):
        for each in (batch(10), batch(TOO_LARGE), batch(90)):
            link.begin([each])
        found = outcomes(link, 3)
    assert found == [None, MessageTooLargeBrokerError, None]
    link.begin([batch(20)])
    link.begin([batch(30)])
    assert outcomes(link, 2) == [None, None]


def test_the_order_stays_when_they_are_sent_together_again(producer: Any) -> None:
    link = PlainLink(producer)
    link.begin([batch(TOO_LARGE), batch(1)])
    outcomes(link, 1)
    producer.log = b""
    for each in (batch(TOO_LARGE), batch(1, b"b"), batch(1, b"c")):
        link.begin([each])
    link.finish()
    link.begin([batch(1, b"d")])
    outcomes(link, 3)
    assert producer.log == b"bcd"
