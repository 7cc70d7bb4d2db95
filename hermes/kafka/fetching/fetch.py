"""The life of a Fetch: logs are found, read into slices, and sent by `sendfile` as one response.

A request that finds less than it wants waits (`hermes.partition.waiting`, as 0.7's waiting fetches
do), then it is read again. Nearly all are plain and for one partition: `plain_fetches` has them,
but for what goes wrong or isn't in memory. Those of sessions, which name only what has changed, are
a kind of their own (`session_fetch`).
"""

from collections.abc import Coroutine, Sequence
from types import CoroutineType
from typing import Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.shared import Shared
from hermes.errors import HermesError, OffsetOutOfRangeError
from hermes.kafka.apis import READ_COMMITTED
from hermes.kafka.current_leader import current_leader, endpoints
from hermes.kafka.dispatching import Call
from hermes.kafka.epochs import FIRST_EPOCH, check_epoch
from hermes.kafka.fetch_sessions import Wanted
from hermes.kafka.fetching.fetch_messages import Asked, Fetched, response_parts
from hermes.kafka.legacy import LegacyRange, batch_of, range_of
from hermes.partition.log_reader import LogRead
from hermes.partition.waiting import MAX_WAIT_MS, CountingWaiter
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.security import Operation
from hermes.server.fairness import QUANTUM_ENTRIES, cooperatively
from hermes.server.outcomes import DeferredResponse, settled
from hermes.server.sends import FileSend
from hermes.storage import Log, LogSlice, NotInMemoryError
from hermes.storage.aborted_index import AbortedTransaction
from hermes.storage.segment import LogView

#: The largest response, whatever is asked for: Kafka's `fetch.max.bytes`.
MAX_RESPONSE_BYTES: Final = 55 << 20

# Looking a member of an enumeration up takes as long as finding out what it may do.
_CONSUME: Final = Operation.CONSUME

# The first version that says where a leader listens.
_ENDPOINTS: Final = 16
_NO_TAGS: Final = b"\0"

#: What a partition takes in a response beside its records, at most.
_PARTITION_BYTES: Final = 64


class _Place(NamedTuple):
    """What is waited for of a partition, by the log's own number."""

    topic: str
    partition: int
    offset: int
    max_size: int


#: A response, or what is awaited for it.
Answer: TypeAlias = bytes | FileSend | DeferredResponse | Coroutine[Any, Any, bytes | FileSend]


def answer_whole(call: Call, asked: Asked, *, is_any: bool = False) -> Answer:
    """Answer a request that names all that it wants."""
    wanted = asked[6]
    if len(wanted) > 1:
        wanted = _once_each(wanted)
    return Fetch(call, asked, wanted, is_any).answer()


