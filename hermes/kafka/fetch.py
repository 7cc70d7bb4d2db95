"""The life of a Fetch: logs are found, read into slices, and sent by `sendfile` as one response.

A request that finds less than it wants waits (`hermes.partition.waiting`, as 0.7's waiting fetches
do), then it is read again. Fetch sessions, by which later requests name only what has changed, are
refused as Kafka does when it has no room for one: clients then name all partitions each time.

The response is encoded here, and its records stay where they are:

    response  int32 throttle time | int16 error, int32 session (from v7) | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | int16 error | int64 high watermark | int64 last stable offset
              | int64 log start offset (from v5) | aborted transactions
              | int32 preferred replica (from v11) | [bytes] records

Strings, bytes and arrays as `hermes.protocol.kafka_primitives` has them, flexible from v12.

Source: Kafka 4's FetchResponse.json.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.kafka.dispatching import Call
from hermes.kafka.epochs import check_epoch
from hermes.kafka.legacy import LegacyRange, batch_of, range_of
from hermes.partition.log_reader import LogRead
from hermes.partition.waiting import MAX_WAIT_MS
from hermes.protocol import FetchRequest
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.protocol.kafka_primitives import encode_length, encode_topic
from hermes.security import Operation
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.server.sends import FileSend
from hermes.storage import Log, LogSlice, NotInMemoryError

#: The largest response, whatever is asked for: Kafka's `fetch.max.bytes`.
MAX_RESPONSE_BYTES: Final = 55 << 20

_READ_COMMITTED: Final = 1

#: Epochs of a session that mean a request for all partitions: the first one, and none.
_FULL: Final = (0, -1)

#: What a partition takes in a response beside its records, at most.
_PARTITION_BYTES: Final = 64

# The first versions with compact lengths and tags, and that name topics by their UUIDs.
_FLEXIBLE: Final = 12
_BY_ID: Final = 13

_PARTITION: Final = Struct(">ihqqq")
_OLD_PARTITION: Final = Struct(">ihqq")
_SESSION: Final = Struct(">ihi")
_NO_REPLICA: Final = b"\xff\xff\xff\xff"


class Fetched(NamedTuple):
    """What there is of one partition.

    Attributes:
        high_watermark: up to where it can be read; -1 with an error.
        start_offset: the log's first offset; -1 with an error.
        records: batches: a slice of a segment, bytes, or None for none; or a range of a log of
            0.7, as long as batches are still to be made of it. A slice belongs to the response
            from then on.
    """

    topic: str | UUID
    partition: int
    code: Code
    high_watermark: int = -1
    start_offset: int = -1
    records: LogSlice | LegacyRange | bytes | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes of records there are."""
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def release(self) -> None:
        if not isinstance(self.records, bytes | None):
            self.records.release()


class _Wanted(NamedTuple):
    """What a request wants of one partition, by Kafka's number.

    `epoch` is the leader's that the client knows; -1 if it doesn't say.
    """

    topic: str | UUID
    number: int
    offset: int
    max_bytes: int
    epoch: int


@dataclass(slots=True)
class _Wait:
    """What a fetch waits for, as `WaitingFetches` wants it; partitions by the logs' own numbers."""

    fetches: list[FetchRequest]
    min_bytes: int
    max_wait_ms: int

    def encode(self) -> bytes:
        """Nothing: the request is kept anyway, as it was decoded."""
        return b""


async def fetch(request: Any, call: Call) -> FileSend:
    version, number = call.version, call.correlation_id
    if getattr(request, "session_epoch", 0) not in _FULL:
        code = Code.FETCH_SESSION_ID_NOT_FOUND
        return FileSend(response_parts(version, number, (), code=code))
    wanted, min_bytes = _wanted(request, version), request.min_bytes
    max_bytes = min(max(request.max_bytes, 0), MAX_RESPONSE_BYTES)
    wait_ms = min(round(request.max_wait.total_seconds() * 1000), MAX_WAIT_MS)
    is_committed = request.isolation_level == _READ_COMMITTED
    del request  # what waits keeps no more than is counted
    fetched = await _read_all(call, wanted, max_bytes)
    if wait_ms > 0 and not _is_enough(fetched, min_bytes):
        _release_all(fetched)
        del fetched
        wait = await _wait_of(call, wanted, min_bytes, wait_ms)
        waited = None
        if wait is not None:
            shared = call.server.shared
            waited = shared.waiting.wait(wait, partial(_count, shared), lambda data: None)
        del wait
        if waited is not None:
            call.step_aside()
            await waited
        fetched = await _read_all(call, wanted, max_bytes)
    return FileSend(response_parts(version, number, fetched, is_committed=is_committed))


def _is_enough(fetched: list[Fetched], min_bytes: int) -> bool:
    """Whether a response can leave: there is enough, or an error, or nothing was asked for."""
    if not fetched or any(each.code for each in fetched):
        return True
    return sum(each.size_bytes for each in fetched) >= min_bytes


