"""Appends what produces have for a partition; and carries out those that are plain, of one batch.

What was appended and could not be flushed may be stored or not: that is for the log's re-opening to
find out. It is answered with the error that says so, and is to be sent again. A log that knows it
then says where it is.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import (
    HermesError,
    InvalidBatchError,
    NotLeaderError,
    ProducerStateError,
    UnknownTopicError,
)
from hermes.kafka.current_leader import current_leader, endpoints
from hermes.kafka.dispatching import Call, KafkaServer
from hermes.kafka.frames import PlainProduce
from hermes.kafka.producing.joining import is_still_in
from hermes.kafka.producing.produce_messages import Entry, encode_plain, encode_produced
from hermes.partition.acknowledgements import FlushedResponse, Safety
from hermes.partition.awaited_batches import AWAITED_COPY_SECONDS, AWAITED_SECONDS
from hermes.partition.batch_appends import AppendedBatches
from hermes.partition.partition import Partition, batch_rules
from hermes.protocol.kafka_errors import (
    MAY_BE_STORED,
    MESSAGE_LENGTH,
    Code,
    KafkaError,
    code_of,
)
from hermes.protocol.record_batches import BatchHeader, BatchRules, decode_header
from hermes.protocol.wire import Buffer
from hermes.quoting import quoted
from hermes.security import Operation
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection
from hermes.storage import Log
from hermes.transactions.state import STATE_TOPIC

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

_DISK_FAILED: Final = (Code.KAFKA_STORAGE_ERROR, MAY_BE_STORED, Code.UNKNOWN_SERVER_ERROR)

#: How many copies a client waits for: it wants no answer, or all that are in sync.
NONE, ALL = 0, -1

# Looked up for each request, which takes long of enumerations.
_FINE: Final = Code.NONE
FLUSHED: Final = Safety.FLUSHED

#: The error of what isn't known to be on disk.
UNSAFE: Final = {
    Safety.UNKNOWN: MAY_BE_STORED,
    Safety.ENDED: Code.NOT_LEADER_OR_FOLLOWER,
    Safety.LATE: Code.REQUEST_TIMED_OUT,
}

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
        self.now = server.shared.scheduler.now
        self.acknowledged = server.shared.metrics.acknowledged
        self._known: dict[str | bytes, _Known] = {}
        self._revision = -1  # of the topics, when those were found
        self._settings_changed()
        server.shared.settings.on_change(self._settings_changed)
        server.shared.settings.on_topic_change(lambda name: self._known.clear())

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
            or (self._awaited.batches and self._awaits(asked, number, header))
            or (
                self._refuses
                and not self._refusals.permits_topic(client, Operation.PRODUCE, found.name)
            )
        ):
            return NotImplemented
        records = memoryview(data)[start : start + size_bytes]
        began = self.now() if acks == ALL else 0.0
        log = partition = None
        try:
            partition = partitions.get(number)
            if partition is None or partition.log.state.is_closed:
                partition = partitions[number] = self._topics.partition(found.name, number)
            log = partition.log
            if acks == ALL and partition.leadership is not None:
                partition.leadership.check_enough()
            done = partition.append_batches((header,), records, rules, acks == ALL, True)
        except HermesError as refusal:
            if partition is not None and _wait_of(refusal, partition) is not None:
                return NotImplemented
            entry = Entry(asked if isinstance(asked, str) else found.id, number, records)
            entry.headers = (header,)
            self._refuse(entry, refusal, log)
            if acks == NONE:
                close_if_refused((entry,))  # which raises
            end = endpoints(self._topics, client.listener, (entry.current_leader,))
            return encode_produced(version, correlation_id, (entry,), end)
        if acks == NONE:
            return None
        if acks != ALL:
            return encode_plain(plain, _FINE, done[0], done[1], log.state.view.bases[0])
        response = _PlainFlush(log, done.end_offset)
        response.plain, response.produces, response.taken = plain, self, began
        response.base_offset, response.append_time_ms = done[0], done[1]
        response.start_offset = log.state.view.bases[0]
        self._acknowledgements.wait(response, timeout_ms / 1000 if timeout_ms > 0 else 0)
        return response

    def _awaits(self, asked: str | bytes, number: int, header: BatchHeader) -> bool:
        """Whether its producer was told to send something again, perhaps long ago."""
        return (_named(asked), number, header.producer_id) in self._awaited.batches

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
            self._check_found(entry, entry.found)
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
                    is_in_transaction=entry.has_joined and is_still_in(entry, log),
                )
                if self._awaited.batches:
                    self._awaited.arrived(entry.topic, entry.partition, entry.headers)
            else:
                data, count = entry.message_set
                base = partition.append((data,), len(data), count)
                done = AppendedBatches(base, self._shared.now_ms(), False, base + len(data))
        except HermesError as refusal:
            if partition is not None:
                entry.until = _wait_of(refusal, partition)
            self._refuse(entry, refusal, log)
            return
        entry.log, entry.opening, entry.end_offset = log, log.openings, done.end_offset
        entry.base_offset, entry.append_time_ms = done.base_offset, done.append_time_ms
        entry.start_offset = log.earliest

    def _check_found(self, entry: Entry, found: ClusterTopic) -> None:
        """Refuse a topic that was deleted and created again while its batch was looked at.

        It may be one of another format, or one in which the producer has no transaction.
        """
        now = self._topics.asked(entry.topic)
        if now is found:
            return
        if now is None or (now.id, now.format) != (found.id, found.format):
            if not isinstance(entry.topic, str):
                raise KafkaError(Code.UNKNOWN_TOPIC_ID)
            raise UnknownTopicError(f"topic {quoted(found.name)} was deleted meanwhile")

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
        entry.message = str(error)[:MESSAGE_LENGTH]
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
        produces = self.produces
        produces.acknowledged.observe(produces.now() - self.taken)
        if safety is not FLUSHED:
            return encode_plain(self.plain, UNSAFE[safety], -1, -1, -1)
        return encode_plain(
            self.plain, _FINE, self.base_offset, self.append_time_ms, self.start_offset
        )

    def unknown(self) -> None:
        _, _, _, _, _, asked, number, _, _, header = self.plain
        self.produces.expect(_named(asked), number, (header,), self.log)


def _named(asked: str | bytes) -> str | UUID:
    """A topic as a decoded request names it."""
    return asked if isinstance(asked, str) else UUID(bytes=asked)


def close_if_refused(entries: Sequence[Entry]) -> None:
    """Without a response a closed connection is the only way to say that something is wrong."""
    for each in entries:
        if each.code:
            text = f"produce with acks=0 to {quoted(str(each.topic))}: {each.message}"
            raise CloseConnection(text, "kafka", each.code.name.lower())


def _wait_of(refusal: HermesError, partition: Partition) -> Callable[[], Deferred[bool]] | None:
    """What is waited for before a producer hears of a refusal; see `Entry`."""
    leadership = partition.leadership
    if leadership is None:
        return None
    if isinstance(refusal, ProducerStateError):
        return leadership.when_confirmed
    is_refused = isinstance(refusal, NotLeaderError) and leadership.is_handing_over
    return leadership.when_handed_over if is_refused else None


def _header_of(entry: Entry) -> Sequence[BatchHeader]:
    """The header of an entry that was refused before it was checked; empty where there is none."""
    try:
        return (decode_header(entry.records or b""),)
    except HermesError:
        return ()
