"""Record batches: how Kafka keeps messages since 0.11 (magic 2), and what becomes of them in a log.

A log of this format is a sequence of batches, each with a header of 61 bytes (big-endian):

    position  length  type    meaning
    0         8       int64   base offset: that of its first message; set when it is appended
    8         4       int32   how many bytes follow these first 12
    12        4       int32   leader epoch; set when it is appended
    16        1       int8    magic: 2
    17        4       uint32  CRC-32C of all that follows
    21        2       int16   attributes: codec (bits 0-2), log append time (3), transactional (4),
                                control (5), delete horizon (6)
    23        4       int32   last offset delta: the last message's offset less the base offset
    27        8       int64   base timestamp: ms since 1970
    35        8       int64   the largest timestamp
    43        8       int64   producer id; -1 for none
    51        2       int16   producer epoch
    53        4       int32   the first message's sequence number
    57        4       int32   how many messages there are
    61        ...             the messages, compressed as a whole

What is set when a batch is appended lies before what the CRC covers, so that it need not be
computed again. Compaction leaves batches with fewer messages than offsets, or with none.

A broker checks what producers send before it appends it: headers and CRCs, and the messages of an
uncompressed batch, by a loop of the compiled core. Those of a compressed one are read only where a
topic asks for keys: expanding them may take long, and much memory, so `expands` says where a thread
should do it. Kafka believes the offsets of messages in a batch; they must be dense here, or readers
would get some twice, or never.

Source: Kafka 4, for the layout `DefaultRecordBatch`; for what is refused, and how,
`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from hermes.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidMessageError,
    InvalidRecordError,
    InvalidTimestampError,
)
from hermes.protocol import core
from hermes.protocol.compression import Budget
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES
from hermes.protocol.loops import MOST_LISTED, RecordFault
from hermes.protocol.record_compression import RecordCodec, expand_records
from hermes.protocol.wire import Buffer

__all__ = [
    "HEADER_BYTES",
    "LENGTH_END",
    "MAX_OFFSETS",
    "NO_PRODUCER_ID",
    "BatchHeader",
    "BatchRules",
    "check_batches",
    "decode_header",
    "encode_header",
    "expands",
    "is_intact",
    "next_in",
    "placed",
    "stamped",
    "with_crc",
]

#: The size of a header, and of the smallest batch.
HEADER_BYTES: Final = 61

#: Its length field says how many bytes follow after this position.
LENGTH_END: Final = 12

#: The producer id of a batch whose producer has none.
NO_PRODUCER_ID: Final = -1

#: How many offsets one batch may take, so that two of them fit into a segment's index.
MAX_OFFSETS: Final = 2**30

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
_KNOWN_BITS: Final = 0x7F

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PLACE: Final = Struct(">qii")  # what it begins with, which its CRC leaves out
_CRC: Final = Struct(">I")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21
_MAGIC: Final = 2
_CODECS: Final = len(RecordCodec)
_NO_TIME: Final = -1

_FAULTS: Final = {
    RecordFault.CUT: "it goes on beyond its end",
    RecordFault.SIZE: "it says another size than it has",
    RecordFault.NUMBER: "a number in it has too many bytes",
    RecordFault.HEADERS: "its headers have no count or no name",
    RecordFault.OFFSET: "its offset isn't the one after the message before it",
    RecordFault.REST: "more bytes follow than the batch's messages have",
}


class BatchHeader(NamedTuple):
    """What a batch says of itself.

    Attributes:
        size_bytes: the size of the whole batch.
        leader_epoch: that of the broker that appended it.
        attributes: bits; the properties say what they mean.
        last_offset_delta: what its last message's offset is above the base offset, >= 0.
        base_timestamp_ms: what its messages' timestamps are relative to.
        max_timestamp_ms: ms since 1970; -1 for none.
        producer_id, producer_epoch, base_sequence: an idempotent producer's; -1 each without one.
    """

    base_offset: int
    size_bytes: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """How it is compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_BITS

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_log_append_time(self) -> bool:
        """Whether all its messages have the timestamp `max_timestamp_ms`, set by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's marker instead of messages."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on its tombstones may go; None when compaction hasn't met them yet."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last message's sequence number, which follows 2^31 - 1 with 0; -1 without any."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def decode_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at a position, of which the buffer may hold no more than that.

    Its CRC is not checked.

    Raises:
        CorruptBatchError: no header can be there; the text says why.
        InvalidRecordError: it is a message of an older format.
    """
    if len(buffer) - position < HEADER_BYTES:
        left = max(0, len(buffer) - position)
        if left <= _MAGIC_AT or buffer[position + _MAGIC_AT] == _MAGIC:
            raise CorruptBatchError(f"{left} bytes are left, not enough for a batch's header")
        raise _wrong_magic(buffer[position + _MAGIC_AT])
    base, length, epoch, magic, crc, *rest = _HEADER.unpack_from(buffer, position)
    if magic != _MAGIC:
        raise _wrong_magic(magic)
    if length < HEADER_BYTES - LENGTH_END:
        raise CorruptBatchError(f"its length is {length}, less than a batch's header")
    header = BatchHeader(base, length + LENGTH_END, epoch, crc, *rest)
    if base < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatchError(
            f"it says that it holds {header.record_count} messages of offsets {base} to "
            f"{header.last_offset}"
        )
    return header


