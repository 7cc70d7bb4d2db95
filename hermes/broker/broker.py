"""What a request does to the logs: every decision of the broker, and no bytes of the network.

`Broker.serve` takes a request value and says how it ends: an answer (bytes, or a send that will
read from segments), no answer, an answer that comes `Later`, or `CloseConnection` where Kafka 0.7
closes the socket. `append_run` is the short way for runs of plain produce requests, which is
where a broker's time goes. Everything here runs in the reactor's thread and never waits: checks
that expand compressed data, and whatever has to read from a disk, run in worker threads.

Source of the outcomes: Kafka 0.7.2 as recorded in tests/vectors; docs/wire-protocol.md for the
requests that are Hermes' own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from hermes._version import __version__
from hermes.broker.acknowledging import Appended, answer_when_flushed
from hermes.broker.flushing import FlushScheduler
from hermes.broker.limits import RateLimit
from hermes.broker.metrics import Metrics
from hermes.broker.sends import FileSend, MessageSetSend, MultiMessageSetSend, WaitingFetchSend
from hermes.broker.topics import TopicRegistry
from hermes.broker.waiting import WaitingFetches
from hermes.config import BrokerConfig
from hermes.errors import (
    DiskFullError,
    ExpandedTooLargeError,
    HermesError,
    InvalidTopicError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    ProtocolError,
    StorageError,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.protocol import (
    REQUEST_VERSIONS,
    AcknowledgedProduceRequest,
    Acks,
    BoundaryRequest,
    BrokerMetadata,
    DeleteTopicRequest,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    PartitionMetadata,
    ProducedEntry,
    ProduceRequest,
    ProduceRun,
    SetCheck,
    TopicMetadata,
    UnsupportedRequest,
    WaitingFetchRequest,
    check_message_set,
    check_topic_name,
    code_for,
    encode_acknowledged_produce_response,
    encode_boundary_response,
    encode_error_response,
    encode_metadata_response,
    encode_offsets_response,
)
from hermes.storage import DataDirectory, Log, LogSlice

__all__ = ["Broker", "CloseConnection", "Later", "Outcome"]

#: Sets up to this size are checked in the reactor's thread: about 3 ms of CRCs.
INLINE_CHECK_BYTES = 1024 * 1024

#: What a compressed set may expand to in the reactor's thread before a worker takes over.
INLINE_EXPANDED_BYTES = 64 * 1024


class CloseConnection(Exception):  # noqa: N818 - it is an outcome, not an error of ours
    """The request ends as in 0.7: the connection is closed without an answer."""


@dataclass(frozen=True, slots=True)
class Later:
    """An outcome that is not known yet.

    Attributes:
        outcome: fires with bytes, a send or None; fails with CloseConnection to close.
        ordered: whether further requests of the connection must wait for it. False for produces
            that were appended and wait for their flush: more may be appended meanwhile.
        abandon: whether the outcome may be cancelled when the connection is lost. Never for
            produces, which are carried out all the same.
    """

    outcome: "Deferred[Any]"  # of bytes, a FileSend or None
    ordered: bool = True
    abandon: bool = False


Outcome = bytes | FileSend | Later | None

_Check = SetCheck | ProtocolError


class Broker:
    """Decides what requests do.

    Attributes:
        metrics: what was done so far.
        topics: which topics there are.
        waiting: the fetches that wait for more.
    """

    _log = Logger(namespace="hermes.broker")

    def __init__(
        self,
        config: BrokerConfig,
        directory: DataDirectory,
        topics: TopicRegistry,
        flusher: FlushScheduler,
        *,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_thread: Callable[..., "Deferred[Any]"],
    ) -> None:
        """Put together.

        Args:
            config: the broker's settings.
            directory: the opened data directory.
            topics: its topics.
            flusher: schedules the flushes.
            clock: the reactor, or a test's `Clock`; for timers.
            now_ms: the wall clock, in ms since 1970; for append times.
            in_thread: calls a function in a worker thread and returns its Deferred.
        """
        self._config = config
        self._directory = directory
        self._find = directory.get
        self._flusher = flusher
        self._clock = clock
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._rate = RateLimit(clock.seconds)
        self.topics = topics
        self.metrics = Metrics()
        self.waiting = WaitingFetches(clock, self._is_ready)
        flusher.on_flushed(lambda log: self.waiting.changed(log.topic, log.partition))
        self._serve: dict[type, Callable[[Any], Outcome]] = {
            ProduceRun: self.append_run,
            ProduceRequest: lambda request: self._produce((request,)),
            MultiProduceRequest: lambda request: self._produce(request.produces),
            FetchRequest: self._fetch,
            MultiFetchRequest: self._multifetch,
            OffsetsRequest: self._offsets,
            AcknowledgedProduceRequest: self._acknowledged_produce,
            WaitingFetchRequest: self._waiting_fetch,
            MetadataRequest: self._metadata,
            BoundaryRequest: self._boundary,
            DeleteTopicRequest: self._delete_topic,
            UnsupportedRequest: self._unsupported,
        }

    def serve(self, request: Any) -> Outcome:
        """Do what a request asks.

        Args:
            request: a request value of `hermes.protocol`.

        Returns:
            The answer, None when there is none, or `Later`.

        Raises:
            CloseConnection: close the connection without an answer; nothing more was done.
        """
        return self._serve[type(request)](request)

    # -- produce --------------------------------------------------------------------------------

    def append_run(self, run: ProduceRun) -> None:
        """Append a run of checked, unanswered produce requests for one partition.

        Raises:
            CloseConnection: the topic or partition is wrong, or the disk refused.
        """
        log = self._find(run.topic, run.partition)
        try:
            if log is None:
                log = self.topics.for_produce(run.topic, run.partition)
            log.append(run.buffers, run.byte_count, run.message_count, self._now_ms())
        except HermesError as error:
            raise self._refusal(run.topic, run.partition, error) from error
        self._count(log, run.byte_count, run.message_count, run.request_count)

    def _produce(self, produces: Sequence[ProduceRequest]) -> Later | None:
        """Append unanswered message sets that had to be looked at one by one."""
        checks = self._check_inline(produces)
        if checks is not None:
            self._append_unanswered(produces, checks)
            return None
        checked: Deferred[list[_Check]] = self._in_thread(self._check_all, produces)
        return Later(checked.addCallback(lambda checks: self._append_unanswered(produces, checks)))

    def _append_unanswered(
        self, produces: Sequence[ProduceRequest], checks: Iterable[_Check]
    ) -> None:
        """Append in order; the first bad set closes, those before it stay."""
        self.metrics.produce_requests += 1
        for produce, check in zip(produces, checks, strict=True):
            try:
                self._append(produce, check)
            except MessageTooLargeError as error:
                self._drop_oversized(produce, error)
            except HermesError as error:
                raise self._refusal(produce.topic, produce.partition, error) from error

    def _append(self, produce: ProduceRequest, check: _Check) -> tuple[Log, int]:
        """Append one checked set. As in 0.7 the topic comes to be even when the set is bad."""
        log = self.topics.for_produce(produce.topic, produce.partition)
        if not isinstance(check, SetCheck):
            raise check
        if not check.valid_bytes:
            return log, log.end_offset
        valid = memoryview(produce.message_set)[: check.valid_bytes]
        offset = log.append((valid,), check.valid_bytes, check.message_count, self._now_ms())
        self._count(log, check.valid_bytes, check.message_count, 0)
        return log, offset

    def _count(self, log: Log, byte_count: int, messages: int, requests: int) -> None:
        metrics = self.metrics
        metrics.produce_requests += requests
        metrics.bytes_in += byte_count
        metrics.messages_in += messages
        self._flusher.appended(log)

    def _check_inline(self, produces: Sequence[ProduceRequest]) -> list[_Check] | None:
        """Check sets here if that is quick; None when a thread must do it."""
        if sum(len(produce.message_set) for produce in produces) > INLINE_CHECK_BYTES:
            return None
        checks = self._check_all(
            produces, min(INLINE_EXPANDED_BYTES, self._config.max_expanded_bytes)
        )
        if any(isinstance(check, ExpandedTooLargeError) for check in checks):
            return None
        return checks

    def _check_all(
        self, produces: Sequence[ProduceRequest], max_expanded_bytes: int | None = None
    ) -> list[_Check]:
        """Check message sets as 0.7 does. Touches nothing of the broker: any thread may call it."""
        checks: list[_Check] = []
        for produce in produces:
            try:
                checks.append(
                    check_message_set(
                        produce.message_set,
                        max_message_bytes=self._config.max_message_bytes,
                        max_expanded_bytes=max_expanded_bytes or self._config.max_expanded_bytes,
                    )
                )
            except ProtocolError as error:
                checks.append(error)
        return checks

    def _drop_oversized(self, produce: ProduceRequest, error: MessageTooLargeError) -> None:
        self.metrics.oversized_sets += 1
        suppressed = self._rate.allow("oversized")
        if suppressed is not None:
            self._log.warn(
                "dropped a message set for {topic}-{partition}: {error} "
                "({suppressed} more such lines suppressed)",
                topic=produce.topic,
                partition=produce.partition,
                error=str(error),
                suppressed=suppressed,
            )

    def _refusal(self, topic: str, partition: int, error: Exception) -> CloseConnection:
        if isinstance(error, StorageError):
            kind = "full" if isinstance(error, DiskFullError) else "storage"
            if self._rate.allow(kind) is not None:
                self._log.error(
                    "could not append to {topic}-{partition}: {error}",
                    topic=topic,
                    partition=partition,
                    error=str(error),
                )
        return CloseConnection(f"produce to {topic!r} partition {partition}: {error}")

    def _acknowledged_produce(self, request: AcknowledgedProduceRequest) -> Outcome:
        if request.acks not in (Acks.WRITTEN, Acks.FLUSHED):
            return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
        checks = self._check_inline(request.produces)
        if checks is not None:
            return self._append_acknowledged(request, checks)
        checked: Deferred[list[_Check]] = self._in_thread(self._check_all, request.produces)

        def append(checks: list[_Check]) -> "bytes | Deferred[bytes]":
            outcome = self._append_acknowledged(request, checks)
            return outcome.outcome if isinstance(outcome, Later) else outcome

        return Later(checked.addCallback(append))

    def _append_acknowledged(
        self, request: AcknowledgedProduceRequest, checks: Iterable[_Check]
    ) -> bytes | Later:
        self.metrics.produce_requests += 1
        appended = [
            self._append_entry(produce, check)
            for produce, check in zip(request.produces, checks, strict=True)
        ]
        if request.acks == Acks.WRITTEN:
            return encode_acknowledged_produce_response([each.entry for each in appended])
        answer = answer_when_flushed(self._clock, self._flusher, appended, request.timeout_ms)
        return Later(answer, ordered=False)

    def _append_entry(self, produce: ProduceRequest, check: _Check) -> Appended:
        try:
            if not isinstance(check, SetCheck):
                raise check
            log, offset = self._append(produce, check)
        except HermesError as error:
            if isinstance(error, MessageTooLargeError):
                self._drop_oversized(produce, error)
            else:
                self._refusal(produce.topic, produce.partition, error)
            return Appended(ProducedEntry(produce.partition, code_for(error), -1))
        return Appended(ProducedEntry(log.partition, ErrorCode.NONE, offset), log)

    # -- fetch ----------------------------------------------------------------------------------

    def _fetch(self, request: FetchRequest) -> MessageSetSend:
        self.metrics.fetch_requests += 1
        try:
            messages = self._read(request)
        except HermesError as error:
            return MessageSetSend(self._fetch_code(request, error))
        if messages is not None:
            self.metrics.bytes_out += messages.length
        return MessageSetSend(ErrorCode.NONE, messages)

    def _read(self, request: FetchRequest) -> LogSlice | None:
        log = self._find(request.topic, request.partition)
        if log is None:
            self.topics.for_fetch(request.topic, request.partition)
            return None
        messages = log.read(request.offset, max(request.max_size, 0))
        if request.max_size < 0 and request.offset < log.high_watermark:
            messages.release()
            raise CloseConnection(f"a fetch with a negative maximum size, {request.max_size}")
        if not messages.length:
            messages.release()
            return None
        return messages

    def _fetch_code(self, request: FetchRequest, error: HermesError) -> ErrorCode:
        """0.7's code for a fetch that failed; what is our fault is logged as well."""
        if isinstance(error, OffsetOutOfRangeError):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if isinstance(error, WrongPartitionError):
            return ErrorCode.WRONG_PARTITION
        if not isinstance(error, InvalidTopicError) and self._rate.allow("fetch") is not None:
            self._log.error(
                "could not read {topic}-{partition}: {error}",
                topic=request.topic,
                partition=request.partition,
                error=str(error),
            )
        return ErrorCode.UNKNOWN

    def _multifetch(self, request: MultiFetchRequest) -> MultiMessageSetSend:
        return MultiMessageSetSend(self._fetch_each(request.fetches))

    def _fetch_each(self, fetches: Iterable[FetchRequest]) -> list[MessageSetSend]:
        sends: list[MessageSetSend] = []
        try:
            for fetch in fetches:
                sends.append(self._fetch(fetch))
        except CloseConnection:
            for send in sends:
                send.release()
            raise
        return sends

    def _waiting_fetch(self, request: WaitingFetchRequest) -> Outcome:
        if request.max_wait_ms <= 0 or self._is_ready(request):
            return self._answer_waiting(request)
        waited = self.waiting.wait(request)
        return Later(waited.addCallback(lambda _: self._answer_waiting(request)), abandon=True)

    def _answer_waiting(self, request: WaitingFetchRequest) -> WaitingFetchSend:
        sends = self._fetch_each(request.fetches)
        marks = [
            -1 if log is None else log.high_watermark
            for log in (self._find(f.topic, f.partition) for f in request.fetches)
        ]
        return WaitingFetchSend(list(zip(sends, marks, strict=True)))

    def _is_ready(self, request: WaitingFetchRequest) -> bool:
        """Whether a waiting fetch has enough bytes, or an error to report."""
        available = 0
        for fetch in request.fetches:
            log = self._find(fetch.topic, fetch.partition)
            if log is None:
                try:
                    self.topics.for_fetch(fetch.topic, fetch.partition)
                except HermesError:
                    return True
                continue
            behind = log.high_watermark - fetch.offset
            if behind < 0 or fetch.offset < log.earliest or fetch.max_size < 0:
                return True
            available += min(behind, fetch.max_size)
        return available >= request.min_bytes

    # -- questions ------------------------------------------------------------------------------

    def _offsets(self, request: OffsetsRequest) -> Outcome:
        if request.max_offsets < 0:
            raise CloseConnection(f"an offsets request for {request.max_offsets} offsets")
        try:
            log = self.topics.for_fetch(request.topic, request.partition)
        except HermesError as error:
            raise CloseConnection(f"offsets of {request.topic!r}: {error}") from error
        if log is None:
            offsets = [0] if request.time in (-1, -2) else []
            return encode_offsets_response(offsets[: request.max_offsets])
        if request.time in (-1, -2):
            return encode_offsets_response(
                log.offsets_before(request.time, request.max_offsets, self._now_ms())
            )
        found: Deferred[list[int]] = self._in_thread(
            log.offsets_before, request.time, request.max_offsets, self._now_ms()
        )
        return Later(found.addCallback(encode_offsets_response))

    def _boundary(self, request: BoundaryRequest) -> Outcome:
        try:
            log = self.topics.for_fetch(request.topic, request.partition)
        except HermesError as error:
            return encode_boundary_response(code_for(error), -1)
        if log is None:
            return encode_boundary_response(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        found: Deferred[int] = self._in_thread(log.boundary_before, request.offset)
        return Later(
            found.addCallbacks(
                lambda offset: encode_boundary_response(ErrorCode.NONE, offset),
                lambda failure: encode_boundary_response(code_for(failure.value), -1),
            )
        )

    def _metadata(self, request: MetadataRequest) -> bytes:
        names = self.topics.names() if request.topics is None else request.topics
        return encode_metadata_response(
            BrokerMetadata(
                broker_id=self._config.broker_id,
                version=__version__,
                max_request_bytes=self._config.max_request_bytes,
                max_message_bytes=self._config.max_message_bytes,
                default_partitions=self._config.num_partitions,
                request_versions=REQUEST_VERSIONS,
                topics=tuple(self._topic_metadata(name) for name in names),
            )
        )

    def _topic_metadata(self, topic: str) -> TopicMetadata:
        try:
            check_topic_name(topic, self._config.max_topic_name_length)
        except InvalidTopicError:
            return TopicMetadata(topic, ErrorCode.INVALID_TOPIC, 0, ())
        code = ErrorCode.NONE if self.topics.exists(topic) else ErrorCode.UNKNOWN_TOPIC
        logs = tuple(
            PartitionMetadata(
                log.partition, log.earliest, log.high_watermark, log.end_offset - log.earliest
            )
            for log in self.topics.partitions(topic)
        )
        return TopicMetadata(topic, code, self.topics.partition_count(topic), logs)

    def _delete_topic(self, request: DeleteTopicRequest) -> Outcome:
        try:
            logs = self.topics.begin_delete(request.topic)
        except UnknownTopicError as error:
            return encode_error_response(code_for(error))
        for log in logs:
            self._flusher.forget(log)
        deleted: Deferred[Any] = self._in_thread(self._directory.delete_topic, request.topic)

        def ended(result: Any) -> bytes:
            self.topics.end_delete(request.topic)
            for log in logs:
                self.waiting.changed(log.topic, log.partition)
            code = ErrorCode.NONE
            if error := getattr(result, "value", None):
                code = code_for(error)
                self._log.error(
                    "deleting {topic} failed: {error}", topic=request.topic, error=error
                )
            else:
                self._log.info("deleted topic {topic}", topic=request.topic)
            return encode_error_response(code)

        return Later(deleted.addBoth(ended))

    def _unsupported(self, request: UnsupportedRequest) -> bytes:
        return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