def _release_all(fetched: list[Fetched]) -> None:
    for each in fetched:
        each.release()


async def _wait_of(
    call: Call, wanted: Sequence[_Wanted], min_bytes: int, wait_ms: int
) -> _Wait | None:
    """What to wait for; None where a topic has been deleted, say, since all was read."""
    topics = _topics_of(call, wanted)

    def fetch_of(each: _Wanted) -> FetchRequest | None:
        topic = topics[each.topic]
        if not isinstance(topic, ClusterTopic):
            return None
        log = call.server.topics.log(topic.name, each.number)
        return FetchRequest(log.topic, log.partition, each.offset, each.max_bytes)

    try:
        found = await settled(cooperatively(call.server.shared.scheduler, wanted, fetch_of))
    except HermesError:
        return None
    return _Wait([each for each in found if each is not None], min_bytes, wait_ms)


def _wanted(request: Any, version: int) -> list[_Wanted]:
    """What is wanted of each partition, in the request's order.

    One that is named several times is answered once, by what is said of it last, as Kafka does.
    """
    asked: dict[str | UUID, dict[int, Any]] = {}
    for each in request.topics:
        topic = (each.topic_id or UUID(int=0)) if version >= _BY_ID else each.topic
        asked.setdefault(topic, {}).update({part.partition: part for part in each.partitions})
    return [
        _Wanted(
            topic,
            number,
            part.fetch_offset,
            max(part.partition_max_bytes, 0),
            getattr(part, "current_leader_epoch", -1),
        )
        for topic, parts in asked.items()
        for number, part in parts.items()
    ]


def _topics_of(
    call: Call, wanted: Iterable[_Wanted]
) -> dict[str | UUID, ClusterTopic | KafkaError]:
    """The topics as they are now; an error for one that isn't there, or not for this client."""
    return {
        topic: _topic_by_id(call, topic) if isinstance(topic, UUID) else _topic(call, topic)
        for topic in {each.topic: None for each in wanted}
    }


def _topic(call: Call, name: str) -> ClusterTopic | KafkaError:
    if not call.permits_topic(Operation.CONSUME, name):
        return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
    return call.server.topics.get(name) or KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)


def _topic_by_id(call: Call, topic_id: UUID) -> ClusterTopic | KafkaError:
    found = call.server.topics.by_id(topic_id)
    if found is None:
        return KafkaError(Code.UNKNOWN_TOPIC_ID)
    return _topic(call, found.name)


# -- reading ------------------------------------------------------------------------------------


async def _read_all(call: Call, wanted: Sequence[_Wanted], max_bytes: int) -> list[Fetched]:
    left, is_first = max_bytes, True
    topics = _topics_of(call, wanted)

    def read(place: int, resident: bool) -> Fetched:
        nonlocal left, is_first
        each = wanted[place]
        fetched = _read(
            call, each, topics[each.topic], min(each.max_bytes, left), is_first, resident
        )
        if size := fetched.size_bytes:
            left, is_first = max(left - size - _PARTITION_BYTES, 0), False
        return fetched

    def cold(place: int) -> LogRead:
        each = wanted[place]
        topic = topics[each.topic]
        assert isinstance(topic, ClusterTopic)
        log = call.server.topics.log(topic.name, each.number)
        return LogRead(log, each.offset, each.max_bytes, True)

    found: list[Fetched] = await settled(
        call.server.shared.reader.read_all(len(wanted), read, cold)
    )
    for place, fetched in enumerate(found):
        if isinstance(fetched.records, LegacyRange):
            found[place] = await _made(call, fetched, fetched.records, found)
    return found


async def _made(
    call: Call, fetched: Fetched, wanted: LegacyRange, others: list[Fetched]
) -> Fetched:
    """Make batches of what a log of 0.7 holds: one client's at a time, and when there is room."""
    shared = call.server.shared
    limit, make = shared.config.max_expanded_bytes, shared.large_responses.make
    try:
        batch: bytes = await make(shared.in_thread, batch_of, wanted, limit)
    except HermesError as error:
        number = fetched.partition
        return Fetched(fetched.topic, number, refusal_of(shared, fetched.topic, number, error))
    except BaseException:  # the client has left
        _release_all(others)
        raise
    return fetched._replace(records=batch)


