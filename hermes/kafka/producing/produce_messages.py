"""The bytes of a Produce, and what a request has for each partition.

They are read and written by hand, for speed, and records are not copied:

    request   [string transactional id] | int16 acks | int32 timeout | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | [bytes] records

    response  topics | int32 throttle time
    partition int32 number | int16 error | int64 base offset | int64 append time
              | int64 log start offset (from v5)
              | errors of records, [string] what was wrong (from v8)
    error     int32 number in the batch | [string] what was wrong

Strings, bytes and arrays as `hermes.protocol.kafka_primitives` has them, flexible from v9.

Source: Kafka 4's ProduceRequest.json and ProduceResponse.json.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.errors import HermesError, RemoteProtocolError
from hermes.kafka.current_leader import CurrentLeader
from hermes.kafka.frames import Frame, PlainProduce
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text, encode_topic
from hermes.protocol.record_batches import BatchHeader, BatchRules
from hermes.storage import Log
from hermes.storage.producer_states import ProducerState

#: A request for more partitions than this is refused: each takes memory until it is answered.
MAX_PARTITIONS: Final = 20_000

# The first versions in which lengths are compact and tags follow, in which who leads is said, and
# in which topics are named by their UUIDs.
_FLEXIBLE: Final = 9
_LEADERS: Final = 10
_BY_ID: Final = 13

# Looked up for each entry, which takes long of enumerations.
_FINE: Final = Code.NONE

#: By which a partition's answer says who leads it.
_LEADER_TAG: Final = 0

_HEADER: Final = Struct(">hi")
_PARTITION: Final = Struct(">ihqq")
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_START: Final = Struct(">ii")
_RESULT: Final = Struct(">hqqq")
# What follows these numbers where nothing is wrong: no reasons, in flexible versions tags, and the
# throttle time.
_NO_REASONS: Final = bytes(4) + b"\xff\xff"
_FLEXIBLE_END: Final = b"\1\0" + bytes(2) + bytes(4) + b"\0"
_FLEXIBLE_BYTES: Final = 4 + 1 + _RESULT.size + len(_FLEXIBLE_END)


class TooManyPartitionsError(RemoteProtocolError):
    """A request is for more partitions than it may be for."""


class Entry:
    """What a request has for one partition, and what becomes of it.

    Attributes:
        topic: its name; its UUID in later versions.
        partition: Kafka's number.
        records: its batch, a view of the request; None where there is none.
        found: the topic; None until then, or where there is none that the client may produce to.
        rules: what that takes.
        headers: the batch's header, checked; empty until then, or where something is wrong.
        message_set: what is appended instead, to a topic of 0.7, and how many messages it has.
        error: what is wrong, until it is noted.
        log: what it was appended to; None where it wasn't.
        opening: which of the log's openings that was in.
        end_offset: the high watermark that covers it.
        code: Kafka's error.
        base_offset: the first message's; -1 with an error.
        append_time_ms: the timestamp that all messages got; -1 when they keep theirs.
        start_offset: the log's first offset; -1 with an error.
        message: what was wrong.
        refused: the messages that are why, by their numbers in the batch.
        current_leader: who is to be asked instead.
        until: what is waited for before the producer hears of the error; it fires with False where
            another broker is to be asked instead.
        has_growing_epoch: whether its producer has a new epoch for each transaction.
        has_joined: whether the partition is part of its producer's transaction.
        producer: what the log knew of its producer when that was found out.
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "code",
        "current_leader",
        "end_offset",
        "error",
        "found",
        "has_growing_epoch",
        "has_joined",
        "headers",
        "log",
        "message",
        "message_set",
        "opening",
        "partition",
        "producer",
        "records",
        "refused",
        "rules",
        "start_offset",
        "topic",
        "until",
    )

    def __init__(self, topic: str | UUID, partition: int, records: memoryview | None) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.found: ClusterTopic | None = None
        self.rules: BatchRules | None = None
        self.headers: Sequence[BatchHeader] = ()
        self.message_set: tuple[bytes, int] | None = None
        self.error: HermesError | None = None
        self.log: Log | None = None
        self.opening = self.end_offset = 0
        self.code = _FINE
        self.base_offset = self.append_time_ms = self.start_offset = -1
        self.message: str | None = None
        self.refused: Sequence[int] = ()
        self.current_leader: CurrentLeader | None = None
        self.until: Callable[[], Deferred[bool]] | None = None
        self.has_growing_epoch = self.has_joined = False
        self.producer: ProducerState | None = None


