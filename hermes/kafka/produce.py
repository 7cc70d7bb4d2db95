"""The life of a Produce: its batches are checked, appended, and answered.

    acks=0     nothing is answered; what can't be appended closes the connection, as in Kafka
    acks=1     answered when it is appended
    acks=all   answered when it is flushed

Batches are checked (`hermes.protocol.record_batches`), and appended as they are but for their
headers. Nothing here runs once per message.

What was appended and could not be flushed may be stored or not: that is for the log's re-opening to
find out. It is answered with the error that says so, and is to be sent again. A log that knows it
then says where it is.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.errors import (
    HermesError,
    InvalidBatchError,
    ProducerStateError,
    UnknownTopicError,
)
from hermes.kafka.dispatching import Call
from hermes.kafka.legacy import message_set_of
from hermes.kafka.produce_messages import (
    Produced,
    ProducedRecords,
    ProduceRequest,
    TooManyPartitionsError,
    decode_produce,
    encode_produced,
)
from hermes.partition.acknowledgements import Safety
from hermes.partition.partition import AppendedBatches, batch_rules
from hermes.protocol.kafka_errors import MAY_BE_STORED, Code, KafkaError, code_of
from hermes.protocol.record_batches import (
    BatchHeader,
    BatchRules,
    check_batches,
    decode_header,
    expands,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.quoting import quoted
from hermes.security import Operation
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import CloseConnection, settled
from hermes.storage import Log
from hermes.v0_7.record_produces import INLINE_BATCH_BYTES

#: Batches of more bytes are checked in a thread; single ones are far smaller.
_THREAD_BYTES: Final = 4 * INLINE_BATCH_BYTES

#: The first version in which batches may be compressed by zstd.
_ZSTD_VERSION: Final = 7

#: A request for more partitions is decoded, and its response encoded, in a thread: some ms of work.
_AT_ONCE: Final = 1000

#: What clients send again after.
_SENT_AGAIN: Final = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.UNKNOWN_TOPIC_ID,
        MAY_BE_STORED,
    }
)

_DISK_FAILED: Final = (Code.KAFKA_STORAGE_ERROR, MAY_BE_STORED, Code.UNKNOWN_SERVER_ERROR)

_NONE, _ALL = 0, -1


class _Appended:
    """What was appended to one log, and is to be flushed.

    Attributes:
        place: which of the request's entries.
        headers: its batch's header.
        log: the log.
        opening: which of its openings that was in.
        end_offset: the high watermark that covers it.
    """

    __slots__ = ("end_offset", "headers", "log", "opening", "place")

    def __init__(
        self, place: int, headers: Sequence[BatchHeader], log: Log, end_offset: int
    ) -> None:
        self.place = place
        self.headers = headers
        self.log = log
        self.opening = log.openings
        self.end_offset = end_offset


class _Found(NamedTuple):
    """What one entry is for.

    Attributes:
        entry: the entry.
        topic: its topic; why there is none that the client may produce to.
        rules: what the topic takes; None without one.
    """

    entry: ProducedRecords
    topic: ClusterTopic | HermesError
    rules: BatchRules | None = None


class _Checked(NamedTuple):
    """What is known of one entry before it is appended.

    Attributes:
        entry: the entry.
        topic: its topic; None if there is none that the client may produce to.
        rules: what the topic takes; None without one.
        headers: its batch's header, checked; empty if something is wrong.
        error: what is wrong.
        message_set: what is appended instead, to a topic of 0.7, and how many messages it has.
    """

    entry: ProducedRecords
    topic: ClusterTopic | None
    rules: BatchRules | None
    headers: Sequence[BatchHeader]
    error: HermesError | None = None
    message_set: tuple[bytes, int] | None = None


async def produce(_: None, call: Call) -> bytes | None:
    """Append what a request has for each partition, in its order."""
    began = call.server.shared.scheduler.now()
    try:
        request = decode_produce(call.frame.data, call.frame.body, call.version, most=_AT_ONCE)
    except TooManyPartitionsError:
        return await _large(call, began)
    return await _produced(call, request, began)


async def _large(call: Call, began: float) -> bytes | None:
    """Append what a request for very many partitions has, when it is its turn.

    Decoded and answered, it takes many times what it came as, also while it waits for its flush.
    Then it keeps only its like from having their turn: others need no disk.
    """
    size_bytes = len(call.frame.data)
    await call.server.large_produces.enter(size_bytes)
    try:
        call.admitted_bytes = await call.server.admission.enter(size_bytes)
        request = await call.server.in_thread(
            decode_produce, call.frame.data, call.frame.body, call.version
        )
        return await _produced(call, request, began)
    finally:
        call.step_aside()
        call.server.large_produces.leave(size_bytes)


async def _produced(call: Call, request: ProduceRequest, began: float) -> bytes | None:
    refusal = _refusal_of(request)
    if refusal is not None:
        produced = [Produced(each.topic, each.partition, refusal) for each in request.entries]
        if request.acks == _NONE:
            _close_if_refused(produced)
            return None
        return await _encoded(call, produced)
    run = _Run(call, request)
    scheduler = call.server.shared.scheduler
    produced = await settled(cooperatively(scheduler, await run.checked(), run.append))
    call.let_pass()
    if request.acks == _NONE:
        _close_if_refused(produced)
        return None
    call.step_aside()
    if request.acks == _ALL and run.appended:
        await run.flushed(produced)
        call.server.shared.metrics.acknowledged.observe(scheduler.now() - began)
    return await _encoded(call, produced)


async def _encoded(call: Call, produced: list[Produced]) -> bytes:
    if len(produced) <= _AT_ONCE:
        return encode_produced(call.version, call.correlation_id, produced)
    encoded: bytes = await call.server.in_thread(
        encode_produced, call.version, call.correlation_id, produced
    )
    return encoded


def _refusal_of(request: ProduceRequest) -> Code | None:
    """Why nothing of a request is appended; None where that is for each entry to say."""
    if request.acks not in (_NONE, 1, _ALL):
        return Code.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:  # there are no transactions
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _close_if_refused(produced: list[Produced]) -> None:
    """Without a response a closed connection is the only way to say that something is wrong."""
    for each in produced:
        if each.code:
            text = f"produce with acks=0 to {quoted(str(each.topic))}: {each.message}"
            raise CloseConnection(text, "kafka", each.code.name.lower())


class _Run:
    """One request on its way.

    Attributes:
        appended: what is in a log now.
    """

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._server = call.server
        self._request = request
        self._shared = call.server.shared
        self._awaited = call.server.awaited
        self.appended: list[_Appended] = []
        self._place = -1  # of the entry that is being appended

    async def checked(self) -> list[_Checked]:
        """Find the topics of all entries, and check their batches."""
        shared, entries = self._shared, self._request.entries
        check = partial(_check, self._call.version)
        found = await settled(cooperatively(shared.scheduler, entries, self._found))
        checked: list[_Checked]
        expands = any(map(_expands, found))
        if expands or len(self._call.frame.data) > _THREAD_BYTES:
            in_thread = self._server.expand if expands else self._server.look_up
            checked = await in_thread(lambda: [check(each) for each in found])
        else:
            checked = await settled(cooperatively(shared.scheduler, found, check))
        for place, each in enumerate(checked):
            if each.topic is not None and each.topic.format != "kafka" and each.headers:
                checked[place] = await self._translated(each)
        return checked

    async def _translated(self, checked: _Checked) -> _Checked:
        config = self._shared.config
        try:
            if config.kafka_to_0_7 != "translate":
                raise KafkaError(
                    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    "the topic has the format of Kafka 0.7, and kafka_to_0_7 is `refuse`",
                )
            message_set = await self._server.expand(
                message_set_of,
                checked.entry.records,
                checked.headers[0],
                config.max_message_bytes,
                config.max_expanded_bytes,
            )
        except HermesError as error:
            return checked._replace(error=error)
        return checked._replace(message_set=message_set)

    def append(self, checked: _Checked) -> Produced:
        """Append what there is for one partition."""
        entry, topic, rules, headers, error, message_set = checked
        self._place += 1
        if error is not None:  # not raised: it would keep frames, and there may be thousands
            return self._refused(checked, error)
        assert topic is not None
        log = None
        try:
            partition = self._server.topics.partition(topic.name, entry.partition)
            log = partition.log
            if message_set is None:
                assert entry.records is not None
                self._awaited.check(entry.topic, entry.partition, headers)
                assert rules is not None
                done = partition.append_batches(
                    headers, entry.records, is_log_append_time=rules.is_log_append_time
                )
                self._awaited.arrived(entry.topic, entry.partition, headers)
            else:
                data, count = message_set
                base = partition.append((data,), len(data), count)
                done = AppendedBatches(base, self._shared.now_ms(), False, base + len(data))
        except HermesError as refusal:
            return self._refused(checked, refusal, log)
        self.appended.append(_Appended(self._place, headers, log, done.end_offset))
        return Produced(
            entry.topic,
            entry.partition,
            Code.NONE,
            done.base_offset,
            done.append_time_ms,
            log.earliest,
        )

    def _found(self, entry: ProducedRecords) -> _Found:
        topic = self._topic(entry)
        if isinstance(topic, HermesError):
            return _Found(entry, topic)
        return _Found(entry, topic, batch_rules(self._shared.config, topic.name))

    def _topic(self, entry: ProducedRecords) -> ClusterTopic | HermesError:
        topics, name = self._server.topics, entry.topic
        if isinstance(name, str):
            if not self._call.permits_topic(Operation.PRODUCE, name):
                return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
            return topics.get(name) or UnknownTopicError(f"there is no topic {quoted(name)}")
        found = topics.by_id(name)
        if found is None:
            return KafkaError(Code.UNKNOWN_TOPIC_ID)
        if not self._call.permits_topic(Operation.PRODUCE, found.name):
            return KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        return found

    def _refused(self, checked: _Checked, error: HermesError, log: Log | None = None) -> Produced:
        entry, code = checked.entry, code_of(error)
        self._shared.metrics.refuse("kafka_produce", code.name.lower())
        if code in _SENT_AGAIN:
            self._expect(entry, checked.headers or _header_of(entry), log)
        if code in _DISK_FAILED and not isinstance(error, ProducerStateError):
            self._shared.lines.error(
                "storage",
                "could not append to {topic}-{partition}: {error}",
                topic=str(entry.topic),
                partition=entry.partition,
                error=error,
            )
        records = error.records if isinstance(error, InvalidBatchError) else ()
        return Produced(
            entry.topic, entry.partition, code, message=str(error)[:1000], records=records
        )

    def _expect(
        self, entry: ProducedRecords, headers: Sequence[BatchHeader], log: Log | None
    ) -> None:
        """Let nothing later go before what is to come again; it may have come meanwhile."""
        if log is not None and log.producers is not None:
            states, end = log.producers, log.high_watermark
            headers = [each for each in headers if not states.has_flushed(each, end)]
        self._awaited.expect(entry.topic, entry.partition, headers)

    # -- acks=all -------------------------------------------------------------------------------

    async def flushed(self, produced: list[Produced]) -> None:
        """Wait until all is on disk, or the client's time is up; what isn't gets an error."""
        safety_of = await self._shared.acknowledgements.flushed(
            self.appended, max(self._request.timeout_ms, 0) / 1000, self._unknown
        )
        for each in self.appended:
            safety = safety_of(each)
            if safety is not Safety.FLUSHED:
                code = MAY_BE_STORED if safety is Safety.UNKNOWN else Code.REQUEST_TIMED_OUT
                entry = self._request.entries[each.place]
                produced[each.place] = Produced(entry.topic, entry.partition, code)

    def _unknown(self, each: _Appended) -> None:
        """Also when the client's time is up: it sends that again, and perhaps more already."""
        self._expect(self._request.entries[each.place], each.headers, each.log)


def _expands(found: _Found) -> bool:
    """Whether checking an entry takes so long that a thread should do it."""
    records, rules = found.entry.records, found.rules
    if rules is None or not rules.needs_keys or records is None:
        return False
    return expands(records, rules)


def _header_of(entry: ProducedRecords) -> Sequence[BatchHeader]:
    """The header of an entry that was refused before it was checked; empty where there is none."""
    try:
        return (decode_header(entry.records or b""),)
    except HermesError:
        return ()


def _check(version: int, found: _Found) -> _Checked:
    entry, topic, rules = found
    if isinstance(topic, HermesError):
        return _Checked(entry, None, None, (), topic)
    try:
        if entry.records is None:
            raise KafkaError(Code.INVALID_RECORD, "there is no batch in it")
        assert rules is not None
        headers = check_batches(entry.records, rules)
        if len(headers) > 1:
            raise KafkaError(Code.INVALID_RECORD, "it holds more than one batch")
        if headers[0].codec == RecordCodec.ZSTD and version < _ZSTD_VERSION:
            raise KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE)
    except HermesError as error:
        return _Checked(entry, topic, rules, (), error)
    return _Checked(entry, topic, rules, headers)
