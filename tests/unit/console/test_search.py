"""What a search says of partitions that can't be read; no broker is there."""

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console.messages import MessageQuery, SearchEnd
from hermes.console.payload_display import ValueReader
from hermes.console.search import Search
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.protocol import NOBODY

BROKER = {0: BrokerAddress("broker", 9092)}
SILENT = ("other:9092: no answer",)


def errors(rows: list[PartitionRow], *, among: int | None = None, start: str = "last") -> list[str]:
    """What a search says that may read only what needs no connection."""
    topic = TopicView("t", tuple(rows), BROKER, SILENT, counts_messages=True)
    wanted = MessageQuery(start, -1, 10, 10, None, ValueReader("auto"))
    (end,) = Search(None, topic, rows[:among], wanted).run()  # type: ignore[arg-type]
    assert isinstance(end, SearchEnd)
    return list(end.errors)


def empty(number: int, leader: int | None) -> PartitionRow:
    return PartitionRow(0, number, None, None, 0, is_numbered=True, leader=leader)


@pytest.mark.parametrize("start", ["last", "beginning"])
def test_a_partition_that_nobody_leads_is_not_taken_for_an_empty_one(start: str) -> None:
    (said,) = errors([empty(0, 0), empty(1, NOBODY)], start=start)
    assert "nobody leads partition 1" in said


def test_a_leader_that_does_not_answer_is_named() -> None:
    (said,) = errors([empty(0, 7)])
    assert "broker 7, which leads partition 0, does not answer" in said


def test_a_broker_that_may_have_partitions_of_its_own_is_named_if_it_does_not_answer() -> None:
    rows = [empty(0, None), empty(1, None)]
    assert errors(rows) == list(SILENT)
    assert errors(rows, among=1) == []  # which is another broker's


def test_a_broker_that_has_copies_only_is_not_missed() -> None:
    assert errors([empty(0, 0)]) == []
