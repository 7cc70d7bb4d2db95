"""The life of a fetch: the log is found, read into a slice, and sent by its response.

    fetch           read -> MessageSetSend                   one slice of one segment
    multifetch      read each -> MultiMessageSetSend         the responses one after the other
    waiting fetch   (wait) -> read each                      long_polls.py

Nothing is copied here: a slice is a file, a position and a length (sends.py sends it). Finding it
waits for no disk: where something isn't in memory, or a segment isn't open, a thread looks first.
Requests of many fetches take a quantum at a time (fairness.py), and large responses wait for room
(large_responses.py). Lives in the reactor's thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import wrong_format
from hermes.errors import (
    DamagedMessagesError,
    HermesError,
    InvalidTopicError,
    NotLeaderError,
    OffsetOutOfRangeError,
    WrongFormatError,
    WrongPartitionError,
)
from hermes.partition.log_reader import LogRead, awaits_its_end
from hermes.protocol import (
    LONG_ENTRIES,
    ContentFormat,
    ErrorCode,
    FetchRequest,
    MultiFetchRequest,
    WaitingFetchRequest,
    fetch_response_header,
)
from hermes.security import Operation, Resource
from hermes.server.clients import Client
from hermes.server.metrics import reason_of
from hermes.server.outcomes import CloseConnection, Outcome, cancellable, then
from hermes.server.refusals import fetch_code
from hermes.server.sends import (
    Fetched,
    FileSend,
    MessageSetSend,
    MultiMessageSetSend,
)
from hermes.storage import Log, LogSlice, NotInMemoryError
from hermes.v0_7.record_fetches import partly_aborted

#: What an int32 can say, less what comes before the messages of one fetch.
LARGEST_BYTES = 2**31 - 1
MARGIN_BYTES = 32
_LARGEST_FETCH_BYTES = LARGEST_BYTES - MARGIN_BYTES

#: What the response to a fetch has before its messages.
HEADER_BYTES = 6

# Looking a member of an enumeration up takes as long as finding out what it may do.
CONSUME: Final = Operation.CONSUME
_FINE: Final = ErrorCode.NONE
_CONTENTS: Final = ContentFormat.MESSAGES, ContentFormat.RECORD_BATCHES  # by `counts_messages`

_NOTHING: Final = Fetched(ErrorCode.NONE)


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
        self._refusals = shared.refusals
        self._settings_changed()
        shared.settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        self.refuses = self._refusals.is_on

    # -- one ------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, client: Client) -> Outcome:
        self._metrics.fetches += 1
        try:
            error, messages, *_ = self.look(request, client, True)
        except NotInMemoryError:
            warmed = self._reader.warm([self._cold(request)])
            return cancellable(warmed.addCallback(lambda _: self._fetch_cold(request, client)))
        if isinstance(messages, bytes):
            return fetch_response_header(len(messages), error) + messages
        return MessageSetSend(error, messages)

    def _fetch_cold(self, request: FetchRequest, client: Client) -> MessageSetSend:
        error, messages, *_ = self.look(request, client, False)
        return MessageSetSend(error, messages)

    def look(
        self,
        request: FetchRequest,
        client: Client,
        resident: bool,
        is_own: bool = False,
        takes_records: bool = False,
    ) -> Fetched:
        """Find what answers one fetch; raises NotInMemoryError as `Log.read` does when `resident`.

        Args:
            is_own: whether the request is one that 0.7 doesn't have.
            takes_records: whether the answer may be record batches.
        """
        if self.refuses and not self._may(request, client):
            return Fetched(ErrorCode.NOT_AUTHORIZED if is_own else fetch_code(client))
        partition = self._partition(request.topic, request.partition)
        try:
            if partition is None:
                self._topics.for_fetch(request.topic, request.partition)
                return _NOTHING
            log = partition.log
            counts_messages, size = log.counts_messages, request.max_size
            if counts_messages and not takes_records:
                raise wrong_format(request.topic)
            if partition.leadership is not None:
                partition.leadership.check()
            if not 0 <= size <= _LARGEST_FETCH_BYTES:
                size = 0 if size < 0 else _LARGEST_FETCH_BYTES
            messages, view = log.fetch(
                request.offset, size, counts_messages, resident, counts_messages
            )
            if messages and request.offset <= log.sidecar.aborted.newest:
                found = partly_aborted(log, messages, request.offset, resident)
                if found is not None:
                    partition.counts.bytes_out += found.size_bytes
                    return found
        except HermesError as error:
            if partition is not None and awaits_its_end(partition.log, request.offset, error):
                return Fetched(_FINE, None, partition.log.stable_end, _CONTENTS[True])
            code = self._code(request, error, client, is_own)
            if partition is None:
                return Fetched(code)
            log = partition.log
            return Fetched(code, None, log.stable_end, _CONTENTS[log.counts_messages])
        mark = view.stable_end
        if request.max_size < 0 and request.offset < mark:
            if isinstance(messages, LogSlice):
                messages.release()
            text = f"a fetch with a negative maximum size, {request.max_size}"
            raise CloseConnection(text, "fetch", "invalid_size")
        if not messages:
            return Fetched(_FINE, None, mark, _CONTENTS[counts_messages])
        partition.counts.bytes_out += (
            len(messages) if isinstance(messages, bytes) else messages.length
        )
        return Fetched(_FINE, messages, mark, _CONTENTS[counts_messages])

    def _may(self, request: FetchRequest, client: Client) -> bool:
        if self._refusals.permits_topic(client, CONSUME, request.topic):
            return True
        self._refusals.of(client, CONSUME, Resource.topic(request.topic), "fetch")
        return False

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
        if isinstance(error, NotLeaderError):
            return ErrorCode.NOT_LEADER if is_own or client.knows_own_codes else ErrorCode.UNKNOWN
        if not isinstance(error, InvalidTopicError):
            self._log.error(
                "fetch",
                "could not read {topic}-{partition}: {error}",
                topic=request.topic,
                partition=request.partition,
                error=error,
            )
        is_damaged = is_own and isinstance(error, DamagedMessagesError)
        return ErrorCode.INVALID_MESSAGE if is_damaged else ErrorCode.UNKNOWN

    # -- many -----------------------------------------------------------------------------------

    def multifetch(self, request: MultiFetchRequest, client: Client) -> Outcome:
        return cancellable(self.when_there_is_room(request, self.respond_to_multifetch, client))

    def respond_to_multifetch(
        self, request: MultiFetchRequest, client: Client
    ) -> "FileSend | Deferred[FileSend]":
        """Fetch and make the response, whether or not there is room for it."""
        left_bytes = LARGEST_BYTES

        def look(each: FetchRequest, resident: bool) -> Fetched:
            # Counted here: 32,767 of them would have to be let go at once.
            nonlocal left_bytes
            found = self.look(each, client, resident)
            left_bytes -= HEADER_BYTES + found.size_bytes
            if left_bytes >= MARGIN_BYTES:
                return found
            found.release()
            text = "the response to a multifetch would have 2 GiB or more"
            raise CloseConnection(text, "multifetch", "answer_too_large")

        found = self.look_at_all(request.fetches, look)
        response: FileSend | Deferred[FileSend] = then(found, MultiMessageSetSend)
        return response

    def look_at_all(
        self, fetches: Sequence[FetchRequest], look: Callable[[FetchRequest, bool], Fetched]
    ) -> "list[Fetched] | Deferred[list[Fetched]]":
        def read(place: int, resident: bool) -> Fetched:
            if resident:
                self._metrics.fetches += 1
            return look(fetches[place], resident)

        return self._reader.read_all(len(fetches), read, lambda place: self._cold(fetches[place]))

    def _cold(self, request: FetchRequest) -> LogRead:
        log = self._find(request.topic, request.partition)
        assert log is not None  # whose pages are not in memory
        return _read_of(log, request)

    def when_there_is_room(
        self, request: _Fetches, respond: Callable[[_Fetches, Client], Any], client: Client
    ) -> Any:
        """Make a response: at once, unless it may be large."""
        if len(request.fetches) <= LONG_ENTRIES:
            return respond(request, client)
        return self._large_responses.make(respond, request, client)


def _read_of(log: Log, request: FetchRequest) -> LogRead:
    size = min(max(request.max_size, 0), _LARGEST_FETCH_BYTES)
    return LogRead(log, request.offset, size, log.counts_messages, log.counts_messages)
