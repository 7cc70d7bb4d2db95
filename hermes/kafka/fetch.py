"""The life of a Fetch: logs are found, read into slices, and sent by `sendfile` as one response.

A request that finds less than it wants waits (`hermes.partition.waiting`, as 0.7's waiting fetches
do), then it is read again. Fetch sessions, by which later requests name only what has changed, are
refused as Kafka does when it has no room for one: clients then name all partitions each time.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes.cluster.shared import Shared
from hermes.cluster.topics import KafkaTopic
from hermes.errors import HermesError
from hermes.kafka.calls import Call, KafkaSend
from hermes.kafka.epochs import check_epoch
from hermes.kafka.fetch_messages import BY_ID, PARTITION_BYTES, Fetched, response_parts
from hermes.kafka.legacy import LegacyRange, batch_of, range_of
from hermes.kafka.waits import Wait, slice_of
from hermes.protocol import FetchRequest
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.security import Operation
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.storage import Log, LogSlice, NotInMemoryError

#: The largest response, whatever is asked for: Kafka's `fetch.max.bytes`.
MAX_RESPONSE_BYTES: Final = 55 << 20

#: A fetch waits no longer than this: a peer that has gone may only be noticed afterwards.
MAX_WAIT_MS: Final = 5 * 60 * 1000

_READ_COMMITTED: Final = 1

#: Epochs of a session that mean a request for all partitions: the first one, and none.
_FULL: Final = (0, -1)


class _Wanted(NamedTuple):
    """What a request wants of one partition.

    Attributes:
        topic: its name, or its UUID.
        number: the partition, Kafka's number.
        offset: where to begin.
        max_bytes: how much at most.
        epoch: the leader's epoch that the client knows; -1 if it doesn't say.
    """

    topic: str | UUID
    number: int
    offset: int
    max_bytes: int
    epoch: int


async def fetch(request: Any, call: Call) -> KafkaSend:
    """Answer with what there is, as soon as that is enough."""
    version, number = call.version, call.correlation_id
    if getattr(request, "session_epoch", 0) not in _FULL:
        code = Code.FETCH_SESSION_ID_NOT_FOUND
        return KafkaSend(response_parts(version, number, (), code=code))
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
        waited = None if wait is None else call.server.waits.wait(wait)
        del wait
        if waited is not None:
            call.step_aside()
            await waited
        fetched = await _read_all(call, wanted, max_bytes)
    return KafkaSend(response_parts(version, number, fetched, is_committed=is_committed))


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
) -> Wait | None:
    """What to wait for; None where a topic has been deleted, say, since all was read."""
    topics = _topics_of(call, wanted)

    def fetch_of(each: _Wanted) -> FetchRequest | None:
        topic = topics[each.topic]
        if not isinstance(topic, KafkaTopic):
            return None
        log = call.server.topics.log(topic.name, each.number)
        return FetchRequest(log.topic, log.partition, each.offset, each.max_bytes)

    try:
        found = await settled(cooperatively(call.server.shared.scheduler, wanted, fetch_of))
    except HermesError:
        return None
    return Wait([each for each in found if each is not None], min_bytes, wait_ms)


def _wanted(request: Any, version: int) -> list[_Wanted]:
    """What is wanted of each partition, in the request's order.

    One that is named several times is answered once, by what is said of it last, as Kafka does.
    """
    asked: dict[str | UUID, dict[int, Any]] = {}
    for each in request.topics:
        topic = (each.topic_id or UUID(int=0)) if version >= BY_ID else each.topic
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


def _topics_of(call: Call, wanted: Iterable[_Wanted]) -> dict[str | UUID, KafkaTopic | KafkaError]:
    """The topics as they are now; an error for one that isn't there, or not for this client."""
    return {
        topic: _topic_by_id(call, topic) if isinstance(topic, UUID) else _topic(call, topic)
        for topic in {each.topic: None for each in wanted}
    }


def _topic(call: Call, name: str) -> KafkaTopic | KafkaError:
    if not call.permits_topic(Operation.CONSUME, name):
        return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
    return call.server.topics.get(name) or KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)


def _topic_by_id(call: Call, topic_id: UUID) -> KafkaTopic | KafkaError:
    found = call.server.topics.by_id(topic_id)
    if found is None:
        return KafkaError(Code.UNKNOWN_TOPIC_ID)
    return _topic(call, found.name)


# -- reading ------------------------------------------------------------------------------------


async def _read_all(call: Call, wanted: Sequence[_Wanted], max_bytes: int) -> list[Fetched]:
    """Read what is wanted, a quantum at a time, until the response is full.

    What says where batches lie may not be in memory. It is looked at in a thread then, for all
    partitions that lack it, which are read after the others.
    """
    left, is_first = max_bytes, True
    topics = _topics_of(call, wanted)
    cold: list[int] = []
    logs: list[tuple[Log, int, int]] = []

    def read(place: int, resident: bool = True) -> Fetched:
        nonlocal left, is_first
        each = wanted[place]
        topic = topics[each.topic]
        try:
            fetched = _read(call, each, topic, min(each.max_bytes, left), is_first, resident)
        except NotInMemoryError:
            assert isinstance(topic, KafkaTopic)
            cold.append(place)
            log = call.server.topics.log(topic.name, each.number)
            logs.append((log, each.offset, each.max_bytes))
            return Fetched(each.topic, each.number, Code.NONE)
        if size := fetched.size_bytes:
            left, is_first = max(left - size - PARTITION_BYTES, 0), False
        return fetched

    scheduler = call.server.shared.scheduler
    found: list[Fetched] = await settled(
        cooperatively(scheduler, range(len(wanted)), read, Fetched.release)
    )
    if cold:
        try:
            await call.server.look_up(_warm, logs)
            rest = await settled(
                cooperatively(scheduler, cold, lambda place: read(place, False), Fetched.release)
            )
        except BaseException:  # the client has left
            _release_all(found)
            raise
        for place, fetched in zip(cold, rest, strict=True):
            found[place] = fetched
    for place, fetched in enumerate(found):
        if isinstance(fetched.records, LegacyRange):
            found[place] = await _made(call, fetched, fetched.records, found)
    return found


def _warm(logs: list[tuple[Log, int, int]]) -> None:
    """In a thread: have in memory what says where batches lie, of (log, offset, bytes)."""
    for log, offset, max_bytes in logs:
        with suppress(HermesError):  # which the fetch meets, too
            records = slice_of(log, offset, max_bytes, True)
            if records is not None:
                records.release()


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
    topic: KafkaTopic | KafkaError,
    max_bytes: int,
    is_first: bool,
    resident: bool,
) -> Fetched:
    """Read one partition; the first one that has something gives a whole batch at least.

    Raises:
        NotInMemoryError: it is to be `resident`, and something had to be read from a disk.
    """
    shared = call.server.shared
    try:
        if not isinstance(topic, KafkaTopic):
            raise topic.with_traceback(None)  # else it would keep a frame for each partition
        log = call.server.topics.log(topic.name, wanted.number)
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
        counts = shared.metrics.topics.get(log.topic) or shared.metrics.topic(log.topic)
        counts.bytes_out += records.length
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
