"""Requests of mirrors: appends that happen once, the positions of sources, the cluster's id.

    produce     (get the log ready) -> check -> append what is new -> (flush) -> a code per set
    positions   look -> flush what was looked at -> response

A log gets ready for ranges of sources once after each opening, in a worker thread, since that syncs
a file. All else is as for other produces: `hermes.v0_7.producing`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from hermes.cluster.shared import Shared
from hermes.errors import (
    HermesError,
    InvalidMessageError,
    InvalidSourceError,
    MessageTooLargeError,
    NotLeaderError,
    StorageError,
)
from hermes.partition.partition import Partition
from hermes.protocol import (
    ALL_PARTITIONS,
    Acks,
    ClusterIdRequest,
    ErrorCode,
    MirroredEntry,
    MirroredProduceRequest,
    MirroredSet,
    PartitionPositions,
    SetCheck,
    SourceFlags,
    SourcePositionsRequest,
    SourcePositionsResponse,
    code_for,
    encode_cluster_id_response,
    encode_error_response,
    encode_source_positions_response,
)
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import DeferredResponse, Outcome, cancellable, then
from hermes.storage import Log, SourceRange
from hermes.v0_7.acknowledging import MIRRORED, AppendedEntry
from hermes.v0_7.producing import Produces, is_known
from hermes.v0_7.record_produces import BatchCheck, RecordProduces
from hermes.v0_7.set_checker import CheckResult, size_of

#: How many partitions one response tells the positions of: each may have to be flushed first.
TOLD_PARTITIONS: Final = 64

#: How many sources one response tells: with the longest names these are 256 KiB.
TOLD_SOURCES: Final = 512

#: How many spans one response tells.
TOLD_SPANS: Final = 1024

#: How many requests get logs ready at a time; others need the threads, too.
CONCURRENT_BEGINS = 2

# The first source of the next response, as `first` has it: the partition, and the source's number.
_NUMBER_BITS: Final = 32

_Refused = Mapping[Log, StorageError]


class Mirroring:
    """Lives in the reactor's thread; `cluster_id` gives a UUID, empty while it isn't known."""

    def __init__(
        self,
        shared: Shared,
        produces: Produces,
        record_produces: RecordProduces,
        cluster_id: Callable[[], str],
    ) -> None:
        self._shared = shared
        self._produces = produces
        self._record_produces = record_produces
        self._topics = shared.topics
        self._scheduler = shared.scheduler
        self._beginning = DeferredSemaphore(CONCURRENT_BEGINS)
        self.cluster_id = cluster_id

    # -- produce --------------------------------------------------------------------------------

    def produce(self, request: MirroredProduceRequest, client: Client) -> Outcome:
        """Append what isn't there yet, and acknowledge; every set is answered by itself."""
        if not is_known(request.acks):
            return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
        began = self._scheduler.now()
        deleted = self._topics.deletion(each.topic for each in request.sets)
        needs_all = request.acks == Acks.FLUSHED
        append = partial(self._judge_and_append, request.sets, client, needs_all)
        produces = self._produces
        appended = append() if deleted is None else produces.after_deletion(deleted, append)
        if isinstance(appended, Deferred):
            held_bytes = size_of([each.produce for each in request.sets])
            awaited = DeferredResponse(request_bytes=held_bytes)

            def acknowledge(
                entries: list[AppendedEntry[MirroredEntry]],
            ) -> "bytes | Deferred[bytes]":
                # Sets that are checked in threads would wait for a flush each.
                self._scheduler.resume_later(awaited.let_pass)
                return produces.acknowledge(
                    request.acks, request.timeout_ms, began, MIRRORED, entries
                )

            awaited.follow(appended.addCallback(acknowledge))
            return awaited
        response: bytes | Deferred[bytes] = produces.acknowledge(
            request.acks, request.timeout_ms, began, MIRRORED, appended
        )
        if not isinstance(response, Deferred):
            return response
        return DeferredResponse(response, ordered=False)  # only the flush is awaited

    def _judge_and_append(
        self, sets: Sequence[MirroredSet], client: Client, needs_all: bool
    ) -> Any:
        """Append what the client may produce, and refuse the rest; in order, or a Deferred."""
        if not self._shared.refusals.is_on:
            return self._begin_and_append(sets, client, needs_all)

        def append(errors: Sequence[HermesError | None]) -> Any:
            def join(
                entries: Sequence[AppendedEntry[MirroredEntry]],
            ) -> list[AppendedEntry[MirroredEntry]]:
                appended = iter(entries)
                return [
                    next(appended)
                    if error is None
                    else AppendedEntry(self._refuse(client, wanted, None, error))
                    for wanted, error in zip(sets, errors, strict=True)
                ]

            some = [each for each, error in zip(sets, errors, strict=True) if error is None]
            return then(self._begin_and_append(some, client, needs_all), join)

        return then(self._produces.judge([each.topic for each in sets], client), append)

    def _begin_and_append(
        self, sets: Sequence[MirroredSet], client: Client, needs_all: bool
    ) -> Any:
        """Get the logs ready, check the sets, and append; what became of each, or a Deferred."""

        def begin(logs: Sequence[Log | None]) -> "_Refused | Deferred[_Refused]":
            unready = {log for log in logs if log is not None and not log.sources.takes_ranges}
            if not unready:
                return {}
            return self._beginning.run(self._shared.in_thread, _begin_sources, unready)

        def check(refused: _Refused) -> Any:
            return then(self._check(sets), partial(append, refused))

        def append(refused: _Refused, checks: Sequence[CheckResult]) -> Any:
            entries = list(zip(sets, checks, strict=True))
            append_entry = partial(self._append_entry, client, needs_all, refused)
            return cooperatively(self._scheduler, entries, append_entry)

        find = partial(self._find, client)
        return then(then(cooperatively(self._scheduler, sets, find), begin), check)

    def _check(self, sets: Sequence[MirroredSet]) -> Any:
        """What each set is found to be, or a Deferred; a set without a message is plain."""
        of_batches = [_holds_records(each) and len(each.message_set) > 0 for each in sets]
        batches = [each.produce for each, has in zip(sets, of_batches, strict=True) if has]
        plain = [each.produce for each, has in zip(sets, of_batches, strict=True) if not has]

        def check_batches(found: Sequence[CheckResult]) -> Any:
            def join(found_batches: Sequence[Any]) -> list[Any]:
                both = iter(found), iter(found_batches)
                return [next(both[has]) for has in of_batches]

            return then(self._record_produces.checker.check(batches), join)

        checks = self._produces.checker.check(plain)
        return then(checks, check_batches) if batches else checks

    def _partition(self, wanted: MirroredSet, client: Client) -> Partition:
        """Find or create a set's partition; raises as `Produces.partition_for`.

        Mirrors make topics of Kafka's format by request; others are 0.7's, as in the source.
        """
        # Never one at random, which isn't the same when the set is sent again.
        number = -2 if wanted.partition == -1 else wanted.partition
        if _holds_records(wanted):
            return self._record_produces.partition(wanted.topic, number)
        return self._produces.partition_for(wanted.topic, number, client)

    def _find(self, client: Client, wanted: MirroredSet) -> Log | None:
        try:
            return self._partition(wanted, client).log
        except HermesError:
            return None

    def _append_entry(
        self,
        client: Client,
        needs_all: bool,
        refused: _Refused,
        pair: tuple[MirroredSet, CheckResult],
    ) -> AppendedEntry[MirroredEntry]:
        wanted, check = pair
        log = None
        try:
            partition = self._partition(wanted, client)
            log = partition.log
            if needs_all and partition.leadership is not None:
                partition.leadership.check_enough()
            if log in refused and not log.sources.takes_ranges:
                raise refused[log]
            offset = _append(partition, wanted, check)
        except HermesError as error:
            # As in `Produces`: it may be what was found before.
            return AppendedEntry(self._refuse(client, wanted, log, error.with_traceback(None)))
        position = log.sources.position(wanted.source)
        entry = MirroredEntry(ErrorCode.NONE, -1 if offset is None else offset, position)
        return AppendedEntry.to(log, entry)  # also of what was there: is it flushed?

    def _refuse(
        self, client: Client, wanted: MirroredSet, log: Log | None, error: HermesError
    ) -> MirroredEntry:
        produce, refused = wanted.produce, self._produces.refused
        if isinstance(error, MessageTooLargeError):
            refused.drop_oversized(produce.topic, produce.partition, error, client)
        else:
            refused.refusal(wanted.topic, wanted.partition, error, client)
        refused.count("mirrored_produce", error, client)
        position = -1 if log is None else log.sources.position(wanted.source)
        return MirroredEntry(code_for(error), -1, position)

    # -- positions ------------------------------------------------------------------------------

    def positions(self, request: SourcePositionsRequest) -> Outcome:
        """Tell positions, or spans, once what they are about is committed."""
        try:
            logs = self._logs(request)
            for log in logs:
                log.check_readable()
        except HermesError as error:
            return encode_error_response(code_for(error))
        answer = _spans(logs, request.first) if request.with_spans else _positions(logs, request)
        told = {each.partition for each in answer.partitions}
        committed = [
            self._committed(log) for log in logs if log.partition in told and log.sources.has_any
        ]
        return cancellable(
            gatherResults(committed, consumeErrors=True).addCallbacks(
                lambda _: encode_source_positions_response(answer),
                lambda failure: encode_error_response(ErrorCode.STORAGE_UNAVAILABLE),
            )
        )

    def _committed(self, log: Log) -> "Deferred[None]":
        committed: Deferred[None] = Deferred()

        def notify(error: StorageError | None) -> None:
            if error is None:
                committed.callback(None)
            else:
                committed.errback(error)

        self._shared.flusher.when_committed(log, notify, urgent=False)
        return committed

    def _logs(self, request: SourcePositionsRequest) -> list[Log]:
        """Those asked for that this broker leads; NotLeaderError for one that it doesn't."""
        self._topics.check_exists(request.topic)
        if request.partition != ALL_PARTITIONS:
            log = self._topics.for_fetch(request.topic, request.partition)
            if log is not None and not self._shared.partitions.led([log]):
                raise NotLeaderError(f"{log.name} isn't led here, or not for certain")
            return [] if log is None else [log]
        first = request.first >> _NUMBER_BITS
        logs = self._shared.partitions.led(self._topics.partitions(request.topic))
        return [log for log in logs if log.partition >= first]

    # -- the cluster's id -----------------------------------------------------------------------

    def tell_cluster_id(self, _: ClusterIdRequest) -> bytes:
        return encode_cluster_id_response(self.cluster_id())


