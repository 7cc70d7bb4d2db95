"""The records inside Kafka's record batches (magic 2): bytes to values and back.

`record_batches` owns the header; a broker needs no more than that. What is here is for clients,
tools and topics of 0.7 that Kafka clients read. Source of the layout: Kafka 4 (`DefaultRecord`).

A record; all numbers are zigzag varints but for the attributes:

    length          of what follows, in bytes
    attributes      1 byte, 0
    timestamp delta to the batch's base timestamp, in ms, up to 64 bits
    offset delta    to the batch's base offset
    key length      -1: no key
    key
    value length    -1: no value (a tombstone)
    value
    header count
    each header:    key length, key in UTF-8, value length (-1: none), value

The records of a compressed batch are compressed together (`record_compression`), without the count.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from hermes.errors import InvalidMessageError, LocalProtocolError
from hermes.protocol.compression import Budget
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, with_crc
from hermes.protocol.record_compression import RecordCodec, compress_records, expand_records
from hermes.protocol.wire import Buffer

#: A record's headers in their order; keys may repeat.
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_NO_EPOCH: Final = -1  # what producers send; brokers set it
_INT32_MAX: Final = 2**31 - 1
_INT64_END: Final = 2**63


class Record(NamedTuple):
    """A record of a `kafka` topic.

    Attributes:
        offset: its position in its partition, counted in records.
        timestamp_ms: since 1970; -1 if it has none.
        key: what partitioners choose by and compaction goes by; None if it has none.
        value: the payload; None for a tombstone.
        headers: in their order; keys may repeat.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def encode_batch(
    records: Sequence[Record],
    codec: RecordCodec = RecordCodec.NONE,
    *,
    last_offset: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encode records as one batch, with their offsets and timestamps (`CreateTime`).

    Args:
        records: at least one, with ascending offsets; the first one's is the base offset. Producers
            count from 0, and the broker sets the base offset.
        last_offset: the last offset that the batch stands for; None for the last record's.

    Raises:
        LocalProtocolError: there are no records, or a value doesn't fit into a batch.
    """
    if not records:
        raise LocalProtocolError("a record batch needs at least one record")
    base_offset, base_timestamp_ms = records[0].offset, records[0].timestamp_ms
    out = bytearray()
    previous = base_offset - 1
    for record in records:
        if not previous < record.offset <= base_offset + _INT32_MAX:
            raise LocalProtocolError(
                f"offset {record.offset} can't follow {previous} in a batch that starts at "
                f"{base_offset}"
            )
        previous = record.offset
        _put_record(out, record, record.offset - base_offset, base_timestamp_ms)
    last_offset = previous if last_offset is None else last_offset
    body = compress_records(codec, out)
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=HEADER_BYTES + len(body),
        leader_epoch=_NO_EPOCH,
        crc=0,
        attributes=codec,
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    try:
        return with_crc(header, body) + body
    except struct.error as error:
        raise LocalProtocolError(f"{header} doesn't fit into a batch: {error}") from error


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp_ms: int) -> bytes:
    """Encode records, with ascending offsets, as in an uncompressed batch, without its header."""
    out = bytearray()
    for record in records:
        _put_record(out, record, record.offset - base_offset, base_timestamp_ms)
    return bytes(out)


def iterate_records(
    buffer: Buffer,
    header: BatchHeader,
    position: int = 0,
    *,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
) -> Iterator[Record]:
    """Iterate over the records of the batch at a position, whose CRC isn't looked at.

    Control batches have records, too: their keys say what they mark. Keys and values are copies.

    Raises:
        InvalidMessageError: the records aren't what the header says, or are damaged. Those before
            were right. The error has the batch's base offset, and the next batch's.
        ExpandedTooLargeError: they expand to more than is allowed.
    """
    base_offset = header.base_offset
    try:
        data = record_bytes(buffer, header, position, max_expanded_bytes=max_expanded_bytes)
        yield from _records(data, header)
    except InvalidMessageError as error:
        raise type(error)(
            f"the batch at offset {base_offset}: {error}",
            offset=base_offset,
            next_offset=header.next_offset,
        ) from error


def record_bytes(
    buffer: Buffer,
    header: BatchHeader,
    position: int = 0,
    *,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
) -> bytes:
    """The records of the batch at a position, not compressed; raises InvalidMessageError."""
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    return bytes(expand_records(_codec_of(header), body, Budget(max_expanded_bytes)))


def _codec_of(header: BatchHeader) -> RecordCodec:
    try:
        return RecordCodec(header.codec)
    except ValueError:
        raise InvalidMessageError(f"the codec {header.codec} is unknown") from None


def _records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    position = 0
    for number in range(header.record_count):
        try:
            length, start = _varint(data, position)
            following = start + length
            if length < 0 or following > len(data):
                raise InvalidMessageError(
                    f"record {number} claims {length} bytes where {len(data) - start} are left"
                )
            timestamp_delta, position = _varint(data, start + 1, 64)
            offset_delta, position = _varint(data, position)
            key, position = _optional_bytes(data, position)
            value, position = _optional_bytes(data, position)
            if data[position] == 0:  # no headers, as most
                headers: Headers = ()
                position += 1
            else:
                headers, position = _headers(data, position, following)
        except IndexError:
            raise InvalidMessageError(
                f"the batch counts {header.record_count} records, but record {number} is incomplete"
            ) from None
        if position != following:
            raise InvalidMessageError(
                f"record {number} claims {length} bytes and takes {position - start}"
            )
        timestamp_ms = base_timestamp_ms + timestamp_delta
        if not -_INT64_END <= timestamp_ms < _INT64_END:  # Java's numbers go round
            timestamp_ms = (timestamp_ms + _INT64_END) % (2 * _INT64_END) - _INT64_END
        yield Record(
            base_offset + offset_delta,
            timestamp_ms if append_time_ms is None else append_time_ms,
            key,
            value,
            headers,
        )
    if position != len(data):
        raise InvalidMessageError(
            f"{len(data) - position} bytes follow the {header.record_count} records that it counts"
        )


def _headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    if not 0 <= count <= end - position:  # each takes two bytes at least
        raise InvalidMessageError(f"a record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _optional_bytes(data, position)
        if key is None:
            raise InvalidMessageError("a header has no key")
        value, position = _optional_bytes(data, position)
        headers.append((str(key, "utf-8", "replace"), value))
    return tuple(headers), position


def _optional_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes; None for a length below 0."""
    length, position = _varint(data, position)
    if length < 0:  # Kafka takes any such length for null
        return None, position
    following = position + length
    if following > len(data):
        raise InvalidMessageError(
            f"a field claims {length} bytes where {len(data) - position} are left"
        )
    return data[position:following], following


def _varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """Read a zigzag varint; IndexError if it is cut off."""
    byte = data[position]
    if byte < 0x80:  # most are this short
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _long_varint(data, position, bits)


def _long_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """Read one of any length; bits that are too many are lost, as in Kafka."""
    number = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= (1 << bits) - 1
            return (number >> 1) ^ -(number & 1), position
    raise InvalidMessageError(f"a number is longer than {bits} bits")


def _put_record(out: bytearray, record: Record, offset_delta: int, base_timestamp_ms: int) -> None:
    body = bytearray(1)  # attributes
    _put_varint(body, record.timestamp_ms - base_timestamp_ms)
    _put_varint(body, offset_delta)
    _put_optional_bytes(body, record.key)
    _put_optional_bytes(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_optional_bytes(body, key.encode())
        _put_optional_bytes(body, value)
    _put_varint(out, len(body))
    out += body


def _put_optional_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1 as a zigzag varint
    else:
        _put_varint(out, len(value))
        out += value


def _put_varint(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
