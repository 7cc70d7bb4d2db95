"""What a search makes of what a broker gives it; nothing is connected."""

from typing import Any, Self

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console import partition_search
from hermes.console.messages import FoundMessage, MessageQuery, ScanCounter, UnreadableRange
from hermes.console.partition_search import PartitionSearch, read_one
from hermes.console.payload_display import ValueReader
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.protocol import Codec, FetchRequest, encode_message_set
from hermes.protocol.messages import decode_message
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

ROW = PartitionRow(0, 0, 0, 1 << 20, 1 << 20)


def take(payloads: list[bytes], matches: Any = None) -> tuple[list[Any], ScanCounter]:
    encoded = encode_message_set(payloads, Codec.GZIP)
    message = decode_message(encoded, 0, len(encoded))
    wanted = MessageQuery("beginning", -1, 10, 10, matches, ValueReader("auto"))
    search = PartitionSearch(None, "t", ROW, wanted)  # type: ignore[arg-type]
    scanned = ScanCounter(0)
    return list(search._take(message, 0, len(encoded), scanned)), scanned


def test_the_messages_of_a_set_are_made_readable_only_when_somebody_looks() -> None:
    taken, scanned = take([b"one", b"two"], lambda each: each.payload == b"two")
    assert taken[0] is None
    assert isinstance(taken[1], FoundMessage)
    assert (taken[1].index, taken[1].set_count, taken[1].value.text) == (1, 2, "two")
    assert (scanned.count, scanned.found) == (2, 1)


def test_a_set_of_very_many_messages_is_named_and_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_search, "_MOST_IN_SET", 2)
    taken, scanned = take([b""] * 3)
    (row,) = taken
    assert isinstance(row, UnreadableRange)
    assert "a compressed set of 3 messages" in row.reason
    assert scanned.count == 1


RECORDS = PartitionRow(0, 0, 2, 12, 100, counts_messages=True)
TOPIC = TopicView("t", (RECORDS,), {0: BrokerAddress("broker", 9092)}, counts_messages=True)


class Compacted:
    """A broker, and its connections: it has records at 2, 6 and 9, and ends at 12."""

    def fetch(self, request: FetchRequest) -> RecordSet:
        records = [Record(each, 0, None, b"at %d" % each) for each in (2, 6, 9)]
        return RecordSet(encode_batch(records, last_offset=11), request.offset)

    def supports(self, _: int) -> bool:
        return False

    def own_consumer(self, _: BrokerAddress) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def found(start: str, value: int) -> list[tuple[int, bytes]]:
    wanted = MessageQuery(start, value, 10, 10, None, ValueReader("auto"))
    search = PartitionSearch(Compacted(), "t", RECORDS, wanted)  # type: ignore[arg-type]
    read = search.last if start == "last" else search.forwards
    return [
        (each.offset, each.payload)
        for each in read(ScanCounter(0))
        if isinstance(each, FoundMessage)
    ]


def test_a_record_behind_missing_ones_is_shown_at_its_own_offset() -> None:
    assert found("beginning", -1) == [(2, b"at 2"), (6, b"at 6"), (9, b"at 9")]
    assert found("offset", 4) == [(6, b"at 6"), (9, b"at 9")]


def test_what_ends_before_an_offset_holds_no_record_behind_it() -> None:
    assert found("last", 8) == [(2, b"at 2"), (6, b"at 6")]


def test_of_an_offset_without_a_record_the_next_one_is_read_and_says_where_it_is() -> None:
    message, offset, following, _ = read_one(Compacted(), TOPIC, RECORDS, 4, 0)  # type: ignore[arg-type]
    assert (message.payload, offset, following) == (b"at 6", 6, 7)
