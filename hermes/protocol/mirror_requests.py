"""Hermes' own requests for mirrors, types 77 to 79: appends that happen once, and what for.

A mirror copies ranges of *sources* (partitions of other clusters). A partition remembers up to
where it has each source: its *position*. So a copy that is sent again is recognized, and nothing
is stored twice. Framed and versioned as in `own_requests`.
"""

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import ClassVar, Final, Self

from hermes.errors import RemoteProtocolError
from hermes.protocol.own_requests import EmptyRequest
from hermes.protocol.requests import ProduceRequest
from hermes.protocol.wire import Buffer, ByteReader, encode_string, own_frame, pack

#: The most sets that one request can carry: more of them would keep others waiting.
MAX_MIRRORED_SETS: Final = 64

#: The longest name of a source, in bytes of UTF-8.
MAX_SOURCE_BYTES: Final = 512

#: Stands for all partitions of a topic.
ALL_PARTITIONS: Final = -1

_RANGE: Final = struct.Struct(">qqh")


class SourceFlags(IntFlag):
    """What is promised of a mirrored set; the other bits are reserved, and refused.

    VERBATIM: the set is the source's own bytes of that range, so that each of its offsets is one of
        the partition's. Without it, the set is what was chosen out of the range.
    RECORDS: it is of record batches, for a topic of Kafka's format; offsets count messages there,
        each batch's base offset is 0, and none has a producer's id.
    FOLLOWS: the range begins where the partition's position is, if it has any of this source; if
        not, the set is refused. So whatever is on its way when a set fails is refused with it.
    """

    NONE = 0
    VERBATIM = 1
    FOLLOWS = 2
    RECORDS = 4


@dataclass(frozen=True, slots=True)
class MirroredSet:
    """A message set out of a source, for one partition.

        string topic | int32 partition | string source | int64 source begin | int64 source end
        int16 flags | int32 set size | message set

    Attributes:
        source: the source's name, 1 to `MAX_SOURCE_BYTES` bytes.
        source_begin: the first offset of the range that this set stands for, 0 or more.
        source_end: the offset after its last byte; what follows begins there or later.
        flags: `SourceFlags`.
        message_set: when decoded, a view of the request's bytes. Empty when nothing in that range
            is for this partition.
    """

    topic: str
    partition: int
    source: str
    source_begin: int
    source_end: int
    flags: int
    message_set: Buffer

    @property
    def produce(self) -> ProduceRequest:
        return ProduceRequest(self.topic, self.partition, self.message_set)

    def parts(self) -> tuple[Buffer, ...]:
        """Encode the set in parts, the message set last and uncopied."""
        return (
            encode_string(self.topic),
            pack(">i", self.partition),
            encode_string(self.source),
            pack(">qqhi", self.source_begin, self.source_end, self.flags, len(self.message_set)),
            self.message_set,
        )

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        topic, partition, source = reader.string(), reader.int32(), reader.string()
        begin, end, flags = reader.numbers(_RANGE)
        return cls(topic, partition, source, begin, end, flags, reader.take(reader.int32()))


@dataclass(frozen=True, slots=True)
class MirroredProduceRequest:
    """Type 77: append sets whose sources' ranges aren't there yet, and report each.

        int16 acks | int32 timeout ms | int16 count | count x mirrored set

    Up to `MAX_MIRRORED_SETS` are looked at in order; one that fails doesn't stop the next. `acks`
    and `timeout_ms` are those of an `AcknowledgedProduceRequest`.
    """

    TYPE: ClassVar[int] = 77

    acks: int
    timeout_ms: int
    sets: tuple[MirroredSet, ...]

    def encode(self) -> bytes:
        numbers = pack(">hih", self.acks, self.timeout_ms, len(self.sets))
        return own_frame(self.TYPE, numbers, *(part for each in self.sets for part in each.parts()))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        acks, timeout_ms, count = reader.int16(), reader.int32(), reader.int16()
        if reader.count(count) > MAX_MIRRORED_SETS:
            raise RemoteProtocolError(f"{count} mirrored sets in one request")
        return cls(acks, timeout_ms, tuple(MirroredSet.decode(reader) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class SourcePositionsRequest:
    """Type 78: ask up to where a topic's partitions have their sources, or where they have them.

        string topic | int32 partition (-1: all) | int16 with spans | int64 first

    Attributes:
        partition: the partition's number, or `ALL_PARTITIONS`.
        with_spans: whether to answer with the spans of one partition instead.
        first: 0, or the last response's `next`.
    """

    TYPE: ClassVar[int] = 78

    topic: str
    partition: int
    with_spans: bool
    first: int

    def encode(self) -> bytes:
        numbers = pack(">ihq", self.partition, int(self.with_spans), self.first)
        return own_frame(self.TYPE, encode_string(self.topic), numbers)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), reader.int32(), bool(reader.int16()), reader.int64())


@dataclass(frozen=True, slots=True)
class ClusterIdRequest(EmptyRequest):
    """Type 79: ask for the UUID of the broker's cluster."""

    TYPE: ClassVar[int] = 79
