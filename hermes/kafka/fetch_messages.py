"""The bytes of a response to Fetch, whose records stay where they are: slices of segments.

    response  int32 throttle time | int16 error, int32 session (from v7) | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | int16 error | int64 high watermark | int64 last stable offset
              | int64 log start offset (from v5) | aborted transactions
              | int32 preferred replica (from v11) | [bytes] records

Strings, bytes and arrays as `primitives` has them, flexible from v12.

Source: Kafka 4's FetchResponse.json.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from hermes.kafka.legacy import LegacyRange
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import encode_length, encode_topic
from hermes.storage import LogSlice

#: The first version with compact lengths and tags.
FLEXIBLE: Final = 12

#: The first version that names topics by their UUIDs.
BY_ID: Final = 13

#: What a partition takes in a response beside its records, at most.
PARTITION_BYTES: Final = 64

_PARTITION: Final = Struct(">ihqqq")
_OLD_PARTITION: Final = Struct(">ihqq")
_SESSION: Final = Struct(">ihi")
_NO_REPLICA: Final = b"\xff\xff\xff\xff"


class Fetched(NamedTuple):
    """What there is of one partition.

    Attributes:
        high_watermark: up to where it can be read; -1 with an error.
        start_offset: the log's first offset; -1 with an error.
        records: batches: a slice of a segment, bytes, or None for none; or a range of a log of
            0.7, as long as batches are still to be made of it. A slice belongs to the response
            from then on.
    """

    topic: str | UUID
    partition: int
    code: Code
    high_watermark: int = -1
    start_offset: int = -1
    records: LogSlice | LegacyRange | bytes | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes of records there are."""
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def release(self) -> None:
        if not isinstance(self.records, bytes | None):
            self.records.release()


def response_parts(
    version: int,
    correlation_id: int,
    fetched: Sequence[Fetched],
    *,
    is_committed: bool = False,
    code: Code = Code.NONE,
) -> list[bytes | LogSlice]:
    """Encode a response, its size and its header included.

    Args:
        fetched: in the order of the request.
        is_committed: whether only what transactions have committed was asked for.
        code: the error of the response as a whole.
    """
    head = bytearray(bytes(4) + correlation_id.to_bytes(4, signed=True))
    if version >= FLEXIBLE:
        head += b"\0"
    head += _SESSION.pack(0, code, 0) if version >= 7 else bytes(4)
    parts = list(_topics(version, head, fetched, is_committed))
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in parts) - 4
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = size.to_bytes(4) + first[4:]
    return parts


def _topics(
    version: int, begun: bytearray, fetched: Iterable[Fetched], is_committed: bool
) -> Iterator[bytes | LogSlice]:
    """The parts, of which the first begins with what is there already."""
    is_flexible = version >= FLEXIBLE
    tags = b"\0" if is_flexible else b""
    # No transaction was ever aborted: an empty array, or null where that isn't asked for.
    aborted = encode_length(0 if is_committed else -1, is_flexible)
    between = aborted + (_NO_REPLICA if version >= 11 else b"")
    topics = [(topic, list(found)) for topic, found in groupby(fetched, lambda each: each.topic)]
    begun += encode_length(len(topics), is_flexible)
    for topic, found in topics:
        begun += encode_topic(topic, is_flexible) + encode_length(len(found), is_flexible)
        for _, number, code, end, start, records in found:
            if version >= 5:
                begun += _PARTITION.pack(number, code, end, end, start)
            else:
                begun += _OLD_PARTITION.pack(number, code, end, end)
            begun += between
            if records is None:
                begun += encode_length(0, is_flexible)
            elif isinstance(records, bytes):
                begun += encode_length(len(records), is_flexible) + records
            else:
                assert isinstance(records, LogSlice)
                yield bytes(begun + encode_length(records.length, is_flexible))
                yield records
                begun = bytearray()
            begun += tags
        begun += tags
    yield bytes(begun + tags)
