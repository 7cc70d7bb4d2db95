"""Responses: encoding for the broker, decoding for the client.

Encoders put the size prefix before the response. Those named `..._header` encode what precedes
messages that are sent straight from a file. Decoders take a response without its size prefix, and
`detail`: what was asked, for an error's message. They raise an error of the response as a whole as
the `BrokerError` of its code, and `RemoteProtocolError` for a truncated response; errors of single
entries are part of the result. docs/wire-protocol.md has the byte tables.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from hermes.errors import RemoteProtocolError
from hermes.protocol.error_codes import ErrorCode, error_for
from hermes.protocol.wire import Buffer, ByteReader, encode_string, frame, pack

#: The leader of a partition that nobody leads.
NOBODY: Final = -1

_UNKNOWN_TIME = -1

#: Of an entry of an acknowledged produce: partition, error, offset.
_PRODUCED = struct.Struct(">ihq")

# What precedes messages: the size and error of a fetch's response, and an entry of a waiting one's.
_FETCH_HEADER = struct.Struct(">ih")
_WAITING_ENTRY = struct.Struct(">hqi")
#: All of a response with one of these, its size included.
_ONE_PRODUCED = struct.Struct(">ihhihq")
_ONE_PRODUCED_BYTES = _ONE_PRODUCED.size - 4

#: Of a topic's metadata, after its name: error, partitions, those that were written to.
_TOPIC = struct.Struct(">hii")
#: Of each of these: partition, earliest, high watermark, size.
_PARTITION = struct.Struct(">iqqq")
_LEADER = struct.Struct(">iiiii")


class FetchedEntry(NamedTuple):
    """The response to one fetch.

    Attributes:
        error: an `ErrorCode`, or a number that is not known.
        messages: the raw message set, often ending within a message; decoded, a view of the
            response.
    """

    error: int
    messages: Buffer


class WaitingFetchedEntry(NamedTuple):
    """The response to one fetch of a waiting fetch: a `FetchedEntry`, and the high watermark.

    `high_watermark`: up to where the partition was readable; -1 when it does not exist.
    """

    error: int
    high_watermark: int
    messages: Buffer


@dataclass(frozen=True, slots=True)
class ProducedEntry:
    """The outcome of one entry of an acknowledged produce.

    Attributes:
        partition: the one chosen when the request said -1 and it was appended.
        error: an `ErrorCode`, or a number that is not known.
        offset: the offset of the first message; -1 on error.
        reason: what the broker says of the error beside its code; empty if nothing.
    """

    partition: int
    error: int
    offset: int
    reason: str = ""


class AppendRun(NamedTuple):
    """A span of a log that was appended at one time; it starts where the previous run ends.

    Attributes:
        end_offset: the offset after its last byte.
        time_ms: ms since 1970, rounded down as asked for; None when it is not known.
    """

    end_offset: int
    time_ms: int | None


class AppendTimesResponse(NamedTuple):
    """When a range was appended, or its first part.

    Attributes:
        end: the range's end, cut at the high watermark.
        runs: in order, without holes. When the last one ends before `end`, ask again from its end.
    """

    end: int
    runs: list[AppendRun]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition that has been written to; its size includes unflushed bytes."""

    partition: int
    earliest: int
    high_watermark: int
    size_bytes: int