def _begin_sources(logs: Sequence[Log]) -> _Refused:
    """Get logs ready, in a worker thread; say which are not, and why."""
    refused = {}
    for log in logs:
        try:
            log.sources.begin()
        except StorageError as error:
            refused[log] = error
    return refused


def _append(partition: Partition, wanted: MirroredSet, check: Any) -> int | None:
    # By int: an enumeration's complement has no bits but the known ones, and others are refused.
    flags = wanted.flags & ~int(SourceFlags.RECORDS)
    span = SourceRange(wanted.source, wanted.source_begin, wanted.source_end, flags)
    if isinstance(check, BatchCheck):
        if len(check.headers) > 1 and not flags & SourceFlags.VERBATIM:
            # Other copies get them one by one: none of them would tell where it ends.
            raise InvalidSourceError("a set of several batches, but not the source's own offsets")
        done = partition.append_batches(check.headers, wanted.message_set, check.rules, span=span)
        return None if done.is_duplicate else done.base_offset
    if not isinstance(check, SetCheck):
        raise check
    size = len(wanted.message_set)
    if check.valid_bytes != size:
        raise InvalidMessageError(f"{size - check.valid_bytes} bytes are not a whole message")
    return partition.append_range(span, wanted.message_set, check.message_count)


def _holds_records(wanted: MirroredSet) -> bool:
    return bool(wanted.flags & SourceFlags.RECORDS)


