"""Hermes' own requests, which a 0.7 client never sends: types 64 to 70, and the versions of all.

Each is `int32 size | int16 type | int16 version | body`, and each gets a response. The version
is 0 so far; `decoding` turns any other into an `UnsupportedRequest`, so that newer clients can ask
older brokers. docs/wire-protocol.md has the byte tables. Types from 71 on are in `admin_requests`,
`mirror_requests`, `authentication`, `cluster_brokers` and `record_requests`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self

from hermes.protocol.requests import FetchRequest, ProduceRequest, counted
from hermes.protocol.wire import ByteReader, encode_string, frame, own_frame, pack

#: Every request type that is supported, with its highest version.
REQUEST_VERSIONS: Final[tuple[tuple[int, int], ...]] = (
    *((request_type, 0) for request_type in range(5)),
    *((request_type, 0) for request_type in range(64, 84)),
)

_ALL_TOPICS: Final = -1


class Acks(IntEnum):
    """When an acknowledged produce gets its response; 3 and above are reserved."""

    WRITTEN = 1
    FLUSHED = 2


class EmptyRequest:
    __slots__ = ()

    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        return own_frame(self.TYPE)

    @classmethod
    def decode(cls, _reader: ByteReader) -> Self:
        return cls()


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A request that consists of a topic's name: `string topic`."""

    TYPE: ClassVar[int]

    topic: str

    def encode(self) -> bytes:
        return own_frame(self.TYPE, encode_string(self.topic))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string())


@dataclass(frozen=True, slots=True)
class AcknowledgedProduceRequest:
    """Type 64: append up to 32,767 message sets and report the outcome of each.

        int16 acks | int32 timeout ms | int16 count | count x produce body

    Unlike in a multiproduce, an entry that fails does not stop the next.

    Attributes:
        acks: an `Acks`, or a number that is not assigned yet.
        timeout_ms: how long the response may wait for a flush; 0 or less: for as long as it takes.
    """

    TYPE: ClassVar[int] = 64

    acks: int
    timeout_ms: int
    produces: tuple[ProduceRequest, ...]

    def encode(self) -> bytes:
        numbers = pack(">hih", self.acks, self.timeout_ms, len(self.produces))
        parts = [part for produce in self.produces for part in produce.parts()]
        return own_frame(self.TYPE, numbers, *parts)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        acks, timeout_ms = reader.int16(), reader.int32()
        produces = tuple(ProduceRequest.decode(reader) for _ in counted(reader))
        return cls(acks, timeout_ms, produces)


@dataclass(frozen=True, slots=True)
class WaitingFetchRequest:
    """Type 65: fetch, and wait for messages when there are none yet (a long poll).

        int32 max wait ms | int32 min bytes | int16 count | count x fetch body

    Attributes:
        max_wait_ms: 0 or less: don't wait.
        min_bytes: respond as soon as the fetches together have this many bytes.
        fetches: up to 32,767; the response has their order.
    """

    TYPE: ClassVar[int] = 65

    max_wait_ms: int
    min_bytes: int
    fetches: tuple[FetchRequest, ...]

    def encode(self) -> bytes:
        numbers = pack(">iih", self.max_wait_ms, self.min_bytes, len(self.fetches))
        parts = [part for fetch in self.fetches for part in fetch.parts()]
        return own_frame(self.TYPE, numbers, *parts)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        max_wait_ms, min_bytes = reader.int32(), reader.int32()
        fetches = tuple(FetchRequest.decode(reader) for _ in counted(reader))
        return cls(max_wait_ms, min_bytes, fetches)


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Type 66: ask a broker for its limits, its request types and its topics.

        int16 count (-1: all topics) | count x string topic

    Up to 32,767 topics can be asked for; None stands for all that exist.
    """

    TYPE: ClassVar[int] = 66

    topics: tuple[str, ...] | None

    def encode(self) -> bytes:
        if self.topics is None:
            return own_frame(self.TYPE, pack(">h", _ALL_TOPICS))
        count = pack(">h", len(self.topics))
        return own_frame(self.TYPE, count, *map(encode_string, self.topics))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        count = reader.int16()
        if count == _ALL_TOPICS:
            return cls(None)
        return cls(tuple(reader.string() for _ in range(reader.count(count))))


@dataclass(frozen=True, slots=True)
class BoundaryRequest:
    """Type 67: ask for the largest message boundary at or before an offset.

        string topic | int32 partition | int64 offset

    Any offset will do; the result lies between the earliest offset and the high watermark.
    """

    TYPE: ClassVar[int] = 67

    topic: str
    partition: int
    offset: int

    def encode(self) -> bytes:
        numbers = pack(">iq", self.partition, self.offset)
        return own_frame(self.TYPE, encode_string(self.topic), numbers)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), reader.int32(), reader.int64())


@dataclass(frozen=True, slots=True)
class DeleteTopicRequest(TopicRequest):
    """Type 68: delete a topic and all its messages."""

    TYPE: ClassVar[int] = 68


@dataclass(frozen=True, slots=True)
class AppendTimesRequest:
    """Type 69: ask when a range of a partition was appended.

        string topic | int32 partition | int64 start | int64 end | int64 interval ms

    Attributes:
        start: the range's first offset, from the earliest to the high watermark.
        end: the offset after its last byte; beyond the high watermark, the high watermark.
        interval_ms: what times are rounded down to multiples of, 1 or more.
    """

    TYPE: ClassVar[int] = 69

    topic: str
    partition: int
    start: int
    end: int
    interval_ms: int

    def encode(self) -> bytes:
        numbers = pack(">iqqq", self.partition, self.start, self.end, self.interval_ms)
        return own_frame(self.TYPE, encode_string(self.topic), numbers)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), reader.int32(), reader.int64(), reader.int64(), reader.int64())


@dataclass(frozen=True, slots=True)
class CoordinationRequest(EmptyRequest):
    """Type 70: ask where clients find coordination."""

    TYPE: ClassVar[int] = 70


@dataclass(frozen=True, slots=True)
class UnsupportedRequest:
    """A request of a known type (64 or above) in an unknown version; the response is code 68."""

    type: int
    version: int

    def encode(self) -> bytes:
        """Encode it without the body, whose format is unknown here."""
        return frame(pack(">hh", self.type, self.version))
