"""The life of a Produce: its batches are checked, appended, and answered.

    acks=0     nothing is answered; what can't be appended closes the connection, as in Kafka
    acks=1     answered when it is appended
    acks=all   answered when it is flushed

Batches are checked (`hermes.protocol.record_batches`), and appended as they are but for their
headers. Nothing here runs once per message.

What was appended and could not be flushed may be stored or not: that is for the log's re-opening to
find out. It is answered with the error that says so, and is to be sent again. A log that knows it
then says where it is.

The bytes are read and written by hand, for speed, and records are not copied:

    request   [string transactional id] | int16 acks | int32 timeout | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | [bytes] records

    response  topics | int32 throttle time
    partition int32 number | int16 error | int64 base offset | int64 append time
              | int64 log start offset (from v5)
              | errors of records, [string] what was wrong (from v8)
    error     int32 number in the batch | [string] what was wrong

Strings, bytes and arrays as `hermes.protocol.kafka_primitives` has them, flexible from v9.

The module is long because plain requests, decoded ones and their bytes must say the same.

Source: Kafka 4's ProduceRequest.json and ProduceResponse.json.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import (
    HermesError,
    InvalidBatchError,
    InvalidTransactionStateError,
    ProducerStateError,
    RemoteProtocolError,
    UnknownTopicError,
)
from hermes.kafka.current_leader import CurrentLeader, current_leader, endpoints
from hermes.kafka.dispatching import Call, Frame, KafkaServer, PlainProduce
from hermes.kafka.legacy import message_set_of
from hermes.partition.acknowledgements import FlushedResponse, Safety
from hermes.partition.awaited_batches import AWAITED_COPY_SECONDS, AWAITED_SECONDS
from hermes.partition.batch_appends import AppendedBatches
from hermes.partition.leadership import Leadership
from hermes.partition.partition import Partition, batch_rules
from hermes.protocol.kafka_errors import MAY_BE_STORED, Code, KafkaError, code_of
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text, encode_topic
from hermes.protocol.record_batches import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    BatchRules,
    check_batches,
    decode_header,
    expands,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.wire import Buffer
from hermes.quoting import quoted
from hermes.security import Operation, Resource
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import CloseConnection, settled
from hermes.storage import Log
from hermes.storage.producer_states import ProducerState
from hermes.transactions.deciding import Producer as TransactionalProducer
from hermes.transactions.state import STATE_TOPIC, Place
from hermes.v0_7.record_produces import INLINE_BATCH_BYTES

#: A request for more partitions than this is refused: each takes memory until it is answered.
MAX_PARTITIONS: Final = 20_000

#: A response names no more messages than this that were refused; their batches are all named.
MAX_RECORD_ERRORS: Final = 1000

#: A request for more partitions is decoded, and its response encoded, in a thread: some ms of work.
_AT_ONCE: Final = 1000

#: Batches of more bytes are checked in a thread; single ones are far smaller.
_THREAD_BYTES: Final = 4 * INLINE_BATCH_BYTES

# The first versions in which batches may be compressed by zstd, lengths are compact and tags
# follow, who leads is said, a transaction may be said to be of no use any more, partitions become
# part of it by the produce itself, and topics are named by their UUIDs.
_ZSTD: Final = 7
_FLEXIBLE: Final = 9
_LEADERS: Final = 10
_KNOWS_ABORTABLE: Final = 11
_JOINS: Final = 12
_BY_ID: Final = 13

#: What clients send again after.
_SENT_AGAIN: Final = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.NOT_ENOUGH_REPLICAS,
        Code.UNKNOWN_TOPIC_ID,
        Code.CONCURRENT_TRANSACTIONS,
        MAY_BE_STORED,
    }
)

_NO_COORDINATOR: Final = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
)

_DISK_FAILED: Final = (Code.KAFKA_STORAGE_ERROR, MAY_BE_STORED, Code.UNKNOWN_SERVER_ERROR)

_NONE, _ALL = 0, -1

# Looked up for each request, which takes long of enumerations.
_FINE: Final = Code.NONE
_FLUSHED: Final = Safety.FLUSHED
_CODES: Final = {
    Safety.UNKNOWN: MAY_BE_STORED,
    Safety.ENDED: Code.NOT_LEADER_OR_FOLLOWER,
    Safety.LATE: Code.REQUEST_TIMED_OUT,
}

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
        doubted: who is to be heard before the producer is told that it is out of step.
        has_joined: whether the partition is part of its producer's transaction.
        producer: what the log knew of its producer when that was found out.
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "code",
        "current_leader",
        "doubted",
        "end_offset",
        "error",
        "found",
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
        self.doubted: Leadership | None = None
        self.has_joined = False
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


async def produce(_: None, call: Call) -> bytes | None:
    """Append what a request has for each partition, in its order."""
    began = call.server.shared.scheduler.now()
    try:
        request = decode_produce(call.frame, most=_AT_ONCE)
    except TooManyPartitionsError:
        return await _large(call, began)
    return await _Run(call, request).answer(began)


async def _large(call: Call, began: float) -> bytes | None:
    """Append what a request for very many partitions has, when it is its turn."""
    # Decoded and answered, it takes many times what it came as, also while it waits for its flush.
    # Then it keeps only its like from having their turn: others need no disk.
    size_bytes = len(call.frame.data)
    await call.server.large_produces.enter(size_bytes)
    try:
        call.admitted_bytes = await call.server.admission.enter(size_bytes)
        request = await call.server.in_thread(decode_produce, call.frame)
        return await _Run(call, request).answer(began)
    finally:
        call.step_aside()
        call.server.large_produces.leave(size_bytes)


#: A topic, what it takes, and its partitions by Kafka's numbers.
_Known: TypeAlias = tuple[ClusterTopic, BatchRules, dict[int, Partition]]


class Produces:
    """What becomes of each entry of a request; and the requests that are plain, which have but one.

    Lives in the reactor's thread.
    """

    def __init__(self, server: KafkaServer) -> None:
        self._shared = server.shared
        self._topics = server.topics
        self._awaited = server.awaited
        self._refusals = server.shared.refusals
        self._acknowledgements = server.shared.acknowledgements
        self._now = server.shared.scheduler.now
        self._known: dict[str | bytes, _Known] = {}
        self._revision = -1  # of the topics, when those were found
        self._settings_changed()
        server.shared.settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        self._refuses = self._refusals.is_on
        self._known.clear()

    # -- plain ones -----------------------------------------------------------------------------

    def carry_out(self, plain: PlainProduce, data: Buffer, client: Client) -> Any:
        """Append what a plain request has; the response, None where there is none.

        NotImplemented: it has to be decoded, since there is more to be done, or something wrong.
        """
        _, version, correlation_id, acks, timeout_ms, asked, number, _, start, header = plain
        known = self._known.get(asked)
        if known is None or self._revision != self._topics.revision:
            known = self._look_up(asked)
            if known is None:
                return NotImplemented
        found, rules, partitions = known
        size_bytes = header.size_bytes
        if (
            size_bytes > rules.max_batch_bytes
            or self._awaited.batches
            or (
                self._refuses
                and not self._refusals.permits_topic(client, Operation.PRODUCE, found.name)
            )
        ):
            return NotImplemented
        records = memoryview(data)[start : start + size_bytes]
        began = self._now() if acks == _ALL else 0.0
        log = None
        try:
            partition = partitions.get(number)
            if partition is None or partition.log.state.is_closed:
                partition = partitions[number] = self._topics.partition(found.name, number)
            log = partition.log
            if acks == _ALL and partition.leadership is not None:
                partition.leadership.check_enough()
            done = partition.append_batches((header,), records, rules, acks == _ALL, True)
        except HermesError as refusal:
            if isinstance(refusal, ProducerStateError) and found.state(number) is not None:
                return NotImplemented  # followers are to be heard
            entry = Entry(asked if isinstance(asked, str) else found.id, number, records)
            entry.headers = (header,)
            self._refuse(entry, refusal, log)
            if acks == _NONE:
                _close_if_refused((entry,))  # which raises
            end = endpoints(self._topics, client.listener, (entry.current_leader,))
            return encode_produced(version, correlation_id, (entry,), end)
        if acks == _NONE:
            return None
        if acks != _ALL:
            return _encode_plain(plain, _FINE, done[0], done[1], log.state.view.bases[0])
        response = _PlainFlush(log, done.end_offset)
        response.plain, response.produces, response.taken = plain, self, began
        response.base_offset, response.append_time_ms = done[0], done[1]
        response.start_offset = log.state.view.bases[0]
        self._acknowledgements.wait(response, timeout_ms / 1000 if timeout_ms > 0 else 0)
        return response

    def flushed(self, began: float) -> None:
        """What was taken then is flushed, or its time is up."""
        self._shared.metrics.acknowledged.observe(self._now() - began)

    def _look_up(self, asked: str | bytes) -> "_Known | None":
        """Find a topic, by its name or id, that takes batches which nobody needs to read."""
        topics = self._topics
        if self._revision != topics.revision:
            self._known.clear()
            self._revision = topics.revision
        found = topics.asked(asked)
        if found is None or found.format != FORMAT_KAFKA or found.name == STATE_TOPIC:
            return None
        rules = batch_rules(self._shared.config, found.name)
        if rules.needs_keys:
            return None
        known = self._known[asked] = found, rules, {}
        return known

    # -- one entry ------------------------------------------------------------------------------

    def topic(self, asked: str | UUID, call: Call) -> ClusterTopic | HermesError:
        """The topic that a client asks for, or what is wrong."""
        topics = self._topics
        if isinstance(asked, str):
            if not call.permits_topic(Operation.PRODUCE, asked):
                return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
            if asked == STATE_TOPIC:
                return KafkaError(Code.INVALID_TOPIC_EXCEPTION, "the topic is the brokers' own")
            return topics.get(asked) or UnknownTopicError(f"there is no topic {quoted(asked)}")
        found = topics.by_id(asked)
        if found is None:
            return KafkaError(Code.UNKNOWN_TOPIC_ID)
        if not call.permits_topic(Operation.PRODUCE, found.name):
            return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        if found.name == STATE_TOPIC:
            return KafkaError(Code.INVALID_TOPIC_EXCEPTION, "the topic is the brokers' own")
        return found

    def append(self, entry: Entry, needs_all: bool) -> None:
        """Append what there is for one partition, or note why not.

        `needs_all`: whether the client waits for all in-sync replicas.
        """
        error, entry.error = entry.error, None
        if error is not None:  # not raised: it would keep frames, and there may be thousands
            self._refuse(entry, error)
            return
        assert entry.found is not None
        log = partition = None
        try:
            partition = self._topics.partition(entry.found.name, entry.partition)
            log = partition.log
            if needs_all and partition.leadership is not None:
                partition.leadership.check_enough()
            if entry.message_set is None:
                assert entry.records is not None
                assert entry.rules is not None
                if self._awaited.batches:
                    self._check_awaited(entry, log)
                done = partition.append_batches(
                    entry.headers,
                    entry.records,
                    entry.rules,
                    is_in_transaction=entry.has_joined and _is_still_in(entry, log),
                )
                if self._awaited.batches:
                    self._awaited.arrived(entry.topic, entry.partition, entry.headers)
            else:
                data, count = entry.message_set
                base = partition.append((data,), len(data), count)
                done = AppendedBatches(base, self._shared.now_ms(), False, base + len(data))
        except HermesError as refusal:
            if isinstance(refusal, ProducerStateError):
                assert partition is not None
                entry.doubted = partition.leadership
            self._refuse(entry, refusal, log)
            return
        entry.log, entry.opening, entry.end_offset = log, log.openings, done.end_offset
        entry.base_offset, entry.append_time_ms = done.base_offset, done.append_time_ms
        entry.start_offset = log.earliest

    def _check_awaited(self, entry: Entry, log: Log) -> None:
        has = log.producers
        copied = {} if has is None or log.is_sole_copy else has.states
        self._awaited.check(entry.topic, entry.partition, entry.headers, copied)

    def _refuse(self, entry: Entry, error: HermesError, log: Log | None = None) -> None:
        code = entry.code = code_of(error)
        entry.current_leader = current_leader(self._topics, entry.topic, entry.partition, code)
        self._shared.metrics.refuse("kafka_produce", code.name.lower())
        if code in _SENT_AGAIN:
            headers = entry.headers or _header_of(entry)
            self.expect(entry.topic, entry.partition, headers, log)
        if code in _DISK_FAILED and not isinstance(error, ProducerStateError):
            self._shared.lines.error(
                "storage",
                "could not append to {topic}-{partition}: {error}",
                topic=str(entry.topic),
                partition=entry.partition,
                error=error,
            )
        entry.message = str(error)[:1000]
        if isinstance(error, InvalidBatchError):
            entry.refused = error.records

    def expect(
        self,
        topic: str | UUID,
        partition: int,
        headers: Sequence[BatchHeader],
        log: Log | None,
    ) -> None:
        """Let nothing later go before what is to come again; it may have come meanwhile."""
        is_copied = log is None and self._has_copies(topic, partition)
        if log is not None and log.producers is not None:
            states, end = log.producers, log.high_watermark
            headers = [each for each in headers if not states.has_flushed(each, end)]
            is_copied = not log.is_sole_copy
        seconds = AWAITED_COPY_SECONDS if is_copied else AWAITED_SECONDS
        self._awaited.expect(topic, partition, headers, seconds)

    def _has_copies(self, asked: str | UUID, partition: int) -> bool:
        found = self._topics.asked(asked)
        return found is not None and found.state(partition) is not None

    def led_elsewhere(self, entry: Entry) -> None:
        """Another broker may lead, and know better what the producer has sent."""
        code = entry.code = Code.NOT_LEADER_OR_FOLLOWER
        entry.message = None
        entry.current_leader = current_leader(self._topics, entry.topic, entry.partition, code)

    def unknown(self, entry: Entry) -> None:
        """Also when the client's time is up: it sends that again, and perhaps more already."""
        self.expect(entry.topic, entry.partition, entry.headers, entry.log)