def _wrong_magic(magic: int) -> InvalidBatchError:
    text = f"its magic is {magic}, expected {_MAGIC}"
    return InvalidRecordError(text) if magic in (0, 1) else CorruptBatchError(text)


def encode_header(header: BatchHeader) -> bytes:
    base, size, epoch, *rest = header
    crc, *others = rest
    return _HEADER.pack(base, size - LENGTH_END, epoch, _MAGIC, crc, *others)


def is_intact(batch: Buffer) -> bool:
    (crc,) = _CRC.unpack_from(batch, _CRC_AT)
    return bool(crc32c(memoryview(batch)[_COVERED_FROM:]) == crc)


def next_in(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header of a batch that a buffer holds as a whole, and that is plausible; else None."""
    try:
        header = decode_header(buffer, position)
    except InvalidBatchError:
        return None
    return header if position + header.size_bytes <= len(buffer) else None


# -- what a producer has sent -------------------------------------------------------------------


class BatchRules(NamedTuple):
    """What a topic takes.

    Attributes:
        needs_keys: the topic is compacted.
        is_log_append_time: whether the broker sets the timestamps.
        max_expanded_bytes: what compressed messages may expand to where they have to be read.
    """

    max_batch_bytes: int
    needs_keys: bool = False
    is_log_append_time: bool = False
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES


def expands(buffer: Buffer, rules: BatchRules) -> bool:
    """Whether compressed messages have to be read to check batches; quick."""
    if rules.needs_keys:
        position = 0
        while (header := next_in(buffer, position)) is not None:
            if header.codec:
                return True
            position += header.size_bytes
    return False


def check_batches(buffer: Buffer, rules: BatchRules) -> list[BatchHeader]:
    """Check what a producer has sent for one partition: whole batches, one after the other.

    Of a MiB, the CRC costs a tenth of a millisecond, and messages of 200 bytes as much.

    Returns:
        The batches' headers, at least one, as they are to be appended: the largest timestamp is
        right where messages were read, and nothing says that the broker has set it.

    Raises:
        CorruptBatchError: lengths, magic or a CRC are wrong (CORRUPT_MESSAGE).
        InvalidRecordError: the header contradicts itself or is not a producer's to send, records
            are malformed, or keys are missing (INVALID_RECORD).
        InvalidTimestampError: it has timestamps that are for the broker to set (INVALID_TIMESTAMP).
        BatchTooLargeError: a batch is larger than the topic takes (MESSAGE_TOO_LARGE).
    """
    view = memoryview(buffer)
    headers: list[BatchHeader] = []
    position = 0
    while position < len(view):
        header = decode_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            raise CorruptBatchError(
                f"its length is {header.size_bytes}, which is {end - len(view)} bytes too many"
            )
        if header.size_bytes > rules.max_batch_bytes:
            raise BatchTooLargeError(
                f"a batch of {header.size_bytes} bytes; the limit is {rules.max_batch_bytes}"
            )
        if not is_intact(view[position:end]):
            raise CorruptBatchError(f"the CRC of the batch is not {header.crc:#010x}")
        _check_claims(header)
        headers.append(_with_true_times(header, view, position, rules))
        position = end
    if not headers:
        raise InvalidRecordError("there is no batch in it")
    return headers


def _check_claims(header: BatchHeader) -> None:
    count = header.record_count
    if header.base_offset:
        raise InvalidRecordError(f"its base offset is {header.base_offset}, expected 0")
    if count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"it has {count} messages and offsets 0 to {header.last_offset_delta}"
        )
    if count > MAX_OFFSETS:
        raise InvalidRecordError(f"it has {count} messages; the limit is {MAX_OFFSETS}")
    if header.codec >= _CODECS:
        raise InvalidRecordError(f"the codec {header.codec} is unknown")
    if header.is_control:
        raise InvalidRecordError("clients may not write control records")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecordError(f"its sequence number is {header.base_sequence}")


def _with_true_times(
    header: BatchHeader, view: memoryview, position: int, rules: BatchRules
) -> BatchHeader:
    newest_ms = header.max_timestamp_ms
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if not header.codec:
        found_ms = _check_records(view, start, end, header, rules)
    elif rules.needs_keys:
        expanded = _expanded(header, view[start:end], rules)
        found_ms = _check_records(expanded, 0, len(expanded), header, rules)
    else:
        found_ms = newest_ms
    if header.is_log_append_time:
        if rules.is_log_append_time or newest_ms == _NO_TIME:
            raise InvalidTimestampError(
                "it says that its timestamps are the broker's, which are for the broker to set",
                tuple(range(min(header.record_count, MOST_LISTED))),
            )
        # Kafka takes it at its word, and has it be the producer's timestamp.
        found_ms = max(newest_ms, _NO_TIME)
    elif found_ms == newest_ms or rules.is_log_append_time:
        return header
    return stamped(header, view[start:end], found_ms, is_log_append_time=False)


def _expanded(header: BatchHeader, body: Buffer, rules: BatchRules) -> Buffer:
    try:
        return expand_records(RecordCodec(header.codec), body, Budget(rules.max_expanded_bytes))
    except InvalidMessageError as error:
        # The CRC is right: sending it again would not help.
        raise InvalidRecordError(str(error)) from None


def _check_records(
    data: Buffer, start: int, end: int, header: BatchHeader, rules: BatchRules
) -> int:
    count = header.record_count
    fault, number, newest_ms, unkeyed, listed = core.check_records(
        data, start, end, count, header.base_timestamp_ms
    )
    if fault:
        raise InvalidRecordError(f"message {number} of {count}: {_FAULTS[RecordFault(fault)]}")
    if unkeyed and rules.needs_keys:
        raise InvalidRecordError(
            f"{unkeyed} of {count} messages have no key, which a compacted topic needs; the first "
            f"is message {listed[0]}",
            tuple(listed),
        )
    return newest_ms


# -- its place in a log -------------------------------------------------------------------------


def placed(
    buffer: Buffer,
    headers: Sequence[BatchHeader],
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int | None = None,
    *,
    is_as_sent: bool = False,
) -> list[Buffer]:
    """Say which bytes to append for batches that get their place in a log now.

    Args:
        headers: what `check_batches` found in the buffer; they are what is appended.
        base_offset: the first batch's; the others follow.
        append_time_ms: the timestamp of all messages under LogAppendTime; None leaves them.
        is_as_sent: whether the headers say what the buffer says.

    Returns:
        Buffers for `Log.append`: headers, and views of `buffer`; in all they are as long as it.
    """
    view = memoryview(buffer)
    parts: list[Buffer] = []
    position = 0
    for header in headers:
        size, end = header.size_bytes, position + header.size_bytes
        if is_as_sent and append_time_ms is None:
            parts.append(_PLACE.pack(base_offset, size - LENGTH_END, leader_epoch))
            parts.append(view[position + _PLACE.size : end])
            base_offset += header.last_offset_delta + 1
            position = end
            continue
        body = view[position + HEADER_BYTES : end]
        if append_time_ms is not None:
            header = stamped(header, body, append_time_ms, is_log_append_time=True)
        parts.append(
            _HEADER.pack(base_offset, size - LENGTH_END, leader_epoch, _MAGIC, *header[3:])
        )
        parts.append(body)
        base_offset += header.last_offset_delta + 1
        position = end
    return parts


def stamped(
    header: BatchHeader, body: Buffer, max_timestamp_ms: int, *, is_log_append_time: bool
) -> BatchHeader:
    """A header with another largest timestamp, and the CRC that fits it and the batch's messages.

    Attributes that have no meaning yet are lost, as in Kafka.
    """
    attributes = header.attributes & _KNOWN_BITS & ~LOG_APPEND_TIME_BIT
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    changed = header._replace(attributes=attributes, max_timestamp_ms=max_timestamp_ms)
    return changed._replace(crc=_crc_of(changed, body))


def with_crc(header: BatchHeader, body: Buffer) -> bytes:
    return encode_header(header._replace(crc=_crc_of(header, body)))


def _crc_of(header: BatchHeader, body: Buffer) -> int:
    return crc32c(body, crc32c(encode_header(header)[_COVERED_FROM:]))
