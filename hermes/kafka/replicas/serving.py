"""A leader's side of copying: followers' sessions, and what each is sent.

A follower's request names the partitions of which it has something new to say, and waits until
there is something to send: appended batches, flushed or not, or a refusal. The next request of the
session ends that wait, so there is one on its way at all times, and what a follower has on its disk
is known as soon as it is.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from hermes.errors import HermesError, RemoteProtocolError
from hermes.kafka.fetch_sessions import epoch_after
from hermes.kafka.replicas.fetches import (
    Answered,
    FollowerRequest,
    Place,
    Wanted,
    decode_request,
    encode_answers,
)
from hermes.protocol.kafka_errors import Code, code_of
from hermes.replication.messages import Answer, Records, Refused, ReplicaFetch
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.server.sends import FileSend
from hermes.storage import LogSlice, NotInMemoryError, ToldSources

#: A request waits no longer than this.
MAX_WAIT_SECONDS: Final = 1.0

#: How much of one partition, and of all, goes into a response.
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 4 << 20

#: How often who waits is counted as still there: fetches show that their follower lives.
_REFRESH_SECONDS: Final = 0.4

#: What a sum of times may lack of them.
_ROUNDING_SECONDS: Final = 1e-6

_NOT_HERE: Final = Refused(Code.UNKNOWN_TOPIC_ID)


class LedCopy(Protocol):
    """A copy, as followers' sessions know it."""

    def judge(self, fetch: ReplicaFetch, answered_at: float) -> Answer | None:
        """Count what a follower has; what keeps it from getting what comes next, None: nothing.

        `answered_at`: when it was sent an answer that it had before it asked; -inf for none.
        """

    def has_after(self, fetch: ReplicaFetch) -> bool:
        """Whether there is something to send, or a refusal."""

    def refresh(self, fetch: ReplicaFetch, answered_at: float) -> None:
        """A follower still waits."""

    def delay(self, fetch: ReplicaFetch) -> float:
        """For how many seconds a follower that isn't in sync gets nothing."""

    def answer(
        self, fetch: ReplicaFetch, max_bytes: int, *, resident: bool
    ) -> tuple[Answer, LogSlice | bytes]:
        """What is sent. May raise a HermesError: it can't be read.

        Or NotInMemoryError: what says where it lies was to be `resident` in memory, and isn't.
        """

    def warm(self, fetch: ReplicaFetch, max_bytes: int) -> "Deferred[None]":
        """Bring that into memory, in a thread."""

    def sources(self, fetch: ReplicaFetch, size_bytes: int) -> ToldSources | None:
        """What is told of mirrors' sources with so many bytes."""

    def is_told(self, fetch: ReplicaFetch) -> bool:
        """Whether a follower knows what is said beside batches."""


class FollowerSession:
    """What one follower waits for, on one connection."""

    def __init__(self, number: int, broker_id: int, life: int, client: Client) -> None:
        self.number = number
        self.client = client
        self.epoch = 0
        self.broker_id = broker_id
        self.life = life
        self.waiting: dict[Place, tuple[LedCopy, ReplicaFetch]] = {}
        self.ready: dict[Place, None] = {}
        self.judged: dict[Place, Answer] = {}
        self.held: _Held | None = None
        self.held_until = 0.0
        self.timer: Any = None  # looks whether it was held long enough; may outlive what it is for
        self.refreshed_at = 0.0
        self.sent_at: deque[float] = deque(maxlen=2)  # of the last responses
        self.is_due = False

    @property
    def heard_at(self) -> float:
        """When the response was sent that the follower had certainly got before its last request.

        It may have had that one on its way when the last response was sent, but not two.
        """
        return self.sent_at[0] if len(self.sent_at) == self.sent_at.maxlen else -math.inf


class _Held(DeferredResponse):
    __slots__ = ("correlation_id",)

    def __init__(self, correlation_id: int) -> None:
        super().__init__(None, ordered=False, cancellable=True)
        self.correlation_id = correlation_id