class PartitionLeader(NamedTuple):
    """Of a partition that has, or had, several copies: who leads it, or `NOBODY`.

    `home`: the broker in its name, which never changes.
    """

    partition: int
    home: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic.

    Attributes:
        error: 0, UNKNOWN_TOPIC or INVALID_TOPIC.
        partition_count: how many partitions it has, or would have if it were created now.
        partitions: those that have been written to, by number; one with copies where it is led.
        holds_records: whether its format is Kafka's, whose offsets count messages; those of 0.7's
            count bytes.
        copies: how many brokers have each partition at least; earlier releases say 1.
        leaders: as the broker knows them, wherever they are.
    """

    topic: str
    error: int
    partition_count: int
    partitions: tuple[PartitionMetadata, ...]
    holds_records: bool = False
    copies: int = 1
    leaders: tuple[PartitionLeader, ...] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """Which numbers its partitions have on the broker that describes it.

        A topic of Kafka's format is numbered through over a cluster, and of its numbers a broker
        has those that it describes. One of 0.7's has them all, also before they are written to.
        """
        if self.holds_records and (self.partitions or self.leaders):
            return [each.partition for each in self.partitions]
        return range(self.partition_count)

    @property
    def homes(self) -> dict[int, int]:
        """The brokers in the names of partitions that have copies, by number."""
        return {each.partition: each.home for each in self.leaders}


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """What a broker reports about itself.

    Attributes:
        max_request_bytes: the largest request that it accepts, without the size prefix.
        max_message_bytes: the largest payload that it accepts.
        default_partitions: how many partitions a new topic gets unless configured.
        request_versions: pairs of a request type and the highest version of it.
    """

    broker_id: int
    version: str
    max_request_bytes: int
    max_message_bytes: int
    default_partitions: int
    request_versions: tuple[tuple[int, int], ...]
    topics: tuple[TopicMetadata, ...]


# -- Kafka 0.7 ----------------------------------------------------------------------------------


def fetch_response_header(size: int, error: int = ErrorCode.NONE) -> bytes:
    """Encode what precedes so many bytes of messages: `int32 size | int16 error`."""
    return _FETCH_HEADER.pack(2 + size, error)


def multifetch_response_header(size: int) -> bytes:
    """Encode what precedes so many bytes of responses: `int32 size | int16 0`."""
    return pack(">ih", 2 + size, ErrorCode.NONE)


def encode_offsets_response(offsets: Sequence[int]) -> bytes:
    """Encode `int16 0 | int32 count | count x int64`."""
    count = len(offsets)
    return frame(pack(f">hi{count}q", ErrorCode.NONE, count, *offsets))


def encode_offsets_refusal(error: int) -> bytes:
    """Encode `int16 error | int32 0`; 0.7's clients ignore the error and find no offsets."""
    return frame(pack(">hi", error, 0))


def decode_fetch_response(body: Buffer) -> FetchedEntry:
    """Decode the response to a fetch; its error is that of the entry and is not raised."""
    reader = ByteReader(body)
    return FetchedEntry(read_code(reader), reader.take(reader.remaining))


def decode_multifetch_response(body: Buffer, *, detail: str = "") -> list[FetchedEntry]:
    """Decode the entries, in the order of the fetches."""
    reader = checked_reader(body, detail)
    entries = []
    while reader.remaining:
        entries.append(decode_fetch_response(reader.take(reader.int32())))
    return entries


def decode_offsets_response(body: Buffer, *, detail: str = "") -> list[int]:
    """Decode the offsets, descending."""
    reader = checked_reader(body, detail)
    count = reader.count(reader.int32())
    return [reader.int64() for _ in range(count)]


# -- Hermes' own --------------------------------------------------------------------------------


def encode_error_response(error: int) -> bytes:
    """Encode `int16 error`.

    It responds to the deletion of a topic, and to each request of Hermes' own refused as a whole.
    """
    return frame(pack(">h", error))


def decode_error_response(body: Buffer, *, detail: str = "") -> None:
    checked_reader(body, detail)


def encode_coordination_response(connect: str) -> bytes:
    """Encode `int16 0 | string connect`."""
    return frame(pack(">h", ErrorCode.NONE), encode_string(connect))


def decode_coordination_response(body: Buffer) -> str:
    """Decode where coordination is, as the broker reports it; empty if there is none."""
    return checked_reader(body, "coordination").string()


def encode_acknowledged_produce_response(entries: Sequence[ProducedEntry]) -> bytes:
    """Encode `int16 0 | int16 count | count x (int32 partition | int16 error | int64 offset)`.

    If any entry has a reason, `count x (string reason)` follows.
    """
    parts = [encode_produced_entries(entries)]
    if any(each.reason for each in entries):
        parts.append(encode_reasons(each.reason for each in entries))
    return join_produced_entries(len(entries), parts)


