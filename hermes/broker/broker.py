"""What a request does to the logs: every decision of the broker, and no bytes of the network.

`Broker.serve` takes a request value and says how it ends: an answer (bytes, or a send that will
read from segments), no answer, an answer that comes `Later`, or `CloseConnection` where Kafka 0.7
closes the socket. `append_run` is the short way for runs of plain produce requests, which is
where a broker's time goes. Everything here runs in the reactor's thread and never waits: checks
that expand compressed data, and whatever has to read from a disk, run in worker threads.

One class, though long: its methods are one request each and share the logs, the topics and the
flusher; what has a life of its own (flushes, waits, acknowledgements, turns) is a module beside it.

Source of the outcomes: Kafka 0.7.2 as recorded in tests/vectors; docs/wire-protocol.md for the
requests that are Hermes' own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from hermes._version import __version__
from hermes.broker.acknowledging import Appended, answer_when_flushed
from hermes.broker.describing import describe
from hermes.broker.flushing import FlushScheduler
from hermes.broker.large_answers import LargeAnswers
from hermes.broker.metrics import Metrics
from hermes.broker.sends import FileSend, MessageSetSend, MultiMessageSetSend, WaitingFetchSend
from hermes.broker.topics import TopicRegistry
from hermes.broker.turns import SharedTurns, in_turns
from hermes.broker.waiting import WaitingFetches
from hermes.config import BrokerConfig
from hermes.errors import (
    BrokerError,
    DiskFullError,
    ExpandedTooLargeError,
    HermesError,
    InvalidTopicError,
    LocalProtocolError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    ProtocolError,
    StorageError,
    TooManyTopicsError,
    WrongPartitionError,
)
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol import (
    LONG_ENTRIES,
    REQUEST_VERSIONS,
    AcknowledgedProduceRequest,
    Acks,
    AppendRun,
    AppendTimesAnswer,
    AppendTimesRequest,
    BoundaryRequest,
    BrokerMetadata,
    CoordinationRequest,
    DeleteTopicRequest,
    ErrorCode,
    FetchRequest,
    LongProduce,
    LongRequest,
    MetadataRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProducedEntry,
    ProduceRequest,
    ProduceRun,
    SetCheck,
    UnsupportedRequest,
    WaitingFetchRequest,
    check_message_set,
    check_plain_set,
    code_for,
    encode_acknowledged_produce_response,
    encode_append_times_response,
    encode_boundary_response,
    encode_coordination_response,
    encode_error_response,
    encode_offsets_response,
)
from hermes.quoting import quoted
from hermes.storage import DataDirectory, Log, LogSlice

__all__ = ["Broker", "CloseConnection", "Later", "Outcome"]

#: Plain sets up to this size are checked in the reactor's thread: about 3 ms of CRCs.
INLINE_PLAIN_BYTES = 1024 * 1024

#: So are others (compressed, old or damaged ones) up to this size, as long as they expand to no
#: more than the second number; beyond that a worker thread takes over.
INLINE_UNUSUAL_BYTES = 8 * 1024
INLINE_EXPANDED_BYTES = 64 * 1024

#: How many sets are checked in worker threads at a time; the threads' other users want some, too.
CONCURRENT_CHECKS = 2

#: How long an acknowledged produce waits for the delete of its topic; then it is answered with 71.
DELETION_WAIT_SECONDS = 1.0

#: A set that expands to more than this is checked when no other such set is.
CONCURRENT_EXPANDED_BYTES = 8 * 1024 * 1024

#: How many times and boundaries are looked up in worker threads at a time.
CONCURRENT_LOOK_UPS = 2

#: A produce of very many entries waits for its flush while the next one is decoded, unless it has
#: more entries than this: each of them holds memory until it is answered.
MAX_FLUSHED_LATER = 1024

#: A fetch waits no longer than this: a peer that has gone may only be noticed afterwards.
MAX_WAIT_MS = 5 * 60 * 1000

#: More partitions than this can't be waited for in one request: each flush looks at all of them.
MAX_WAITING_FETCHES = 1024

#: The answer to more fetches than this, or about more topics and partitions, counts as large.
LARGE_ENTRIES = LONG_ENTRIES

#: Large answers under way may together hold this share of `request_memory`.
_LARGE_ANSWERS_SHARE = 0.5

#: And so may fetches that wait.
_WAITING_SHARE = 0.5

#: What an int32 can say, less what stands before the messages of one fetch.
_LARGEST_SIZE = 2**31 - 1
_LARGEST_FETCH_BYTES = _LARGEST_SIZE - 32


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
        request_bytes: what the request holds in memory until then, where that is much.
    """

    outcome: "Deferred[Any]"  # of bytes, a FileSend or None
    ordered: bool = True
    abandon: bool = False
    request_bytes: int = 0