def _once_each(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Answer a partition that is named several times once, by what is said of it last, as Kafka."""
    asked: dict[str | bytes, dict[int, Wanted]] = {}
    for each in wanted:
        asked.setdefault(each.topic, {})[each.number] = each
    return [each for parts in asked.values() for each in parts.values()]


class Fetch(CountingWaiter):
    """One request: it is read, perhaps waits and is read again, and is answered.

    While it waits, it is its response as well; only then its base is initialized.
    """

    __slots__ = (
        "_call",
        "_find",
        "_is_committed",
        "_is_first",
        "_is_made",
        "_is_old",
        "_left",
        "_max_bytes",
        "_min_bytes",
        "_revision",
        "_shared",
        "_topics",
        "_wait_ms",
        "_wanted",
    )

    # The topics as of a revision; a code for one that isn't there, or not for this client.
    _topics: dict[str | bytes, ClusterTopic | Code]
    _revision: int

    def __init__(
        self, call: Call, asked: Asked, wanted: Sequence[Wanted], is_any: bool = False
    ) -> None:
        topics = call.server.topics
        self._find = topics.any_copy if is_any else topics.partition
        self._call = call
        self._shared = call.server.shared
        self._wanted = wanted
        self._wait_ms, self._min_bytes, max_bytes, level = asked[:4]
        self._max_bytes = min(max(max_bytes, 0), MAX_RESPONSE_BYTES)
        self._is_committed = level == READ_COMMITTED
        self._is_old = False  # whether what was found may be more by now

    def answer(self) -> Answer:
        found = self.read_all()
        return self.judged(found) if isinstance(found, list) else self.judged_later(found)

    async def judged_later(self, reading: Coroutine[Any, Any, list[Fetched]]) -> Any:
        found = await reading
        self._is_old = True
        return await _response_of(self.judged(found))

    def judged(self, found: list[Fetched]) -> Answer:
        """Respond with what there is, or wait for more."""
        is_over = self._wait_ms <= 0 or self._shared.waiting.is_stopping
        if is_over or self._is_enough(found):
            return self._response(found)
        return self._hold(found)

    def _is_enough(self, found: list[Fetched]) -> bool:
        """Whether a response can leave: there is enough, or an error, or nothing was asked for."""
        size_bytes = 0
        for each in found:
            if each.code:
                return True
            if each.records is not None:
                size_bytes += each.size_bytes
        return size_bytes >= self._min_bytes or not found

    def _response(self, found: list[Fetched], session: int = 0) -> bytes | FileSend:
        call = self._call
        for each in found:
            if each.records is not None and each.source is not None:
                each.source.counts.bytes_out += each.size_bytes
        end = _NO_TAGS
        if call.version >= _ENDPOINTS and any(each.code for each in found):
            leaders = (each.leader for each in found)
            end = endpoints(call.server.topics, call.client.listener, leaders)
        parts = response_parts(
            call.version,
            call.correlation_id,
            found,
            is_committed=self._is_committed,
            session=session,
            end=end,
        )
        only = parts[0]
        return only if len(parts) == 1 and isinstance(only, bytes) else FileSend(parts)

    # -- waiting --------------------------------------------------------------------------------

    def _hold(self, found: list[Fetched]) -> Answer:
        if len(found) > QUANTUM_ENTRIES:
            return self._wait_for_many(found)
        return self._wait(list(map(_place_of, self._wanted, found)), found)

    def _respond_now(self) -> Answer:
        again = self.read_all()
        return self._response(again) if isinstance(again, list) else self._response_later(again)

    def _wait(self, places: Sequence[_Place | None], found: list[Fetched]) -> Answer:
        if None in places:
            return self._respond_now()
        super().__init__(self._min_bytes, len(places))
        self._call.step_aside()
        available = [each.size_bytes for each in found]
        wait_ms = min(self._wait_ms, MAX_WAIT_MS)
        self._shared.waiting.hold(
            self, cast(Sequence[_Place], places), available, wait_ms, is_old=self._is_old
        )
        return self

    async def _wait_for_many(self, found: list[Fetched]) -> Any:
        pairs = list(zip(self._wanted, found, strict=True))
        places = cooperatively(self._shared.scheduler, pairs, lambda pair: _place_of(*pair))
        try:
            answer = self._wait(await settled(places), found)
        except BaseException:  # the client has left
            _release_all(found)
            raise
        del places, pairs, found  # what waits for long keeps no more of it than it needs
        return await _response_of(answer)

    def count(self, topic: str, partition: int, offset: int, max_size: int) -> int | None:
        log = self._shared.directory.get(topic, partition)
        if log is None:
            return None
        try:
            leadership = None if log.is_sole_copy else self._shared.partitions.of(log).leadership
            if leadership is not None:
                leadership.check()
            return _available(log, offset, max_size, self._is_committed)
        except (HermesError, NotInMemoryError):  # which a thread looks at when it is read again
            return None

    def ready(self) -> None:
        try:
            found = self.read_all()
            if isinstance(found, list):
                self.resolve(self._response(found))
            else:
                self.follow(Deferred.fromCoroutine(self._response_later(found)))
        except Exception:
            self.fail(Failure())  # type: ignore[no-untyped-call]

    async def _response_later(
        self, reading: Coroutine[Any, Any, list[Fetched]]
    ) -> bytes | FileSend:
        return self._response(await reading)

    # -- reading --------------------------------------------------------------------------------

    def read_all(self) -> list[Fetched] | Coroutine[Any, Any, list[Fetched]]:
        """Read each partition, for a response of no more than its largest size."""
        self._topics, self._revision = {}, -1
        self._left, self._is_first, self._is_made = self._max_bytes, True, True
        found = self._shared.reader.read_all(len(self._wanted), self._read, self._cold)
        return found if isinstance(found, list) and self._is_made else self._made(found)

    async def _made(self, reading: "list[Fetched] | Deferred[list[Fetched]]") -> list[Fetched]:
        """Make batches of what logs of 0.7 hold, as long as the response has room for one more.

        What is compressed may expand to many times what was read.
        """
        found: list[Fetched] = await settled(reading)
        left, is_first = self._max_bytes, True
        for place, fetched in enumerate(found):
            if isinstance(fetched.records, LegacyRange):
                if left > 0 or is_first:
                    fetched = await self._batch(fetched, fetched.records, found)
                else:
                    fetched = fetched.emptied()
                found[place] = fetched
            if fetched.size_bytes:
                left, is_first = left - fetched.size_bytes - _PARTITION_BYTES, False
        return found

    async def _batch(self, fetched: Fetched, wanted: LegacyRange, others: list[Fetched]) -> Fetched:
        """Make a batch: one client's at a time, and when there is room."""
        shared = self._shared
        limit, make = shared.config.max_expanded_bytes, shared.large_responses.make
        try:
            batch: bytes = await make(self._call.server.expand, batch_of, wanted, limit)
        except HermesError as error:
            number = fetched.partition
            return Fetched(fetched.topic, number, refusal_of(shared, fetched.topic, number, error))
        except BaseException:  # the client has left
            _release_all(others)
            raise
        return fetched._replace(records=batch)

    def _cold(self, place: int) -> LogRead:
        topic, number, offset, max_bytes, _ = self._wanted[place]
        found = self._topics[topic]
        assert isinstance(found, ClusterTopic)
        log = self._find(found.name, number).log
        return LogRead(log, offset, max_bytes, True, self._is_committed)

    def _read(self, place: int, resident: bool) -> Fetched:
        """Read one partition; the first one that has something returns at least one batch.

        Raises NotInMemoryError if it is to be `resident`, and something had to be read from a disk.
        """
        topic, number, offset, max_bytes, epoch = self._wanted[place]
        shared, max_bytes = self._shared, min(max_bytes, self._left)
        shared.metrics.fetches += 1
        revision = self._call.server.topics.revision
        if revision != self._revision:  # it takes turns, and waits for threads
            self._topics, self._revision = {}, revision
        try:
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = self._topic(topic)
            if not isinstance(found, ClusterTopic):
                raise KafkaError(found)
            partition = self._find(found.name, number)
            log = partition.log
            if epoch > FIRST_EPOCH or partition.leadership is not None:
                check_epoch(partition, epoch)
            records: LogSlice | LegacyRange | bytes | None = None
            aborted: Sequence[AbortedTransaction] | None = () if self._is_committed else None
            if log.counts_messages:
                is_committed = self._is_committed
                found_bytes, view = batches_of(
                    log, offset, max_bytes, self._is_first, resident, is_committed
                )
                records = found_bytes or None
                if is_committed and found_bytes and offset <= log.sidecar.aborted.newest:
                    aborted = _aborted_in(log, found_bytes, offset, resident)
            else:
                view = log.view
                if max_bytes or self._is_first:
                    records = range_of(log, offset, max_bytes)
                    self._is_made &= records is None
        except HermesError as error:
            code = refusal_of(shared, topic, number, error)
            leader = current_leader(self._call.server.topics, topic, number, code)
            return Fetched(topic, number, code, leader=leader)
        if records is not None:
            length = len(records) if isinstance(records, bytes) else records.length
            self._left, self._is_first = max(self._left - length - _PARTITION_BYTES, 0), False
        bases, _, _, mark, stable_end = view
        start = bases[0] if bases else 0
        some = mark, start, records, partition, None, stable_end, aborted
        return Fetched(topic, number, Code.NONE, *some)

    def _topic(self, asked: str | bytes) -> ClusterTopic | Code:
        topics = self._call.server.topics
        if isinstance(asked, bytes):
            found = topics.asked(asked)
            if found is None:
                return Code.UNKNOWN_TOPIC_ID
            asked = found.name
        call = self._call
        if self._shared.refusals.is_on and not call.permits_topic(_CONSUME, asked):
            return Code.TOPIC_AUTHORIZATION_FAILED
        return topics.get(asked) or Code.UNKNOWN_TOPIC_OR_PARTITION


async def _response_of(answer: Answer) -> Any:
    if isinstance(answer, DeferredResponse):
        return await answer.to_deferred()
    return await answer if isinstance(answer, CoroutineType) else answer


def _place_of(wanted: Wanted, fetched: Fetched) -> _Place | None:
    """What to wait for; None where the topic has been deleted since it was read.

    What was read of it is of no use any more.
    """
    fetched.release()
    assert fetched.source is not None  # where there is an error nothing is waited for
    log = fetched.source.log
    if log.is_closed:
        return None
    return _Place(log.topic, log.partition, wanted.offset, wanted.max_bytes)


def _release_all(fetched: list[Fetched]) -> None:
    for each in fetched:
        each.release()


def refusal_of(shared: Shared, topic: str | bytes, number: int, error: HermesError) -> Code:
    """Kafka's code for what can't be read; what is our fault is logged as well."""
    code = code_of(error)
    shared.metrics.refuse("kafka_fetch", code.name.lower())
    if code in (Code.KAFKA_STORAGE_ERROR, Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE):
        shared.lines.error(
            "fetch",
            "could not read {topic}-{partition}: {error}",
            topic=topic if isinstance(topic, str) else str(UUID(bytes=topic)),
            partition=number,
            error=error,
        )
    return code


def batches_of(
    log: Log, offset: int, max_bytes: int, is_first: bool, resident: bool, is_committed: bool
) -> tuple[LogSlice | bytes, LogView]:
    """Batches from the one on that holds an offset, and where. Raises as `Log.fetch` does."""
    try:
        return log.fetch(offset, max_bytes, is_first, resident, is_committed)
    except OffsetOutOfRangeError:
        # What is appended and not flushed yet isn't there, but no error either.
        if not log.earliest <= offset <= log.end_offset:
            raise
        return b"", log.view


def _aborted_in(
    log: Log, found: LogSlice | bytes, offset: int, resident: bool
) -> Sequence[AbortedTransaction]:
    try:
        return log.transactions.aborted_in(found, offset, resident)
    except BaseException:
        if isinstance(found, LogSlice):
            found.release()
        raise


def _available(log: Log, offset: int, max_bytes: int, is_committed: bool) -> int:
    if not log.counts_messages:
        wanted = range_of(log, offset, max_bytes)
        return 0 if wanted is None else wanted.length
    found, _ = batches_of(log, offset, max_bytes, True, True, is_committed)
    if isinstance(found, bytes):
        return len(found)
    with found:
        return found.length
