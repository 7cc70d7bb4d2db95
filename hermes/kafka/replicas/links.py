"""A follower's connections to the brokers that lead what it follows: one fetch session each.

Copies say what they want; what is said in one turn goes in one request. One request at least is on
its way at all times, since that is how a leader knows that its followers live.

An answer counts for what was asked before its request, on this connection: what a leader said of an
earlier question may not hold any more.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError as TwistedRefusedError
from twisted.python.failure import Failure

from hermes.errors import BrokerNotReachedError, HermesError
from hermes.kafka.fetch_sessions import epoch_after
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection
from hermes.kafka.replicas.fetches import FollowerRequest, Place, Wanted, decode_answers
from hermes.protocol.kafka_errors import KafkaError
from hermes.replication.electing import Refusals
from hermes.replication.messages import Answer, ReplicaFetch
from hermes.storage import LogSlice, ToldSources

_WAIT_MS: Final = 500
_MAX_BYTES: Final = 4 << 20

#: A leader that hasn't answered by then is asked on another connection.
_ANSWER_SECONDS: Final = 3.0

#: The pause before a connection is tried again.
_RETRY_SECONDS: Final = 0.05

#: The same after a refusal of all that was asked.
_REFUSED_SECONDS: Final = 1.0

#: How many requests are on their way: one that waits, and the one that ends that.
_MOST: Final = 2


class Fetcher(Protocol):
    """A copy that follows."""

    place: Place

    def answered(
        self,
        token: int,
        answer: Answer,
        data: memoryview | bytes,
        sources: ToldSources | None,
    ) -> None: ...

    def broken_off(self, token: int) -> None: ...


class _Asked(NamedTuple):
    copy: Fetcher
    token: int
    request: int


class Link:
    """To one broker. Lives in the reactor's thread.

    Args:
        life: this broker's session with coordination; None without one.
        other: where the other broker listens now; None while it isn't known.
        on_suspect: called when its address has refused connections.
        on_refused: called when it has refused a request as a whole, with why.
    """

    def __init__(
        self,
        clock: Any,
        own_id: int,
        leader: int,
        life: Callable[[], int | None],
        other: Callable[[int], OtherBroker | None],
        refusals: Refusals,
        on_suspect: Callable[[int], None],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self.leader = leader
        self._clock = clock
        self._own_id = own_id
        self._life = life
        self._other = other
        self._refusals = refusals
        self._on_suspect = on_suspect
        self._on_refused = on_refused
        self._connection: OutgoingConnection | None = None
        self._connecting: Deferred[OutgoingConnection] | None = None
        self._news: dict[Place, tuple[Fetcher, ReplicaFetch]] = {}
        self._forgotten: dict[Place, None] = {}
        self._asked: dict[Place, _Asked] = {}
        self._session = self._session_epoch = 0
        self._sent_life = 0
        self._number = self._on_the_way = 0
        self._timer: Any = None
        self._is_stopped = False

    # -- what copies want -------------------------------------------------------------------------

    def ask(self, copy: Fetcher, fetch: ReplicaFetch) -> None:
        self._forgotten.pop(copy.place, None)
        self._news[copy.place] = copy, fetch
        self._send_soon()

    def ask_no_more(self, copy: Fetcher) -> None:
        self._news.pop(copy.place, None)
        if self._asked.pop(copy.place, None) is not None:
            self._forgotten[copy.place] = None
            self._send_soon()

    @property
    def is_idle(self) -> bool:
        return not (self._news or self._asked or self._forgotten)

    def break_off(self) -> None:
        """What came is damaged: nothing on this connection is to be believed."""
        if self._connection is not None:
            self._lost()

    def stop(self) -> "Deferred[Any] | None":
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connecting is not None:
            self._connecting.cancel()
        self._news.clear()
        self._asked.clear()
        return None if self._connection is None else self._connection.close()

    # -- requests ---------------------------------------------------------------------------------

    def _send_soon(self, seconds: float = 0.0) -> None:
        if self._timer is None and not self._is_stopped:
            self._timer = self._clock.callLater(seconds, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._connection is None:
            self._connect()
            return
        life = self._life()
        if life is None or (self._session_epoch and life != self._sent_life):
            self._lost()  # the session was another life's
            return
        if self._on_the_way >= _MOST or (self._on_the_way and not self._has_news):
            return
        news, self._news = self._news, {}
        forgotten, self._forgotten = self._forgotten, {}
        self._number += 1
        wanted = []
        for place, (copy, fetch) in sorted(news.items(), key=lambda each: each[0]):
            self._asked[place] = _Asked(copy, fetch.token, self._number)
            about = fetch.epoch, fetch.offset, fetch.last_epoch, fetch.high_watermark
            wanted.append(Wanted(place, *about, fetch.wants_sources, fetch.earliest))
        request = FollowerRequest(
            self._own_id,
            life,
            self._session,
            self._session_epoch,
            _WAIT_MS,
            _MAX_BYTES,
            wanted,
            sorted(forgotten),
        )
        self._sent_life = life
        self._session_epoch = epoch_after(self._session_epoch)
        self._on_the_way += 1
        asked = self._connection.ask(request.encode(), _ANSWER_SECONDS)
        asked.addCallback(self._answered, self._number).addErrback(self._failed, self._connection)

    @property
    def _has_news(self) -> bool:
        # Before the first answer the session's number isn't known.
        return bool(self._news or self._forgotten) and self._session != 0

    def _answered(self, body: memoryview, number: int) -> None:
        self._on_the_way -= 1
        code, session, answered = decode_answers(body)
        if code:
            raise KafkaError(code)
        self._session = session
        self._refusals.answered(self.leader)
        for place, answer, data, sources in answered:
            asked = self._asked.get(place)
            if asked is not None and asked.request <= number:
                del self._asked[place]
                assert not isinstance(data, LogSlice)  # which only leaders have
                asked.copy.answered(asked.token, answer, data, sources)
        if not self.is_idle and self._timer is None:
            self._send_soon()

    def _failed(self, failure: Failure, connection: OutgoingConnection) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if connection is not self._connection or self._is_stopped:
            return
        is_refused = isinstance(failure.value, KafkaError)
        if is_refused:
            self._on_refused(self.leader, failure.getErrorMessage())
        self._lost(_REFUSED_SECONDS if is_refused else _RETRY_SECONDS)

    def _lost(self, pause: float = _RETRY_SECONDS) -> None:
        """Nothing that was asked will be answered."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._session = self._session_epoch = self._on_the_way = 0
        self._forgotten.clear()
        asked, self._asked = self._asked, {}
        self._send_soon(pause)
        for each in asked.values():
            each.copy.broken_off(each.token)

    # -- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is not None or self._is_stopped or self.is_idle:
            return
        other = self._other(self.leader)
        if other is None or self._life() is None:
            self._send_soon(4 * _RETRY_SECONDS)
            return
        self._connecting = other.connect()
        self._connecting.addCallbacks(self._connected, self._not_connected)

    def _connected(self, connection: OutgoingConnection) -> None:
        self._connecting = None
        if self._is_stopped:
            connection.close()
            return
        self._connection = connection
        self._send()

    def _not_connected(self, failure: Failure) -> None:
        self._connecting = None
        failure.trap(HermesError, CancelledError)  # type: ignore[no-untyped-call]
        if self._is_stopped:
            return
        if is_refused(failure):
            self._refusals.refused(self.leader, self._clock.seconds())
            self._on_suspect(self.leader)
        self._send_soon(_RETRY_SECONDS)


def is_refused(failure: Failure) -> bool:
    """Whether nobody listens at an address: the process there is gone."""
    error = failure.value
    cause = error.__cause__ if isinstance(error, BrokerNotReachedError) else None
    return isinstance(cause, TwistedRefusedError)