Outcome = bytes | FileSend | Later | None

_Check = SetCheck | ProtocolError


class Broker:
    """Decides what requests do.

    Attributes:
        metrics: what was done so far.
        topics: which topics there are.
        waiting: the fetches that wait for more.
        turns: of requests and connections that have more to do.
        large_answers: those under way.
        tell_coordination: gives where clients find coordination; see `Coordination.told`.
    """

    _log = ModuleLogger()

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
        self._lines = LimitedLog(self._log, clock.seconds)
        self._checking = DeferredSemaphore(CONCURRENT_CHECKS)
        self._expanding_far = Lock()
        self._appending_long = DeferredSemaphore(1)
        self._looking_up = DeferredSemaphore(CONCURRENT_LOOK_UPS)
        self.topics = topics
        self.tell_coordination: Callable[[], str] = lambda: ""
        self.metrics = Metrics()
        self.turns = SharedTurns(clock)
        self.waiting = WaitingFetches(
            clock, self.turns, self._available, int(config.request_memory_bytes * _WAITING_SHARE)
        )
        self.large_answers = LargeAnswers(
            int(config.request_memory_bytes * _LARGE_ANSWERS_SHARE), clock
        )
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
            AppendTimesRequest: self._append_times,
            DeleteTopicRequest: self._delete_topic,
            CoordinationRequest: lambda _: encode_coordination_response(self.tell_coordination()),
            UnsupportedRequest: self._unsupported,
            LongRequest: self._long,
            LongProduce: self._long_produce,
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

    def _long(self, request: LongRequest) -> Later:
        """Serve a request of very many entries, decoded in a thread and one at a time.

        Decoded they hold twenty times what their bytes do, and their answers are large.
        """
        served = self.large_answers.make(
            lambda: self._in_thread(request.decode).addCallback(self._decoded)
        )
        served.addCallback(_awaited)  # a fetch that waits does so when others have their turn
        return Later(served, abandon=True, request_bytes=len(request.frame))

    def _large(self, function: Callable[..., Any], *args: Any) -> Later:
        """Make a large answer when its time has come."""
        made = self.large_answers.make(lambda: _awaited(function(*args)))
        return Later(made, abandon=True)

    def _decoded(self, request: Any) -> Any:
        if isinstance(request, MultiFetchRequest):
            return _awaited(self._fetch_all(request.fetches, self._multifetch_answer))
        if isinstance(request, MetadataRequest):
            return self._describe(request)
        return self.serve(request)

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
        outcome: Later | None = _later(
            self._checked(produces, lambda checks: self._append_unanswered(produces, checks)),
            produces,
        )
        return outcome

    def _append_unanswered(
        self, produces: Sequence[ProduceRequest], checks: Sequence[_Check]
    ) -> "Deferred[None] | None":
        """Append in order; the first bad set closes, those before it stay."""
        self.metrics.produce_requests += 1
        pairs = list(zip(produces, checks, strict=True))
        done = in_turns(self.turns, pairs, self._append_one_unanswered)
        return done.addCallback(lambda _: None) if isinstance(done, Deferred) else None

    def _append_one_unanswered(self, pair: tuple[ProduceRequest, _Check]) -> None:
        produce, check = pair
        try:
            self._append(produce, check)
        except MessageTooLargeError as error:
            self._drop_oversized(produce, error)
        except HermesError as error:
            raise self._refusal(produce.topic, produce.partition, error) from error

    def _append(self, produce: ProduceRequest, check: _Check) -> tuple[Log, int]:
        """Append one checked set. As in 0.7 the topic is created even when the set is bad."""
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

    def _checked(
        self, produces: Sequence[ProduceRequest], then: Callable[[Sequence[_Check]], Any]
    ) -> Any:
        """Check message sets, here if that is quick and else in a thread, and go on with `then`.

        Returns:
            What `then` returned, or a Deferred of that.
        """
        checks = self._check_inline(produces)
        if checks is not None:
            return then(checks)
        checked: Deferred[Any] = self._checking.run(self._in_thread, self._check_all, produces)
        return checked.addCallback(then)

    def _check_inline(self, produces: Sequence[ProduceRequest]) -> list[_Check] | None:
        """Check sets in the reactor's thread; None when that could take long."""
        if len(produces) > LONG_ENTRIES or _size(produces) > INLINE_PLAIN_BYTES:
            return None
        plain = [self._check_plain(produce) for produce in produces]
        unusual = [n for n, check in enumerate(plain) if check is None]
        if sum(len(produces[n].message_set) for n in unusual) > INLINE_UNUSUAL_BYTES:
            return None
        limit = min(INLINE_EXPANDED_BYTES, self._config.max_expanded_bytes)
        checks: list[_Check] = []
        for produce, check in zip(produces, plain, strict=True):
            checks.append(check or self._check(produce, limit))
            if isinstance(checks[-1], ExpandedTooLargeError):
                return None
        return checks

    def _check_plain(self, produce: ProduceRequest) -> _Check | None:
        """Check a set of nothing but plain, whole messages; None when it is another."""
        try:
            return check_plain_set(
                produce.message_set, max_message_bytes=self._config.max_message_bytes
            )
        except MessageTooLargeError as error:
            return error.with_traceback(None)  # its frames hold the set

    def _check_all(self, produces: Sequence[ProduceRequest]) -> list[_Check]:
        return [self._check_in_thread(produce) for produce in produces]

    def _check_in_thread(self, produce: ProduceRequest) -> _Check:
        """Check a set, and have only one at a time that takes much memory."""
        limit = min(CONCURRENT_EXPANDED_BYTES, self._config.max_expanded_bytes)
        check = self._check(produce, limit)
        if isinstance(check, ExpandedTooLargeError) and limit < self._config.max_expanded_bytes:
            with self._expanding_far:
                check = self._check(produce, self._config.max_expanded_bytes)
        return check

    def _check(self, produce: ProduceRequest, max_expanded_bytes: int) -> _Check:
        """Check a set as 0.7 does. Touches nothing of the broker: any thread may call it."""
        try:
            return check_message_set(
                produce.message_set,
                max_message_bytes=self._config.max_message_bytes,
                max_expanded_bytes=max_expanded_bytes,
            )
        except ProtocolError as error:
            return error.with_traceback(None)  # its frames hold what the set expanded to

    def _drop_oversized(self, produce: ProduceRequest, error: MessageTooLargeError) -> None:
        self.metrics.oversized_sets += 1
        self._lines.warn(
            "oversized",
            "dropped a message set for {topic}-{partition}: {error}",
            topic=produce.topic,
            partition=produce.partition,
            error=error,
        )

    def _refusal(self, topic: str, partition: int, error: Exception) -> CloseConnection:
        if isinstance(error, StorageError):
            self._lines.error(
                "full" if isinstance(error, DiskFullError) else "storage",
                "could not append to {topic}-{partition}: {error}",
                topic=topic,
                partition=partition,
                error=error,
            )
        elif isinstance(error, TooManyTopicsError):
            self._lines.warn("topics", "a limit is reached: {error}", error=error)
        return CloseConnection(f"produce to {quoted(topic)} partition {partition}: {error}")

    def _acknowledged_produce(self, request: AcknowledgedProduceRequest) -> Outcome:
        def append() -> Outcome:
            outcome: Outcome = _later(self._append_acknowledged(request), request.produces)
            return outcome

        deleted = self._deletion(request)
        if deleted is None:
            return append()
        return Later(self._after_deletion(deleted, append), request_bytes=_size(request.produces))

    def _deletion(self, request: AcknowledgedProduceRequest) -> "Deferred[None] | None":
        return self.topics.deletion(produce.topic for produce in request.produces)

    def _after_deletion(
        self, deleted: "Deferred[None]", append: Callable[[], Outcome]
    ) -> "Deferred[Any]":
        """Append when a topic is gone, so that those who keep deleting it don't starve others."""

        def go_on(_: None) -> Any:
            if timer.active():
                timer.cancel()
            return _awaited(append())

        timer = self._clock.callLater(
            DELETION_WAIT_SECONDS, lambda: None if deleted.called else deleted.callback(None)
        )
        return deleted.addCallback(go_on)

    def _long_produce(self, request: LongProduce, waits: bool = True) -> Later:
        """Append the sets of a request of very many, decoded in a thread and one at a time.

        Its answer is small, and so waits for no room for large ones. Who waits for a disk or for a
        delete gives the turn back: one disk that hangs must not hold up what goes to others.
        """

        def append(decoded: Any) -> Any:
            if not isinstance(decoded, AcknowledgedProduceRequest):
                return _awaited(self.serve(decoded))
            deleted = self._deletion(decoded) if waits else None
            if deleted is not None:  # only the bytes wait: they will be decoded again
                return Later(
                    self._after_deletion(deleted, lambda: self._long_produce(request, False))
                )
            appended = self._append_acknowledged(decoded)
            if len(decoded.produces) > MAX_FLUSHED_LATER and isinstance(appended, Deferred):
                appended.addCallback(_awaited)
            return appended

        def begin() -> "Deferred[Any]":
            return self._in_thread(request.decode).addCallback(append)

        served = self._appending_long.run(begin).addCallback(_awaited)
        return Later(served, request_bytes=len(request.frame))

    def _append_acknowledged(
        self, request: AcknowledgedProduceRequest
    ) -> "bytes | Later | Deferred[bytes | Later]":
        """Check and append; what comes `Later` is only the flush."""
        if request.acks not in (Acks.WRITTEN, Acks.FLUSHED):
            return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
        self.metrics.produce_requests += 1

        def append(checks: Sequence[_Check]) -> Any:
            pairs = list(zip(request.produces, checks, strict=True))
            appended = in_turns(self.turns, pairs, self._append_entry)
            if isinstance(appended, Deferred):
                return appended.addCallback(partial(self._acknowledge, request))
            return self._acknowledge(request, appended)

        outcome: bytes | Later | Deferred[bytes | Later] = self._checked(request.produces, append)
        return outcome

    def _acknowledge(
        self, request: AcknowledgedProduceRequest, appended: list[Appended]
    ) -> bytes | Later:
        if request.acks == Acks.WRITTEN:
            return encode_acknowledged_produce_response([each.entry for each in appended])
        answer = answer_when_flushed(
            self._clock, self.turns, self._flusher, appended, request.timeout_ms
        )
        return Later(answer, ordered=False)

    def _append_entry(self, pair: tuple[ProduceRequest, _Check]) -> Appended:
        produce, check = pair
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
        return Appended(ProducedEntry(log.partition, ErrorCode.NONE, offset), log, log.openings)

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
        messages = log.read(request.offset, min(max(request.max_size, 0), _LARGEST_FETCH_BYTES))
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
        if not isinstance(error, InvalidTopicError):
            self._lines.error(
                "fetch",
                "could not read {topic}-{partition}: {error}",
                topic=request.topic,
                partition=request.partition,
                error=error,
            )
        return ErrorCode.UNKNOWN

    def _multifetch(self, request: MultiFetchRequest) -> Outcome:
        outcome: Outcome = self._fetch_many(request.fetches, self._multifetch_answer)
        return outcome

    def _multifetch_answer(self, sends: list[MessageSetSend]) -> FileSend:
        if not _fits(sends):
            raise CloseConnection("the answer to a multifetch would have 2 GiB or more")
        return MultiMessageSetSend(sends)

    def _fetch_many(
        self, fetches: Sequence[FetchRequest], answer: Callable[[list[MessageSetSend]], Any]
    ) -> Any:
        """Fetch, when the time for a large answer has come if it may be one."""
        if len(fetches) <= LARGE_ENTRIES:
            return self._fetch_all(fetches, answer)
        return self._large(self._fetch_all, fetches, answer)

    def _fetch_all(
        self, fetches: Sequence[FetchRequest], answer: Callable[[list[MessageSetSend]], Any]
    ) -> Any:
        sends = in_turns(self.turns, fetches, self._fetch, MessageSetSend.release)
        if isinstance(sends, Deferred):
            return Later(sends.addCallback(answer), abandon=True)
        return answer(sends)

    def _waiting_fetch(self, request: WaitingFetchRequest) -> Outcome:
        if len(request.fetches) > MAX_WAITING_FETCHES:
            return encode_error_response(ErrorCode.UNKNOWN)
        if request.max_wait_ms > MAX_WAIT_MS:
            request = replace(request, max_wait_ms=MAX_WAIT_MS)
        waited = self.waiting.wait(request)
        if waited is None:
            return self._answer_waiting(request)
        answered = waited.addCallback(lambda whole: _awaited(self._answer_waiting(whole)))
        return Later(answered, abandon=True)

    def _answer_waiting(self, request: WaitingFetchRequest) -> Outcome:
        def answer(sends: list[MessageSetSend]) -> bytes | WaitingFetchSend:
            if not _fits(sends):
                return encode_error_response(ErrorCode.ANSWER_TOO_LARGE)
            logs = (self._find(fetch.topic, fetch.partition) for fetch in request.fetches)
            marks = [-1 if log is None else log.high_watermark for log in logs]
            return WaitingFetchSend(list(zip(sends, marks, strict=True)))

        outcome: Outcome = self._fetch_many(request.fetches, answer)
        return outcome

    def _available(self, fetch: FetchRequest) -> int | None:
        """How many bytes there are for a fetch now; None when its answer is an error."""
        log = self._find(fetch.topic, fetch.partition)
        if log is None:
            try:
                self.topics.for_fetch(fetch.topic, fetch.partition)
            except HermesError:
                return None
            return 0
        behind = log.high_watermark - fetch.offset
        if behind < 0 or fetch.offset < log.earliest or fetch.max_size < 0:
            return None
        return min(behind, fetch.max_size)

    # -- questions ------------------------------------------------------------------------------

    def _offsets(self, request: OffsetsRequest) -> Outcome:
        if request.max_offsets < 0:
            raise CloseConnection(f"an offsets request for {request.max_offsets} offsets")
        try:
            log = self.topics.for_fetch(request.topic, request.partition)
        except HermesError as error:
            raise CloseConnection(f"offsets of {quoted(request.topic)}: {error}") from error
        if log is None:
            offsets = [0] if request.time in (-1, -2) else []
            return encode_offsets_response(offsets[: request.max_offsets])
        if request.time in (-1, -2):
            return encode_offsets_response(
                log.offsets_before(request.time, request.max_offsets, self._now_ms())
            )
        found: Deferred[list[int]] = self._looked_up(
            log.offsets_before, request.time, request.max_offsets, self._now_ms()
        )
        return Later(found.addCallback(encode_offsets_response), abandon=True)

    def _boundary(self, request: BoundaryRequest) -> Outcome:
        try:
            log = self.topics.for_fetch(request.topic, request.partition)
        except HermesError as error:
            return encode_boundary_response(code_for(error), -1)
        if log is None:
            return encode_boundary_response(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        found: Deferred[int] = self._looked_up(log.boundary_before, request.offset)
        return Later(
            found.addCallbacks(
                lambda offset: encode_boundary_response(ErrorCode.NONE, offset),
                lambda failure: encode_boundary_response(code_for(failure.value), -1),
            ),
            abandon=True,
        )

    def _looked_up(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Look something up on the disk, a few such at a time.

        A worker that computes holds the interpreter's lock, and the reactor waits for it: eight at
        a time, with thousands behind them, would leave it little.
        """
        found: Deferred[Any] = self._looking_up.run(self._in_thread, function, *args)
        return found

    def _append_times(self, request: AppendTimesRequest) -> Outcome:
        try:
            log = self.topics.for_fetch(request.topic, request.partition)
        except HermesError as error:
            return encode_error_response(code_for(error))
        if request.interval_ms < 1:
            return encode_error_response(ErrorCode.UNKNOWN)
        if log is None:
            if request.start:
                return encode_error_response(ErrorCode.OFFSET_OUT_OF_RANGE)
            return encode_append_times_response(AppendTimesAnswer(0, []))

        found: Deferred[tuple[int, list[AppendRun]]] = self._looked_up(
            log.append_times, request.start, request.end, request.interval_ms
        )
        return Later(
            found.addCallbacks(
                lambda answer: encode_append_times_response(AppendTimesAnswer(*answer)),
                lambda failure: encode_error_response(code_for(failure.value)),
            ),
            abandon=True,
        )

    def _metadata(self, request: MetadataRequest) -> Outcome:
        if self._is_little(request):
            outcome = self._describe(request)
            return Later(outcome) if isinstance(outcome, Deferred) else outcome
        return self._large(self._describe, request)

    def _is_little(self, request: MetadataRequest) -> bool:
        """Whether there is little to say about what was asked for."""
        names = request.topics
        if names is None:
            return len(self._directory.logs) <= LARGE_ENTRIES
        if len(names) > LARGE_ENTRIES:
            return False
        return sum(self.topics.written_count(name) for name in names) <= LARGE_ENTRIES

    def _describe(self, request: MetadataRequest) -> "bytes | Deferred[bytes]":
        config = self._config
        broker = BrokerMetadata(
            broker_id=config.broker_id,
            version=__version__,
            max_request_bytes=config.max_request_bytes,
            max_message_bytes=config.max_message_bytes,
            default_partitions=config.num_partitions,
            request_versions=REQUEST_VERSIONS,
            topics=(),
        )
        names = self.topics.names() if request.topics is None else request.topics
        try:
            answer = describe(self.turns, broker, self.topics, names, config.max_topic_name_length)
        except HermesError as error:
            return _metadata_refusal(error)
        if isinstance(answer, Deferred):
            answer.addErrback(lambda failure: _metadata_refusal(failure.value))
        return answer

    def _delete_topic(self, request: DeleteTopicRequest) -> Outcome:
        try:
            logs = self.topics.begin_delete(request.topic)
        except BrokerError as error:
            return encode_error_response(code_for(error))
        for log in logs:
            self._flusher.forget(log)
        deleted: Deferred[Any] = self._in_thread(self._directory.delete_topic, request.topic)

        def ended(result: Any) -> bytes:
            self.topics.end_delete(request.topic)
            for log in logs:
                self._flusher.forget(log)  # whatever was appended until its files were gone
                self.waiting.changed(log.topic, log.partition)
            code = ErrorCode.NONE
            if error := getattr(result, "value", None):
                code = code_for(error)
                self._lines.error(
                    "not deleted",
                    "deleting {topic} failed: {error}",
                    topic=request.topic,
                    error=error,
                )
            else:
                self._lines.info("deleted", "deleted topic {topic}", topic=request.topic)
            return encode_error_response(code)

        return Later(deleted.addBoth(ended))

    def _unsupported(self, request: UnsupportedRequest) -> bytes:
        return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)


def _fits(sends: list[MessageSetSend]) -> bool:
    """Whether answers to single fetches fit into one answer; if not, they are let go."""
    # Beside its messages an entry has 6 bytes in a multifetch and 14 in a waiting fetch.
    if sum(send.size_bytes + 8 for send in sends) + 8 <= _LARGEST_SIZE:
        return True
    for send in sends:
        send.release()
    return False


def _metadata_refusal(error: Any) -> bytes:
    """The answer to a metadata request that can't be answered as a whole."""
    if isinstance(error, LocalProtocolError):  # a name that is too long once it is encoded
        return encode_error_response(ErrorCode.INVALID_TOPIC)
    return encode_error_response(code_for(error))


def _later(outcome: Any, produces: Sequence[ProduceRequest]) -> Any:
    """What a request returns for an outcome, which may be a Deferred of one."""
    if not isinstance(outcome, Deferred):
        return outcome
    return Later(outcome.addCallback(_awaited), request_bytes=_size(produces))


def _size(produces: Sequence[ProduceRequest]) -> int:
    return sum(len(produce.message_set) for produce in produces)


def _awaited(outcome: Any) -> Any:
    """What a callback of a Deferred returns for an outcome: its Deferred, if it has one."""
    return outcome.outcome if isinstance(outcome, Later) else outcome