class ProduceRequest(NamedTuple):
    """A request, its topics flattened.

    Attributes:
        transactional_id: of a transaction; else None.
        acks: 0, 1, or -1 for all.
        timeout_ms: how long its flush may take.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    entries: list[Entry]


def decode_produce(frame: Frame, most: int = MAX_PARTITIONS) -> ProduceRequest:
    """Decode a request, of which `most` says for how many partitions it may be.

    Raises:
        TooManyPartitionsError: it is for more.
        RemoteProtocolError: it can't be read.
    """
    version = frame.version
    reader = KafkaReader(frame.data, frame.body, version >= _FLEXIBLE)
    reader.tags()
    transactional_id = reader.text()
    acks, timeout_ms = reader.numbers(_HEADER)
    entries: list[Entry] = []
    for _ in reader.each():
        topic = reader.uuid() if version >= _BY_ID else reader.text()
        if topic is None:
            raise RemoteProtocolError("a Produce request has a topic without a name")
        for _ in reader.each():
            entries.append(Entry(topic, reader.int32(), reader.data()))
            reader.tags()
            if len(entries) > most:
                raise TooManyPartitionsError(
                    f"a Produce request is for more than {most} partitions"
                )
        reader.tags()
    reader.tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, entries)


def encode_produced(
    version: int, correlation_id: int, entries: Sequence[Entry], end: bytes = b"\0"
) -> bytes:
    """Encode a response, its size and its header included; its entries in the request's order.

    `end`: the response's tags, in versions that say where leaders listen.
    """
    is_flexible = version >= _FLEXIBLE
    tags = b"\0" if is_flexible else b""
    by_topic = groupby(entries, attrgetter("topic"))
    topics = [(topic, list(found)) for topic, found in by_topic]
    parts = [correlation_id.to_bytes(4, signed=True), tags, encode_length(len(topics), is_flexible)]
    for topic, found in topics:
        parts += (encode_topic(topic, is_flexible), encode_length(len(found), is_flexible))
        for each in found:
            place = each.base_offset, each.append_time_ms
            parts.append(_PARTITION.pack(each.partition, each.code, *place))
            if version >= 5:
                parts.append(_INT64.pack(each.start_offset))
            if version >= 8:
                parts += _reasons(each, is_flexible)
            leader = each.current_leader if version >= _LEADERS else None
            parts.append(tags if leader is None else leader.as_tags(_LEADER_TAG))
        parts.append(tags)
    parts.append(bytes(4) + (end if version >= _LEADERS else tags))
    body = b"".join(parts)
    return len(body).to_bytes(4) + body


def encode_plain(
    plain: PlainProduce, code: int, base_offset: int, append_time_ms: int, start_offset: int
) -> bytes:
    """The same for a plain request, where no message says what is wrong."""
    version, correlation_id, place = plain[1], plain[2], plain[7]
    result = _RESULT.pack(code, base_offset, append_time_ms, start_offset)
    if version >= _FLEXIBLE:
        size_bytes = _FLEXIBLE_BYTES + len(place)
        return _START.pack(size_bytes, correlation_id) + b"\0" + place + result + _FLEXIBLE_END
    if version >= 8:
        body = place + result + _NO_REASONS + bytes(4)
    else:
        body = place + result[: None if version >= 5 else -8] + bytes(4)
    return _START.pack(4 + len(body), correlation_id) + body


def _reasons(entry: Entry, is_flexible: bool) -> list[bytes]:
    parts = [encode_length(len(entry.refused), is_flexible)]
    if entry.refused:  # what is wrong of each is what the batch is refused for
        after = encode_text(None, is_flexible) + (b"\0" if is_flexible else b"")
        parts += [_INT32.pack(number) + after for number in entry.refused]
    parts.append(encode_text(entry.message, is_flexible))
    return parts
