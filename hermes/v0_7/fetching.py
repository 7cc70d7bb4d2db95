"""The life of a fetch: the log is found, read into a slice, and sent by its response.

    fetch           read -> MessageSetSend                   one slice of one segment
    multifetch      read each -> MultiMessageSetSend         the responses one after the other
    waiting fetch   (wait) -> read each -> WaitingFetchSend  the same with high watermarks

Nothing is copied here: a slice is a file, a position and a length (sends.py sends it). Finding it
waits for no disk: where something isn't in memory, or a segment isn't open, a thread looks first.
Requests of many fetches take a quantum at a time (fairness.py), and large responses wait for room
(large_responses.py). Lives in the reactor's thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import wrong_format
from hermes.errors import (
    HermesError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    WrongFormatError,
    WrongPartitionError,
)
from hermes.partition.log_reader import LogRead
from hermes.partition.waiting import MAX_WAIT_MS
from hermes.protocol import (
    LONG_ENTRIES,
    ContentFormat,
    ErrorCode,
    FetchRequest,
    MultiFetchRequest,
    RecordFetchRequest,
    WaitingFetchRequest,
    encode_error_response,
    fetch_response_header,
)
from hermes.security import Operation, Resource
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.metrics import reason_of
from hermes.server.outcomes import CloseConnection, Outcome, cancellable, then
from hermes.server.refusals import fetch_code
from hermes.server.sends import (
    FileSend,
    MessageSetSend,
    MultiMessageSetSend,
    RecordFetchSend,
    WaitingFetchSend,
)
from hermes.storage import Log, LogSlice, NotInMemoryError

#: More partitions than this can't be waited for in one request: each flush looks at all of them.
MAX_WAITING_FETCHES = 1024

#: What an int32 can say, less what comes before the messages of one fetch.
_LARGEST_SIZE = 2**31 - 1
_MARGIN_BYTES = 32
_LARGEST_FETCH_BYTES = _LARGEST_SIZE - _MARGIN_BYTES

# Looking a member of an enumeration up takes as long as finding out what it may do.
_CONSUME: Final = Operation.CONSUME


_Fetches = TypeVar("_Fetches", MultiFetchRequest, WaitingFetchRequest)


class Fetches:
    def __init__(self, shared: Shared) -> None:
        self._find = shared.directory.get
        self._partition = shared.partitions.get
        self._topics = shared.topics
        self._large_responses = shared.large_responses
        self._reader = shared.reader
        self._metrics = shared.metrics
        self._log = shared.lines
        self._scheduler = shared.scheduler
        self._settings = shared.settings
        self._refusals = shared.refusals
        self._waiting = shared.waiting
        self._settings_changed()
        shared.settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        self._refuses = self._refusals.is_on

    # -- one ------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, client: Client) -> Outcome:
        self._metrics.fetches += 1
        try:
            error, messages = self._look(request, client, resident=True)
        except NotInMemoryError:
            warmed = self._reader.warm([self._cold(request)])
            return cancellable(warmed.addCallback(lambda _: self._fetch(request, client)))
        if isinstance(messages, bytes):
            return fetch_response_header(len(messages), error) + messages
        return MessageSetSend(error, messages)

    def _fetch(
        self,
        request: FetchRequest,
        client: Client,
        refusal: ErrorCode | None = None,
        *,
        takes_records: bool = False,
        resident: bool = False,
    ) -> MessageSetSend:
        return MessageSetSend(
            *self._look(request, client, refusal, takes_records=takes_records, resident=resident)
        )

    def _look(
        self,
        request: FetchRequest,
        client: Client,
        refusal: ErrorCode | None = None,
        *,
        takes_records: bool = False,
        resident: bool = False,
    ) -> tuple[ErrorCode, LogSlice | bytes | None]:
        """Find what answers one fetch; raises NotInMemoryError as `Log.read` does when `resident`.

        Args:
            refusal: the code for those who may not; None for that of 0.7's requests.
            takes_records: whether the answer may be record batches.
        """
        if self._refuses and not self._may(request, client):
            return fetch_code(client) if refusal is None else refusal, None
        try:
            messages = self._read(request, takes_records, resident)
        except HermesError as error:
            return self._code(request, error, client, refusal is not None), None
        return ErrorCode.NONE, messages

    def _may(self, request: FetchRequest, client: Client) -> bool:
        if self._refusals.permits_topic(client, _CONSUME, request.topic):
            return True
        self._refusals.of(client, _CONSUME, Resource.topic(request.topic), "fetch")
        return False

    def _read(
        self, request: FetchRequest, takes_records: bool, resident: bool
    ) -> LogSlice | bytes | None:
        partition = self._partition(request.topic, request.partition)
        if partition is None:
            self._topics.for_fetch(request.topic, request.partition)
            return None
        log = partition.log
        if log.counts_messages and not takes_records:
            raise wrong_format(request.topic)
        _, offset, size, whole_first = _read_of(log, request)
        messages, view = log.fetch(offset, size, whole_first, resident)
        if request.max_size < 0 and request.offset < view.high_watermark:
            if isinstance(messages, LogSlice):
                messages.release()
            text = f"a fetch with a negative maximum size, {request.max_size}"
            raise CloseConnection(text, "fetch", "invalid_size")
        length = len(messages) if isinstance(messages, bytes) else messages.length
        partition.counts.bytes_out += length
        return messages or None

    def _code(
        self, request: FetchRequest, error: HermesError, client: Client, is_own: bool
    ) -> ErrorCode:
        """0.7's code for a fetch that failed; what is our fault is logged as well.

        Only requests that 0.7 doesn't have, and who has made one, are answered with other codes.
        """
        self._metrics.refuse("fetch", reason_of(error))
        if isinstance(error, OffsetOutOfRangeError):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if isinstance(error, WrongPartitionError):
            return ErrorCode.WRONG_PARTITION
        if isinstance(error, WrongFormatError):
            self._log.warn("format", "refused to {client}: {error}", client=client, error=error)
            is_own |= client.knows_own_codes
            return ErrorCode.WRONG_FORMAT if is_own else ErrorCode.INVALID_MESSAGE
        if not isinstance(error, InvalidTopicError):
            self._log.error(
                "fetch",
                "could not read {topic}-{partition}: {error}",
                topic=request.topic,
                partition=request.partition,
                error=error,
            )
        return ErrorCode.UNKNOWN

    # -- many -----------------------------------------------------------------------------------

    def multifetch(self, request: MultiFetchRequest, client: Client) -> Outcome:
        return cancellable(self._when_there_is_room(request, self.respond_to_multifetch, client))

    def respond_to_multifetch(
        self, request: MultiFetchRequest, client: Client
    ) -> "FileSend | Deferred[FileSend]":
        """Fetch and make the response, whether or not there is room for it."""
        left_bytes = _LARGEST_SIZE

        def fetch(each: FetchRequest, resident: bool) -> MessageSetSend:
            # Counted here: 32,767 of them would have to be let go at once.
            nonlocal left_bytes
            send = self._fetch(each, client, resident=resident)
            left_bytes -= send.size_bytes
            if left_bytes >= _MARGIN_BYTES:
                return send
            send.release()
            text = "the response to a multifetch would have 2 GiB or more"
            raise CloseConnection(text, "multifetch", "answer_too_large")

        sends = self._fetch_all(request.fetches, fetch)
        response: FileSend | Deferred[FileSend] = then(sends, MultiMessageSetSend)
        return response

    def _fetch_all(
        self,
        fetches: Sequence[FetchRequest],
        fetch: Callable[[FetchRequest, bool], MessageSetSend],
    ) -> "list[MessageSetSend] | Deferred[list[MessageSetSend]]":
        def read(place: int, resident: bool) -> MessageSetSend:
            if resident:
                self._metrics.fetches += 1
            return fetch(fetches[place], resident)

        return self._reader.read_all(len(fetches), read, lambda place: self._cold(fetches[place]))

    def _cold(self, request: FetchRequest) -> LogRead:
        log = self._find(request.topic, request.partition)
        assert log is not None  # whose pages are not in memory
        return _read_of(log, request)

    def _when_there_is_room(
        self, request: _Fetches, respond: Callable[[_Fetches, Client], Any], client: Client
    ) -> Any:
        """Make a response: at once, unless it may be large."""
        if len(request.fetches) <= LONG_ENTRIES:
            return respond(request, client)
        return self._large_responses.make(respond, request, client)

    # -- waiting --------------------------------------------------------------------------------

    def waiting_fetch(self, request: WaitingFetchRequest, client: Client) -> Outcome:
        """Answer as soon as there are `min_bytes`, or the time is up.

        A fetch that isn't permitted is an error, for which nothing is waited; what is permitted is
        judged once more when there is an answer: rules may have changed.
        """
        if len(request.fetches) > MAX_WAITING_FETCHES:
            return encode_error_response(ErrorCode.UNKNOWN)
        if request.max_wait_ms > MAX_WAIT_MS:
            request = replace(request, max_wait_ms=MAX_WAIT_MS)

        def respond(request: WaitingFetchRequest) -> Any:
            return self._when_there_is_room(request, self._fetch_with_high_watermarks, client)

        def wait(permitted: list[bool]) -> Any:
            waited = self._waiting.wait(request, self._available) if all(permitted) else None
            return then(request if waited is None else waited, respond)

        if not self._refuses:
            return cancellable(wait([]))

        def is_permitted(each: FetchRequest) -> bool:
            return self._refusals.permits_topic(client, _CONSUME, each.topic)

        return cancellable(
            then(cooperatively(self._scheduler, request.fetches, is_permitted), wait)
        )

    def _fetch_with_high_watermarks(self, request: WaitingFetchRequest, client: Client) -> Any:
        def join(sends: list[MessageSetSend]) -> bytes | FileSend:
            if not _fits(sends):
                return encode_error_response(ErrorCode.ANSWER_TOO_LARGE)
            logs = [self._find(fetch.topic, fetch.partition) for fetch in request.fetches]
            # A mark would tell those who may not read that there is something.
            marks = [
                -1 if log is None or send.error is ErrorCode.NOT_AUTHORIZED else log.high_watermark
                for send, log in zip(sends, logs, strict=True)
            ]
            if takes_records:
                contents = [
                    ContentFormat.RECORD_BATCHES
                    if log is not None and log.counts_messages
                    else ContentFormat.MESSAGES
                    for log in logs
                ]
                return RecordFetchSend(list(zip(sends, marks, contents, strict=True)))
            return WaitingFetchSend(list(zip(sends, marks, strict=True)))

        takes_records = isinstance(request, RecordFetchRequest)

        def fetch(each: FetchRequest, resident: bool) -> MessageSetSend:
            return self._fetch(
                each,
                client,
                ErrorCode.NOT_AUTHORIZED,
                takes_records=takes_records,
                resident=resident,
            )

        return then(self._fetch_all(request.fetches, fetch), join)

    def _available(self, fetch: FetchRequest) -> int | None:
        """How many bytes there are for a fetch now; None when its response is an error."""
        log = self._find(fetch.topic, fetch.partition)
        if log is None:
            try:
                self._topics.for_fetch(fetch.topic, fetch.partition)
            except HermesError:
                return None
            return 0
        behind = log.high_watermark - fetch.offset
        if behind < 0 or fetch.offset < log.earliest or fetch.max_size < 0:
            return None
        if log.format.counts_messages:  # how many bytes they are isn't known: any are enough
            return fetch.max_size if behind else 0
        return min(behind, fetch.max_size)


def _read_of(log: Log, request: FetchRequest) -> LogRead:
    size = min(max(request.max_size, 0), _LARGEST_FETCH_BYTES)
    return LogRead(log, request.offset, size, log.counts_messages)


def _fits(sends: list[MessageSetSend]) -> bool:
    """Whether a waiting fetch's entries fit into one response; if not, they are released."""
    # An entry has 9 bytes more than the response to a single fetch: high watermark and content.
    if sum(send.size_bytes + 9 for send in sends) <= _LARGEST_SIZE - _MARGIN_BYTES:
        return True
    for send in sends:
        send.release()
    return False
