"""The loops that run once per message, and what reads plain requests of Kafka's, in Python.

`_core.c` has the same functions in C, and `core` chooses. Both give the same results and raise the
same errors, and one suite of tests checks both. A plain message is whole and intact, of
magic 1, without attributes: nearly every message that a producer sends. The loops stop
at any other, which callers handle with less hurry. Data is bytes, or a memoryview of bytes, where
a function doesn't ask for bytes; positions are within it. Long because its twin is one module, too.

Source of the layout: Kafka 0.7; `messages` has the table.
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from operator import length_hint
from threading import get_ident
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar
from zlib import crc32

from crc32c import crc32c

from hermes.protocol.stamps import (
    STAMP,
    STAMP_HEADER,
    STAMP_START,
    TIME_LIMIT_MS,
    mixed,
    read_stamp,
)
from hermes.protocol.wire import Buffer

#: uint32 length | uint16 magic and attributes | uint32 crc. A negative length is too large when
#: read as unsigned, and so needs no check of its own.
PLAIN: Final = struct.Struct(">IHI")

#: What magic and attributes, read as one uint16, are in a plain message. Free attribute bits may
#: be set as well, but so rarely that such messages don't count as plain.
PLAIN_FLAGS: Final = 0x0100
# int32 length
_SIZE: Final = struct.Struct(">i")
# The bits of these flags that make a message of magic 1 an uncompressed one.
_MAGIC_AND_CODEC: Final = 0xFF03
_MASK_64: Final = (1 << 64) - 1

# Of Kafka's Produce: its size, and the header up to the client's name; the two numbers before the
# topics; a batch's header; the versions from which on lengths are of any size, topics have ids, and
# batches may be compressed by zstd.
_PRODUCE: Final = struct.Struct(">ihhih")
_ACKS: Final = struct.Struct(">hi")
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_LOWEST, _ZSTD, _FLEXIBLE, _BY_ID = 3, 7, 9, 13
_WITHOUT_ZSTD, _WITH_ZSTD = range(4), range(5)
_MAX_OFFSETS: Final = 1 << 30

# Of Kafka's Fetch: the numbers that it begins with, and those of its session. Its versions; the
# first ones with the earliest offset, sessions, the leader's epoch, a rack, lengths of any size and
# tags, topics' ids, and without a replica's number.
_FETCH: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_FETCH_VERSIONS: Final = range(4, 19)
_FETCH_START, _FETCH_SESSION, _FETCH_EPOCH, _FETCH_RACK = 5, 7, 9, 11
_FETCH_FLEXIBLE, _FETCH_BY_ID, _FETCH_NO_REPLICA = 12, 13, 15

# Of a batch's header: base offset, length, magic, last offset delta.
_BATCH_STEP: Final = struct.Struct(">qi4xb6xi")

_M = TypeVar("_M")
_I = TypeVar("_I")
_R = TypeVar("_R", bound=tuple[Any, ...])

#: Takes whatever is at a position: what to yield and the position after it; None ends the set.
Unusual: TypeAlias = Callable[[int], tuple[Iterable[tuple[_M, int]], int] | None]


def iterate(
    make: Callable[[tuple[bytes, int, int, int]], _M],
    data: bytes,
    base_offset: int,
    unusual: Unusual[_M],
) -> Iterator[tuple[_M, int]]:
    """Iterate over the messages of a set: each, which owns its payload, with the offset after it.

    Args:
        make: makes a message of `(payload, magic, attributes, crc)`: a type derived from tuple.
        base_offset: the offset of the data's first byte.
        unusual: called wherever no plain message starts, also at the end.
    """
    unpack = PLAIN.unpack_from
    end = len(data)
    last = end - PLAIN.size
    position = 0
    while True:
        while position <= last:
            size, flags, crc = unpack(data, position)
            following = position + 4 + size
            payload = data[position + 10 : following]
            if flags != PLAIN_FLAGS or following > end or crc32(payload) != crc or size < 6:
                break
            yield make((payload, 1, 0, crc)), base_offset + following
            position = following
        taken = unusual(position)
        if taken is None:
            return
        messages, position = taken
        yield from messages


def pack_plain(
    data: bytes, position: int, base_offset: int
) -> tuple[int, int, bytes, bytes, bytes]:
    """Pack the payloads of the plain messages from a position on, as columns keep them.

    Returns:
        How many there are; the position after the last of them; their payloads, one after the
        other (copies); where each of these ends, behind a 0 (int32, of this machine's byte order);
        and the offset of each message, before that of the position after the last (int64).

    Raises:
        OverflowError: they have more than 2 GiB.
    """
    payloads: list[bytes] = []
    ends, places = array("i", [0]), array("q", [base_offset + position])
    unpack, append = PLAIN.unpack_from, payloads.append
    end = len(data)
    last = end - PLAIN.size
    packed = 0
    while position <= last:
        size, flags, crc = unpack(data, position)
        following = position + 4 + size
        payload = data[position + 10 : following]
        if flags != PLAIN_FLAGS or following > end or crc32(payload) != crc or size < 6:
            break
        append(payload)
        packed += size - 6
        position = following
        ends.append(packed)
        places.append(base_offset + position)
    return len(payloads), position, b"".join(payloads), ends.tobytes(), places.tobytes()


def java_partitions(keys: list[Any], partition_count: int) -> list[int | None]:
    """Choose partitions by Java's hashes of keys: the magnitude modulo the number of partitions.

    None for keys that are neither ASCII text, bytes nor numbers of 64 bits: their hashes take more.
    """
    if not 0 < partition_count < 2**31:
        raise ValueError("expected 1 partition or more")
    return [_java_partition(key, partition_count) for key in keys]


def _java_partition(key: Any, partition_count: int) -> int | None:
    if type(key) is bytes:
        result = 1
        for byte in key:
            result = (31 * result + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    elif type(key) is str and key.isascii():
        result = 0
        for byte in key.encode():
            result = (31 * result + byte) & 0xFFFFFFFF
    elif type(key) is int and -(2**31) <= key < 2**31:
        result = key & 0xFFFFFFFF
    elif type(key) is int and -(2**63) <= key < 2**63:
        result = (key ^ key >> 32) & 0xFFFFFFFF
    else:
        return None
    return min(result, 0x100000000 - result) % partition_count


class ListedRows(Generic[_R]):
    """Rows that exist already, with the interface of `Rows`.

    Attributes:
        listed: the rows, with offset and next offset in the fourth and the fifth place.
        items: an iterator over the rows, which the reader uses; any thread may ask at any time
            how far it has come.
    """

    __slots__ = ("items", "listed")

    def __init__(self, listed: list[_R]) -> None:
        self.listed = listed
        self.items: Iterator[_R] = iter(listed)

    def reached(self) -> tuple[int, int, int, int]:
        """How far the reader has come.

        Returns how many rows it has taken; the next offset of the last but one of these, with two
        or more; offset and next offset of the last one, with one or more.
        """
        listed = self.listed
        taken = len(listed) - length_hint(self.items)
        if not taken:
            return 0, -1, -1, -1
        last = listed[taken - 1]
        return taken, listed[taken - 2][4] if taken > 1 else -1, last[3], last[4]


class Rows(ListedRows[_R]):
    """Rows of the plain messages from a position on: what takes the least time per message.

    A row is `(payload, topic, partition, offset, next offset, broker)`; its payload is a copy. The
    compiled core makes each row when it is taken, so that the memory of one serves the next; Python
    is faster when it makes many at once.

    Args:
        make: the type of the rows: a type of tuples, whose own `__new__` is not called.
        source: topic, partition and broker.
        most: how many rows to make at once at most, 1 or more.

    Attributes:
        position: where the message after the last row starts; ask when all are taken.
        is_cut: whether `most` ended them, so that there may be more plain messages.
    """

    __slots__ = ("is_cut", "position")

    def __init__(
        self,
        make: type[_R],
        data: bytes,
        position: int,
        base_offset: int,
        source: tuple[str, int, int],
        most: int,
    ) -> None:
        unpack, new = PLAIN.unpack_from, tuple.__new__
        topic, partition, broker = source
        rows: list[_R] = []
        append = rows.append
        last = len(data) - PLAIN.size
        offset = base_offset + position
        while position <= last and len(rows) < most:
            size, flags, crc = unpack(data, position)
            end = position + 4 + size
            payload = data[position + 10 : end]
            if flags != PLAIN_FLAGS or end > len(data) or crc32(payload) != crc or size < 6:
                break
            next_offset = base_offset + end
            append(new(make, (payload, topic, partition, offset, next_offset, broker)))
            position, offset = end, next_offset
        super().__init__(rows)
        self.position = position
        self.is_cut = len(rows) >= most


def count_plain(data: Buffer, start: int, end: int) -> int:
    """Count the messages in [start, end), which must be nothing but plain ones; 0 otherwise.

    This loop runs once for each message that a broker receives.
    """
    unpack = PLAIN.unpack_from
    count = 0
    try:
        while start != end:
            size, flags, crc = unpack(data, start)
            following = start + 4 + size
            # A length below the header's gives an empty slice, whose CRC is 0.
            if (
                following > end
                or crc32(data[start + 10 : following]) != crc
                or flags != PLAIN_FLAGS
                or (not crc and size < 6)
            ):
                return 0
            start = following
            count += 1
    except struct.error:  # not even a header is left
        return 0
    return count


def count_uncompressed(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """Count the uncompressed messages that a set begins with, checking every CRC.

    Unlike `count_plain` it takes both magics and free attribute bits. It stops at whatever may be
    something else: a compressed message, a damaged or incomplete one, or the last 9 bytes, which
    are an empty message of magic 0 at best. Callers decode it. Returns the position, too.
    """
    unpack = PLAIN.unpack_from
    last = end - PLAIN.size
    count = 0
    while start <= last:
        size, flags, crc = unpack(data, start)
        following = start + 4 + size
        if flags & _MAGIC_AND_CODEC == PLAIN_FLAGS:
            header, least = 10, 6
        elif flags < PLAIN_FLAGS:  # magic 0: its CRC begins where magic 1 has the attributes
            header, least = 9, 5
            crc = flags << 24 | crc >> 8
        else:
            break
        if following > end or size < least or crc32(data[start + header : following]) != crc:
            break
        start = following
        count += 1
    return count, start


def tally(
    data: Buffer, position: int, window_ms: int, found: dict[tuple[int, int], tuple[int, int]]
) -> int:
    """Count the plain messages from a position on by the windows that their stamps fall into.

    `stamps` has the layout. A message without a stamp counts in window 0 of process 0. Returns the
    position after the last one.

    Args:
        found: what is added to: by (start of the window in ms since 1970, process) how many
            messages, and modulo 2^64 the sum of what `stamps.mixed` makes of each one's number
            (0 without a stamp) and CRC.
    """
    unpack, unpack_stamp = PLAIN.unpack_from, STAMP.unpack_from
    last = len(data) - PLAIN.size
    while position <= last:
        size, flags, crc = unpack(data, position)
        following = position + 4 + size
        if flags != PLAIN_FLAGS or following > len(data) or size < 6:
            break
        if crc32(data[position + 10 : following]) != crc:
            break
        window = process = number = 0
        if size - 6 >= STAMP.size:
            start, host_bytes, time_ms, its_process, its_number = unpack_stamp(data, position + 10)
            if (
                start == STAMP_START
                and size - 6 >= STAMP.size + host_bytes
                and 0 <= time_ms < TIME_LIMIT_MS
                and its_process
            ):
                window = time_ms - time_ms % window_ms
                process, number = its_process, its_number
        count, total = found.get((window, process), (0, 0))
        found[window, process] = count + 1, total + mixed(number, crc) & _MASK_64
        position = following
    return position


def tally_records(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp_ms: int,
    append_time_ms: int,
    first: int,
    window_ms: int,
    found: dict[tuple[int, int], tuple[int, int]],
) -> int:
    """Count the records of a batch, not compressed, as `tally` does messages.

    A record's stamp is what its value begins with, or its first header `hermes-audit` that is one;
    without a stamp it counts in its timestamp's window of process 0, its number being the lower 32
    bits of that. Its CRC is that of a stamped value, else of the stamp, the key and the value in
    one. Stops at what is damaged; returns how many records it has read.

    Args:
        append_time_ms: the timestamp that all have; below 0 if they have their own.
        first: records whose offset is less above the batch's don't count.
    """
    number = 0
    if not 0 <= start <= end <= len(data):
        return number
    for number in range(count):
        try:
            size, start = _varint(data, start, end, 32)
            stop = start + size
            if size <= 0 or stop > end:
                return number
            delta_ms, start = _varint(data, start + 1, stop, 64)
            delta, start = _varint(data, start, stop, 32)
            key, start = _field(data, start, stop)
            value, start = _field(data, start, stop)
            stamp, start = _stamp_in_headers(data, start, stop)
        except _FaultError:
            return number
        if start != stop:
            return number
        if delta < first:
            continue
        time_ms = _signed(base_timestamp_ms + delta_ms, 64)
        time_ms = time_ms if append_time_ms < 0 else append_time_ms
        read = read_stamp(value)[0]
        whole = stamp + key + value if read is None else value
        read = read or read_stamp(stamp)[0]
        if read is not None:
            time_ms, process, message = read[:3]
        else:
            process, message = 0, time_ms & 0xFFFFFFFF if time_ms >= 0 else 0
        window = time_ms - time_ms % window_ms if time_ms >= 0 else 0
        held, total = found.get((window, process), (0, 0))
        found[window, process] = held + 1, total + mixed(message, crc32(whole)) & _MASK_64
    return max(0, count)


def check_records(
    data: Buffer, start: int, end: int, count: int, base_timestamp_ms: int
) -> tuple[int, int, int, int, list[int]]:
    """Read the records of a batch, not compressed, as Kafka does, and keep nothing of them.

    `records` has the layout. Lengths below 0 mean null; numbers take up to 5 bytes, timestamps 10,
    and what doesn't fit into 32 or 64 bits is lost. `end` is where record number `count` must end.

    Returns:
        What is wrong (`RecordFault`, 0 for nothing) and the number of the record in which it is,
        where the reading ended; the largest timestamp up to there, at least -1; how many records
        have no key, and the numbers of the first `MOST_LISTED` of these.
    """
    newest_ms, unkeyed, listed = -1, 0, list[int]()
    if not 0 <= start <= end <= len(data):
        return RecordFault.CUT, 0, newest_ms, unkeyed, listed
    position, number = start, 0
    try:
        for number in range(count):
            length, position = _varint(data, position, end, 32)
            stop = position + length
            if stop > end:
                return RecordFault.CUT, number, newest_ms, unkeyed, listed
            if length < 0:
                return RecordFault.SIZE, number, newest_ms, unkeyed, listed
            delta_ms, position = _varint(data, position + 1, stop, 64)
            delta, position = _varint(data, position, stop, 32)
            key_bytes, position = _varint(data, position, stop, 32)
            value_bytes, position = _varint(data, position + max(0, key_bytes), stop, 32)
            headers, position = _varint(data, position + max(0, value_bytes), stop, 32)
            if headers < 0:
                return RecordFault.HEADERS, number, newest_ms, unkeyed, listed
            for _ in range(headers):
                length, position = _varint(data, position, stop, 32)
                if length < 0:
                    return RecordFault.HEADERS, number, newest_ms, unkeyed, listed
                length, position = _varint(data, position + length, stop, 32)
                position += max(0, length)
            if position != stop:
                fault = RecordFault.CUT if position > stop else RecordFault.SIZE
                return fault, number, newest_ms, unkeyed, listed
            if delta != number:
                return RecordFault.OFFSET, number, newest_ms, unkeyed, listed
            newest_ms = max(newest_ms, _signed(base_timestamp_ms + delta_ms, 64))
            if key_bytes < 0:
                unkeyed += 1
                if unkeyed <= MOST_LISTED:
                    listed.append(number)
    except _FaultError as error:
        return error.fault, number, newest_ms, unkeyed, listed
    fault = RecordFault.NONE if position == end else RecordFault.REST
    return fault, max(0, count), newest_ms, unkeyed, listed


def plain_produce(
    make: type[_R], data: Buffer, position: int, most: int
) -> tuple[int, int, int, int, int, str | bytes, int, bytes, int, _R] | None:
    """Find the plain Produce request of Kafka's that begins at a position with its size.

    It is whole, of `most` bytes or fewer after that, and of a version that is served; it has no
    transaction, no tags, one partition, and one batch of more than no messages that
    `record_batches.check_batches` would take as it is, without expanding it, unless a topic wants
    more of it. Nothing in it is written in another way than Kafka's clients write it.

    Args:
        make: the type of the header: `BatchHeader`.

    Returns:
        Where it ends; its version, correlation id, acks (one that there is) and timeout in ms; the
        topic's name, or from version 13 on the bytes of its id; the partition; the bytes that name
        both, in the response as in the request; where the batch begins, from behind the request's
        size on; and its header.
        None where there is no such request: anything may be there.
    """
    if not 0 <= position <= len(data) - _PRODUCE.size:
        return None
    size, key, version, correlation_id, client_bytes = _PRODUCE.unpack_from(data, position)
    end = position + 4 + size
    is_flexible, has_id = version >= _FLEXIBLE, version == _BY_ID
    if key or not (10 <= size <= most and end <= len(data) and _LOWEST <= version <= _BY_ID):
        return None
    parts = _Parts(data, position + _PRODUCE.size, end, is_flexible)
    try:
        parts.take(0 if client_bytes == -1 else client_bytes)
        parts.expect_no_tags()
        has_transaction = parts.length(2) != -1
        acks, timeout_ms = _ACKS.unpack(parts.take(_ACKS.size))
        place = parts.position
        has_one_topic = parts.length(4) == 1
        named = parts.take(16 if has_id else parts.length(2))
        topic = named if has_id else str(named, "utf-8")
        has_one_partition = parts.length(4) == 1
        (partition,) = _SIZE.unpack(parts.take(_SIZE.size))
        places = bytes(data[place : parts.position])
        batch_bytes = parts.length(4)
        start = parts.position - position - _SIZE.size
        batch = parts.take(batch_bytes)
        for _ in range(3):
            parts.expect_no_tags()
    except (_FaultError, UnicodeDecodeError):
        return None
    if (
        has_transaction
        or acks not in (-1, 0, 1)
        or not (has_one_topic and has_one_partition and parts.position == end)
    ):
        return None
    header = _plain_header(batch, _WITH_ZSTD if version >= _ZSTD else _WITHOUT_ZSTD)
    if header is None:
        return None
    about = version, correlation_id, acks, timeout_ms, topic, partition, places
    return end, *about, start, tuple.__new__(make, header)


def plain_fetch(
    make: type[_R], data: Buffer, position: int, version: int
) -> tuple[int, int, int, int, int, int, list[_R], list[tuple[Any, int]]] | None:
    """Read the body of a Fetch request of Kafka's, up to the end of the data, if it is plain.

    It has no tags, and nothing in it is written in another way than Kafka's clients write it.

    Args:
        make: the type of what says what is wanted of a partition: its topic's name, or from version
            13 on the bytes of its id; its number; the offset; how many bytes at most, 0 or more;
            the leader's epoch that the client knows, or -1.

    Returns:
        How long to wait, in ms; how many bytes at least and at most; the isolation level; the
        session and its epoch, 0 and -1 where there are none; of each partition what is wanted; and
        the topics and numbers of those that the session is to forget.
        None where the request isn't plain, or isn't one at all.
    """
    if not (0 <= position <= len(data) and _FETCH_VERSIONS[0] <= version <= _FETCH_VERSIONS[-1]):
        return None
    is_flexible = version >= _FETCH_FLEXIBLE
    parts = _Parts(data, position, len(data), is_flexible)
    wanted: list[_R] = []
    forgotten: list[tuple[Any, int]] = []
    try:
        if version < _FETCH_NO_REPLICA:
            parts.take(4)
        wait_ms, min_bytes, max_bytes, level = _FETCH.unpack(parts.take(_FETCH.size))
        session, epoch = 0, -1
        if version >= _FETCH_SESSION:
            session, epoch = _SESSION.unpack(parts.take(_SESSION.size))
        for _ in range(parts.count()):
            topic = parts.take(16) if version >= _FETCH_BY_ID else parts.text()
            for _ in range(parts.count()):
                wanted.append(tuple.__new__(make, (topic, *_wanted_of(parts, version))))
                parts.expect_no_tags()
            parts.expect_no_tags()
        for _ in range(parts.count() if version >= _FETCH_SESSION else 0):
            topic = parts.take(16) if version >= _FETCH_BY_ID else parts.text()
            forgotten += [(topic, parts.int32()) for _ in range(parts.count())]
            parts.expect_no_tags()
        if version >= _FETCH_RACK:
            parts.text()
        parts.expect_no_tags()
    except (_FaultError, UnicodeDecodeError):
        return None
    if parts.position != len(data):
        return None
    return wait_ms, min_bytes, max_bytes, level, session, epoch, wanted, forgotten


def _wanted_of(parts: "_Parts", version: int) -> tuple[int, int, int, int]:
    number = parts.int32()
    epoch = parts.int32() if version >= _FETCH_EPOCH else -1
    offset = int.from_bytes(parts.take(8), signed=True)
    if version >= _FETCH_FLEXIBLE:
        parts.take(4)  # the epoch of the last message that a replica has
    if version >= _FETCH_START:
        parts.take(8)  # where its log begins
    return number, offset, max(parts.int32(), 0), epoch


def single_fetch(make: type[_R], data: Buffer, position: int, most: int) -> _R | None:
    """Find the plain Fetch request of Kafka's that begins at a position with its size.

    It is whole, of `most` bytes or fewer, for one partition, and without a session; else as
    `plain_fetch`. Returns what follows the size; version and correlation id; what `plain_fetch`
    says before the session, and of the partition; and what names that, in the response as here.
    """
    if not 0 <= position <= len(data) - _PRODUCE.size:
        return None
    size, key, version, correlation_id, client_bytes = _PRODUCE.unpack_from(data, position)
    end = position + 4 + size
    if key != 1 or not (10 <= size <= most and end <= len(data) and version in _FETCH_VERSIONS):
        return None
    parts = _Parts(data, position + _PRODUCE.size, end, version >= _FETCH_FLEXIBLE)
    try:
        parts.take(0 if client_bytes == -1 else client_bytes)
        parts.expect_no_tags()
    except _FaultError:
        return None
    found = plain_fetch(tuple, data[:end], parts.position, version)
    if found is None or found[4] or found[5] not in (0, -1) or len(found[6]) != 1 or found[7]:
        return None
    replica_bytes = 4 if version < _FETCH_NO_REPLICA else 0
    parts.take(replica_bytes + _FETCH.size)
    parts.take(_SESSION.size if version >= _FETCH_SESSION else 0)
    start = parts.position
    topics = parts.count()
    parts.take(16 if version >= _FETCH_BY_ID else parts.length(2))
    if topics != 1 or parts.count() != 1:
        return None
    places = bytes(data[start : parts.position + 4])
    about = version, correlation_id, *found[:4], *found[6][0]
    return tuple.__new__(make, (bytes(data[position + 4 : end]), *about, places))


def whole_request(
    data: Buffer, position: int, most: int
) -> tuple[int, int, int, int, str, int] | None:
    """Find the request of Kafka's, other than Produce, that begins at a position with its size.

    It is whole, of `most` bytes or fewer after that.

    Returns:
        Where it ends; its key, version and correlation id; the client's id, empty for none; and
        where what follows the client's id begins, from behind the size on.
        None where there is no such request: anything may be there.
    """
    if not 0 <= position <= len(data) - _PRODUCE.size:
        return None
    size, key, version, correlation_id, client_bytes = _PRODUCE.unpack_from(data, position)
    end, body = position + 4 + size, _PRODUCE.size - 4 + max(client_bytes, 0)
    if not (key and 10 <= size <= most and end <= len(data) and client_bytes >= -1):
        return None
    if body > size:
        return None
    client = bytes(data[position + _PRODUCE.size : position + 4 + body])
    return end, key, version, correlation_id, client.decode(errors="replace"), body


def single_fetched(
    version: int,
    correlation_id: int,
    level: int,
    place: bytes,
    mark: int,
    stable_end: int,
    start: int,
    size: int,
    records: bytes | None,
) -> bytes:
    """Encode the response to what `single_fetch` finds, its size included.

    `records` are of `size` bytes; with None the caller sends them, and in flexible versions three
    bytes of 0. `mark` is the high watermark, `stable_end` the last stable offset, `start` the
    log's first one.
    """
    is_flexible = version >= _FETCH_FLEXIBLE
    tags = bytes(is_flexible)
    parts = [_SIZE.pack(correlation_id), tags, bytes(10 if version >= _FETCH_SESSION else 4), place]
    parts += bytes(2), struct.pack(">qq", mark, stable_end)
    parts.append(struct.pack(">q", start) if version >= _FETCH_START else b"")
    parts.append(_length(0 if level == 1 else -1, is_flexible))
    parts.append(b"\xff\xff\xff\xff" if version >= _FETCH_RACK else b"")
    parts.append(_length(size, is_flexible))
    head = b"".join(parts)
    whole = _SIZE.pack(len(head) + size + 3 * is_flexible) + head
    return whole if records is None else whole + records + 3 * tags


def _length(count: int, is_flexible: bool) -> bytes:
    # Of an array or of bytes; -1 for null.
    if not is_flexible:
        return _SIZE.pack(count)
    encoded, value = bytearray(), count + 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def whole_batches(
    data: Buffer, position: int, limit: int, offset: int, end_offset: int, most: int
) -> "tuple[int, BatchesEnd, int, int]":
    """Step over batches of Kafka's, by what their headers say.

    Args:
        position: where the first one begins in the data.
        limit: the position where the last one must have ended; it may be behind the data.
        offset: the smallest offset that the first one may have.
        end_offset: none may reach beyond it.
        most: how many to step over at most.

    Returns:
        The position where the last one ends, why that is all, the offset after it, and how many.
    """
    stop, taken = BatchesEnd.CUT, 0
    while 0 <= position <= len(data) - _BATCH_STEP.size:
        base, length, magic, last = _BATCH_STEP.unpack_from(data, position)
        if magic != 2 or base < offset or length <= 0 or last < 0 or base + last >= _MASK_64 >> 1:
            stop = BatchesEnd.NONE
            break
        if base + last >= end_offset or position + 12 + length > limit:
            stop = BatchesEnd.LIMIT
            break
        if taken >= most:
            break
        taken += 1
        position += 12 + length
        offset = base + last + 1
    return position, stop, offset, taken


class BatchesEnd(IntEnum):
    """Why `whole_batches` has ended; `_core.c` has the same numbers."""

    #: More bytes must be read to step on, or these were as many batches as it might.
    CUT = 0
    #: The next batch begins too late or ends too late.
    LIMIT = 1
    #: There is none.
    NONE = 2


class StepKind(IntEnum):
    """What a part of a request of Kafka's is; `_core.c` has the same numbers."""

    FIXED = 1  # that many bytes
    SIZED = 2  # a length of that many bytes, then as many bytes
    COMPACT = 3  # a varint of one more, then as many bytes
    ARRAY = 4  # a count of so many bytes (0: a compact one), parts, their least size, may be null
    OPTIONAL = 5  # a byte that says whether it is there, then parts
    TAGS = 6  # a count, then of each its number, its size, and its parts if they are known


#: A part, and what its kind says of it.
Step: TypeAlias = tuple[StepKind, Any]


def whole_message(steps: list[Step], data: Buffer, position: int) -> int:
    """Find where a message ends that is all there, without tags, in as few bytes as it needs.

    Arrays declare no more than there is, and only those are null that may be. -1: it isn't so.
    """
    if not 0 <= position <= len(data):
        return -1
    parts = _Parts(data, position, len(data), True)
    try:
        parts.take_steps(steps)
    except _FaultError:
        return -1
    return parts.position


class _Parts:
    """Reads a request's parts; `_FaultError` where one is missing, or written in an unusual way."""

    def __init__(self, data: Buffer, position: int, end: int, is_flexible: bool) -> None:
        self._data = data
        self.position = position
        self._end = end
        self._is_flexible = is_flexible

    def take(self, count: int) -> bytes:
        start = self.position
        if not 0 <= count <= self._end - start:
            raise _FaultError(RecordFault.CUT)
        self.position += count
        return bytes(self._data[start : self.position])

    def length(self, size_bytes: int) -> int:
        """Read a length of some bytes, or in flexible versions of as many as it needs; -1: null."""
        if not self._is_flexible:
            return int.from_bytes(self.take(size_bytes), signed=True)
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if shift and not byte:
                break
            if byte < 0x80:
                return value - 1
        raise _FaultError(RecordFault.NUMBER)

    def count(self) -> int:
        """Read the length of an array that isn't null."""
        count = self.length(4)
        if count < 0:
            raise _FaultError(RecordFault.NUMBER)
        return count

    def text(self) -> str:
        return str(self.take(self.length(2)), "utf-8")

    def int32(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def take_steps(self, steps: list[Step]) -> None:
        for kind, what in steps:
            if kind == StepKind.FIXED:
                self.take(what)
            elif kind == StepKind.ARRAY:
                self._take_array(*what)
            elif kind == StepKind.OPTIONAL:
                if self.take(1)[0] < 0x80:
                    self.take_steps(what)
            elif kind == StepKind.TAGS:
                self.expect_no_tags()
            else:
                length = self._step_length(what)
                if length != -1:
                    self.take(length)

    def _take_array(self, width: int, parts: list[Step], least: int, is_optional: bool) -> None:
        count = self._step_length(width)
        if count < (-1 if is_optional else 0) or count * least > self._end - self.position:
            raise _FaultError(RecordFault.NUMBER)
        for _ in range(count):
            self.take_steps(parts)

    def _step_length(self, width: int | None) -> int:
        return int.from_bytes(self.take(width), signed=True) if width else self.length(0)

    def expect_no_tags(self) -> None:
        if self._is_flexible and self.take(1) != b"\0":
            raise _FaultError(RecordFault.REST)


def _plain_header(batch: bytes, codecs: range) -> tuple[int, ...] | None:
    """The header of a batch that may be appended as it is; None if it may not."""
    if len(batch) < _BATCH.size:
        return None
    base, length, epoch, magic, crc, attributes, last, *rest = _BATCH.unpack_from(batch)
    base_ms, newest_ms, producer_id, _, sequence, count = rest
    if (
        base
        or length + 12 != len(batch)
        or magic != 2
        or crc32c(memoryview(batch)[21:]) != crc
        or attributes not in codecs  # no other attribute is set
        or not 0 <= last < _MAX_OFFSETS
        or count != last + 1
        or (producer_id >= 0 and sequence < 0)
    ):
        return None
    if not attributes:
        found = check_records(batch, _BATCH.size, len(batch), count, base_ms)
        if found[0] or found[2] != newest_ms:
            return None
    return base, len(batch), epoch, crc, attributes, last, *rest


class RecordFault(IntEnum):
    """What can be wrong about records; `_core.c` has the same numbers."""

    NONE = 0
    CUT = 1
    SIZE = 2
    NUMBER = 3
    HEADERS = 4
    OFFSET = 5
    REST = 6


#: Of so many records without a key the numbers are told.
MOST_LISTED: Final = 100


class _FaultError(Exception):
    def __init__(self, fault: RecordFault) -> None:
        self.fault = fault


def _varint(data: Buffer, position: int, end: int, bits: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, bits, 7):
        if position >= end:
            raise _FaultError(RecordFault.CUT)
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= (1 << bits) - 1
            return (number >> 1) ^ -(number & 1), position
    raise _FaultError(RecordFault.NUMBER)


def _field(data: Buffer, position: int, end: int) -> tuple[bytes, int]:
    length, position = _varint(data, position, end, 32)
    following = position + max(0, length)
    if following > end:
        raise _FaultError(RecordFault.CUT)
    return bytes(data[position:following]), following


def _stamp_in_headers(data: Buffer, position: int, end: int) -> tuple[bytes, int]:
    stamp = b""
    count, position = _varint(data, position, end, 32)
    for _ in range(count):
        name, position = _field(data, position, end)
        value, position = _field(data, position, end)
        if not stamp and name == STAMP_HEADER and read_stamp(value)[0] is not None:
            stamp = value
    return stamp, position


def _signed(number: int, bits: int) -> int:
    half = 1 << bits - 1
    return (number + half & 2 * half - 1) - half


def collect_produces(
    data: Buffer, position: int, end: int, prefix: bytes, largest: int, buffers: list[Buffer]
) -> tuple[int, int, int]:
    """Append the sets of produce requests for one partition to a list, as long as they are plain.

    A broker spends most of its time in this loop, which runs once per request. It is written out,
    with the case of a single message inline, since a call costs as much as several of its lines.

    Args:
        prefix: the bytes after its size that each request must have: type, topic and partition.
        largest: no request's size may be larger.
        buffers: where the sets go. Sets of one message are slices of the data, others views of it.

    Returns:
        The position after the last of them, and of the sets the bytes in all and the messages.
    """
    unpack, body_bytes = _produce_format(len(prefix)).unpack_from, 4 + len(prefix) + 4
    view = memoryview(data)
    byte_count = message_count = 0
    last = end - body_bytes - PLAIN.size
    while position <= last:
        size, actual, set_bytes, message_bytes, flags, crc = unpack(data, position)
        following = position + 4 + size
        start = position + body_bytes
        stop = start + set_bytes
        if actual != prefix or following > end or stop > following or size > largest:
            break
        if message_bytes == set_bytes - 4:
            if (
                crc32(data[start + 10 : stop]) != crc
                or flags != PLAIN_FLAGS
                or (not crc and message_bytes < 6)
            ):
                break
            message_count += 1
            buffers.append(data[start:stop])
        elif count := count_plain(data, start, stop):
            message_count += count
            buffers.append(view[start:stop])
        else:
            break
        byte_count += set_bytes
        position = following
    return position, byte_count, message_count


@lru_cache(maxsize=512)
def _produce_format(length: int) -> struct.Struct:
    """Size, prefix, size of the set, and the header of its first message, if it is plain."""
    return struct.Struct(f">i{length}siIHI")


def encode_plain(payloads: list[bytes]) -> bytes:
    pack: Callable[..., Any] = PLAIN.pack
    # Headers and payloads alternate in one list: a tenth faster than appending both.
    parts: list[bytes] = [b""] * (2 * len(payloads))
    parts[::2] = [pack(len(each) + 6, PLAIN_FLAGS, crc32(each)) for each in payloads]
    parts[1::2] = payloads
    return b"".join(parts)


def whole_bytes(data: bytes) -> int:
    """The size of the whole messages at the beginning of a set, by their lengths alone."""
    unpack = _SIZE.unpack_from
    end = len(data)
    position, following = 0, 4
    while following <= end:
        size = unpack(data, position)[0]
        following = position + 4 + size
        if size < 0 or following > end:
            break
        position = following
        following += 4
    return position


class Term:
    """A time that ends; a base class.

    Attributes:
        clock: seconds that never go backwards.
        clock_id: what `time.clock_gettime` takes, where that is what `clock` calls, so that the
            compiled core need not ask Python for it, and may leave it at one look per tick of the
            kernel's while the end is further away than that; otherwise below 0.
        until: when it ends, by the clock. Any thread may change it at any time.
    """

    __slots__ = ("clock", "clock_id", "until")

    clock: Callable[[], float]
    clock_id: int
    until: float


class _Supply(Generic[_I]):
    _items: Iterator[_I] | None = None
    _lease: Term | None = None
    _thread: int = 0

    def _take(self) -> _I | None:
        """Take an item that is there; None if there is none, or the lease has ended."""
        self._thread = get_ident()
        lease = self._lease
        if lease is None or lease.clock() < lease.until:
            for item in self._items or ():
                return item
        return None


class Supply(_Supply[_I]):
    """An iterator over items that are there, which asks for more when there are none; a base class.

    Attributes:
        _items: what is there: an iterator, or None. Other threads may exchange it at any time; an
            item that was being taken then is still handed out.
        _lease: how long items may be taken, looked at before each. None for no limit.
        _thread: the thread that asked last.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _I:
        self._thread = get_ident()
        lease = self._lease
        if lease is None or lease.clock() < lease.until:
            for item in self._items or ():
                return item
        return self._refill()

    def _refill(self) -> _I:
        """Get more, and return the first item of it; StopIteration ends the iteration."""
        raise NotImplementedError


class AsyncSupply(_Supply[_I]):
    """As `Supply`, for `async for`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _I:
        item = self._take()
        return await self._refill() if item is None else item

    async def _refill(self) -> _I:
        raise NotImplementedError
