"""What records have beside a payload, and which topics can keep it.

A topic has 0.7's format, whose messages are payloads only, or Kafka's, whose records have a key,
headers and a time as well. A producer learns which when a broker refuses what it has sent: nothing
of it was written, so it sends the same again, made the other way.
"""

import time
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from hermes.errors import EncodingError
from hermes.protocol import Codec
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Headers, Record, encode_batch

# What a record takes in a batch beside its key, value and headers, at most; and a header likewise.
_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 10

# Names may come from data: bounded.
_MOST_TOPICS: Final = 10_000


class RecordData(NamedTuple):
    """A value with headers and a timestamp; for topics of Kafka's format.

    Example:
        producer.send("orders", RecordData(b"payload", headers=(("source", b"shop"),)), key=b"7")

    Attributes:
        value: what the encoder takes; None for a tombstone, which compaction takes as "the key is
            gone".
        headers: pairs of a name and bytes, or None; names may repeat.
        timestamp_ms: ms since 1970; None for the time of sending.
    """

    value: Any
    headers: Headers = ()
    timestamp_ms: int | None = None


class Details(NamedTuple):
    """What the messages of one item have beside payloads; goes where its key would.

    Attributes:
        key: the item's key, or its `Keys`.
        records: the `RecordData` of each message that has one, without its value; else None.
            A tombstone's value is True.
    """

    key: Any
    records: Sequence[RecordData | None]


class TopicFormats:
    """Which topics hold records, as far as brokers have said. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def holds_records(self, topic: str) -> bool | None:
        """Whether a topic is of Kafka's format; None while that isn't known."""
        return self._known.get(topic)

    def note(self, topic: str, holds_records: bool) -> None:
        """Remember what a broker has said."""
        if topic in self._known or len(self._known) < _MOST_TOPICS:
            self._known[topic] = holds_records


class EncodedRecords(NamedTuple):
    """Record batches, and where their records come from.

    Attributes:
        data: the batches.
        starts: of each record the bytes of the payloads before it, as `OutgoingSet` counts them.
    """

    data: bytes
    starts: "array[int]"

    def number_at(self, position: int) -> int:
        """The number of the record whose payload begins at so many bytes."""
        return bisect_right(self.starts, position) - 1


def encode_records(
    payloads: Sequence[bytes],
    keys: Sequence[Any],
    records: Sequence[RecordData | None],
    codec: Codec,
    *,
    max_batch_bytes: int,
    message_overhead: int = 0,
) -> EncodedRecords:
    """Encode payloads as record batches.

    Args:
        payloads: the values.
        keys: of each its key, or None; bytes, or a string, which becomes UTF-8. Empty for none.
        records: of each what else it has, or None. Empty for nothing.
        codec: how the batches are compressed.
        max_batch_bytes: a batch with more than one record is no larger, before compression.
        message_overhead: what a message takes beside its payload as positions are counted.

    Raises:
        EncodingError: a key or a header can't be stored.
    """
    now_ms = time.time_ns() // 1_000_000
    batches: list[bytes] = []
    batch: list[Record] = []
    size = 0
    for number, payload in enumerate(payloads):
        key = _stored_key(keys[number]) if keys else None
        more = records[number] if records else None
        headers: Headers = ()
        time_ms = now_ms
        value: bytes | None = payload
        if more is not None:
            headers = checked_headers(more.headers)
            time_ms = now_ms if more.timestamp_ms is None else more.timestamp_ms
            value = None if more.value else payload
        takes = _OVERHEAD_BYTES + len(payload) + len(key or b"")
        takes += sum(
            len(name) * 4 + len(held or b"") + _HEADER_OVERHEAD_BYTES for name, held in headers
        )
        if batch and size + takes > max_batch_bytes:
            batches.append(encode_batch(batch, RecordCodec(codec.value)))
            batch, size = [], 0
        batch.append(Record(len(batch), time_ms, key, value, headers))
        size += takes
    batches.append(encode_batch(batch, RecordCodec(codec.value)))
    sizes = (message_overhead + len(each) for each in payloads)
    starts = array("q", accumulate(sizes, initial=0))
    starts.pop()
    return EncodedRecords(b"".join(batches), starts)


def _stored_key(key: Any) -> bytes | None:
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    raise EncodingError(
        f"the topic keeps keys, and one of type {type(key).__name__} can't be kept: give bytes, or "
        "a string"
    )


def checked_headers(headers: Any) -> Headers:
    """Read headers: pairs of a name and bytes, or None; or a mapping.

    Raises:
        EncodingError: they can't be stored.
    """
    try:
        listed = headers.items() if isinstance(headers, Mapping) else headers
        pairs = tuple((name, value) for name, value in listed)
    except (TypeError, ValueError):
        raise EncodingError("headers: expected pairs of a name and bytes") from None
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise EncodingError(f"headers: expected pairs of a string and bytes, got {name!r}")
    return pairs