def _positions(logs: Sequence[Log], request: SourcePositionsRequest) -> SourcePositionsResponse:
    """The positions of some partitions' sources, and where the next response begins."""
    first_partition, number = divmod(request.first, 1 << _NUMBER_BITS)
    room = TOLD_SOURCES
    told: list[PartitionPositions] = []
    for log in logs:
        first = number if log.partition == first_partition else 0
        if len(told) == TOLD_PARTITIONS or not room:
            return SourcePositionsResponse(log.partition << _NUMBER_BITS, told, ())
        end, sources = log.sources.positions(first, room + 1)
        told.append(PartitionPositions(log.partition, log.earliest, end, sources[:room]))
        if len(sources) > room:
            following = log.partition << _NUMBER_BITS | sources[room].number
            return SourcePositionsResponse(following, told, ())
        room -= len(sources)
    return SourcePositionsResponse(-1, told, ())


def _spans(logs: Sequence[Log], first: int) -> SourcePositionsResponse:
    """Spans of one partition from an offset on, and where the next response begins."""
    if len(logs) != 1:
        return SourcePositionsResponse(-1, (), ())
    end, spans = logs[0].sources.spans(first, TOLD_SPANS + 1)
    following = spans[TOLD_SPANS].log_begin if len(spans) > TOLD_SPANS else -1
    told = PartitionPositions(logs[0].partition, logs[0].earliest, end, ())
    return SourcePositionsResponse(following, [told], spans[:TOLD_SPANS])
