"""The life of a Produce: its batches are checked, appended, and answered.

    acks=0     nothing is answered; what can't be appended closes the connection, as in Kafka
    acks=1     answered when it is appended
    acks=all   answered when it is flushed

Batches are checked (`hermes.protocol.record_batches`), and appended as they are but for their
headers. Nothing here runs once per message. Plain requests don't get here: see `produces`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import HermesError, InvalidBatchError
from hermes.kafka.current_leader import endpoints
from hermes.kafka.dispatching import Call
from hermes.kafka.legacy import message_set_of
from hermes.kafka.producing.joining import join
from hermes.kafka.producing.produce_messages import (
    Entry,
    ProduceRequest,
    TooManyPartitionsError,
    decode_produce,
    encode_produced,
)
from hermes.kafka.producing.produces import (
    ALL,
    FLUSHED,
    NONE,
    UNSAFE,
    Produces,
    close_if_refused,
)
from hermes.partition.acknowledgements import Safety
from hermes.partition.partition import batch_rules
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.record_batches import check_batches, expands
from hermes.protocol.record_compression import RecordCodec
from hermes.security import Operation, Resource
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.v0_7.record_produces import INLINE_BATCH_BYTES

#: A response names no more messages than this that were refused; their batches are all named.
MAX_RECORD_ERRORS: Final = 1000

#: A request for more partitions is decoded, and its response encoded, in a thread: some ms of work.
_AT_ONCE: Final = 1000

#: Batches of more bytes are checked in a thread; single ones are far smaller.
_THREAD_BYTES: Final = 4 * INLINE_BATCH_BYTES

#: The first version in which batches may be compressed by zstd.
_ZSTD: Final = 7


async def produce(_: None, call: Call) -> bytes | None:
    """Append what a request has for each partition, in its order."""
    began = call.server.shared.scheduler.now()
    try:
        request = decode_produce(call.frame, most=_AT_ONCE)
    except TooManyPartitionsError:
        return await _large(call, began)
    return await Produce(call, request).answer(began)


async def _large(call: Call, began: float) -> bytes | None:
    """Append what a request for very many partitions has, when it is its turn."""
    # Decoded and answered, it takes many times what it came as, also while it waits for its flush.
    # Then it keeps only its like from having their turn: others need no disk.
    size_bytes = len(call.frame.data)
    await call.server.large_produces.enter(size_bytes)
    try:
        call.admitted_bytes = await call.server.admission.enter(size_bytes)
        request = await call.server.in_thread(decode_produce, call.frame)
        return await Produce(call, request).answer(began)
    finally:
        call.step_aside()
        call.server.large_produces.leave(size_bytes)


class Produce:
    """One request: its batches are checked, appended, and answered."""

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
                await join(call, request.transactional_id, entries)
            await self._append_all()
        else:
            for each in entries:
                each.code = refusal
        call.let_pass()
        if request.acks == NONE:
            close_if_refused(entries)
            return None
        call.step_aside()
        for each in entries:
            if each.until is not None and not await each.until():
                self._produces.led_elsewhere(each)
        if request.acks == ALL:
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
            if _is_translated(each):
                self._check_translated(each)

    def _find(self, entry: Entry) -> None:
        found = self._produces.topic(entry.topic, self._call)
        if isinstance(found, HermesError):
            entry.error = found
            return
        entry.found = found
        rules = entry.rules = batch_rules(self._shared.config, found.name)
        if rules.needs_keys and entry.records is not None and expands(entry.records, rules):
            self._expands = True

    def _check_translated(self, entry: Entry) -> None:
        """Note what is wrong of a batch for a topic of 0.7, as far as its header says it."""
        if any(each.is_transactional for each in entry.headers):
            text = "has no transactions: send to one with `format: kafka`"
            self._refuse_unfit(entry, _unsupported(f"which {text}"))
        elif self._shared.config.kafka_to_0_7 != "translate":
            self._refuse_unfit(entry, _unsupported("and kafka_to_0_7 is `refuse`"))

    def _refuse_unfit(self, entry: Entry, error: HermesError) -> None:
        entry.error = error
        if isinstance(error, InvalidBatchError | KafkaError):
            self._shared.lines.warn(
                "unfit",
                "refused messages of {client} for {topic}: {error}",
                client=self._call.client,
                topic="" if entry.found is None else entry.found.name,
                error=error,
            )

    # -- appending ------------------------------------------------------------------------------

    async def _append_all(self) -> None:
        """Append each batch; those for topics of 0.7 one by one, as they may expand to much."""
        translated: list[Entry] = []
        others: list[Entry] = []
        for each in self._request.entries:
            is_right = each.error is None
            (translated if is_right and _is_translated(each) else others).append(each)
        await settled(cooperatively(self._shared.scheduler, others, self._append))
        for each in translated:
            await self._translate(each)
            self._append(each)
            each.message_set = None

    async def _translate(self, entry: Entry) -> None:
        config = self._shared.config
        try:
            entry.message_set = await self._server.expand(
                message_set_of,
                entry.records,
                entry.headers[0],
                config.max_message_bytes,
                config.max_expanded_bytes,
            )
        except HermesError as error:
            self._refuse_unfit(entry, error)

    def _append(self, entry: Entry) -> None:
        self._produces.append(entry, self._request.acks == ALL)
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
    if request.acks not in (NONE, 1, ALL):
        return Code.INVALID_REQUIRED_ACKS
    name = request.transactional_id
    if name is not None and not call.permits(Operation.PRODUCE, Resource.transaction(name)):
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _is_translated(entry: Entry) -> bool:
    """Whether a batch becomes messages of 0.7."""
    return bool(entry.headers) and entry.found is not None and entry.found.format != FORMAT_KAFKA


def _unsupported(why: str) -> KafkaError:
    text = f"the topic has the format of Kafka 0.7, {why}"
    return KafkaError(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)


def _note_safety(entry: Entry, safety: Safety) -> None:
    """Answer with an error what isn't known to be on disk."""
    if safety is not FLUSHED:
        entry.code = UNSAFE[safety]
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
