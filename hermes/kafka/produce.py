"""The life of a Produce: its batches are checked, appended, and answered.

    acks=0     nothing is answered; what can't be appended closes the connection, as in Kafka
    acks=1     answered when it is appended
    acks=all   answered when it is flushed

Batches are looked at by their headers; those of a partition are appended as they are. Nothing here
runs once per message.
"""

from functools import partial
from typing import Final

from twisted.internet.defer import Deferred

from hermes.broker.fairness import cooperatively
from hermes.broker.outcomes import CloseConnection, settled
from hermes.broker.shared import Shared
from hermes.errors import HermesError, UnknownTopicError
from hermes.kafka.calls import Call
from hermes.kafka.errors import Code, KafkaError, code_of
from hermes.kafka.produce_messages import (
    Produced,
    ProducedRecords,
    ProduceRequest,
    decode_produce,
    encode_produced,
)
from hermes.kafka.producers import AppendedBatches, check_and_append
from hermes.kafka.topics import KafkaTopic
from hermes.protocol.record_batches import BatchHeader, check_batches
from hermes.protocol.record_compression import RecordCodec
from hermes.quoting import quoted
from hermes.security import Operation
from hermes.storage import Log

#: The largest batch unless `max_message_bytes` is set: Kafka's default, which its clients rely on.
MAX_BATCH_BYTES: Final = 1_048_588

#: Batches of more bytes are checked in a thread: that takes a tenth of a millisecond per MiB.
_THREAD_BYTES: Final = 4 << 20

#: The first version in which batches may be compressed by zstd.
_ZSTD_VERSION: Final = 7

_NONE, _ALL = 0, -1


class _Appended:
    """What was appended to one log, and is to be flushed.

    Attributes:
        place: which of the request's entries.
        log: the log.
        opening: which of its openings that was in.
        end_offset: the high watermark that covers it.
    """

    __slots__ = ("end_offset", "log", "opening", "place")

    def __init__(self, place: int, log: Log, end_offset: int) -> None:
        self.place = place
        self.log = log
        self.opening = log.openings
        self.end_offset = end_offset


async def produce(_: None, call: Call) -> bytes | None:
    """Append what a request has for each partition, in its order."""
    began = call.server.shared.scheduler.now()
    request = decode_produce(call.frame.data, call.frame.body, call.version)
    if request.acks not in (_NONE, 1, _ALL):
        produced = [
            Produced(each.topic, each.partition, Code.INVALID_REQUIRED_ACKS)
            for each in request.entries
        ]
        return encode_produced(call.version, call.correlation_id, produced)
    run = _Run(call, request)
    scheduler = call.server.shared.scheduler
    produced = await settled(cooperatively(scheduler, await run.checked(), run.append))
    call.let_pass()
    if request.acks == _NONE:
        _close_if_refused(produced)
        return None
    if request.acks == _ALL and run.appended:
        await run.flushed(produced)
        call.server.shared.metrics.acknowledged.observe(scheduler.now() - began)
    return encode_produced(call.version, call.correlation_id, produced)


def _close_if_refused(produced: list[Produced]) -> None:
    """Without a response a closed connection is the only way to say that something is wrong."""
    for each in produced:
        if each.code:
            text = f"produce with acks=0 to {quoted(str(each.topic))}: {each.message}"
            raise CloseConnection(text, "kafka", each.code.name.lower())