def encode_produced_entries(entries: Iterable[ProducedEntry]) -> bytes:
    encode = _PRODUCED.pack
    return b"".join([encode(each.partition, each.error, each.offset) for each in entries])


def encode_produced_entry(partition: int, error: int, offset: int, reason: str = "") -> bytes:
    """Encode the response to an acknowledged produce of one entry."""
    if reason:
        entry = ProducedEntry(partition, error, offset)
        return join_produced_entries(
            1, (encode_produced_entries((entry,)), encode_reasons((reason,)))
        )
    return _ONE_PRODUCED.pack(_ONE_PRODUCED_BYTES, 0, 1, partition, error, offset)


def encode_reasons(reasons: Iterable[str]) -> bytes:
    """Encode what follows the last entry if any has a reason: that of each, empty for none."""
    return b"".join(map(encode_string, reasons))


def join_produced_entries(count: int, parts: Iterable[bytes]) -> bytes:
    return frame(pack(">hh", ErrorCode.NONE, count), *parts)


def decode_acknowledged_produce_response(body: Buffer, *, detail: str = "") -> list[ProducedEntry]:
    reader = checked_reader(body, detail)
    count = reader.count(reader.int16())
    entries = [
        ProducedEntry(reader.int32(), read_code(reader), reader.int64()) for _ in range(count)
    ]
    if not reader.remaining:  # mostly, and before there were reasons
        return entries
    return [replace(each, reason=reader.string()) for each in entries]


def waiting_fetch_entry_header(error: int, high_watermark: int, size: int) -> bytes:
    """Encode what precedes each entry's messages: `int16 error | int64 watermark | int32 size`."""
    return _WAITING_ENTRY.pack(error, high_watermark, size)


def waiting_fetch_response_header(size: int, count: int) -> bytes:
    """Encode what precedes the entries of a waiting fetch: `int32 size | int16 0 | int16 count`."""
    return pack(">ihh", 4 + size, ErrorCode.NONE, count)


def decode_waiting_fetch_response(body: Buffer, *, detail: str = "") -> list[WaitingFetchedEntry]:
    """Decode the entries, in the order of the fetches."""
    reader = checked_reader(body, detail)
    count = reader.count(reader.int16())
    return [
        WaitingFetchedEntry(read_code(reader), reader.int64(), reader.take(reader.int32()))
        for _ in range(count)
    ]


def encode_metadata_response(metadata: BrokerMetadata) -> bytes:
    parts = [metadata_response_header(metadata, len(metadata.topics))]
    for topic in metadata.topics:
        parts.append(
            encode_topic_metadata(
                topic.topic, topic.error, topic.partition_count, len(topic.partitions)
            )
        )
        parts.append(encode_partitions_metadata(topic.partitions))
    parts.append(encode_copies(each.copies * each.holds_records for each in metadata.topics))
    parts.append(encode_leaders([each.leaders for each in metadata.topics]))
    return frame(*parts)


def metadata_response_header(metadata: BrokerMetadata, topic_count: int) -> bytes:
    """Encode what a broker reports about itself, and how many topics follow; without the size."""
    parts = [
        pack(">hi", ErrorCode.NONE, metadata.broker_id),
        encode_string(metadata.version),
        pack(
            ">iiih",
            metadata.max_request_bytes,
            metadata.max_message_bytes,
            metadata.default_partitions,
            len(metadata.request_versions),
        ),
        *(pack(">hh", *versions) for versions in metadata.request_versions),
        pack(">i", topic_count),
    ]
    return b"".join(parts)


def encode_topic_metadata(topic: str, error: int, partition_count: int, written: int) -> bytes:
    """Encode what precedes a topic's partitions; LocalProtocolError for a name that is too long."""
    return encode_string(topic) + pack(">hii", error, partition_count, written)


def encode_partitions_metadata(partitions: Sequence[PartitionMetadata]) -> bytes:
    return b"".join(
        pack(">iqqq", each.partition, each.earliest, each.high_watermark, each.size_bytes)
        for each in partitions
    )


def encode_copies(copies: Iterable[int]) -> bytes:
    """Encode what follows the last topic: of each in their order the copies; 0 for 0.7's format."""
    return bytes(copies)


