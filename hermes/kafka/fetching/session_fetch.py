"""A Fetch of any kind: one that names all partitions, or a session's, which names what is new.

A session's is read, perhaps waits and is read again as any other, but only of those partitions of
which there may be something to tell (`hermes.kafka.fetch_sessions`). So is one that names very many
partitions, as its client did before: the others are answered from what is known of them.

Source: KIP-227.
"""

from typing import Any, Final, cast

from hermes.kafka.apis import DEBUGGING_CONSUMER, READ_COMMITTED
from hermes.kafka.dispatching import Call
from hermes.kafka.fetch_sessions import MANY_PARTITIONS, FetchSession, Followed
from hermes.kafka.fetching.fetch import Answer, Fetch, answer_whole
from hermes.kafka.fetching.fetch_messages import (
    BY_ID,
    NO_SESSION,
    Asked,
    Fetched,
    fields_of,
    response_parts,
)
from hermes.partition.waiting import MAX_WAIT_MS, CountingWaiter
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.server.sends import FileSend

#: The epoch of a request that begins a session.
_FIRST: Final = 0


def fetch(request: Any, call: Call) -> Answer:
    if type(request) is tuple:
        if request[4] == 0 and request[5] == NO_SESSION:
            if len(request[6]) > MANY_PARTITIONS:
                return _answer_many(call, request)
            return answer_whole(call, request)
        return _answer(call, request)
    # From version 15 on, in which it makes a request that isn't plain. Others copy partitions.
    replica = getattr(request, "replica_state", None)
    asked = fields_of(request, call.version)
    if replica is not None and replica.replica_id == DEBUGGING_CONSUMER:
        return answer_whole(call, asked, is_any=True)
    return _answer(call, asked)


def _answer(call: Call, asked: Asked) -> Answer:
    _, _, _, _, number, epoch, wanted, forgotten = asked
    sessions, client, is_by_id = call.server.fetch_sessions, call.client, call.version >= BY_ID
    session = None
    if epoch in (_FIRST, NO_SESSION):
        if number:
            sessions.end(number, client)
        if epoch == _FIRST:
            session = sessions.begin(client, wanted, is_by_id)
    else:
        try:
            session = sessions.go_on(number, epoch, client, is_by_id, wanted, forgotten)
        except KafkaError as error:
            return _refusal(call, error.code)
    return (
        answer_whole(call, asked)
        if session is None
        else _SessionFetch(call, asked, session).answer()
    )


def _answer_many(call: Call, asked: Asked) -> Answer:
    sessions, is_committed = call.server.fetch_sessions, asked[3] == READ_COMMITTED
    found = sessions.whole(call.client, asked[6], call.version >= BY_ID, is_committed)
    if found is None:
        return answer_whole(call, asked)
    return _WholeFetch(call, asked, *found).answer()


def _refusal(call: Call, code: Code) -> FileSend:
    return FileSend(response_parts(call.version, call.correlation_id, (), code=code))


class _SessionFetch(Fetch):
    """A session's request. It reads what is ready, and hears of what becomes so while it waits."""

    __slots__ = ("_counted", "_epoch", "_reading", "_session")

    def __init__(self, call: Call, asked: Asked, session: FetchSession) -> None:
        super().__init__(call, asked, ())
        self._session = session
        self._epoch = session.epoch
        self._reading: list[Followed] = []
        # How many bytes there are of what is listened to, which are not enough.
        self._counted: dict[Followed, int] = {}

    def _to_read(self) -> list[Followed]:
        return list(self._session.ready)

    def read_all(self) -> Any:
        self._reading = self._to_read()
        self._wanted = [each.wanted for each in self._reading]
        return super().read_all()

    def judged(self, found: list[Fetched]) -> Answer:
        if self._epoch != self._session.epoch:
            return self._response(found)
        return super().judged(found)

    def _is_enough(self, found: list[Fetched]) -> bool:
        return super()._is_enough(found) if found else self._min_bytes <= 0

    def _hold(self, found: list[Fetched]) -> Answer:
        session = self._session
        CountingWaiter.__init__(self, self._min_bytes, 0)
        is_current = True
        for followed, read in zip(self._reading, found, strict=True):
            read.release()
            is_current &= session.watch(followed, read)
            if read.size_bytes:
                self._counted[followed] = read.size_bytes
                self.lacking_bytes -= read.size_bytes
        if not is_current or session.is_over:
            return self._respond_now()
        self._call.step_aside()
        session.waiting = self
        self._shared.waiting.hold_deaf(self, min(self._wait_ms, MAX_WAIT_MS))
        return self

    def _response(self, found: list[Fetched], session: int = 0) -> bytes | FileSend:
        own = self._session
        if self._epoch != own.epoch:
            for read in found:
                read.release()
            return _refusal(self._call, Code.INVALID_FETCH_SESSION_EPOCH)
        told = [
            read
            for followed, read in zip(self._reading, found, strict=True)
            if own.tell(followed, read)
        ]
        return super()._response(told, own.number)

    # -- while it waits ---------------------------------------------------------------------------

    def noticed(self, followed: Followed) -> None:
        if not self.is_waiting:
            return
        assert followed.source is not None  # else nobody would have told
        log, wanted = followed.source.log, followed.wanted
        size_bytes = self.count(log.topic, log.partition, wanted.offset, wanted.max_bytes)
        if size_bytes is not None:
            self.lacking_bytes -= size_bytes - self._counted.get(followed, 0)
            self._counted[followed] = size_bytes
        if size_bytes is None or self.lacking_bytes <= 0:
            self._shared.waiting.wake(self)

    def hurry(self) -> None:
        if self.is_waiting:
            self._shared.waiting.wake(self)

    def replaced(self) -> None:
        self._shared.waiting.drop(self)
        self.is_cancelled = True
        self.resolve(_refusal(self._call, Code.INVALID_FETCH_SESSION_EPOCH))

    def ready(self) -> None:
        self._session.waiting = None
        super().ready()

    def cancel(self) -> None:
        if self._session.waiting is self:
            self._session.waiting = None
        super().cancel()


class _WholeFetch(_SessionFetch):
    """A request that names all partitions of a session of which its client doesn't know."""

    __slots__ = ("_named",)

    def __init__(
        self, call: Call, asked: Asked, session: FetchSession, named: list[Followed]
    ) -> None:
        super().__init__(call, asked, session)
        self._named = named

    def _to_read(self) -> list[Followed]:
        session = self._session
        if session.is_over:  # to make room for others: nothing was kept up to date since
            return self._named
        return [each for each in self._named if each in session.ready]

    def _hold(self, found: list[Fetched]) -> Answer:
        for followed, read in zip(self._reading, found, strict=True):
            followed.tell(read)  # whatever the response will be, it tells of all
        return super()._hold(found)

    def _response(self, found: list[Fetched], session: int = 0) -> bytes | FileSend:
        own = self._session
        own.is_busy = False
        news = dict(zip(self._reading, found, strict=True))
        for followed, read in news.items():
            own.tell(followed, read)
        every = [news.get(each) or cast(Fetched, each.told) for each in self._named]
        return super(_SessionFetch, self)._response(every)

    def cancel(self) -> None:
        super().cancel()
        self._call.server.fetch_sessions.leave(self._session)
