"""What a search makes of compressed sets; nothing is connected."""

from typing import Any

import pytest

from hermes.console import partition_search
from hermes.console.messages import FoundMessage, MessageQuery, ScanCounter, UnreadableRange
from hermes.console.partition_search import PartitionSearch
from hermes.console.payload_display import ValueReader
from hermes.console.topic_views import PartitionRow
from hermes.protocol import Codec, encode_message_set
from hermes.protocol.messages import decode_message

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
