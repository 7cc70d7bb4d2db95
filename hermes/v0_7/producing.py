"""The life of a produce: checked, appended, and, where the client asks for it, acknowledged.

    append_run       append: a run of plain sets, which the receiver has checked
    unacknowledged   check -> append: the first bad set closes the connection, as in 0.7
    acknowledged     (deletion) -> check -> append -> (flush) -> response: a code per entry
    long             one request at a time: decode some in a thread, then as the two above

Lives in the reactor's thread and never blocks it: sets that expand and requests of very many
entries go to worker threads (set_checker.py), appends take a quantum at a time (fairness.py), and
flushes have threads of their own (flushing.py).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import wrong_format
from hermes.errors import HermesError, MessageTooLargeError, NotAuthorizedError, StorageError
from hermes.partition.partition import Partition
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    ErrorCode,
    LongProduce,
    PlainAcknowledgedProduce,
    ProducedEntry,
    ProduceRequest,
    ProduceRun,
    SetCheck,
    code_for,
    encode_error_response,
    encode_produced_entry,
)
from hermes.quoting import printable
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import DeferredResponse, Outcome, settled, then
from hermes.storage import Log
from hermes.v0_7.acknowledging import (
    PRODUCED,
    AppendedEntry,
    Encoding,
    PlainFlush,
    respond_when_flushed,
    respond_when_written,
)
from hermes.v0_7.new_topics import Made, NewTopics, refused_also
from hermes.v0_7.refused_produces import RefusedProduces
from hermes.v0_7.set_checker import CheckResult, SetChecker, size_of

__all__ = ["DELETION_WAIT_SECONDS", "Produces"]

#: How long an acknowledged produce waits for the delete of its topic; then it is answered with 71.
DELETION_WAIT_SECONDS = 1.0

#: A produce of very many entries waits for its flush while the next one is decoded, unless it has
#: more entries than this: each of them holds memory until it is answered.
MAX_FLUSHED_LATER = 1024

# How much is told of why an entry was refused.
_MAX_REASON: Final = 1000

# Looked up for each request, which takes long of enumerations.
_KNOWN_ACKS: Final = (Acks.WRITTEN, Acks.FLUSHED)
_UNTIL_FLUSHED: Final = Acks.FLUSHED
_FINE: Final = ErrorCode.NONE

_Entry = TypeVar("_Entry")
_Result = TypeVar("_Result")


class Produces:
    holds_records = False  #: Whether what is sent are record batches.

    def __init__(self, shared: Shared, cluster: Cluster) -> None:
        self._shared = shared
        self._new = NewTopics(shared, cluster)
        self._partitions = shared.partitions
        self._find = shared.partitions.get
        self._topics = shared.topics
        self._metrics = shared.metrics
        self._log = shared.lines
        self._refusals = shared.refusals
        self._scheduler = shared.scheduler
        self.refused = RefusedProduces(shared)
        self.checker = SetChecker(shared.settings, shared.in_thread)
        self._decoding = DeferredSemaphore(1)

    # -- runs -----------------------------------------------------------------------------------

    def append_run(self, run: ProduceRun, client: Client) -> None:
        """Append a run of checked, unacknowledged produce requests for one partition.

        Raises CloseConnection: the topic or partition is wrong, or the disk refused.
        """
        partition = self._find(run.topic, run.partition)
        try:
            if partition is None or partition.log.counts_messages:
                partition = self.partition_for(run.topic, run.partition, client)
            partition.append(run.buffers, run.byte_count, run.message_count)
        except HermesError as error:
            raise self.refused.refusal(run.topic, run.partition, error, client) from error

    def append_permitted_run(self, run: ProduceRun, client: Client) -> None:
        """`append_run` while there are access rules."""
        error = self._refusals.produce_error(client, run.topic, exists=True)
        if error is not None:
            raise self.refused.refusal(run.topic, run.partition, error, client)
        self.append_run(run, client)

    # -- unacknowledged -------------------------------------------------------------------------

    def unacknowledged(self, produces: Sequence[ProduceRequest], client: Client) -> Outcome:
        """Append sets that the receiver could not check by itself."""
        appended = self._append_unacknowledged(produces, client)
        if not isinstance(appended, Deferred):
            return None
        return DeferredResponse(appended, request_bytes=size_of(produces))

    def _append_unacknowledged(
        self, produces: Sequence[ProduceRequest], client: Client
    ) -> "Deferred[None] | None":
        """Append in order: the first bad set closes, those before it stay.

        What the client may not produce closes first, so that nothing of the request is stored.
        """

        def append(_: object) -> Any:
            return self._check_and_append(produces, partial(self._append_or_close, client))

        judged = self._judge_or_close([(each.topic, each.partition) for each in produces], client)
        appended = then(judged, append)
        return appended.addCallback(lambda _: None) if isinstance(appended, Deferred) else None

    def _append_or_close(self, client: Client, pair: tuple[ProduceRequest, CheckResult]) -> None:
        produce, check = pair
        try:
            self._append(produce, check, client)
            return
        except MessageTooLargeError as error:
            self.refused.drop_oversized(produce.topic, produce.partition, error, client)
            return
        except HermesError as error:
            refusal = self.refused.refusal(produce.topic, produce.partition, error, client)
        # Neither while that error is handled nor with a name here: either would make a circle with
        # the frames that it goes through, which keep the decoded request.
        try:
            raise refusal
        finally:
            del refusal

    # -- acknowledged ---------------------------------------------------------------------------

    def plain(self, request: PlainAcknowledgedProduce, client: Client) -> Outcome:
        """Append one set that the receiver has checked, and acknowledge it."""
        topic, number = request.topic, request.partition
        partition = self._find(topic, number)
        if (
            partition is None
            or partition.log.counts_messages
            or not is_known(request.acks)
            or self._topics.deletion((topic,)) is not None
            or (
                self._refusals.is_on
                and self._refusals.produce_error(client, topic, exists=True) is not None
            )
        ):
            return self.acknowledged(request.decoded(), client)
        began = self._scheduler.now()
        log, size_bytes = partition.log, len(request.message_set)
        is_flushed = request.acks == _UNTIL_FLUSHED
        try:
            offset = partition.append(
                (request.message_set,), size_bytes, request.message_count, is_flushed
            )
        except HermesError as error:
            refused = self._refused_entry(topic, number, error, client)
            return encode_produced_entry(number, refused.entry.error, -1, refused.reason)
        if not is_flushed:
            return encode_produced_entry(number, _FINE, offset)
        flushed = PlainFlush(log, offset + size_bytes)
        flushed.partition, flushed.offset = number, offset
        flushed.taken, flushed.observe = began, self._flushed
        timeout_seconds = request.timeout_ms / 1000 if request.timeout_ms > 0 else None
        self._shared.acknowledgements.wait(flushed, timeout_seconds)
        return flushed

    def _flushed(self, began: float) -> None:
        self._metrics.acknowledged.observe(self._scheduler.now() - began)

    def acknowledged(self, request: AcknowledgedProduceRequest, client: Client) -> Outcome:
        """Append and acknowledge; whatever is wrong is answered with a code, per entry."""
        if not is_known(request.acks):
            return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
        deleted = self._topics.deletion(produce.topic for produce in request.produces)
        append_entry = partial(self._append_entry, client, request.acks)
        append = partial(self._judge_and_append, request.produces, append_entry, client)
        appended = append() if deleted is None else self.after_deletion(deleted, append)
        response: bytes | Deferred[bytes] = then(
            appended,
            partial(
                self.acknowledge, request.acks, request.timeout_ms, self._scheduler.now(), PRODUCED
            ),
        )
        if not isinstance(response, Deferred):
            return response
        if isinstance(appended, Deferred):
            return DeferredResponse(response, request_bytes=size_of(request.produces))
        return DeferredResponse(response, ordered=False)  # only the flush is awaited

    def after_deletion(
        self, deleted: "Deferred[None]", append: Callable[[], Any]
    ) -> "Deferred[Any]":
        """Append once a topic is gone, so that clients that keep deleting it starve nobody."""

        def ended(_: None) -> Any:
            if timer.active():
                timer.cancel()
            return append()

        timer = self._shared.clock.callLater(
            DELETION_WAIT_SECONDS, lambda: None if deleted.called else deleted.callback(None)
        )
        return deleted.addCallback(ended)

    def _append_entry(
        self, client: Client, acks: int, pair: tuple[ProduceRequest, CheckResult]
    ) -> AppendedEntry[ProducedEntry]:
        produce, check = pair
        try:
            if isinstance(check, HermesError):
                raise check
            log, offset = self._append(produce, check, client, acks)
        except HermesError as error:
            # What was found of the set is raised here, and must not keep this frame.
            found = error.with_traceback(None)
            return self._refused_entry(produce.topic, produce.partition, found, client)
        return AppendedEntry.to(log, ProducedEntry(log.partition, ErrorCode.NONE, offset))

    def _refused_entry(
        self, topic: str, partition: int, error: HermesError, client: Client
    ) -> AppendedEntry[ProducedEntry]:
        if isinstance(error, MessageTooLargeError):
            self.refused.drop_oversized(topic, partition, error, client)
        else:
            self.refused.refusal(topic, partition, error, client)
        self.refused.count("acknowledged_produce", error, client)
        entry = ProducedEntry(partition, code_for(error), -1)
        is_ours = isinstance(error, StorageError)
        return AppendedEntry(entry, reason=printable(str(error), _MAX_REASON) if is_ours else "")

    def acknowledge(
        self,
        acks: int,
        timeout_ms: int,
        began: float,
        encoding: Encoding[_Entry],
        appended: list[AppendedEntry[_Entry]],
    ) -> "bytes | Deferred[bytes]":
        if acks == Acks.WRITTEN:
            return respond_when_written(self._scheduler, appended, encoding)
        response = respond_when_flushed(
            self._shared.acknowledgements, self._scheduler, appended, timeout_ms, encoding
        )

        def acknowledged(encoded: bytes) -> bytes:
            self._metrics.acknowledged.observe(self._scheduler.now() - began)
            return encoded

        return response.addCallback(acknowledged)

    # -- requests of very many entries ----------------------------------------------------------

    def long(self, request: LongProduce, client: Client) -> DeferredResponse:
        """Append the sets of a request of very many, some at a time.

        The response is small, so it needs no room among the large ones.
        """
        response = Deferred.fromCoroutine(self._append_long(request, client))
        return DeferredResponse(response, request_bytes=len(request.frame))

    async def _append_long(self, request: LongProduce, client: Client) -> Any:
        began = self._scheduler.now()
        # What is waited for (a flush, a delete, coordination) holds up no request for others.
        async with self._decoding:
            topics = await self._shared.in_thread(request.topics)
        if request.acks is None:
            await settled(self._judge_or_close([(each, -1) for each in topics], client))
            append = partial(self._append_or_close, client)
            async with self._decoding:
                await self._append_slices(
                    request, lambda some: self._check_and_append(some, append)
                )
            return None
        if not is_known(request.acks):
            return encode_error_response(ErrorCode.UNSUPPORTED_VERSION)
        deleted, gone = self._topics.deletion(topics), self._topics.is_being_deleted
        missing = [each for each in topics if self._new.is_missing(each) or gone(each)]
        del topics  # what is waited for may take long
        if deleted is not None:
            await self.after_deletion(deleted, lambda: None)
        refused = await settled(self._refused(missing, client)) or [None] * len(missing)
        made: Made = dict(zip(missing, refused, strict=True))
        append_entry = partial(self._append_entry, client, request.acks)
        async with self._decoding:
            appended = await self._append_slices(
                request, lambda some: self._judge_and_append(some, append_entry, client, made)
            )
            response = self.acknowledge(request.acks, request.timeout_ms, began, PRODUCED, appended)
            if len(appended) > MAX_FLUSHED_LATER:
                return await settled(response)
        return await settled(response)

    async def _append_slices(
        self, request: LongProduce, append: Callable[[Sequence[ProduceRequest]], Any]
    ) -> list[Any]:
        results: list[Any] = []
        slices = request.slices()
        while produces := await self._shared.in_thread(next, slices, ()):
            results += await settled(append(produces))
        return results

    # -- permission -----------------------------------------------------------------------------

    def judge(self, topics: Sequence[str], client: Client) -> Any:
        """What a client may not produce to: an error or None for each topic, or a Deferred."""

        def judge(topic: str) -> NotAuthorizedError | None:
            return self._refusals.produce_error(client, topic, not self._new.is_made_here(topic))

        return cooperatively(self._scheduler, topics, judge)

    def _judge_or_close(self, places: Sequence[tuple[str, int]], client: Client) -> Any:
        """Refuse a request as a whole for what the client may not produce."""

        def close(errors: Sequence[NotAuthorizedError | None]) -> None:
            for (topic, partition), error in zip(places, errors, strict=True):
                if error is not None:
                    raise self.refused.refusal(topic, partition, error, client)

        if not self._refusals.is_on:
            return None
        return then(self.judge([topic for topic, _ in places], client), close)

    def _judge_and_append(
        self,
        produces: Sequence[ProduceRequest],
        append: Callable[[tuple[ProduceRequest, CheckResult]], _Result],
        client: Client,
        made: Made | None = None,
    ) -> Any:
        """Append what the client may produce; the sets of the rest are not even looked at."""

        def append_some(errors: Sequence[HermesError | None]) -> Any:
            return self._check_and_append(produces, append, errors)

        return then(self._refused([each.topic for each in produces], client, made), append_some)

    def _refused(self, topics: Sequence[str], client: Client, made: Made | None = None) -> Any:
        """As `judge`, but empty where nothing is refused; missing topics are made, or were."""
        refused = self.judge(topics, client) if self._refusals.is_on else ()
        if made:
            return then(refused, lambda errors: refused_also(topics, errors, made))
        if made is not None or not any(map(self._new.is_missing, topics)):
            return refused
        create = partial(self._new.create, topics, client, for_records=self.holds_records)
        return then(refused, lambda errors: Deferred.fromCoroutine(create(errors)))

    # -- sets -----------------------------------------------------------------------------------

    def _check_and_append(
        self,
        produces: Sequence[ProduceRequest],
        append: Callable[[tuple[ProduceRequest, CheckResult]], _Result],
        errors: Sequence[HermesError | None] = (),
    ) -> "list[_Result] | Deferred[list[_Result]]":
        """Check the sets of one request, then append them in order.

        Args:
            append: called with each, and with what was found of it.
            errors: of each what it is refused for already, or None; empty for no errors at all.

        Returns:
            What `append` returned for each; a Deferred of it if that takes a thread, or turns.
        """

        def append_all(checks: list[CheckResult]) -> Any:
            return cooperatively(self._scheduler, list(zip(produces, checks, strict=True)), append)

        def append_some(checks: list[CheckResult]) -> Any:
            found = iter(checks)
            return append_all([next(found) if error is None else error for error in errors])

        results: list[_Result] | Deferred[list[_Result]]
        if any(errors):
            some = [each for each, error in zip(produces, errors, strict=True) if error is None]
            results = then(self.checker.check(some), append_some)
        else:
            results = then(self.checker.check(produces), append_all)
        return results

    def _append(
        self, produce: ProduceRequest, check: CheckResult, client: Client, acks: int | None = None
    ) -> tuple[Log, int]:
        is_told = acks is not None
        partition = self.partition_for(produce.topic, produce.partition, client, is_told=is_told)
        if not isinstance(check, SetCheck):
            raise check
        if not check.valid_bytes:
            return partition.log, partition.log.end_offset
        valid = memoryview(produce.message_set)[: check.valid_bytes]
        return partition.log, partition.append((valid,), check.valid_bytes, check.message_count)

    def partition_for(
        self, topic: str, number: int, client: Client, *, is_told: bool = False
    ) -> Partition:
        """Find or create a partition that takes messages of 0.7; see `TopicRegistry.for_produce`.

        Raises:
            NotAuthorizedError: the client may not create the topic.
            WrongFormatError: the topic holds record batches, or would; see `NewTopics`.
        """
        is_new = not self._topics.exists(topic)
        if is_new:
            self._new.check(topic, client, is_told=is_told)
        log = self._topics.for_produce(topic, number)
        if log.counts_messages:
            raise wrong_format(topic)
        if is_new:
            self._log.info(
                "created",
                "created topic {topic} ({count} partitions) for {client}",
                topic=topic,
                count=self._topics.partition_count(topic),
                client=client,
            )
        return self._partitions.of(log)


def is_known(acks: int) -> bool:
    return acks in _KNOWN_ACKS
