"""Fetching messages as conversations: large messages, damaged ones, and waiting for new ones.

A fetch returns whole messages, or raises the reason why it can't. The first message may be larger
than the fetch (then more is fetched), larger than the client accepts (an error), or damaged (then
the next good one is looked for); only more requests tell which.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

from hermes.client.arguments import check_fetch, check_fetches, check_number
from hermes.client.conversations import (
    BrokerVersions,
    Conversation,
    Exchange,
    Pause,
    Refused,
    metadata,
    named,
)
from hermes.client.metrics import ConsumerCounters
from hermes.errors import (
    SILENT,
    BrokerError,
    HermesError,
    InvalidMessageError,
    MessageLargerThanFetchError,
    RemoteProtocolError,
)
from hermes.protocol import (
    DEFAULT_MAX_EXPANDED_BYTES,
    Buffer,
    ErrorCode,
    FetchedEntry,
    FetchRequest,
    MessageAndOffset,
    MessageSet,
    MetadataRequest,
    MultiFetchRequest,
    RecordFetchedEntry,
    RecordFetchRequest,
    RecordSet,
    WaitingFetchRequest,
    decode_fetch_response,
    decode_multifetch_response,
    decode_record_fetch_response,
    decode_waiting_fetch_response,
    error_for,
)
from hermes.protocol.damage import next_good
from hermes.protocol.loops import ListedRows
from hermes.protocol.record_requests import RECORDS, without_aborted
from hermes.protocol.records import Record
from hermes.protocol.transaction_markers import Aborted

_T = TypeVar("_T")
_R = TypeVar("_R", bound=tuple[Any, ...])
_Fetched = TypeVar("_Fetched", "FetchedSet", "list[FetchResult]")

#: What a fetch brings: messages of 0.7, or records where the topic is of Kafka's format.
FetchedSet: TypeAlias = MessageSet | RecordSet

DEFAULT_MAX_FETCH_BYTES: Final = 64 * 1024 * 1024

# How a fetch of 0.7's from a topic of Kafka's format is answered.
_OTHER_FORMAT: Final = (ErrorCode.INVALID_MESSAGE, ErrorCode.WRONG_FORMAT)

# Names may come from data: bounded.
_MOST_TOPICS: Final = 10_000

_SIZE_BYTES: Final = 4
# What to ask for when not even the first message's length came.
_SMALL_FETCH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class FetchRules:
    """What a consumer wants of every fetch.

    Attributes:
        max_fetch_bytes: how far a fetch may grow to hold one message.
        on_corrupt: "raise" or "skip", see `MessageSet`.
        max_expanded_bytes: what one compressed message may expand to.
        count_skipped: called with the number of damaged stretches that an iteration skipped.
        found: the topics that the broker is known to have.
    """

    max_fetch_bytes: int = DEFAULT_MAX_FETCH_BYTES
    on_corrupt: Literal["raise", "skip"] = "raise"
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES
    count_skipped: Callable[[int], None] | None = None
    refused: Refused = field(default_factory=Refused)
    versions: BrokerVersions = field(default_factory=partial(BrokerVersions, False))
    found: set[str] = field(default_factory=set)

    def note_found(self, topic: str) -> None:
        if topic not in self.found and len(self.found) < _MOST_TOPICS:
            self.found.add(topic)

    def message_set(self, data: Buffer, offset: int) -> MessageSet:
        if self.on_corrupt == "skip":
            counted = _CountingMessageSet(
                data, offset, on_corrupt="skip", max_expanded_bytes=self.max_expanded_bytes
            )
            counted.tell = self.count_skipped
            return counted
        return MessageSet(data, offset, max_expanded_bytes=self.max_expanded_bytes)

    def record_set(self, data: Buffer, offset: int, aborted: Sequence[Aborted]) -> RecordSet:
        made = RecordSet if self.on_corrupt == "raise" else _CountingRecordSet
        fetched = made(
            data,
            offset,
            aborted=aborted,
            on_corrupt=self.on_corrupt,
            max_expanded_bytes=self.max_expanded_bytes,
        )
        if isinstance(fetched, _CountingRecordSet):
            fetched.tell = self.count_skipped
        return fetched


class _CountingMessageSet(MessageSet):
    """Reports what was skipped when an iteration ends, also one that is given up early."""

    __slots__ = ("tell",)
    tell: Callable[[int], None] | None

    def iterate(self, *, deep: bool = True) -> Iterator[MessageAndOffset]:
        return self._counted(super().iterate(deep=deep))

    def rows(
        self, make: type[_R], source: tuple[str, int, int], most: int
    ) -> Iterator[ListedRows[_R]]:
        return self._counted(super().rows(make, source, most))

    def _counted(self, iteration: Iterator[_T]) -> Iterator[_T]:
        try:
            yield from iteration
        finally:
            if self.tell is not None and self.skipped_count:
                self.tell(self.skipped_count)


class _CountingRecordSet(RecordSet):
    __slots__ = ("tell",)
    tell: Callable[[int], None] | None

    def records(self) -> Iterator[Record]:
        try:
            yield from super().records()
        finally:
            if self.tell is not None and self.skipped_count:
                self.tell(self.skipped_count)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of one fetch of several. Iterating it raises its error, if any.

    Attributes:
        messages: the messages; an empty set when there is an error.
        high_watermark: where readable messages end; None if the broker didn't report it,
            -1 if the partition was never written to.
        error: why there are no messages; None on success.
    """

    request: FetchRequest
    messages: FetchedSet
    high_watermark: int | None = None
    error: HermesError | None = None

    def __iter__(self) -> Iterator[MessageAndOffset]:
        if self.error is not None:
            raise self.error
        return iter(self.messages)


