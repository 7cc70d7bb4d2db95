"""The bytes of Produce: its records are not copied, and of many claims few are believed.

    request   [string transactional id] | int16 acks | int32 timeout | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | [bytes] records

    response  topics | int32 throttle time
    partition int32 number | int16 error | int64 base offset | int64 append time
              | int64 log start offset (from v5)
              | errors of records, [string] what was wrong (from v8)
    error     int32 number in the batch | [string] what was wrong

Strings, bytes and arrays as `primitives` has them, flexible from v9.

Source: Kafka 4's ProduceRequest.json and ProduceResponse.json.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from hermes.errors import RemoteProtocolError
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text, encode_topic
from hermes.protocol.wire import Buffer

#: The first version with compact lengths and tags.
FLEXIBLE: Final = 9

#: The first version that names topics by their UUIDs.
BY_ID: Final = 13

#: A request for more partitions than this is refused: each takes memory until it is answered.
MAX_PARTITIONS: Final = 20_000

#: A response names no more messages than this that were refused; their batches are all named.
MAX_RECORD_ERRORS: Final = 1000

_HEADER: Final = Struct(">hi")
_PARTITION: Final = Struct(">ihqq")
_INT64: Final = Struct(">q")
_COUNT: Final = Struct(">i")


class TooManyPartitionsError(RemoteProtocolError):
    """A request is for more partitions than it may be for."""


class ProducedRecords(NamedTuple):
    """What a request has for one partition.

    Attributes:
        topic: its name; its UUID in later versions.
        partition: Kafka's number.
        records: the batches, a view of the request; None where there are none.
    """

    topic: str | UUID
    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A request, its topics flattened.

    Attributes:
        transactional_id: of a transaction; else None.
        acks: 0, 1, or -1 for all.
        timeout_ms: how long its flush may take.
        entries: what there is for each partition.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    entries: list[ProducedRecords]


class Produced(NamedTuple):
    """What became of the records for one partition.

    Attributes:
        topic, partition: as in the request.
        code: Kafka's error.
        base_offset: the first message's; -1 with an error.
        append_time_ms: the timestamp that all messages got; -1 when they keep theirs.
        start_offset: the log's first offset; -1 with an error.
        message: what was wrong.
        records: the messages that are why, by their numbers in the batch.
    """

    topic: str | UUID
    partition: int
    code: Code
    base_offset: int = -1
    append_time_ms: int = -1
    start_offset: int = -1
    message: str | None = None
    records: tuple[int, ...] = ()


def decode_produce(
    data: Buffer, position: int, version: int, most: int = MAX_PARTITIONS
) -> ProduceRequest:
    """Decode a request.

    Args:
        data: its frame.
        position: where the header's tags are, or the body.
        version: one of those in `apis`.
        most: the partitions that it may be for.

    Raises:
        TooManyPartitionsError: it is for more.
        RemoteProtocolError: it can't be read.
    """
    reader = KafkaReader(data, position, version >= FLEXIBLE)
    reader.tags()
    transactional_id = reader.text()
    acks, timeout_ms = reader.numbers(_HEADER)
    entries: list[ProducedRecords] = []
    for _ in reader.each():
        topic = reader.uuid() if version >= BY_ID else reader.text()
        if topic is None:
            raise RemoteProtocolError("a Produce request has a topic without a name")
        for _ in reader.each():
            entries.append(ProducedRecords(topic, reader.int32(), reader.data()))
            reader.tags()
            if len(entries) > most:
                raise TooManyPartitionsError(
                    f"a Produce request is for more than {most} partitions"
                )
        reader.tags()
    reader.tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, entries)


def encode_produced(version: int, correlation_id: int, produced: Sequence[Produced]) -> bytes:
    """Encode a response, its size and its header included.

    Args:
        version: the request's.
        correlation_id: the request's.
        produced: in the order of the request.
    """
    is_flexible = version >= FLEXIBLE
    tags = b"\0" if is_flexible else b""
    by_topic = groupby(_listed(produced), lambda each: each.topic)
    topics = [(topic, list(found)) for topic, found in by_topic]
    parts = [correlation_id.to_bytes(4, signed=True), tags, encode_length(len(topics), is_flexible)]
    for topic, found in topics:
        parts += (encode_topic(topic, is_flexible), encode_length(len(found), is_flexible))
        parts += _partitions(found, version, tags)
        parts.append(tags)
    parts.append(bytes(4) + tags)
    body = b"".join(parts)
    return len(body).to_bytes(4) + body


def _listed(produced: Iterable[Produced]) -> Iterable[Produced]:
    room = MAX_RECORD_ERRORS
    for each in produced:
        if each.records:
            each = each._replace(records=each.records[:room])
            room -= len(each.records)
        yield each


def _partitions(produced: Iterable[Produced], version: int, tags: bytes) -> Iterable[bytes]:
    is_flexible = version >= FLEXIBLE
    nothing = encode_text(None, is_flexible)
    for each in produced:
        yield _PARTITION.pack(each.partition, each.code, each.base_offset, each.append_time_ms)
        if version >= 5:
            yield _INT64.pack(each.start_offset)
        if version >= 8:
            yield encode_length(len(each.records), is_flexible)
            for number in each.records:  # what is wrong of it is what the batch is refused for
                yield _COUNT.pack(number) + nothing + tags
            yield encode_text(each.message, is_flexible)
            yield tags
