"""How dead letters are read; the broker is the test's own."""

from typing import Self

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console.dead_letters import read_letters
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import BrokerUnavailableError, is_retriable
from hermes.protocol import FetchRequest
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

ROW = PartitionRow(0, 0, 0, 6, 100, counts_messages=True)
TOPIC = TopicView("t.g.dead", (ROW,), {0: BrokerAddress("broker", 9092)}, counts_messages=True)


class Broker:
    """Lets read up to `end` for now; its last record is before a transaction's marker."""

    def __init__(self, end: int) -> None:
        self._end = end

    def own_consumer(self, _: BrokerAddress) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def supports(self, _: int) -> bool:
        return False

    def fetch(self, request: FetchRequest) -> RecordSet:
        if request.offset >= self._end:
            return RecordSet(b"", request.offset)
        records = [Record(each, 0, None, b"no letter") for each in range(self._end - 1)]
        return RecordSet(encode_batch(records, last_offset=self._end - 1), request.offset)


def places(broker: Broker) -> list[int]:
    return [each.following for each in read_letters(broker, TOPIC, ROW, 0, 6)]  # type: ignore[arg-type]


def test_a_range_is_read_to_its_end() -> None:
    assert places(Broker(6)) == [1, 2, 3, 4, 5]


def test_a_range_that_cannot_be_read_to_its_end_for_now_is_waited_for() -> None:
    with pytest.raises(BrokerUnavailableError, match="up to 3, not to 6") as failed:
        places(Broker(3))
    assert is_retriable(failed.value)
