"""Questions about a partition: its offsets, its message boundaries, its append times.

What has to be read from the disk is looked up in a worker thread, a few questions at a time.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import size_of
from hermes.errors import HermesError, NotLeaderError
from hermes.partition.damage_check import damage_text
from hermes.partition.log_reader import CONCURRENT_LOOKUPS
from hermes.protocol import (
    AppendTimesRequest,
    AppendTimesResponse,
    BoundaryRequest,
    DescribePartitionsRequest,
    ErrorCode,
    OffsetsRequest,
    PartitionDescription,
    PartitionDescriptions,
    code_for,
    encode_append_times_response,
    encode_boundary_response,
    encode_error_response,
    encode_offsets_response,
    encode_partitions_response,
    encode_refusal,
)
from hermes.quoting import printable, quoted
from hermes.server.outcomes import CloseConnection, Outcome, cancellable
from hermes.server.turns import Turns
from hermes.storage import Log

#: How many partitions one answer describes: each takes two looks into a time index.
DESCRIBED_PARTITIONS = 64

_LATEST, _EARLIEST = -1, -2
_REASON_LENGTH = 200


class Lookups:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared) -> None:
        self._topics = shared.topics
        self._partitions = shared.partitions
        self._now_ms = shared.now_ms
        self._in_thread = shared.in_thread
        self._running = Turns(CONCURRENT_LOOKUPS)

    def offsets(self, request: OffsetsRequest) -> Outcome:
        if request.max_offsets < 0:
            raise CloseConnection(f"an offsets request for {request.max_offsets} offsets")
        try:
            log = self._led(request.topic, request.partition, is_of_end=request.time == _LATEST)
        except NotLeaderError:  # of topics of Kafka's format only, where 0.7's clients don't look
            return encode_error_response(ErrorCode.NOT_LEADER)
        except HermesError as error:
            raise CloseConnection(f"offsets of {quoted(request.topic)}: {error}") from error
        is_known = request.time in (_LATEST, _EARLIEST)
        if log is None:
            return encode_offsets_response(([0] if is_known else [])[: request.max_offsets])
        wanted = request.time, request.max_offsets, self._now_ms()
        if is_known:
            return encode_offsets_response(log.offsets_before(*wanted))
        return self._look_up(encode_offsets_response, None, log.offsets_before, *wanted)

    def _led(self, topic: str, number: int, *, is_of_end: bool = False) -> Log | None:
        """A partition's log, as `TopicRegistry.for_fetch` finds it, if this broker leads it."""
        log = self._topics.for_fetch(topic, number)
        leadership = None if log is None else self._partitions.of(log).leadership
        if leadership is not None:
            leadership.check()
            if is_of_end and not leadership.is_end_known:
                raise NotLeaderError("a new leader doesn't know yet what is committed")
        return log

    def boundary(self, request: BoundaryRequest) -> Outcome:
        try:
            log = self._led(request.topic, request.partition)
        except HermesError as error:
            return encode_boundary_response(code_for(error), -1)
        if log is None:
            return encode_boundary_response(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        return self._look_up(
            lambda offset: encode_boundary_response(ErrorCode.NONE, offset),
            lambda code: encode_boundary_response(code, -1),
            log.boundary_before,
            request.offset,
        )

    def append_times(self, request: AppendTimesRequest) -> Outcome:
        try:
            log = self._led(request.topic, request.partition)
        except HermesError as error:
            return encode_error_response(code_for(error))
        if request.interval_ms < 1:
            return encode_error_response(ErrorCode.UNKNOWN)
        if log is None:
            if request.start:
                return encode_error_response(ErrorCode.OFFSET_OUT_OF_RANGE)
            return encode_append_times_response(AppendTimesResponse(0, []))
        return self._look_up(
            lambda found: encode_append_times_response(AppendTimesResponse(*found)),
            encode_error_response,
            log.append_times,
            request.start,
            request.end,
            request.interval_ms,
        )

    def partitions(self, request: DescribePartitionsRequest) -> Outcome:
        topic, topics = request.topic, self._topics
        if not topics.exists(topic):
            return encode_refusal(ErrorCode.UNKNOWN_TOPIC)
        logs = self._partitions.led(topics.partitions(topic))
        begin = bisect_left(logs, request.first, key=lambda log: log.partition)
        some, rest = logs[begin : begin + DESCRIBED_PARTITIONS], logs[begin:][DESCRIBED_PARTITIONS:]
        count, following = topics.partition_count(topic), rest[0].partition if rest else -1
        return self._look_up(
            lambda found: encode_partitions_response(
                PartitionDescriptions(count, following, found)
            ),
            encode_error_response,
            lambda: [_describe(log) for log in some],
        )

    def _look_up(
        self,
        encode: Callable[[Any], bytes],
        encode_error: Callable[[ErrorCode], bytes] | None,
        function: Callable[..., Any],
        *args: Any,
    ) -> Outcome:
        """Call a function in a thread and encode what it finds, or what is wrong.

        Without `encode_error` that closes the connection, as in 0.7; and so does a fault of Hermes.
        """

        def refused(failure: Failure) -> Any:
            error = failure.value
            if encode_error is None or not isinstance(error, HermesError):
                return failure
            return encode_error(code_for(error))

        response: Deferred[bytes] = self._running.run(self._in_thread, function, *args)
        return cancellable(response.addCallbacks(encode, refused))


def _describe(log: Log) -> PartitionDescription:
    earliest, high_watermark = log.earliest, log.stable_end
    is_empty = high_watermark == earliest
    return PartitionDescription(
        log.partition,
        earliest,
        high_watermark,
        size_of(log),
        log.segment_count,
        None if is_empty else _append_time(log, earliest),
        None if is_empty else _append_time(log, high_watermark - 1),
        printable(log.offline_reason or "", _REASON_LENGTH),
        printable(damage_text(log), _REASON_LENGTH),
    )


def _append_time(log: Log, offset: int) -> int | None:
    try:
        _, runs = log.append_times(offset, offset + 1, 1)
    except HermesError:  # it went offline, or retention was quicker
        return None
    return runs[0].time_ms if runs else None
