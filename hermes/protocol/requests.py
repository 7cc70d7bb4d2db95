"""The requests of Kafka 0.7 as values, encoded to bytes and decoded from them.

Every request is `int32 size | int16 type | body`; docs/wire-protocol.md has the byte tables.

Values hold what the wire holds, including what no broker accepts (an impossible partition, an
illegal topic): the protocol doesn't decide about that. The classes' `encode` methods include the
size; their `decode` methods read a body, raise `RemoteProtocolError` where 0.7 closes the
connection, and leave what follows the body.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from hermes.errors import RemoteProtocolError
from hermes.protocol.wire import Buffer, ByteReader, encode_string, frame, pack

#: The partition of a produce that lets the broker choose one at random.
RANDOM_PARTITION: Final = -1

LATEST: Final = -1
"""The "time" (otherwise ms since 1970) that stands for the high watermark of a partition.

Example:
    (end,) = consumer.get_offsets_before("clicks", 0, LATEST)
"""

EARLIEST: Final = -2
"""The "time" (otherwise ms since 1970) that stands for the earliest offset of a partition.

Example:
    (beginning,) = consumer.get_offsets_before("clicks", 0, EARLIEST)
"""

#: Of a fetch: partition, offset, max size.
_FETCH_NUMBERS: Final = struct.Struct(">iqi")


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Type 0: append a message set to a partition. It gets no response.

        string topic | int32 partition | int32 set size | message set

    Attributes:
        partition: the partition's number, or -1 for one at random.
        message_set: the encoded messages; when decoded, a view of the request's bytes.
    """

    TYPE: ClassVar[int] = 0

    topic: str
    partition: int
    message_set: Buffer

    def encode(self) -> bytes:
        return frame(pack(">h", self.TYPE), *self.parts())

    def parts(self) -> tuple[Buffer, ...]:
        return (
            encode_string(self.topic),
            pack(">ii", self.partition, len(self.message_set)),
            self.message_set,
        )

    @classmethod
    def decode(cls, reader: ByteReader, *, null_topic: str | None = None) -> Self:
        """Read a body; `null_topic` replaces a topic of negative length, None refuses it."""
        topic = reader.string_or_none()
        if topic is None:
            topic = null_topic
        if topic is None:
            raise RemoteProtocolError("a topic has a negative length")
        return cls(topic, reader.int32(), reader.take(reader.int32()))


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Type 1: read a partition, starting at an offset.

        string topic | int32 partition | int64 offset | int32 max size

    Any numbers are accepted here; `encode` raises LocalProtocolError for those that don't fit.

    Example:
        messages = consumer.fetch(FetchRequest("clicks", partition=0, offset=0, max_size=1 << 20))

    Attributes:
        offset: where to start, in bytes of the partition's log.
        max_size: maximum bytes of messages to return.
    """

    TYPE: ClassVar[int] = 1

    topic: str
    partition: int
    offset: int
    max_size: int

    def encode(self) -> bytes:
        """Encode the request with its size."""
        return frame(pack(">h", self.TYPE), *self.parts())

    def parts(self) -> tuple[Buffer, ...]:
        """Encode the body, in parts to be joined."""
        numbers = pack(">iqi", self.partition, self.offset, self.max_size)
        return encode_string(self.topic), numbers

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        """Read a body."""
        return cls(reader.string(), *reader.numbers(_FETCH_NUMBERS))


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Type 2: several fetches with one response.

        int16 count | count x fetch body

    There may be 32,767 fetches; the response has their order.
    """

    TYPE: ClassVar[int] = 2

    fetches: tuple[FetchRequest, ...]

    def encode(self) -> bytes:
        parts = [part for fetch in self.fetches for part in fetch.parts()]
        return frame(pack(">hh", self.TYPE, len(self.fetches)), *parts)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(tuple(FetchRequest.decode(reader) for _ in counted(reader)))


@dataclass(frozen=True, slots=True)
class MultiProduceRequest:
    """Type 3: several produces. They get no response.

        int16 count | count x produce body

    There may be 32,767; they are carried out in order until one is bad.
    """

    TYPE: ClassVar[int] = 3

    produces: tuple[ProduceRequest, ...]

    def encode(self) -> bytes:
        parts = [part for produce in self.produces for part in produce.parts()]
        return frame(pack(">hh", self.TYPE, len(self.produces)), *parts)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        """Read a body.

        A topic of negative length is decoded as the empty name: 0.7 notices only when it reaches
        that entry, closes then, and keeps what came before. So does a broker at an illegal name.
        """
        return cls(tuple(ProduceRequest.decode(reader, null_topic="") for _ in counted(reader)))


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """Type 4: list the offsets before a time.

        string topic | int32 partition | int64 time | int32 max offsets

    `time`: `LATEST`, `EARLIEST`, or ms since 1970.
    """

    TYPE: ClassVar[int] = 4

    topic: str
    partition: int
    time: int
    max_offsets: int

    def encode(self) -> bytes:
        numbers = pack(">iqi", self.partition, self.time, self.max_offsets)
        return frame(pack(">h", self.TYPE), encode_string(self.topic), numbers)

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), reader.int32(), reader.int64(), reader.int32())


def counted(reader: ByteReader) -> Iterator[int]:
    """Read an int16 count and iterate that many times; a negative one is refused."""
    return iter(range(reader.count(reader.int16())))