def encode_leaders(leaders: Sequence[Sequence[PartitionLeader]]) -> bytes:
    """Encode what comes last, if anything: the leaders that are known of each topic, in order."""
    found = [_LEADER.pack(place, *each) for place, some in enumerate(leaders) for each in some]
    return pack(">i", len(found)) + b"".join(found) if found else b""


def decode_metadata_response(body: Buffer, *, detail: str = "") -> BrokerMetadata:
    reader = checked_reader(body, detail)
    metadata = BrokerMetadata(
        broker_id=reader.int32(),
        version=reader.string(),
        max_request_bytes=reader.int32(),
        max_message_bytes=reader.int32(),
        default_partitions=reader.int32(),
        request_versions=tuple(
            (reader.int16(), reader.int16()) for _ in range(reader.count(reader.int16()))
        ),
        topics=tuple(_topic_metadata(reader) for _ in range(reader.count(reader.int32()))),
    )
    if not reader.remaining:  # so it was before there were formats
        return metadata
    counts = reader.take(len(metadata.topics))
    topics = [
        replace(topic, holds_records=True, copies=copies) if copies else topic
        for topic, copies in zip(metadata.topics, counts, strict=True)
    ]
    if reader.remaining:  # so it was before there were copies
        for place, leaders in _leaders(reader, len(topics)).items():
            topics[place] = replace(topics[place], leaders=tuple(leaders))
    return replace(metadata, topics=tuple(topics))


def encode_boundary_response(error: int, offset: int) -> bytes:
    """Encode `int16 error | int64 offset`, -1 on error."""
    return frame(pack(">hq", error, offset))


def decode_boundary_response(body: Buffer, *, detail: str = "") -> int:
    return checked_reader(body, detail).int64()


def encode_append_times_response(answer: AppendTimesResponse) -> bytes:
    """Encode `int16 0 | int64 end | int32 count | count x (int64 end offset | int64 time ms)`.

    A time that is not known is -1.
    """
    numbers = [
        number
        for end_offset, time_ms in answer.runs
        for number in (end_offset, _UNKNOWN_TIME if time_ms is None else time_ms)
    ]
    struct_format = f">hqi{len(numbers)}q"
    return frame(pack(struct_format, ErrorCode.NONE, answer.end, len(answer.runs), *numbers))


def decode_append_times_response(body: Buffer, *, detail: str = "") -> AppendTimesResponse:
    reader = checked_reader(body, detail)
    end = reader.int64()
    pairs = [(reader.int64(), reader.int64()) for _ in range(reader.count(reader.int32()))]
    return AppendTimesResponse(
        end,
        [AppendRun(end_offset, None if time_ms < 0 else time_ms) for end_offset, time_ms in pairs],
    )


def checked_reader(body: Buffer, detail: str) -> ByteReader:
    """Read the error code that a response begins with, and raise it unless it is 0."""
    reader = ByteReader(body)
    error = reader.int16()
    if error != ErrorCode.NONE:
        raise error_for(error, detail)
    return reader


def read_code(reader: ByteReader) -> int:
    """Read an error code, as an `ErrorCode` where it is known."""
    return _known(reader.int16())


def _known(code: int) -> int:
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else code


def _leaders(reader: ByteReader, topic_count: int) -> dict[int, list[PartitionLeader]]:
    found: dict[int, list[PartitionLeader]] = {}
    for _ in range(reader.count(reader.int32())):
        place, *leader = reader.numbers(_LEADER)
        if not 0 <= place < topic_count:
            raise RemoteProtocolError(f"a leader is of topic {place}, of {topic_count}")
        found.setdefault(place, []).append(PartitionLeader(*leader))
    return found


def _topic_metadata(reader: ByteReader) -> TopicMetadata:
    topic = reader.string()
    error, partition_count, written = reader.numbers(_TOPIC)
    partitions = tuple(
        PartitionMetadata(*reader.numbers(_PARTITION)) for _ in range(reader.count(written))
    )
    return TopicMetadata(topic, _known(error), partition_count, partitions)