def batch_limit(shared: Shared) -> int:
    """The largest batch that is taken, in bytes."""
    config = shared.config
    return config.max_message_bytes if "max_message_bytes" in config.given else MAX_BATCH_BYTES


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
        self.appended: list[_Appended] = []

    async def checked(self) -> list[tuple[int, "list[BatchHeader] | HermesError"]]:
        """Check the batches of all entries: their headers, or what is wrong with them."""
        entries, limit = self._request.entries, batch_limit(self._shared)
        check = partial(_check, limit, self._call.version)
        if len(self._call.frame.data) > _THREAD_BYTES:
            found = await self._server.in_thread(lambda: [check(each) for each in entries])
        else:
            found = await settled(cooperatively(self._shared.scheduler, entries, check))
        return list(enumerate(found))

    def append(self, checked: tuple[int, "list[BatchHeader] | HermesError"]) -> Produced:
        """Append what there is for one partition."""
        place, found = checked
        entry = self._request.entries[place]
        try:
            topic = self._topic(entry)
            if isinstance(found, HermesError):
                raise found
            log = self._server.topics.log(topic.name, entry.partition)
            assert entry.records is not None
            done = check_and_append(log, found, entry.records, self._shared.now_ms())
        except HermesError as error:
            return self._refused(entry, error)
        self._note(place, entry, log, found, done)
        return Produced(
            entry.topic,
            entry.partition,
            Code.NONE,
            done.base_offset,
            done.append_time_ms,
            log.earliest,
        )

    def _topic(self, entry: ProducedRecords) -> KafkaTopic:
        """Find the topic of an entry, if the client may produce to it."""
        topics, name = self._server.topics, entry.topic
        if isinstance(name, str):
            if not self._call.permits_topic(Operation.PRODUCE, name):
                raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
            found = topics.get(name)
            if found is None:
                raise UnknownTopicError(f"there is no topic {quoted(name)}")
        else:
            found = topics.by_id(name)
            if found is None:
                raise KafkaError(Code.UNKNOWN_TOPIC_ID)
            if not self._call.permits_topic(Operation.PRODUCE, found.name):
                raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        if found.format != "kafka":
            raise KafkaError(
                Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"topic {quoted(found.name)} has the format of Kafka 0.7",
            )
        return found

    def _note(
        self,
        place: int,
        entry: ProducedRecords,
        log: Log,
        headers: list[BatchHeader],
        done: AppendedBatches,
    ) -> None:
        self.appended.append(_Appended(place, log, done.end_offset))
        if not done.is_duplicate:
            metrics, records = self._shared.metrics, entry.records
            counts = metrics.topics.get(log.topic) or metrics.topic(log.topic)
            counts.bytes_in += len(records or b"")
            counts.messages_in += sum(each.record_count for each in headers)
            self._shared.flusher.appended(log)

    def _refused(self, entry: ProducedRecords, error: HermesError) -> Produced:
        code = code_of(error)
        self._shared.metrics.refuse("kafka_produce", code.name.lower())
        if code in (Code.KAFKA_STORAGE_ERROR, Code.UNKNOWN_SERVER_ERROR):
            self._shared.lines.error(
                "storage",
                "could not append to {topic}-{partition}: {error}",
                topic=str(entry.topic),
                partition=entry.partition,
                error=error,
            )
        return Produced(entry.topic, entry.partition, code, message=str(error)[:1000])

    # -- acks=all -------------------------------------------------------------------------------

    def flushed(self, produced: list[Produced]) -> "Deferred[None]":
        """Wait until all is on disk, or the client's time is up; what isn't gets an error."""
        clock = self._shared.clock
        done: Deferred[None] = Deferred()
        waiting = len(self.appended)

        def settle(each: _Appended, code: Code) -> None:
            nonlocal waiting
            if done.called:
                return
            if code is not Code.NONE or each.opening != each.log.openings:
                refused = produced[each.place]
                produced[each.place] = Produced(
                    refused.topic, refused.partition, code or Code.KAFKA_STORAGE_ERROR
                )
            waiting -= 1
            if not waiting:
                if timer is not None and timer.active():
                    timer.cancel()
                done.callback(None)

        def late() -> None:
            for each in self.appended:
                if each.log.high_watermark < each.end_offset:
                    refused = produced[each.place]
                    produced[each.place] = Produced(
                        refused.topic, refused.partition, Code.REQUEST_TIMED_OUT
                    )
            done.callback(None)

        timeout_seconds = max(self._request.timeout_ms, 0) / 1000
        timer = clock.callLater(timeout_seconds, late)
        for each in self.appended:
            self._shared.flusher.flush_now(each.log).addCallbacks(
                lambda _, each: settle(each, Code.NONE),
                lambda _, each: settle(each, Code.KAFKA_STORAGE_ERROR),
                callbackArgs=(each,),
                errbackArgs=(each,),
            )
        return done


def _check(limit: int, version: int, entry: ProducedRecords) -> "list[BatchHeader] | HermesError":
    if entry.records is None:
        return KafkaError(Code.INVALID_RECORD, "there is no batch in it")
    try:
        headers = check_batches(entry.records, limit)
    except HermesError as error:
        return error
    if len(headers) > 1:
        return KafkaError(Code.INVALID_RECORD, "it holds more than one batch")
    if headers[0].codec == RecordCodec.ZSTD and version < _ZSTD_VERSION:
        return KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE)
    return headers