def fetch(request: FetchRequest, rules: FetchRules) -> Conversation[FetchedSet]:
    check_fetch(request)
    _check_size(request)
    largest = max(rules.max_fetch_bytes, request.max_size)
    size = request.max_size
    while True:
        asked = replace(request, max_size=size)
        entry: FetchedEntry = yield Exchange(asked.encode(), _decoded_entry)
        if entry.error in _OTHER_FORMAT and (yield from _knows_records(rules)):
            (result,) = yield from _fetch_records([request], 0, 0, rules)
            if result.error is not None:
                raise result.error
            return result.messages
        if entry.error != ErrorCode.NONE:
            raise error_for(entry.error, _detail(request))
        if len(entry.messages):
            rules.note_found(request.topic)
        elif missing := (yield from _missing(request, rules)):
            raise missing
        needed = _bytes_needed(entry.messages)
        # An answer shorter than asked for ends where the log or a segment does: more is not there.
        if needed == 0 or size == largest or len(entry.messages) < size:
            return _settled(entry.messages, request, rules, largest)
        size = min(needed, largest)


def multifetch(
    requests: Sequence[FetchRequest], rules: FetchRules
) -> Conversation[list[FetchResult]]:
    _check_fetches(requests)
    encoded = MultiFetchRequest(tuple(requests)).encode()
    entries: list[FetchedEntry] = yield Exchange(
        encoded, partial(_decoded, decode_multifetch_response, len(requests))
    )
    results = []
    for request, entry in zip(requests, entries, strict=True):
        results.append((yield from _result(request, entry.error, entry.messages, None, rules)))
    odd = [number for number, entry in enumerate(entries) if entry.error in _OTHER_FORMAT]
    if odd and (yield from _knows_records(rules)):
        again = yield from _fetch_records([requests[number] for number in odd], 0, 0, rules)
        for number, result in zip(odd, again, strict=True):
            results[number] = replace(result, high_watermark=None)
    return results


def waiting_fetch(
    requests: Sequence[FetchRequest],
    max_wait_ms: int,
    min_bytes: int,
    rules: FetchRules,
    poll_interval_ms: int,
) -> Conversation[list[FetchResult]]:
    """The broker waits, unless it is a Kafka 0.7, which is polled."""
    versions = yield from rules.versions.learn()
    if WaitingFetchRequest.TYPE not in versions:
        return (
            yield from _polling_fetch(requests, max_wait_ms, min_bytes, rules, poll_interval_ms)
        )
    _check_fetches(requests)
    check_number("max_wait_ms", max_wait_ms)
    check_number("min_bytes", min_bytes)
    if RecordFetchRequest.TYPE in versions:
        return (yield from _fetch_records(requests, max_wait_ms, min_bytes, rules))
    entries = yield Exchange(
        WaitingFetchRequest(max_wait_ms, min_bytes, tuple(requests)).encode(),
        partial(_decoded, decode_waiting_fetch_response, len(requests)),
        extra_seconds=max(max_wait_ms, 0) / 1000,
    )
    results = []
    for request, (error, high_watermark, messages) in zip(requests, entries, strict=True):
        results.append((yield from _result(request, error, messages, high_watermark, rules)))
    return results


