"""Topics of Kafka 0.7 for current clients: batches made on the way out, message sets on the way in.

Offsets stay 0.7's, which count bytes. A message's is where it starts, and a batch reaches to the
byte before the next message, so that clients go on exactly there. The messages of a compressed set
count on from where it starts; a set has as many offsets as bytes.

An offset inside a message stands for what follows it: that message was read. So clients that stop
in the middle of a batch resume where they were, also within a compressed set. Where nothing
follows yet, an empty batch leads them to the next message's place.

This costs time for each message: call it in a worker thread. Timestamps are those of the appends.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hermes.errors import InvalidMessageError, InvalidRecordError, MessageTooLargeError
from hermes.protocol import AppendRun, Codec, Message, MessageSet, encode_message_set
from hermes.protocol.damage import valid_length
from hermes.protocol.expansion import Expansion
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.messages import decode_message
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, with_crc
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.protocol.wire import Buffer
from hermes.storage import Log
from hermes.storage.kafka_0_7 import SegmentReader

#: How much of a log is looked at for one partition of a fetch, unless its first message is larger.
CHUNK_BYTES: Final = 1 << 20

#: What is read at least: more than what a message begins with.
_LEAST_BYTES: Final = 4096

_NO_TIME: Final = -1

#: How many of a batch's messages that 0.7 can't keep are named.
_MOST_NAMED: Final = 100

_VALUES_ONLY: Final = (
    "this topic has the format of Kafka 0.7, which keeps values only: send just these, or to a "
    "topic with `format: kafka`"
)


class LegacyRange(NamedTuple):
    """What a fetch wants of a log of 0.7; batches are still to be made of it.

    `length` is how many bytes at most, but for the first message.
    """

    log: Log
    offset: int
    length: int

    def release(self) -> None:
        """Nothing is held."""


def range_of(log: Log, offset: int, max_bytes: int) -> LegacyRange | None:
    """Say what there is for a fetch; None where there is nothing to read.

    Raises KafkaError where the offset is before the log's start or beyond its end.
    """
    end = log.high_watermark
    if not log.earliest <= offset <= max(log.end_offset, end):
        raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
    return LegacyRange(log, offset, min(max_bytes, end - offset)) if offset < end else None


# -- out ----------------------------------------------------------------------------------------


def batch_of(wanted: LegacyRange, max_expanded_bytes: int) -> bytes:
    """Make a batch of the messages from an offset on. Blocks.

    Args:
        max_expanded_bytes: what a compressed set may expand to.

    Returns:
        A new bytes object: one batch, perhaps an empty one.

    Raises:
        InvalidMessageError: the message there is damaged.
        KafkaError: a compressed set has more messages than bytes, so that offsets lack.
        StorageError: the log can't be read.
    """
    log, offset, length = wanted
    begin, data = _whole_messages(log, offset, min(max(length, 1), CHUNK_BYTES))
    _, runs = log.append_times(begin, begin + len(data), 1)
    records: list[Record] = []
    end = begin
    left = length
    for message, following in _read(data, begin):
        try:
            payloads = _payloads(message, end, following, max_expanded_bytes)
        except (InvalidMessageError, KafkaError):
            if records:  # those before it are right
                break
            raise
        time_ms = _time_at(runs, end)
        for place, payload in enumerate(payloads, end):
            if place >= offset:
                records.append(Record(place, time_ms, None, payload))
                left -= len(payload)
        end = following
        if left <= 0:
            break
    if records:
        return encode_batch(records, last_offset=end - 1)
    return _empty_batch(offset, end - 1)


def _whole_messages(log: Log, offset: int, length: int) -> tuple[int, bytes]:
    """Read from the message on that holds an offset; at least that message is whole.

    Returns (where it starts, what was read).
    """
    # What can be read at an offset inside a compressed set needn't be a message of the log: snappy
    # keeps inner ones as they are.
    begin = log.boundary_before(offset)
    data = _first_whole(log, begin, length + offset - begin)
    if data is None and begin != offset:  # nobody knows boundaries behind damage
        data = _first_whole(log, offset, length)
        begin = begin if data is None else offset
    if data is None:
        raise InvalidMessageError(
            f"the message at offset {begin} is damaged", offset=begin, next_offset=None
        )
    return begin, data


def _first_whole(log: Log, offset: int, length: int) -> bytes | None:
    data = _bytes(log, offset, max(length, _LEAST_BYTES))
    needed = MessageSet(data).first_message_size
    if needed is None or needed > log.high_watermark - offset:
        return None
    if needed > len(data):
        if not _is_intact(log, offset, needed):
            return None
        data = _bytes(log, offset, needed)
    try:
        decode_message(data, 0, needed)
    except InvalidMessageError:
        return None
    return data


def _is_intact(log: Log, offset: int, size_bytes: int) -> bool:
    """Whether a message that seems to be so large is one: a damaged length may claim gigabytes."""
    with log.read(offset, size_bytes) as found:
        if found.length < size_bytes:
            return False
        base, end = offset - found.position, offset + size_bytes
        return valid_length(SegmentReader(log.files, found.fileno(), base, end), offset) > 0


def _bytes(log: Log, offset: int, length: int) -> bytes:
    with log.read(offset, length) as found:
        if not found.length:
            return b""
        return log.files.pread(found.fileno(), found.length, found.position)


def _read(data: bytes, begin: int) -> Iterator[tuple[Message, int]]:
    """The messages, compressed ones as they are, each with where the next one starts.

    Ends before one that is damaged, unless that is the first.
    """
    is_first = True
    try:
        for each in MessageSet(data, begin).iterate(deep=False):
            yield each
            is_first = False
    except InvalidMessageError:
        if is_first:
            raise


def _payloads(message: Message, start: int, end: int, max_expanded_bytes: int) -> list[bytes]:
    """What is in a message that lies from `start` to `end`; raises as `batch_of`."""
    if message.codec is Codec.NONE:
        return [message.payload]
    payloads = [each.payload for each in Expansion(max_expanded_bytes).messages(message)]
    if len(payloads) > end - start:
        raise KafkaError(
            Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the set at offset {start} has {len(payloads)} messages in {end - start} bytes: "
            "read it with a client of Hermes or Kafka 0.7",
        )
    return payloads


def _time_at(runs: Sequence[AppendRun], offset: int) -> int:
    for run in runs:
        if offset < run.end_offset:
            return _NO_TIME if run.time_ms is None else run.time_ms
    return _NO_TIME


def _empty_batch(base_offset: int, last_offset: int) -> bytes:
    """A batch that only says where the next one begins, as compaction leaves them."""
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=HEADER_BYTES,
        leader_epoch=-1,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return with_crc(header, b"")


# -- by time ------------------------------------------------------------------------------------


def offset_at_time(log: Log, time_ms: int, now_ms: int) -> tuple[int, int] | None:
    """Find the first message that was appended at a time or later. Blocks.

    Returns (its offset, when it was appended); None if there is none. StorageError: an index can't
    be read.
    """
    # -1, the ms before 0, would mean the end.
    ended = log.offsets_before(time_ms - 1, 1, now_ms) if time_ms else ()
    offset = ended[0] if ended else log.earliest
    return None if offset >= log.high_watermark else (offset, _appended_at(log, offset))


def latest(log: Log) -> tuple[int, int] | None:
    """Find the last message. Blocks.

    Returns (its offset, when it was appended); None if there is none. StorageError: the log can't
    be read.
    """
    if log.high_watermark <= log.earliest:
        return None
    offset = log.boundary_before(log.high_watermark - 1)
    return offset, _appended_at(log, offset)


def _appended_at(log: Log, offset: int) -> int:
    _, runs = log.append_times(offset, offset + 1, 1)
    return _time_at(runs, offset)


# -- in -----------------------------------------------------------------------------------------


def message_set_of(
    batch: Buffer, header: BatchHeader, max_message_bytes: int, max_expanded_bytes: int
) -> tuple[bytes, int]:
    """Make messages of 0.7 of a batch. Blocks.

    Returns:
        (the message set, how many messages it has).

    Raises:
        InvalidRecordError: messages have keys, headers or no value, which 0.7 has no room for; or
            the batch is malformed inside, or expands to too much.
        MessageTooLargeError: a payload is larger than allowed.
    """
    records = iterate_records(batch, header, max_expanded_bytes=max_expanded_bytes)
    try:
        payloads = _fitting(records, max_message_bytes)
    except InvalidMessageError as error:
        # The CRC is right: sending it again would not help.
        raise InvalidRecordError(str(error)) from None
    return encode_message_set(payloads), len(payloads)


def _fitting(records: Iterator[Record], max_message_bytes: int) -> list[bytes]:
    """The values of records that are nothing but these; raises as `message_set_of`."""
    payloads: list[bytes] = []
    unfit: list[int] = []
    why = ""
    for number, record in enumerate(records):
        lost = "a key" if record.key is not None else "headers" if record.headers else ""
        if lost or record.value is None:
            why = why or f"message {number} has {lost or 'no value'}"
            unfit.append(number)
            if len(unfit) == _MOST_NAMED:
                break
        elif len(record.value) > max_message_bytes:
            raise MessageTooLargeError(len(record.value), max_message_bytes)
        else:
            payloads.append(record.value)
    if unfit:
        raise InvalidRecordError(f"{why}, and {_VALUES_ONLY}", tuple(unfit))
    return payloads