class _PlainFlush(FlushedResponse):
    """The response to a plain request that waits for its flush.

    Attributes:
        taken: when the request was.
        base_offset, append_time_ms, start_offset: as an `Entry` has them.
    """

    __slots__ = ("append_time_ms", "base_offset", "plain", "produces", "start_offset", "taken")

    plain: PlainProduce
    produces: Produces
    taken: float
    base_offset: int
    append_time_ms: int
    start_offset: int

    def answer(self, safety: Safety) -> bytes:
        self.produces.flushed(self.taken)
        if safety is not _FLUSHED:
            return _encode_plain(self.plain, _CODES[safety], -1, -1, -1)
        return _encode_plain(
            self.plain, _FINE, self.base_offset, self.append_time_ms, self.start_offset
        )

    def unknown(self) -> None:
        _, _, _, _, _, asked, number, _, _, header = self.plain
        topic = asked if isinstance(asked, str) else UUID(bytes=asked)
        self.produces.expect(topic, number, (header,), self.log)


class _Run:
    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._server = call.server
        self._produces: Produces = call.server.produces
        self._request = request
        self._shared = call.server.shared
        self._expands = False  # whether checking a batch takes so long that a thread should do it
        self._unnamed = MAX_RECORD_ERRORS  # how many more refused messages may be named

    async def answer(self, began: float) -> bytes | None:
        """Append what there is; the response, once that is as safe as it is to be."""
        call, request, scheduler = self._call, self._request, self._shared.scheduler
        entries, refusal = request.entries, _refusal_of(request, call)
        if refusal is None:
            await self._check_all()
            if request.transactional_id is not None:
                await self._join(request.transactional_id)
            await settled(cooperatively(scheduler, entries, self._append))
        else:
            for each in entries:
                each.code = refusal
        call.let_pass()
        if request.acks == _NONE:
            _close_if_refused(entries)
            return None
        call.step_aside()
        for each in entries:
            if each.doubted is not None and not await each.doubted.when_confirmed():
                self._produces.led_elsewhere(each)
        if request.acks == _ALL:
            appended = [each for each in entries if each.log is not None]
            if appended:
                await self._flush(appended)
                self._shared.metrics.acknowledged.observe(scheduler.now() - began)
        leaders = (each.current_leader for each in entries)
        end = endpoints(call.server.topics, call.client.listener, leaders)
        if len(entries) <= _AT_ONCE:
            return encode_produced(call.version, call.correlation_id, entries, end)
        encoded: bytes = await self._server.in_thread(
            encode_produced, call.version, call.correlation_id, entries, end
        )
        return encoded

    # -- before it is appended ------------------------------------------------------------------

    async def _check_all(self) -> None:
        """Find the topics of all entries, and check their batches."""
        scheduler, entries = self._shared.scheduler, self._request.entries
        check = partial(_check, self._call.version)
        await settled(cooperatively(scheduler, entries, self._find))
        if self._expands or len(self._call.frame.data) > _THREAD_BYTES:
            in_thread = self._server.expand if self._expands else self._server.look_up
            await in_thread(lambda: [check(each) for each in entries])
        else:
            await settled(cooperatively(scheduler, entries, check))
        for each in entries:
            if each.headers and each.found is not None and each.found.format != FORMAT_KAFKA:
                await self._translate(each)

    def _find(self, entry: Entry) -> None:
        found = self._produces.topic(entry.topic, self._call)
        if isinstance(found, HermesError):
            entry.error = found
            return
        entry.found = found
        rules = entry.rules = batch_rules(self._shared.config, found.name)
        if rules.needs_keys and entry.records is not None and expands(entry.records, rules):
            self._expands = True

    async def _translate(self, entry: Entry) -> None:
        config = self._shared.config
        try:
            if any(each.is_transactional for each in entry.headers):
                raise KafkaError(
                    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    "the topic has the format of Kafka 0.7, which has no transactions: send to one "
                    "with `format: kafka`",
                )
            if config.kafka_to_0_7 != "translate":
                raise KafkaError(
                    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    "the topic has the format of Kafka 0.7, and kafka_to_0_7 is `refuse`",
                )
            entry.message_set = await self._server.expand(
                message_set_of,
                entry.records,
                entry.headers[0],
                config.max_message_bytes,
                config.max_expanded_bytes,
            )
        except HermesError as error:
            entry.error = error
            if isinstance(error, InvalidBatchError | KafkaError):
                self._shared.lines.warn(
                    "unfit",
                    "refused messages of {client} for {topic}: {error}",
                    client=self._call.client,
                    topic="" if entry.found is None else entry.found.name,
                    error=error,
                )

    async def _join(self, transactional_id: str) -> None:
        """Have what is transactional be part of its producer's transaction, or refuse it."""
        wanted: dict[TransactionalProducer, dict[Place, list[Entry]]] = {}
        for each in self._request.entries:
            if not each.headers or not each.headers[0].attributes & TRANSACTIONAL_BIT:
                continue
            assert each.found is not None
            header, place = each.headers[0], (each.found.name, each.partition)
            if each.error is not None:
                continue
            try:
                known = self._server.topics.partition(*place).log.producers
            except HermesError:
                continue  # which appending meets, too
            each.producer = None if known is None else known.states.get(header.producer_id)
            if _is_in(each.producer, header):
                each.has_joined = True
            else:
                producer = TransactionalProducer(header.producer_id, header.producer_epoch)
                wanted.setdefault(producer, {}).setdefault(place, []).append(each)
        for producer, places in wanted.items():
            adds = self._call.version >= _JOINS
            codes = await self._server.transactions.join(
                transactional_id, producer, places, adds=adds
            )
            for place, some in places.items():
                for each in some:
                    each.has_joined = codes[place] is _FINE
                    if not each.has_joined:
                        each.error = _not_joined(codes[place], self._call.version)

    def _append(self, entry: Entry) -> None:
        self._produces.append(entry, self._request.acks == _ALL)
        if entry.refused:
            entry.refused = entry.refused[: self._unnamed]
            self._unnamed -= len(entry.refused)

    async def _flush(self, appended: Sequence[Entry]) -> None:
        """Wait until all is on disk, or the client's time is up; what isn't gets an error."""
        safety_of = await self._shared.acknowledgements.flushed(
            appended, max(self._request.timeout_ms, 0) / 1000, self._produces.unknown
        )
        for each in appended:
            _note_safety(each, safety_of(each))


