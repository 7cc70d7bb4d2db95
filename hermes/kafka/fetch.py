"""The life of a Fetch: logs are found, read into slices, and sent by `sendfile` as one response.

A request that finds less than it wants waits (`hermes.partition.waiting`, as 0.7's waiting fetches
do), then it is read again. Nearly all are plain and for one partition: `Fetches` carries them out,
but for what goes wrong or isn't in memory. Those of sessions, which name only what has changed, are
a kind of their own (`hermes.kafka.session_fetch`).

The response is encoded here, and its records stay where they are:

    response  int32 throttle time | int16 error, int32 session (from v7) | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | int16 error | int64 high watermark | int64 last stable offset
              | int64 log start offset (from v5) | aborted transactions
              | int32 preferred replica (from v11) | [bytes] records

Strings, bytes and arrays as `hermes.protocol.kafka_primitives` has them, flexible from v12.

The module is long because plain requests, decoded ones and their bytes must say the same.

Source: Kafka 4's FetchResponse.json.
"""

from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from struct import Struct
from types import CoroutineType
from typing import Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.shared import Shared
from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import HermesError, OffsetOutOfRangeError
from hermes.kafka.apis import APIS, FETCH, READ_COMMITTED
from hermes.kafka.current_leader import CurrentLeader, current_leader, endpoints
from hermes.kafka.dispatching import Call, Frame, KafkaServer, PlainFetch
from hermes.kafka.epochs import FIRST_EPOCH, check_epoch
from hermes.kafka.fetch_sessions import Wanted
from hermes.kafka.legacy import LegacyRange, batch_of, range_of
from hermes.partition.log_reader import LogRead
from hermes.partition.partition import Partition
from hermes.partition.waiting import MAX_WAIT_MS, CountingWaiter, Waiter
from hermes.protocol import core
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.protocol.kafka_primitives import encode_length, encode_topic
from hermes.security import Operation
from hermes.server.clients import Client
from hermes.server.fairness import QUANTUM_ENTRIES, cooperatively
from hermes.server.outcomes import DeferredResponse, settled
from hermes.server.sends import FileSend
from hermes.storage import Log, LogSlice, NotInMemoryError
from hermes.storage.aborted_index import AbortedTransaction
from hermes.storage.segment import LogView

#: The largest response, whatever is asked for: Kafka's `fetch.max.bytes`.
MAX_RESPONSE_BYTES: Final = 55 << 20

#: The session's epoch where none is wanted.
NO_SESSION: Final = -1

# Looking a member of an enumeration up takes as long as finding out what it may do.
_CONSUME: Final = Operation.CONSUME

#: What a partition takes in a response beside its records, at most.
_PARTITION_BYTES: Final = 64

# The first versions with compact lengths and tags, and that name topics by their UUIDs.
_FLEXIBLE: Final = 12
BY_ID: Final = 13

# The first version that says where a leader listens, and the tag that says which one leads.
_ENDPOINTS: Final = 16
_LEADER_TAG: Final = 1
_NO_TAGS: Final = b"\0"
_NO_ID: Final = UUID(int=0)

_PARTITION: Final = Struct(">ihqqq")
_OLD_PARTITION: Final = Struct(">ihqq")
_ABORTED: Final = Struct(">qq")
_SESSION: Final = Struct(">ihi")
_NO_REPLICA: Final = b"\xff\xff\xff\xff"
_NO_SIZE: Final = bytes(4)


def _form(version: int, is_committed: bool) -> tuple[bool, bytes, bytes]:
    """Whether lengths are compact, the tags that there are none of, and what is before records."""
    is_flexible = version >= _FLEXIBLE
    # Nothing that was aborted is in it: an empty array, or null where that isn't asked for.
    aborted = encode_length(0 if is_committed else -1, is_flexible)
    return is_flexible, b"\0" * is_flexible, aborted + _NO_REPLICA * (version >= 11)


_FORMS: Final = {
    (version, is_committed): _form(version, is_committed)
    for version in range(APIS[FETCH].lowest, APIS[FETCH].highest + 1)
    for is_committed in (False, True)
}


class Fetched(NamedTuple):
    """What there is of one partition; with an error -1 and None.

    `topic` is its name, or the bytes of its id. `records` are batches, or a range of a log of 0.7,
    of which they are yet to be made; a slice belongs to the response from then on. `leader` is who
    is to be asked instead; `aborted` are transactions in the records, None where what isn't
    committed is wanted, too.
    """

    topic: str | bytes
    partition: int
    code: Code
    high_watermark: int = -1
    start_offset: int = -1
    records: LogSlice | LegacyRange | bytes | None = None
    source: Partition | None = None
    leader: CurrentLeader | None = None
    stable_end: int = -1
    aborted: Sequence[AbortedTransaction] | None = None

    @property
    def end(self) -> int:
        """Up to where there is something to read."""
        return self.high_watermark if self.aborted is None else self.stable_end

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def release(self) -> None:
        if not isinstance(self.records, bytes | None):
            self.records.release()


