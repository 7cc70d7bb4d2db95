"""What a broker checks of record batches before it appends them to a topic of Kafka's format.

Headers and CRCs are checked, and so are the messages of an uncompressed batch, by a loop of the
compiled core. Those of a compressed one are read only where a topic asks for keys: expanding
them may take long, and much memory, so `expands` says where a thread should do it.

Source of what is refused, and how: Kafka 4 (`ProduceRequest.validateRecords`,
`UnifiedLog.analyzeAndValidateRecords`, `LogValidator`). Kafka believes the offsets of messages in
a batch; they must be dense here, or readers would get some twice, or never.
"""

from typing import Final, NamedTuple

from hermes.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidMessageError,
    InvalidRecordError,
    InvalidTimestampError,
)
from hermes.protocol import core
from hermes.protocol.compression import Budget
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES
from hermes.protocol.loops import MOST_LISTED, RecordFault
from hermes.protocol.record_batches import (
    HEADER_BYTES,
    BatchHeader,
    decode_header,
    is_intact,
    next_in,
    stamped,
)
from hermes.protocol.record_compression import RecordCodec, expand_records
from hermes.protocol.wire import Buffer

__all__ = ["MAX_OFFSETS", "BatchRules", "check_batches", "expands"]

#: How many offsets one batch may take, so that two of them fit into a segment's index.
MAX_OFFSETS: Final = 2**30

_NO_TIME: Final = -1

_FAULTS: Final = {
    RecordFault.CUT: "it goes on beyond its end",
    RecordFault.SIZE: "it says another size than it has",
    RecordFault.NUMBER: "a number in it has too many bytes",
    RecordFault.HEADERS: "its headers have no count or no name",
    RecordFault.OFFSET: "its offset isn't the one after the message before it",
    RecordFault.REST: "more bytes follow than the batch's messages have",
}


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
    """Refuse a header that contradicts itself, or that no producer may send."""
    count = header.record_count
    if header.base_offset:
        raise InvalidRecordError(f"its base offset is {header.base_offset}, expected 0")
    if count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"it has {count} messages and offsets 0 to {header.last_offset_delta}"
        )
    if count > MAX_OFFSETS:
        raise InvalidRecordError(f"it has {count} messages; the limit is {MAX_OFFSETS}")
    if header.codec >= len(RecordCodec):
        raise InvalidRecordError(f"the codec {header.codec} is unknown")
    if header.is_control:
        raise InvalidRecordError("clients may not write control records")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecordError(f"its sequence number is {header.base_sequence}")


def _with_true_times(
    header: BatchHeader, view: memoryview, position: int, rules: BatchRules
) -> BatchHeader:
    """Check a batch's messages, where they are read, and what it says of their timestamps."""
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
    """Check messages that aren't compressed; returns the largest timestamp."""
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