def counted(fetching: Conversation[_Fetched], counters: ConsumerCounters) -> Conversation[_Fetched]:
    try:
        fetched = yield from fetching
    except HermesError:
        counters.count_failure()
        raise
    counters.count(fetched)
    return fetched


def _knows_records(rules: FetchRules) -> Conversation[bool]:
    return RecordFetchRequest.TYPE in (yield from rules.versions.learn())


def _fetch_records(
    requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int, rules: FetchRules
) -> Conversation[list[FetchResult]]:
    entries = yield from _record_entries(requests, max_wait_ms, min_bytes)
    results = []
    for request, (error, high_watermark, content, data) in zip(requests, entries, strict=True):
        if error == ErrorCode.NONE and content in RECORDS:
            aborted, data = without_aborted(content, data)
            fetched = rules.record_set(data, request.offset, aborted)
            result = FetchResult(request, fetched, high_watermark)
        elif error == ErrorCode.INVALID_MESSAGE:
            result = yield from _behind_damage(request, rules)
        else:
            result = yield from _result(request, error, data, high_watermark, rules)
        results.append(result)
    return results


def _record_entries(
    requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int
) -> Conversation[Sequence[RecordFetchedEntry]]:
    entries: Sequence[RecordFetchedEntry] = yield Exchange(
        RecordFetchRequest(max_wait_ms, min_bytes, tuple(requests)).encode(),
        partial(_decoded, decode_record_fetch_response, len(requests)),
        extra_seconds=max(max_wait_ms, 0) / 1000,
    )
    return entries


def _behind_damage(request: FetchRequest, rules: FetchRules) -> Conversation[FetchResult]:
    """Find what follows messages whose place is lost, by asking for one offset after the other."""
    error: int = ErrorCode.INVALID_MESSAGE
    offset = request.offset
    while error == ErrorCode.INVALID_MESSAGE:
        offset += 1
        ((error, high_watermark, content, data),) = yield from _record_entries(
            [replace(request, offset=offset)], 0, 0
        )
    if error != ErrorCode.NONE:
        return (yield from _result(request, error, data, high_watermark, rules))
    if rules.on_corrupt == "raise":
        failure = InvalidMessageError(
            f"{_detail(request)}: what was there is damaged (the next good one: {offset})",
            offset=request.offset,
            next_offset=offset,
        )
        return FetchResult(request, rules.message_set(b"", offset), high_watermark, failure)
    if rules.count_skipped is not None:
        rules.count_skipped(1)
    aborted, data = without_aborted(content, data)
    return FetchResult(request, rules.record_set(data, offset, aborted), high_watermark)


def _polling_fetch(
    requests: Sequence[FetchRequest],
    max_wait_ms: int,
    min_bytes: int,
    rules: FetchRules,
    poll_interval_ms: int,
) -> Conversation[list[FetchResult]]:
    check_number("max_wait_ms", max_wait_ms)
    left_ms = max_wait_ms
    while True:
        results = yield from multifetch(requests, rules)
        enough = sum(len(each.messages) for each in results) >= min_bytes
        if enough or left_ms <= 0 or any(each.error for each in results):
            return results
        pause_ms = min(poll_interval_ms, left_ms)
        yield Pause(pause_ms / 1000)
        left_ms -= pause_ms


def _check_fetches(requests: Sequence[FetchRequest]) -> None:
    check_fetches(requests)
    for request in requests:
        _check_size(request)


def _check_size(request: FetchRequest) -> None:
    """Refuse a negative size here: a 0.7 broker would send a garbage length and close."""
    if request.max_size < 0:
        raise error_for(ErrorCode.INVALID_FETCH_SIZE, f"{_detail(request)} {request.max_size}")


def _detail(request: FetchRequest) -> str:
    return f"{named(request.topic, request.partition)} offset {request.offset}"


def _decoded_entry(body: Buffer) -> FetchedEntry:
    entry = decode_fetch_response(body)
    return entry._replace(messages=bytes(entry.messages))