def _refusal_of(request: ProduceRequest, call: Call) -> Code | None:
    """Why nothing of a request is appended; None where that is for each entry to say."""
    if request.acks not in (_NONE, 1, _ALL):
        return Code.INVALID_REQUIRED_ACKS
    name = request.transactional_id
    if name is not None and not call.permits(Operation.PRODUCE, Resource.transaction(name)):
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _is_in(known: ProducerState | None, header: BatchHeader) -> bool:
    """Whether a log has a part of the producer's transaction already."""
    if known is None or known.epoch != header.producer_epoch:
        return False
    return known.transaction_start >= 0


def _is_still_in(entry: Entry, log: Log) -> bool:
    """Whether the transaction that a batch was found to be part of hasn't ended since."""
    header = entry.headers[0]
    known = None if log.producers is None else log.producers.states.get(header.producer_id)
    if known is not entry.producer and not _is_in(known, header):
        raise InvalidTransactionStateError("the transaction has ended meanwhile")
    return True


def _not_joined(code: Code, version: int) -> KafkaError:
    """Why a partition isn't part of the transaction, as clients of a version take it."""
    if code is Code.PRODUCER_FENCED:
        code = Code.INVALID_PRODUCER_EPOCH
    elif code is Code.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        code = Code.INVALID_TXN_STATE
    elif code in _NO_COORDINATOR or (code is Code.CONCURRENT_TRANSACTIONS and version < _JOINS):
        code = Code.NOT_ENOUGH_REPLICAS  # which all of them send again after
    return KafkaError(code, "the partition couldn't be made part of the transaction")


