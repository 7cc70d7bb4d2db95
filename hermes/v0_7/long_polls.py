"""The life of a waiting fetch, Hermes' addition to 0.7: it is answered when there is enough.

It waits in `hermes.partition.waiting`, and is read as other fetches are (fetching.py). Lives in the
reactor's thread.
"""

from typing import Any, Final

from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.partition.waiting import MAX_WAIT_MS, CountingWaiter
from hermes.protocol import (
    ErrorCode,
    FetchRequest,
    RecordFetchRequest,
    WaitingFetchRequest,
    decode_request,
    encode_error_response,
)
from hermes.server.clients import Client
from hermes.server.fairness import QUANTUM_ENTRIES, cooperatively
from hermes.server.outcomes import DeferredResponse, Outcome, as_result, cancellable
from hermes.server.sends import Fetched, FileSend, waiting_fetch_response
from hermes.v0_7.fetching import CONSUME, HEADER_BYTES, LARGEST_BYTES, MARGIN_BYTES, Fetches

#: More partitions than this can't be waited for in one request: each flush looks at all of them.
MAX_WAITING_FETCHES = 1024

# To look whether something is a Deferred takes much longer.
_KNOWN: Final[tuple[type[Any], ...]] = (bytes, DeferredResponse, FileSend)

#: What an encoded request begins with, and decoding does without.
_SIZE_BYTES = 4


class LongPolls:
    def __init__(self, shared: Shared, fetches: Fetches) -> None:
        self._fetches = fetches
        self._find = shared.directory.get
        self._partitions = shared.partitions
        self._topics = shared.topics
        self._scheduler = shared.scheduler
        self._refusals = shared.refusals
        self._waiting = shared.waiting

    def fetch(self, request: WaitingFetchRequest, client: Client) -> Outcome:
        """Answer as soon as there are `min_bytes`, or the time is up.

        A fetch that isn't permitted is an error, for which nothing is waited; what is permitted is
        judged once more when there is an answer: rules may have changed.
        """
        if len(request.fetches) > MAX_WAITING_FETCHES:
            return encode_error_response(ErrorCode.UNKNOWN)
        if not self._fetches.refuses:
            answer = self._wait(request, client)
            return answer if isinstance(answer, _KNOWN) else cancellable(answer)

        def is_permitted(each: FetchRequest) -> bool:
            return self._refusals.permits_topic(client, CONSUME, each.topic)

        def wait(permitted: list[bool]) -> Any:
            act = self._wait if all(permitted) else self.respond
            return act(request, client)

        permitted = cooperatively(self._scheduler, request.fetches, is_permitted)
        if isinstance(permitted, list):
            return cancellable(wait(permitted))
        return cancellable(permitted.addCallback(wait).addCallback(as_result))

    def _wait(self, request: WaitingFetchRequest, client: Client) -> Any:
        fetches, available = request.fetches, list[int]()
        if request.max_wait_ms <= 0 or self._waiting.is_stopping:
            return self.respond(request, client)
        if len(fetches) <= QUANTUM_ENTRIES:  # else they are counted while they wait
            for each in fetches:
                found = self.available(each.topic, each.partition, each.offset, each.max_size)
                if found is None:
                    return self.respond(request, client)
                available.append(found)
        if sum(available) >= request.min_bytes:
            return self.respond(request, client)
        waiter = WaitingFetch(self, request, client)
        self._waiting.hold(waiter, fetches, available, min(request.max_wait_ms, MAX_WAIT_MS))
        return waiter

    def respond(self, request: WaitingFetchRequest, client: Client) -> Any:
        """Respond with what there is."""
        return self._fetches.when_there_is_room(request, self._fetch_with_high_watermarks, client)

    def _fetch_with_high_watermarks(self, request: WaitingFetchRequest, client: Client) -> Any:
        takes_records = isinstance(request, RecordFetchRequest)

        def look(each: FetchRequest, resident: bool) -> Fetched:
            return self._fetches.look(each, client, resident, True, takes_records)

        def response(found: list[Fetched]) -> bytes | FileSend:
            if not _fits(found):
                return encode_error_response(ErrorCode.ANSWER_TOO_LARGE)
            return waiting_fetch_response(found, takes_records)

        found = self._fetches.look_at_all(request.fetches, look)
        return response(found) if isinstance(found, list) else found.addCallback(response)

    def available(self, topic: str, partition: int, offset: int, max_size: int) -> int | None:
        """How many bytes there are for a fetch now; None when its response is an error."""
        log = self._find(topic, partition)
        if log is None:
            try:
                self._topics.for_fetch(topic, partition)
            except HermesError:
                return None
            return 0
        if not log.is_sole_copy and not self._partitions.led((log,)):
            return None
        bases, _, _, mark, stable_end = log.view
        behind = stable_end - offset
        if behind < 0 and offset <= (mark if log.is_sole_copy else log.end_offset):
            return 0
        if behind < 0 or offset < (bases[0] if bases else 0) or max_size < 0:
            return None
        if log.counts_messages:  # how many bytes they are isn't known: any are enough
            return max_size if behind else 0
        return min(behind, max_size)


class WaitingFetch(CountingWaiter):
    """A waiting fetch, and its response. It keeps a request of many fetches encoded."""

    __slots__ = ("_client", "_polls", "_request")

    def __init__(self, polls: LongPolls, request: WaitingFetchRequest, client: Client) -> None:
        self._polls, self._client = polls, client
        self._request: WaitingFetchRequest | bytes = request
        count = len(request.fetches)
        if count == 1:
            held_bytes = len(request.fetches[0].topic)
        else:
            self._request = request.encode()[_SIZE_BYTES:]
            held_bytes = len(self._request)
        super().__init__(request.min_bytes, count, held_bytes)

    def count(self, topic: str, partition: int, offset: int, max_size: int) -> int | None:
        return self._polls.available(topic, partition, offset, max_size)

    def ready(self) -> None:
        request: Any = self._request
        try:
            if isinstance(request, bytes):
                request = decode_request(request)
            response = self._polls.respond(request, self._client)
        except Exception:
            self.fail(Failure())  # type: ignore[no-untyped-call]
            return
        if isinstance(response, _KNOWN):
            self.resolve(response)
        else:
            self.follow(response)


def _fits(fetched: list[Fetched]) -> bool:
    """Whether a waiting fetch's entries fit into one response; if not, they are released."""
    if len(fetched) == 1:
        return True
    # An entry has 9 bytes more than the response to a single fetch: high watermark and content.
    size = sum(each.size_bytes + HEADER_BYTES + 9 for each in fetched)
    if size <= LARGEST_BYTES - MARGIN_BYTES:
        return True
    for each in fetched:
        each.release()
    return False