def _decoded(decode: Callable[[Buffer], Sequence[Any]], count: int, body: Buffer) -> Sequence[Any]:
    """Decode an answer, copying the bytes that each entry ends with; their number must be right."""
    entries = decode(body)
    if len(entries) != count:
        raise RemoteProtocolError(f"{count} fetches were answered with {len(entries)} entries")
    return [type(each)(*each[:-1], bytes(each[-1])) for each in entries]


def _result(
    request: FetchRequest,
    error: int,
    messages: Buffer,
    high_watermark: int | None,
    rules: FetchRules,
) -> Conversation[FetchResult]:
    """Make an entry's result, fetching it on its own when its first message asks for that."""
    nothing = rules.message_set(b"", request.offset)
    if error != ErrorCode.NONE:
        failure = rules.refused.explain_code(error_for(error, _detail(request)))
        return FetchResult(request, nothing, high_watermark, failure)
    if len(messages) or (high_watermark or -1) >= 0:
        rules.note_found(request.topic)
    elif missing := (yield from _missing(request, rules)):
        return FetchResult(request, nothing, high_watermark, missing)
    fetched: FetchedSet
    if not _bytes_needed(messages):
        fetched = rules.message_set(messages, request.offset)
        return FetchResult(request, fetched, high_watermark)
    try:
        fetched = yield from fetch(request, rules)
    except (BrokerError, InvalidMessageError, MessageLargerThanFetchError) as failure:
        return FetchResult(request, nothing, high_watermark, failure)
    return FetchResult(request, fetched, high_watermark)


def _missing(request: FetchRequest, rules: FetchRules) -> Conversation[BrokerError | None]:
    """Ask whether there is the topic that a fetch found nothing in; None if so, or if nobody says.

    A fetch is answered as Kafka 0.7 answers it, which has every topic, as an empty one.
    """
    topic = request.topic
    if topic in rules.found:
        return None
    try:
        if MetadataRequest.TYPE not in (yield from rules.versions.learn()):
            return None
        (described,) = (yield from metadata((topic,))).topics
    except SILENT:
        return None  # the fetch was answered, and the next one will find out
    if described.error == ErrorCode.UNKNOWN_TOPIC:
        return error_for(described.error, f"topic {topic!r} on {rules.refused.address}")
    rules.note_found(topic)
    return None


def _bytes_needed(data: Buffer) -> int:
    """How much to fetch to learn more about the first message; 0 when enough is there."""
    if not len(data):
        return 0
    size = MessageSet(data[:_SIZE_BYTES]).first_message_size
    if size is None and len(data) < _SIZE_BYTES:
        return max(_SMALL_FETCH_BYTES, 2 * len(data))
    if size is not None and size > len(data):
        return size
    try:
        next(MessageSet(data[:size]).iterate(deep=False), None)
    except InvalidMessageError:
        found = next_good(data)
        return 0 if found is not None else max(2 * len(data), _SMALL_FETCH_BYTES)
    return 0


def _settled(data: Buffer, request: FetchRequest, rules: FetchRules, largest: int) -> MessageSet:
    """Judge the most that can be had: a set, or why its first message can't be read."""
    fetched = rules.message_set(data, request.offset)
    size = fetched.first_message_size
    if not len(data) or (len(data) >= _SIZE_BYTES and (size is None or size <= len(data))):
        return fetched  # if it is damaged, iterating says so, or skips it
    if len(data) >= largest:
        raise MessageLargerThanFetchError(
            f"{_detail(request)}: the message takes {size} bytes, more than the largest fetch "
            f"of {largest}; raise max_fetch_bytes, or check that a message starts there",
            offset=request.offset,
            size_bytes=size,
        )
    return _after_damage(data, request, rules)


def _after_damage(data: Buffer, request: FetchRequest, rules: FetchRules) -> MessageSet:
    found = next_good(data)
    if found is not None and rules.on_corrupt == "skip":
        if rules.count_skipped is not None:
            rules.count_skipped(1)
        return rules.message_set(data[found:], request.offset + found)
    next_offset = None if found is None else request.offset + found
    raise InvalidMessageError(
        f"{_detail(request)}: no message starts there, or its length is damaged "
        f"(the next good one: {'none in what was read' if found is None else next_offset})",
        offset=request.offset,
        next_offset=next_offset,
    )