def _close_if_refused(entries: Sequence[Entry]) -> None:
    """Without a response a closed connection is the only way to say that something is wrong."""
    for each in entries:
        if each.code:
            text = f"produce with acks=0 to {quoted(str(each.topic))}: {each.message}"
            raise CloseConnection(text, "kafka", each.code.name.lower())


def _note_safety(entry: Entry, safety: Safety) -> None:
    """Answer with an error what isn't known to be on disk."""
    if safety is not _FLUSHED:
        entry.code = _CODES[safety]
        entry.base_offset = entry.append_time_ms = entry.start_offset = -1


def _check(version: int, entry: Entry) -> None:
    """Check an entry's batch, if its topic was found. In any thread."""
    if entry.rules is None:
        return
    try:
        if entry.records is None:
            raise KafkaError(Code.INVALID_RECORD, "there is no batch in it")
        headers = check_batches(entry.records, entry.rules)
        if len(headers) > 1:
            raise KafkaError(Code.INVALID_RECORD, "it holds more than one batch")
        if headers[0].codec == RecordCodec.ZSTD and version < _ZSTD:
            raise KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE)
        entry.headers = headers
    except HermesError as error:
        entry.error = error


def _header_of(entry: Entry) -> Sequence[BatchHeader]:
    """The header of an entry that was refused before it was checked; empty where there is none."""
    try:
        return (decode_header(entry.records or b""),)
    except HermesError:
        return ()


# -- bytes --------------------------------------------------------------------------------------


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


def _encode_plain(
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
