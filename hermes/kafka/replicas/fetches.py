"""The bytes by which copies are made: Kafka's Fetch, in a version for brokers among themselves.

A follower's requests on one connection are one fetch session: each names only the partitions of
which something is new, and is answered with those of which there is something. The leader answers
a request that waits when the next one comes.

    request   int32 wait, min bytes, max bytes | int8 isolation | int32 session, epoch
              | topics: UUID, partitions | forgotten topics: UUID, [int32] | string rack
              | tags, 1: int32 replica, int64 replica epoch (the follower's life)
    partition int32 number, leader epoch | int64 offset | int32 last epoch | int64 log start
              | int32 max bytes | tags, 1: int64 high watermark; 1000: wants sources

    response  int32 throttle | int16 error | int32 session | topics: UUID, partitions | tags
    partition int32 number | int16 error | int64 high watermark, last stable offset, log start
              | aborted transactions | int32 preferred replica | [bytes] records
              | tags, 0: int32 epoch, int64 its end; 1000: as the response about sources' positions

In an answer about histories that part, or that begins later than what was asked for, `log start` is
where the leader's first batch begins. Followers have no use for a last stable offset: in its place
is where the part of the log ends that the batches are of.

Source: Kafka 4's FetchRequest.json and FetchResponse.json, version 18; KIP-227, KIP-1166.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from hermes.errors import BrokerError, RemoteProtocolError
from hermes.kafka.apis import FETCH
from hermes.protocol import (
    PartitionPositions,
    SourcePositionsResponse,
    decode_source_positions_response,
    encode_source_positions_response,
)
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, varint
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.wire import Buffer, encode_string
from hermes.replication.messages import Answer, Diverging, Records, Refused, StartsLater
from hermes.storage import LogSlice, ToldSources

__all__ = ["CLIENT_ID", "VERSION", "Answered", "FollowerRequest", "Place", "Wanted"]

VERSION: Final = 18

#: By which a connection knows these requests: one need not wait until those before it are answered.
CLIENT_ID: Final = "hermes-replica"

_ENCODED_ID: Final = encode_string(CLIENT_ID)

#: A partition: the bytes of its topic's id, and Kafka's number.
Place: TypeAlias = tuple[bytes, int]

_Each = TypeVar("_Each")

_HEAD: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iiqiqi")
_WATERMARK: Final = 1
_WATERMARK_TAG: Final = b"\1\1\x08"
#: Hermes' own tag, which no version of Kafka's has.
_SOURCES: Final = 1000
_SOURCES_TAG: Final = varint(_SOURCES)
_WATERMARK_AND_SOURCES: Final = b"\2\1\x08"
_WANTS_SOURCES: Final = _SOURCES_TAG + b"\0"
_REPLICA_TAG: Final = b"\1\1\x0d"
_REPLICA: Final = Struct(">iq")
_ANSWER_HEAD: Final = Struct(">ihi")
_ANSWER: Final = Struct(">ihqqq")
_NO_ABORTED: Final = b"\0" + b"\xff\xff\xff\xff"
_DIVERGING: Final = Struct(">iq")
_DIVERGING_TAG: Final = b"\1\0\x0d"
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_SIZE: Final = bytes(4)


class Wanted(NamedTuple):
    """What a follower asks of a partition: as `hermes.replication.messages.ReplicaFetch`."""

    place: Place
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    wants_sources: bool = False
    earliest: int = 0


class FollowerRequest(NamedTuple):
    """One request of a session.

    Attributes:
        life: the follower's session with coordination.
        session, session_epoch: 0 and 0 begin a session.
        forgotten: what it doesn't follow any more.
    """

    broker_id: int
    life: int
    session: int
    session_epoch: int
    wait_ms: int
    max_bytes: int
    wanted: Sequence[Wanted]
    forgotten: Sequence[Place] = ()

    def encode(self) -> KafkaRequest:
        head = (self.wait_ms, 1, self.max_bytes, 0, self.session, self.session_epoch)
        parts = [_HEAD.pack(*head)]
        by_topic = _by_topic(self.wanted, lambda each: each.place)
        parts.append(encode_length(len(by_topic), True))
        for topic_id, some in by_topic:
            parts += topic_id, encode_length(len(some), True)
            for (_, number), epoch, offset, last_epoch, high_watermark, wants, earliest in some:
                parts += (
                    _PARTITION.pack(number, epoch, offset, last_epoch, earliest, self.max_bytes),
                    _WATERMARK_AND_SOURCES if wants else _WATERMARK_TAG,
                    _INT64.pack(high_watermark),
                    _WANTS_SOURCES if wants else b"",
                )
            parts.append(b"\0")
        forgotten = _by_topic(self.forgotten, lambda each: each)
        parts.append(encode_length(len(forgotten), True))
        for topic_id, places in forgotten:
            parts += topic_id, encode_length(len(places), True)
            parts += [_INT32.pack(number) for _, number in places]
            parts.append(b"\0")
        parts += b"\1", _REPLICA_TAG, _REPLICA.pack(self.broker_id, _signed(self.life)), b"\0"
        return KafkaRequest(FETCH, VERSION, b"".join(parts), True, _ENCODED_ID)


def decode_request(data: Buffer, body: int) -> FollowerRequest | None:
    """Read a request from where its header's tags begin; None where a consumer asks.

    Raises RemoteProtocolError: it can't be read.
    """
    reader = KafkaReader(data, body, is_flexible=True)
    reader.tags()
    wait_ms, _, max_bytes, _, session, session_epoch = reader.numbers(_HEAD)
    wanted: list[Wanted] = []
    for _ in reader.each():
        topic_id = bytes(reader.take(16))
        for _ in reader.each():
            number, epoch, offset, last_epoch, earliest, _ = reader.numbers(_PARTITION)
            tags = dict(_tags(reader))
            known = tags.get(_WATERMARK)
            high_watermark = -1 if known is None else _unpacked(_INT64, known)[0]
            about = epoch, offset, last_epoch, high_watermark
            wanted.append(Wanted((topic_id, number), *about, _SOURCES in tags, earliest))
        reader.tags()
    forgotten: list[Place] = []
    for _ in reader.each():
        topic_id = bytes(reader.take(16))
        forgotten += [(topic_id, reader.int32()) for _ in reader.each()]
        reader.tags()
    reader.text()
    replica = next((value for tag, value in _tags(reader) if tag == 1), None)
    if replica is None:
        return None
    broker_id, life = _unpacked(_REPLICA, replica[: _REPLICA.size])
    if broker_id < 0:
        return None
    return FollowerRequest(
        broker_id, _unsigned(life), session, session_epoch, wait_ms, max_bytes, wanted, forgotten
    )


class Answered(NamedTuple):
    """What is said of a partition; `data`: the batches that go with `Records`.

    `sources`: of mirrors, where these have what is in the data.
    """

    place: Place
    answer: Answer
    data: LogSlice | memoryview | bytes = b""
    sources: ToldSources | None = None


def encode_answers(
    correlation_id: int, session: int, answered: Iterable[Answered], code: Code = Code.NONE
) -> list[bytes | LogSlice]:
    """Encode a response, its size and its header included; slices are the response's from then on.

    `code`: why nothing of the request was looked at.
    """
    by_topic = _by_topic(answered, lambda each: each.place)
    parts: list[bytes | LogSlice] = []
    begun = [_SIZE, correlation_id.to_bytes(4, signed=True), b"\0"]
    begun += _ANSWER_HEAD.pack(0, code, session), encode_length(len(by_topic), True)
    for topic_id, some in by_topic:
        begun += topic_id, encode_length(len(some), True)
        for (_, number), answer, data, sources in some:
            begun += _ANSWER.pack(number, *_numbers_of(answer)), _NO_ABORTED
            if isinstance(data, LogSlice):
                begun.append(encode_length(data.length, True))
                parts += b"".join(begun), data
                begun = []
            else:
                begun += encode_length(len(data), True), bytes(data)
            begun.append(_tags_of(answer, sources))
        begun.append(b"\0")
    begun.append(b"\0")
    parts.append(b"".join(begun))
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in parts)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = (size - len(_SIZE)).to_bytes(4) + first[len(_SIZE) :]
    return parts


def _by_topic(
    some: Iterable[_Each], place_of: Callable[[_Each], Place]
) -> list[tuple[bytes, list[_Each]]]:
    return [(id_, list(each)) for id_, each in groupby(some, lambda one: place_of(one)[0])]


def _numbers_of(answer: Answer) -> tuple[int, int, int, int]:
    if isinstance(answer, Records):
        return Code.NONE, answer.high_watermark, answer.until, answer.start
    if isinstance(answer, Refused):
        return answer.code, -1, -1, -1
    code = Code.OFFSET_OUT_OF_RANGE if isinstance(answer, StartsLater) else Code.NONE
    return code, -1, -1, answer.start


def _tags_of(answer: Answer, sources: ToldSources | None) -> bytes:
    if isinstance(answer, Diverging):
        return _DIVERGING_TAG + _DIVERGING.pack(answer.epoch, answer.end) + b"\0"
    if sources is None:
        return b"\0"
    told = PartitionPositions(0, 0, 0, sources.positions)
    response = SourcePositionsResponse(sources.until, (told,), sources.spans)
    data = encode_source_positions_response(response)[len(_SIZE) :]
    return b"".join((b"\1", _SOURCES_TAG, varint(len(data)), data))


def _told_by(data: memoryview) -> ToldSources:
    try:
        response = decode_source_positions_response(data)
        (told,) = response.partitions
    except (BrokerError, ValueError):
        raise RemoteProtocolError("a leader tells its follower of no sources") from None
    return ToldSources(told.sources, response.spans, response.next)


def decode_answers(body: Buffer) -> tuple[Code, int, Sequence[Answered]]:
    """Read a response: the error of all of it, the session, and what is said of partitions.

    Raises RemoteProtocolError: it can't be read.
    """
    reader = KafkaReader(body, 0, is_flexible=True)
    _, code, session = reader.numbers(_ANSWER_HEAD)
    answered: list[Answered] = []
    for _ in reader.each():
        topic_id = bytes(reader.take(16))
        for _ in reader.each():
            number, error, high_watermark, until, start = reader.numbers(_ANSWER)
            for _ in range(reader.count(max(reader.length(), 0))):
                raise RemoteProtocolError("a leader tells its follower of aborted transactions")
            reader.int32()
            data = reader.data() or b""
            tags = dict(_tags(reader))
            parted, told = tags.get(0), tags.get(_SOURCES)
            answer: Answer
            if error == Code.OFFSET_OUT_OF_RANGE:
                answer = StartsLater(start)
            elif error:
                answer = Refused(_code(error))
            elif parted is not None:
                parted_epoch, end = _unpacked(_DIVERGING, parted[: _DIVERGING.size])
                answer = Diverging(parted_epoch, end, start)
            else:
                answer = Records(high_watermark, start, until)
            sources = None if told is None else _told_by(told)
            answered.append(Answered((topic_id, number), answer, data, sources))
        reader.tags()
    return _code(code), session, answered


def _tags(reader: KafkaReader) -> Iterator[tuple[int, memoryview]]:
    for _ in range(reader.varint()):
        tag = reader.varint()
        yield tag, reader.take(reader.varint())


def _unpacked(form: Struct, value: memoryview) -> tuple[int, ...]:
    if len(value) != form.size:
        raise RemoteProtocolError("a tag of another size than it has")
    return form.unpack(value)


def _code(number: int) -> Code:
    try:
        return Code(number)
    except ValueError:
        return Code.UNKNOWN_SERVER_ERROR


def _signed(life: int) -> int:
    return life - (1 << 64) if life >> 63 else life


def _unsigned(life: int) -> int:
    return life & ((1 << 64) - 1)
