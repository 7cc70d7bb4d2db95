r"""The bytes of a `.hermes_kafka_groups` file: a header, then records that are only ever appended.

    header   8 bytes "HGROUPS\0" | uint32 version | twice: 16 random bytes, the salt, and
             uint32 CRC-32C of them
    record   uint16 0x4847 | uint32 size of the body | uint32 CRC-32C of salt and body | body
    body     uint8 type | group | what the type has
    text     uint16 length | UTF-8

    1 offset     topic | int32 partition | int64 offset | int32 leader epoch | metadata
                 int64 commit time | int64 end, -1 for none
                 then up to the end, if that is known: the 16 bytes of the topic's UUID
    2 no offset  topic | int32 partition
    3 group      int32 generation | protocol type | int64 since when it is empty, -1: it isn't
                 then up to the end, if it has members: who they are (`membership`)
    4 no group

All is big-endian, group, topic, protocol type and metadata are texts, times are ms since 1970. Of
several records about the same thing the last one counts; "no group" is about its offsets, too.
Bytes that are no valid record are passed over, up to the next one: at the file's end those of a
write that a crash has cut off. Since nobody knows the salt, no text of a client's in them is one.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import crc32c

from hermes.groups.membership import decode_membership, encode_membership
from hermes.groups.offsets import Change, Committed, GroupRecord, TopicPartition

_BEGINNING: Final = b"HGROUPS\0" + struct.pack(">I", 2)
_SALT: Final = struct.Struct(">16sI")
_HEADER_BYTES: Final = len(_BEGINNING) + 2 * _SALT.size

_FRAME: Final = struct.Struct(">HII")
_MARK: Final = 0x4847
_MARK_BYTES: Final = struct.pack(">H", _MARK)
_LENGTH: Final = struct.Struct(">H")
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">iqi")
_TIMES: Final = struct.Struct(">qq")
_GENERATION: Final = struct.Struct(">i")
_SINCE: Final = struct.Struct(">q")
_COMMITTED, _NO_OFFSET, _GROUP, _NO_GROUP = range(1, 5)
_COMMITTED_BYTE: Final = bytes([_COMMITTED])
# Four texts and some numbers.
_MAX_BODY_BYTES: Final = 4 * (1 << 16) + 64


class Skipped(NamedTuple):
    begin: int
    end: int


def new_header() -> bytes:
    salt = uuid4().bytes
    return _BEGINNING + 2 * _SALT.pack(salt, crc32c.crc32c(salt))


def seeds_of(data: bytes) -> list[int]:
    """What the CRCs of a file's records begin with, twice; once, or not at all, by what is damaged.

    Nothing for a file of another kind.
    """
    if not data.startswith(_BEGINNING) or len(data) < _HEADER_BYTES:
        return []
    found = _SALT.iter_unpack(data[len(_BEGINNING) : _HEADER_BYTES])
    return [crc for salt, crc in found if crc32c.crc32c(salt) == crc]


def encode_change(change: Change, seed: int) -> bytes:
    """Write a change as records of a file with this seed.

    Raises UnicodeEncodeError, struct.error: a text can't be written; those of clients can.
    """
    group = _text(change.group)
    if change.forget:
        return _framed(bytes([_NO_GROUP]) + group, seed)
    records = []
    if change.record is not None:
        generation, protocol_type, empty_ms, membership = change.record
        body = _GENERATION.pack(generation) + _text(protocol_type) + _SINCE.pack(empty_ms)
        if membership is not None:
            body += encode_membership(generation, membership)
        records.append(_framed(bytes([_GROUP]) + group + body, seed))
    for (topic, partition), committed in change.offsets.items():
        if committed is None:
            body = bytes([_NO_OFFSET]) + group + _text(topic) + _PARTITION.pack(partition)
        else:
            offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
            body = b"".join(
                (
                    _COMMITTED_BYTE,
                    group,
                    _text(topic),
                    _OFFSET.pack(partition, offset, leader_epoch),
                    _text(metadata),
                    _TIMES.pack(commit_ms, expire_ms),
                    b"" if topic_id is None else topic_id.bytes,
                )
            )
        records.append(_framed(body, seed))
    return b"".join(records)


def parse_changes(data: bytes, seed: int) -> Iterator[Change | Skipped]:
    position = _HEADER_BYTES
    while position < len(data):
        found = _record_at(data, position, seed)
        if found is not None:
            change, position = found
            yield change
            continue
        begin = position
        while found is None and position >= 0:
            position = data.find(_MARK_BYTES, position + 1)
            found = _record_at(data, position, seed) if position >= 0 else None
        position = position if position >= 0 else len(data)
        yield Skipped(begin, position)


def _record_at(data: bytes, position: int, seed: int) -> tuple[Change, int] | None:
    begin = position + _FRAME.size
    if begin > len(data):
        return None
    mark, size, crc = _FRAME.unpack_from(data, position)
    end = begin + size
    if mark != _MARK or not 0 < size <= _MAX_BODY_BYTES or end > len(data):
        return None
    body = data[begin:end]
    if crc32c.crc32c(body, seed) != crc:
        return None
    try:
        return _Body(body).change(), end
    except (struct.error, UnicodeDecodeError, ValueError):  # of a later version
        return None


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 1

    def change(self) -> Change:
        kind, group = self._body[0], self._text()
        if kind == _COMMITTED:
            topic = self._text()
            partition, offset, epoch = self._take(_OFFSET)
            metadata = self._text()
            commit_ms, expire_ms = self._take(_TIMES)
            rest = self._body[self._at :]
            topic_id = UUID(bytes=rest) if rest else None
            committed = Committed(offset, epoch, metadata, commit_ms, expire_ms, topic_id)
            return Change(group, offsets={TopicPartition(topic, partition): committed})
        if kind == _NO_OFFSET:
            topic = self._text()
            return Change(group, offsets={TopicPartition(topic, *self._take(_PARTITION)): None})
        if kind == _GROUP:
            (generation,) = self._take(_GENERATION)
            protocol_type = self._text()
            (empty_ms,) = self._take(_SINCE)
            rest = self._body[self._at :]
            membership = decode_membership(rest, generation) if rest else None
            return Change(group, GroupRecord(generation, protocol_type, empty_ms, membership))
        if kind == _NO_GROUP:
            return Change(group, forget=True)
        raise ValueError(f"unknown type {kind}")

    def _take(self, what: struct.Struct) -> tuple[int, ...]:
        values = what.unpack_from(self._body, self._at)
        self._at += what.size
        return values

    def _text(self) -> str:
        (length,) = self._take(_LENGTH)
        data = self._body[self._at : self._at + length]
        if len(data) < length:
            raise ValueError("a text that isn't there")
        self._at += length
        return data.decode()


@lru_cache(maxsize=256)  # of groups and topics, mostly
def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _framed(body: bytes, seed: int) -> bytes:
    return _FRAME.pack(_MARK, len(body), crc32c.crc32c(body, seed)) + body