class Serving:
    """All followers of this broker. Lives in the reactor's thread.

    Args:
        clock: the reactor.
        find: a copy by its place; None for one that isn't here.
        may_replicate: whether a client may copy partitions.
    """

    def __init__(
        self,
        clock: Any,
        find: Callable[[Place], LedCopy | None],
        may_replicate: Callable[[Client], bool],
    ) -> None:
        self._clock = clock
        self._find = find
        self._may_replicate = may_replicate
        self._numbers = count(1)
        self._sessions: dict[int, FollowerSession] = {}  # by the follower
        self._delayed: dict[Place, Any] = {}  # throttled, and when they are looked at again
        self._warm: set[Place] = set()  # what a thread has looked at, and isn't answered yet

    def serve(self, frame: Any, client: Client) -> Any:
        """Take a request; NotImplemented where it is no follower's.

        Raises CloseConnection: it can't be read.
        """
        try:
            request = decode_request(frame.data, frame.body)
        except RemoteProtocolError as error:
            raise CloseConnection(f"Fetch: {error}", "kafka", "unreadable") from None
        if request is None:
            return NotImplemented
        if not self._may_replicate(client):
            return self._refusal(frame, request, Code.CLUSTER_AUTHORIZATION_FAILED)
        session = self._session_of(request, client)
        if session is None:
            return self._refusal(frame, request, Code.FETCH_SESSION_ID_NOT_FOUND)
        self._end_wait(session)
        self._take(session, request)
        if session.ready or session.judged:
            return self._response(session, frame.correlation_id)
        held = session.held = _Held(frame.correlation_id)
        seconds = min(max(request.wait_ms, 0) / 1000, MAX_WAIT_SECONDS)
        session.held_until = self._clock.seconds() + seconds
        if session.timer is None:
            session.timer = self._clock.callLater(seconds, self._look_for_late, session)
        return held

    def _refusal(self, frame: Any, request: FollowerRequest, code: Code) -> bytes | FileSend:
        return _as_response(encode_answers(frame.correlation_id, request.session, (), code))

    def _session_of(self, request: FollowerRequest, client: Client) -> FollowerSession | None:
        known = self._sessions.get(request.broker_id)
        if not request.session_epoch:
            if known is not None:
                known.ready.clear()
                known.judged.clear()
                self._end(known)
            number = next(self._numbers)
            known = FollowerSession(number, request.broker_id, request.life, client)
            self._sessions[request.broker_id] = known
        asked = request.session, request.session_epoch, request.life
        if known is None or (
            request.session_epoch and asked != (known.number, known.epoch, known.life)
        ):
            return None
        known.epoch = epoch_after(known.epoch)
        return known

    def _take(self, session: FollowerSession, request: FollowerRequest) -> None:
        for place in request.forgotten:
            for some in (session.waiting, session.ready, session.judged):
                some.pop(place, None)
        for wanted in request.wanted:
            self._take_one(session, wanted)
        self._refresh(session)

    def _take_one(self, session: FollowerSession, wanted: Wanted) -> None:
        place, epoch, offset, last_epoch, high_watermark, wants_sources, earliest = wanted
        copy = self._find(place)
        session.ready.pop(place, None)
        if copy is None:
            session.waiting.pop(place, None)
            session.judged[place] = _NOT_HERE
            return
        fetch = ReplicaFetch(
            session.broker_id,
            session.life,
            epoch,
            offset,
            last_epoch,
            high_watermark,
            0,
            wants_sources,
            earliest,
        )
        verdict = copy.judge(fetch, session.heard_at)
        if verdict is not None:
            session.waiting.pop(place, None)
            session.judged[place] = verdict
            return
        session.judged.pop(place, None)
        session.waiting[place] = copy, fetch
        if copy.has_after(fetch):
            session.ready[place] = None

    def _refresh(self, session: FollowerSession) -> None:
        now = self._clock.seconds()
        if now - session.refreshed_at >= _REFRESH_SECONDS:
            session.refreshed_at = now
            for copy, fetch in session.waiting.values():
                copy.refresh(fetch, session.heard_at)

    # -- answers ----------------------------------------------------------------------------------

    def changed(self, place: Place) -> None:
        """Something was appended to a copy, or it is led by this broker no more."""
        for session in self._sessions.values():
            waiting = session.waiting.get(place)
            if waiting is not None and waiting[0].has_after(waiting[1]):
                session.ready[place] = None
                if session.held is not None and not session.is_due:
                    # What else is appended in this turn goes with it.
                    session.is_due = True
                    self._clock.callLater(0, self._due, session)

    def _later(self, delay: float, place: Place) -> None:
        if place not in self._delayed:
            self._delayed[place] = self._clock.callLater(delay, self._again, place)

    def _again(self, place: Place) -> None:
        del self._delayed[place]
        self.changed(place)

    def _looked(self, _: object, place: Place) -> None:
        self.changed(place)

    def _due(self, session: FollowerSession) -> None:
        session.is_due = False
        if session.ready and session.held is not None:
            self._end_wait(session)

    def _look_for_late(self, session: FollowerSession) -> None:
        session.timer = None
        if session.held is None:
            return
        left = session.held_until - self._clock.seconds()
        if left > _ROUNDING_SECONDS:
            session.timer = self._clock.callLater(left, self._look_for_late, session)
            return
        for place, (copy, fetch) in session.waiting.items():
            if not copy.is_told(fetch):
                session.ready[place] = None
        self._end_wait(session)

    def _end_wait(self, session: FollowerSession) -> None:
        held, session.held = session.held, None
        if held is not None and not held.is_known:
            held.resolve(self._response(session, held.correlation_id))

    def _end(self, session: FollowerSession) -> None:
        self._end_wait(session)
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None

    def _response(self, session: FollowerSession, correlation_id: int) -> bytes | FileSend:
        session.sent_at.append(self._clock.seconds())
        answered = list(self._answers(session))
        return _as_response(encode_answers(correlation_id, session.number, answered))

    def _answers(self, session: FollowerSession) -> Iterator[Answered]:
        judged, session.judged = session.judged, {}
        for place, answer in judged.items():
            yield Answered(place, answer)
        left = _RESPONSE_BYTES
        for place in list(session.ready):
            if left <= 0:
                return  # the next request is answered with them at once
            del session.ready[place]
            copy, fetch = session.waiting[place]
            delay = copy.delay(fetch)
            if delay > 0:
                self._later(delay, place)
                continue
            # A follower flushes each answer before it asks again: who catches up alone gets more.
            max_bytes = min(left, _PARTITION_BYTES) if session.ready else left
            is_warm = place in self._warm
            try:
                answer, data = copy.answer(fetch, max_bytes, resident=not is_warm)
            except NotInMemoryError:
                self._warm.add(place)
                copy.warm(fetch, max_bytes).addBoth(self._looked, place)
                continue
            except HermesError as error:
                answer, data = Refused(code_of(error)), b""
            del session.waiting[place]
            self._warm.discard(place)
            length = data.length if isinstance(data, LogSlice) else len(data)
            left -= length
            sources = copy.sources(fetch, length) if isinstance(answer, Records) else None
            yield Answered(place, answer, data if length else b"", sources)

    @property
    def followers(self) -> set[int]:
        """Those that are connected."""
        return {each.broker_id for each in self._sessions.values() if not each.client.has_left}

    # -- ends -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Answer who waits: the broker stops."""
        for session in self._sessions.values():
            self._end(session)
        self._sessions.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()


def _as_response(parts: list[bytes | LogSlice]) -> bytes | FileSend:
    only = parts[0] if len(parts) == 1 else None
    return only if isinstance(only, bytes) else FileSend(parts)
