"""What a search keeps of many partitions, and says of those that can't be read."""

import pytest
from own_consumer import OwnConsumer

from hermes.config.addresses import BrokerAddress
from hermes.console import partition_search
from hermes.console.messages import FoundMessage, MessageQuery, SearchEnd
from hermes.console.payload_display import ValueReader
from hermes.console.search import Search
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.protocol import NOBODY, FetchRequest
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

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


class Broker(OwnConsumer):
    """Has ten records of a hundred bytes in each partition."""

    def fetch(self, request: FetchRequest) -> RecordSet:
        records = [Record(each, 0, None, b"x" * 100) for each in range(10)]
        return RecordSet(encode_batch(records), request.offset)


def found(partitions: int, count: int) -> list[tuple[str, int]]:
    rows = [PartitionRow(0, each, 0, 10, 1000, counts_messages=True) for each in range(partitions)]
    topic = TopicView("t", tuple(rows), BROKER, counts_messages=True)
    wanted = MessageQuery("last", -1, count, 1000, None, ValueReader("auto"))
    search = Search(Broker(), topic, rows, wanted).run()  # type: ignore[arg-type]
    return [(each.partition, each.offset) for each in search if isinstance(each, FoundMessage)]


def test_the_last_ones_of_all_partitions_are_found() -> None:
    assert found(1, 3) == [("0-0", 9), ("0-0", 8), ("0-0", 7)]
    assert found(2, 12) == [
        *(("0-1", 9 - each) for each in range(10)),
        *(("0-0", 9 - each) for each in range(2)),
    ]


def test_what_is_kept_takes_as_much_memory_of_many_partitions_as_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_search, "_KEPT_BYTES", 500)
    assert len(found(1, 50)) == len(found(20, 50)) == 5