def _read(
    call: Call,
    wanted: _Wanted,
    topic: ClusterTopic | KafkaError,
    max_bytes: int,
    is_first: bool,
    resident: bool,
) -> Fetched:
    """Read one partition; the first one that has something returns at least one batch.

    Raises NotInMemoryError if it is to be `resident`, and something had to be read from a disk.
    """
    shared = call.server.shared
    try:
        if not isinstance(topic, ClusterTopic):
            raise topic.with_traceback(None)  # else it would keep a frame for each partition
        partition = call.server.topics.partition(topic.name, wanted.number)
        log = partition.log
        check_epoch(log, wanted.epoch)
        records: LogSlice | LegacyRange | None
        if log.counts_messages:
            records = slice_of(log, wanted.offset, max_bytes, is_first, resident=resident)
        else:
            records = range_of(log, wanted.offset, max_bytes) if max_bytes or is_first else None
    except HermesError as error:
        shared.metrics.fetches += 1
        return Fetched(
            wanted.topic, wanted.number, refusal_of(shared, wanted.topic, wanted.number, error)
        )
    shared.metrics.fetches += 1
    if records is not None:
        partition.counts.bytes_out += records.length
    return Fetched(
        wanted.topic, wanted.number, Code.NONE, log.high_watermark, log.earliest, records
    )


def refusal_of(shared: Shared, topic: str | UUID, number: int, error: HermesError) -> Code:
    """Kafka's code for what can't be read; what is our fault is logged as well."""
    code = code_of(error)
    shared.metrics.refuse("kafka_fetch", code.name.lower())
    if code in (Code.KAFKA_STORAGE_ERROR, Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE):
        shared.lines.error(
            "fetch",
            "could not read {topic}-{partition}: {error}",
            topic=str(topic),
            partition=number,
            error=error,
        )
    return code


def slice_of(
    log: Log, offset: int, max_bytes: int, is_first: bool, *, resident: bool = False
) -> LogSlice | None:
    """Batches from the one on that holds an offset; None for none. Raises as `Log.read` does."""
    # What is appended and not flushed yet isn't there, but no error either.
    if log.high_watermark <= offset <= log.end_offset:
        return None
    if not (max_bytes or is_first):
        return None
    records = log.read(offset, max_bytes, whole_first=is_first, resident=resident)
    if records.length:
        return records
    records.release()
    return None


def _count(shared: Shared, fetch: FetchRequest) -> int | None:
    """How many bytes there are for a fetch now; None when it is answered at once."""
    log = shared.directory.get(fetch.topic, fetch.partition)
    if log is None:
        return None
    try:
        return _available(log, fetch.offset, fetch.max_size)
    except (HermesError, NotInMemoryError):  # which a thread looks at when it is read again
        return None


def _available(log: Log, offset: int, max_bytes: int) -> int:
    if not log.counts_messages:
        wanted = range_of(log, offset, max_bytes)
        return 0 if wanted is None else wanted.length
    found = slice_of(log, offset, max_bytes, True, resident=True)
    if found is None:
        return 0
    with found:
        return found.length


# -- bytes --------------------------------------------------------------------------------------


def response_parts(
    version: int,
    correlation_id: int,
    fetched: Sequence[Fetched],
    *,
    is_committed: bool = False,
    code: Code = Code.NONE,
) -> list[bytes | LogSlice]:
    """Encode a response, its size and its header included.

    Args:
        fetched: in the order of the request.
        is_committed: whether only what transactions have committed was asked for.
        code: the error of the response as a whole.
    """
    head = bytearray(bytes(4) + correlation_id.to_bytes(4, signed=True))
    if version >= _FLEXIBLE:
        head += b"\0"
    head += _SESSION.pack(0, code, 0) if version >= 7 else bytes(4)
    parts = list(_topics(version, head, fetched, is_committed))
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in parts) - 4
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = size.to_bytes(4) + first[4:]
    return parts


def _topics(
    version: int, begun: bytearray, fetched: Iterable[Fetched], is_committed: bool
) -> Iterator[bytes | LogSlice]:
    """The parts, of which the first begins with what is there already."""
    is_flexible = version >= _FLEXIBLE
    tags = b"\0" if is_flexible else b""
    # No transaction was ever aborted: an empty array, or null where that isn't asked for.
    aborted = encode_length(0 if is_committed else -1, is_flexible)
    between = aborted + (_NO_REPLICA if version >= 11 else b"")
    topics = [(topic, list(found)) for topic, found in groupby(fetched, attrgetter("topic"))]
    begun += encode_length(len(topics), is_flexible)
    for topic, found in topics:
        begun += encode_topic(topic, is_flexible) + encode_length(len(found), is_flexible)
        for _, number, code, end, start, records in found:
            if version >= 5:
                begun += _PARTITION.pack(number, code, end, end, start)
            else:
                begun += _OLD_PARTITION.pack(number, code, end, end)
            begun += between
            if records is None:
                begun += encode_length(0, is_flexible)
            elif isinstance(records, bytes):
                begun += encode_length(len(records), is_flexible) + records
            else:
                assert isinstance(records, LogSlice)
                yield bytes(begun + encode_length(records.length, is_flexible))
                yield records
                begun = bytearray()
            begun += tags
        begun += tags
    yield bytes(begun + tags)
