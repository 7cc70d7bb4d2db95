"""How dead letters are read, and stored again; the broker is the test's own."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from own_consumer import OwnConsumer

from hermes.client.retrying import Letter
from hermes.config.addresses import BrokerAddress
from hermes.console.dead_letters import TO_TOPIC, LetterSender, read_letters
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import BrokerUnavailableError, MessageTooLargeBrokerError, is_retriable
from hermes.protocol import FetchRequest, ProduceRequest
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

ROW = PartitionRow(0, 0, 0, 6, 100, counts_messages=True)
TOPIC = TopicView("t.g.dead", (ROW,), {0: BrokerAddress("broker", 9092)}, counts_messages=True)


class Broker(OwnConsumer):
    """Lets read up to `end` for now; its last record is before a transaction's marker."""

    def __init__(self, end: int) -> None:
        self._end = end

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


class SmallBatches:
    """A broker's connection; takes batches of 500 bytes at most."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []

    def send_records(self, requests: Sequence[ProduceRequest], _: object) -> list[Any]:
        (request,) = requests
        if len(request.message_set) > 500:
            return [MessageTooLargeBrokerError("too large")]
        found = RecordSet(request.message_set).iterate()
        self.stored += [message.payload or b"" for message, _ in found]
        return [None]


def test_letters_are_stored_in_their_order_also_where_batches_must_be_small() -> None:
    broker = SmallBatches()
    row = PartitionRow(0, 0, 0, 0, 0, counts_messages=True)
    view = TopicView("t", (row,), TOPIC.addresses, counts_messages=True)
    sender = LetterSender(
        SimpleNamespace(own_producer=lambda _: broker),  # type: ignore[arg-type]
        SimpleNamespace(topic=lambda _: view),  # type: ignore[arg-type]
        TO_TOPIC,
    )
    payloads = [b"%03d" % number * 40 for number in range(11)]
    sender.send(
        [Letter("g", "t", None, 0, n, 1, 1, 1, "", each) for n, each in enumerate(payloads)]
    )
    assert broker.stored == payloads
