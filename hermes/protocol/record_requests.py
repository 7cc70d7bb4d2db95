"""Hermes' own requests for topics of Kafka's format: types 82 and 83.

They are the waiting fetch and the acknowledged produce for clients that know record batches: a
fetch brings whatever a topic has, and says what it is; a produce brings record batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Self

from hermes.errors import RemoteProtocolError
from hermes.protocol.error_codes import ErrorCode
from hermes.protocol.own_requests import AcknowledgedProduceRequest, WaitingFetchRequest
from hermes.protocol.requests import ProduceRequest
from hermes.protocol.responses import checked_reader
from hermes.protocol.transaction_markers import Aborted
from hermes.protocol.wire import Buffer, ByteReader, frame, pack

#: How many partitions a `RecordProduceRequest` may have batches for.
MAX_RECORD_PRODUCES: Final = 1024

#: Of an entry of a record fetch: error, high watermark, content, size.
_ENTRY: Final = Struct(">hqbi")
#: Of a transaction: the producer's id, the first offset.
_ABORTED: Final = Struct(">qq")


class ContentFormat(IntEnum):
    """What a fetch has brought; `PARTLY_ABORTED` are batches, and what was aborted before them."""

    MESSAGES = 0
    RECORD_BATCHES = 1
    PARTLY_ABORTED = 2


#: What holds record batches.
RECORDS: Final = frozenset({ContentFormat.RECORD_BATCHES, ContentFormat.PARTLY_ABORTED})


@dataclass(frozen=True, slots=True)
class RecordFetchRequest(WaitingFetchRequest):
    """Type 82: a waiting fetch from topics of any format; the body is that of type 65.

    From topics of Kafka's format come whole batches, but for the last one: the first may start
    before the offset, and is whole even if it is larger than the fetch's maximum. What no open
    transaction precedes is there only; the high watermark is where that ends.
    """

    TYPE: ClassVar[int] = 82


@dataclass(frozen=True, slots=True)
class RecordProduceRequest(AcknowledgedProduceRequest):
    """Type 83: append record batches to topics of Kafka's format, up to `MAX_RECORD_PRODUCES`.

    Its body and its response are those of type 64.
    """

    TYPE: ClassVar[int] = 83

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        acks, timeout_ms, count = reader.int16(), reader.int32(), reader.int16()
        if not 0 <= count <= MAX_RECORD_PRODUCES:
            raise RemoteProtocolError(f"{count} entries of record batches in a request")
        produces = tuple(ProduceRequest.decode(reader) for _ in range(count))
        return cls(acks, timeout_ms, produces)


class RecordFetchedEntry(NamedTuple):
    """The response to one fetch of a `RecordFetchRequest`: a `WaitingFetchedEntry` of any content.

    Attributes:
        content: a `ContentFormat`, or a number that is not known.
        data: the bytes, often ending within a message or a batch; decoded, a view of the response.
    """

    error: int
    high_watermark: int
    content: int
    data: Buffer


def record_fetch_entry_header(error: int, high_watermark: int, content: int, size: int) -> bytes:
    """Encode what precedes the bytes of an entry: `int16 | int64 | int8 content | int32 size`."""
    return _ENTRY.pack(error, high_watermark, content, size)


def encode_aborted(aborted: Sequence[Aborted]) -> bytes:
    """Encode what precedes batches that are partly aborted: a count, and each transaction."""
    return pack(">i", len(aborted)) + b"".join(_ABORTED.pack(*each) for each in aborted)


def without_aborted(content: int, data: Buffer) -> tuple[Sequence[Aborted], Buffer]:
    """Part what was aborted from the batches behind it. Raises RemoteProtocolError."""
    if content != ContentFormat.PARTLY_ABORTED:
        return (), data
    reader = ByteReader(data)
    count = reader.int32()
    aborted = [(reader.int64(), reader.int64()) for _ in range(reader.count(count))]
    return aborted, data[reader.position :]


def encode_record_fetch_response(entries: Sequence[RecordFetchedEntry]) -> bytes:
    """For tests and tools: a broker sends its bytes from files."""
    parts = [pack(">hh", ErrorCode.NONE, len(entries))]
    for error, high_watermark, content, data in entries:
        parts.append(record_fetch_entry_header(error, high_watermark, content, len(data)))
        parts.append(bytes(data))
    return frame(*parts)


def decode_record_fetch_response(body: Buffer) -> list[RecordFetchedEntry]:
    reader = checked_reader(body, "")
    count = reader.count(reader.int16())
    entries = []
    for _ in range(count):
        error, high_watermark, content, size = reader.numbers(_ENTRY)
        data = reader.take(size)
        entries.append(RecordFetchedEntry(error, high_watermark, content, data))
    return entries