class _Place(NamedTuple):
    """What is waited for of a partition, by the log's own number."""

    topic: str
    partition: int
    offset: int
    max_size: int


#: A response, or what is awaited for it.
Answer: TypeAlias = bytes | FileSend | DeferredResponse | Coroutine[Any, Any, bytes | FileSend]


#: Reads a request's body; None where that is left to its schema.
read_plain: Final = partial(core.plain_fetch, Wanted)


#: What a request says: what `read_plain` finds.
Asked: TypeAlias = tuple[
    int, int, int, int, int, int, Sequence[Wanted], Sequence[tuple[str | bytes, int]]
]


def answer_whole(call: Call, asked: Asked, *, is_any: bool = False) -> Answer:
    """Answer a request that names all that it wants."""
    wanted = asked[6]
    if len(wanted) > 1:
        wanted = _once_each(wanted)
    return Fetch(call, asked, wanted, is_any).answer()


def fields_of(request: Any, version: int) -> Asked:
    """What a request says that the schema has read."""

    def topic_of(each: Any) -> str | bytes:
        topic: str | bytes = each.topic if version < BY_ID else (each.topic_id or _NO_ID).bytes
        return topic

    wanted = [
        Wanted(
            topic_of(each),
            part.partition,
            part.fetch_offset,
            max(part.partition_max_bytes, 0),
            getattr(part, "current_leader_epoch", -1),
        )
        for each in request.topics
        for part in each.partitions
    ]
    forgotten = [
        (topic_of(each), number)
        for each in getattr(request, "forgotten_topics_data", ())
        for number in each.partitions
    ]
    return (
        round(request.max_wait.total_seconds() * 1000),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", NO_SESSION),
        wanted,
        forgotten,
    )


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
        "_left",
        "_max_bytes",
        "_min_bytes",
        "_shared",
        "_topics",
        "_wait_ms",
        "_wanted",
    )

    # The topics as they are now; an error for one that isn't there, or not for this client.
    _topics: dict[str | bytes, ClusterTopic | KafkaError]

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

    def answer(self) -> Answer:
        found = self.read_all()
        return self.judged(found) if isinstance(found, list) else self.judged_later(found)

    async def judged_later(self, reading: Coroutine[Any, Any, list[Fetched]]) -> Any:
        return await _response_of(self.judged(await reading))

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
        self._shared.waiting.hold(
            self, cast(Sequence[_Place], places), available, min(self._wait_ms, MAX_WAIT_MS)
        )
        return self

    async def _wait_for_many(self, found: list[Fetched]) -> Any:
        pairs = list(zip(self._wanted, found, strict=True))
        places = cooperatively(self._shared.scheduler, pairs, lambda pair: _place_of(*pair))
        answer = self._wait(await settled(places), found)
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
        self._topics = {}
        self._left, self._is_first, self._is_made = self._max_bytes, True, True
        found = self._shared.reader.read_all(len(self._wanted), self._read, self._cold)
        return found if isinstance(found, list) and self._is_made else self._made(found)

    async def _made(self, reading: "list[Fetched] | Deferred[list[Fetched]]") -> list[Fetched]:
        """Make batches of what logs of 0.7 hold."""
        found: list[Fetched] = await settled(reading)
        for place, fetched in enumerate(found):
            if isinstance(fetched.records, LegacyRange):
                found[place] = await self._batch(fetched, fetched.records, found)
        return found

    async def _batch(self, fetched: Fetched, wanted: LegacyRange, others: list[Fetched]) -> Fetched:
        """Make a batch: one client's at a time, and when there is room."""
        shared = self._shared
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
        try:
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = self._topic(topic)
            if not isinstance(found, ClusterTopic):
                raise found.with_traceback(None)  # else it would keep a frame for each partition
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
            partition.counts.bytes_out += length
            self._left, self._is_first = max(self._left - length - _PARTITION_BYTES, 0), False
        bases, _, _, mark, stable_end = view
        start = bases[0] if bases else 0
        some = mark, start, records, partition, None, stable_end, aborted
        return Fetched(topic, number, Code.NONE, *some)

    def _topic(self, asked: str | bytes) -> ClusterTopic | KafkaError:
        topics = self._call.server.topics
        if isinstance(asked, bytes):
            found = topics.by_id_bytes(asked)
            if found is None:
                return KafkaError(Code.UNKNOWN_TOPIC_ID)
            asked = found.name
        call = self._call
        if self._shared.refusals.is_on and not call.permits_topic(_CONSUME, asked):
            return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        return topics.get(asked) or KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)


