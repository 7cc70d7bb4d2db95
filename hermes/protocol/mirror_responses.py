"""The responses to Hermes' requests for mirrors, types 77 to 79.

Decoders raise what those in `responses` do.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hermes.protocol.error_codes import ErrorCode
from hermes.protocol.responses import checked_reader, read_code
from hermes.protocol.wire import Buffer, ByteReader, encode_string, frame, pack

_ENTRY: Final = struct.Struct(">qq")
_PARTITION: Final = struct.Struct(">iqqi")
_SOURCE: Final = struct.Struct(">iq")
_SPAN: Final = struct.Struct(">ihqqqq")


class MirroredEntry(NamedTuple):
    """The outcome of one set of a mirrored produce.

    Attributes:
        error: an `ErrorCode`, or a number that is not known.
        offset: the offset of its first message; -1 when nothing was appended: it was there
            already, was empty, or was refused.
        position: up to where the partition has the source now; -1 when it has nothing of it, or
            that is not known.
    """

    error: int
    offset: int
    position: int


class SourcePosition(NamedTuple):
    """Up to where a partition has a source.

    Attributes:
        number: what the source is called in spans.
        position: the offset of the source after what the partition has of it.
    """

    number: int
    position: int
    source: str


class PartitionPositions(NamedTuple):
    """What a partition, from its earliest offset to its high watermark, has of its sources.

    `sources`: some of its sources, by number.
    """

    partition: int
    earliest: int
    end: int
    sources: Sequence[SourcePosition]


class SourceSpan(NamedTuple):
    """Where a range of a source lies in a partition.

    Attributes:
        number: which source.
        flags: VERBATIM when the offsets of both ranges correspond one to one.
        log_begin, log_end: the range of the partition. Other messages may be in it, too.
    """

    number: int
    flags: int
    source_begin: int
    source_end: int
    log_begin: int
    log_end: int


class SourcePositionsResponse(NamedTuple):
    """The response to a request for positions, or one part of it.

    Attributes:
        next: what to ask for to get more; -1 when that was all.
        partitions: those that were written to, by number; the first may be one that the last part
            has begun.
        spans: in the order of the partition; empty unless asked for.
    """

    next: int
    partitions: Sequence[PartitionPositions]
    spans: Sequence[SourceSpan]


def encode_mirrored_entries(entries: Iterable[MirroredEntry]) -> bytes:
    return b"".join(pack(">hqq", *entry) for entry in entries)


def encode_mirrored_produce_response(entries: Sequence[MirroredEntry]) -> bytes:
    """Encode `int16 0 | int16 count | count x (int16 error | int64 offset | int64 position)`."""
    return frame(pack(">hh", ErrorCode.NONE, len(entries)), encode_mirrored_entries(entries))


def decode_mirrored_produce_response(body: Buffer) -> list[MirroredEntry]:
    reader = checked_reader(body, "mirrored produce")
    count = reader.count(reader.int16())
    return [MirroredEntry(read_code(reader), *reader.numbers(_ENTRY)) for _ in range(count)]


def encode_source_positions_response(answer: SourcePositionsResponse) -> bytes:
    parts = [pack(">hqi", ErrorCode.NONE, answer.next, len(answer.partitions))]
    for partition, earliest, end, sources in answer.partitions:
        parts.append(_PARTITION.pack(partition, earliest, end, len(sources)))
        for number, position, source in sources:
            parts += (_SOURCE.pack(number, position), encode_string(source))
    parts.append(pack(">i", len(answer.spans)))
    parts += (_SPAN.pack(*span) for span in answer.spans)
    return frame(*parts)


def decode_source_positions_response(body: Buffer, *, detail: str = "") -> SourcePositionsResponse:
    reader = checked_reader(body, detail)
    following, count = reader.int64(), reader.count(reader.int32())
    partitions = [_partition(reader) for _ in range(count)]
    spans = [SourceSpan(*reader.numbers(_SPAN)) for _ in range(reader.count(reader.int32()))]
    return SourcePositionsResponse(following, partitions, spans)


def _partition(reader: ByteReader) -> PartitionPositions:
    partition, earliest, end, count = reader.numbers(_PARTITION)
    sources = [_source(reader) for _ in range(reader.count(count))]
    return PartitionPositions(partition, earliest, end, sources)


def _source(reader: ByteReader) -> SourcePosition:
    number, position = reader.numbers(_SOURCE)
    return SourcePosition(number, position, reader.string())


def encode_cluster_id_response(cluster_id: str) -> bytes:
    """Encode `int16 0 | string cluster id`."""
    return frame(pack(">h", ErrorCode.NONE), encode_string(cluster_id))


def decode_cluster_id_response(body: Buffer) -> str:
    """Decode the UUID of a broker's cluster; empty while the broker doesn't know it yet."""
    return checked_reader(body, "cluster id").string()