class Fetches:
    """Carries out plain requests, which are for one partition. Lives in the reactor's thread."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self.topics = server.topics
        self._refusals = server.shared.refusals
        self._metrics = server.shared.metrics
        self.waiting = server.shared.waiting
        # By how a request names them: by names, and by ids.
        self._known: tuple[dict[bytes, Partition], dict[bytes, Partition]] = {}, {}
        self.revision = -1  # of the topics, when those were found
        self._settings_changed()
        server.shared.settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        self.refuses = self._refusals.is_on

    def carry_out(self, plain: PlainFetch, client: Client) -> Any:
        """Respond, or wait for more; NotImplemented where it is to be decoded: see `look`."""
        found = self.look(plain, client)
        if found is None:
            return NotImplemented
        records, _, partition = found
        length = len(records) if isinstance(records, bytes) else records.length
        if length >= plain.min_bytes or plain.wait_ms <= 0 or self.waiting.is_stopping:
            return self.response(plain, found)
        self._metrics.fetches += 1
        waiter = _SingleFetch(cancellable=True)
        waiter.fetches, waiter.plain, waiter.client = self, plain, client
        waiter.found = found
        if length:
            waiter.let_go(records)
        self.waiting.hold_one(waiter, partition.key, min(plain.wait_ms, MAX_WAIT_MS))
        return waiter

    def look(self, plain: PlainFetch, client: Client) -> "_Found | None":
        """Read what there is; None where there is more to be done, or something wrong."""
        _, version, _, _, _, max_bytes, level, _, _, offset, size, epoch, place = plain
        partition = self._known[version >= BY_ID].get(place)
        if partition is None or self.revision != self.topics.revision:
            partition = self._look_up(plain)
            if partition is None:
                return None
        log = partition.log
        if self.refuses and not self._refusals.permits_topic(client, _CONSUME, log.topic):
            return None
        if size > max_bytes:
            size = max(max_bytes, 0)
        try:
            if partition.leadership is not None:
                partition.leadership.check()
                check_epoch(partition, epoch)
            elif epoch > FIRST_EPOCH:
                check_epoch(partition, epoch)
            if size > MAX_RESPONSE_BYTES:
                size = MAX_RESPONSE_BYTES
            if level != READ_COMMITTED:
                records, view = log.fetch(offset, size, True, True)
                return records, view, partition
            records, view = log.fetch(offset, size, True, True, True)
            if records and offset <= log.sidecar.aborted.newest:
                # Of what was aborted a thread reads.
                if isinstance(records, LogSlice):
                    records.release()
                return None
        except (HermesError, NotInMemoryError):
            return None
        return records, view, partition

    def _look_up(self, plain: PlainFetch) -> Partition | None:
        topics = self.topics
        if self.revision != topics.revision:
            self._known = {}, {}
            self.revision = topics.revision
        asked = plain.topic
        found = topics.asked(asked)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        try:
            partition = topics.partition(found.name, plain.number)
        except HermesError:
            return None
        if partition.log.is_closed:  # deleted: its topic is about to change
            return None
        self._known[plain.version >= BY_ID][plain.place] = partition
        return partition

    def response(self, plain: PlainFetch, found: "_Found") -> bytes | FileSend:
        """As `response_parts` makes it."""
        records, view, partition = found
        self._metrics.fetches += 1
        few = records if isinstance(records, bytes) else None
        length = records.length if isinstance(records, LogSlice) else len(records)
        partition.counts.bytes_out += length
        version = plain.version
        head = core.single_fetched(
            version,
            plain.correlation_id,
            plain.level,
            plain.place,
            view.high_watermark,
            view.stable_end,
            view.bases[0],
            length,
            few,
        )
        if few is not None:
            return head
        return FileSend((head, records, _FORMS[version, False][1] * 3))

    def read_decoded(self, plain: PlainFetch, client: Client) -> Any:
        """Respond as to a request that was decoded, with whatever there is."""
        _, version, correlation_id, _, _, max_bytes, level, asked, number, *about, _ = plain
        frame = Frame(b"")
        frame.version, frame.correlation_id, frame.client_id = version, correlation_id, ""
        wanted = [Wanted(asked, number, *about)]
        call = Call(APIS[FETCH], frame, client, self._server)
        return answer_whole(call, (0, 0, max_bytes, level, 0, NO_SESSION, wanted, ()))


#: What was read for a plain request.
_Found: TypeAlias = tuple[LogSlice | bytes, LogView, Partition]


class _SingleFetch(Waiter):
    """A plain request that waits, and its response."""

    __slots__ = ("client", "fetches", "found", "plain")

    client: Client
    fetches: Fetches
    found: "_Found | None"  # that there is nothing, until there is a change; None: to be read
    plain: PlainFetch

    def changed(self, key: int, topic: str, partition: int) -> None:
        found = self.found = self.fetches.look(self.plain, self.client)
        if found is None:
            self.waiting.wake(self)
            return
        records = found[0]
        length = len(records) if isinstance(records, bytes) else records.length
        if length >= self.plain.min_bytes:
            self.waiting.drop(self)
            self.resolve(self.fetches.response(self.plain, found))
        elif length:
            self.let_go(records)

    def let_go(self, records: LogSlice | bytes) -> None:
        self.found = None
        if isinstance(records, LogSlice):
            records.release()

    def ready(self) -> None:
        fetches, found = self.fetches, self.found
        if found is None or fetches.refuses or fetches.revision != fetches.topics.revision:
            found = fetches.look(self.plain, self.client)
        if found is not None:
            self.resolve(fetches.response(self.plain, found))
            return
        try:
            answer = fetches.read_decoded(self.plain, self.client)
            if isinstance(answer, bytes | FileSend):
                self.resolve(answer)
            else:
                self.follow(Deferred.fromCoroutine(answer))
        except Exception:
            self.fail(Failure())  # type: ignore[no-untyped-call]


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


# -- bytes --------------------------------------------------------------------------------------


def _encode_aborted(version: int, aborted: Sequence[AbortedTransaction]) -> bytes:
    """The array of what was aborted, and what is between it and the records."""
    is_flexible, tags, _ = _FORMS[version, True]
    each = b"".join(_ABORTED.pack(one.producer_id, one.first_offset) + tags for one in aborted)
    return encode_length(len(aborted), is_flexible) + each + _NO_REPLICA * (version >= 11)


def response_parts(
    version: int,
    correlation_id: int,
    fetched: Sequence[Fetched],
    *,
    is_committed: bool = False,
    session: int = 0,
    code: Code = Code.NONE,
    end: bytes = b"\0",
) -> list[bytes | LogSlice]:
    """Encode a response, its size and its header included.

    Args:
        fetched: in the order of the request.
        is_committed: whether only what transactions have committed was asked for.
        session: to which it belongs.
        code: the error of the response as a whole.
        end: the response's tags, in flexible versions.
    """
    is_flexible, tags, between = _FORMS[version, is_committed]
    if len(fetched) == 1:
        topics = [(fetched[0].topic, fetched)]
    else:
        topics = [(topic, list(found)) for topic, found in groupby(fetched, attrgetter("topic"))]
    about = _SESSION.pack(0, code, session) if version >= 7 else bytes(4)
    number = correlation_id.to_bytes(4, signed=True)
    parts: list[bytes | LogSlice] = []
    begun = [_NO_SIZE, number, tags, about, encode_length(len(topics), is_flexible)]
    for topic, found in topics:
        begun += encode_topic(topic, is_flexible), encode_length(len(found), is_flexible)
        for _, partition, error, mark, start, records, _, leader, stable, aborted in found:
            if version >= 5:
                begun.append(_PARTITION.pack(partition, error, mark, stable, start))
            else:
                begun.append(_OLD_PARTITION.pack(partition, error, mark, stable))
            begun.append(_encode_aborted(version, aborted) if aborted else between)
            if isinstance(records, LogSlice):
                begun.append(encode_length(records.length, is_flexible))
                parts += b"".join(begun), records
                begun = [tags]
            elif records:
                assert isinstance(records, bytes)
                begun += encode_length(len(records), is_flexible), records, tags
            else:
                begun.append(encode_length(0, is_flexible))
                begun.append(leader.as_tags(_LEADER_TAG) if leader and is_flexible else tags)
        begun.append(tags)
    begun.append(end if is_flexible else tags)
    if not parts:
        begun[0] = (sum(map(len, begun)) - len(_NO_SIZE)).to_bytes(4)
        return [b"".join(begun)]
    parts.append(b"".join(begun))
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in parts)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = (size - len(_NO_SIZE)).to_bytes(4) + first[len(_NO_SIZE) :]
    return parts
