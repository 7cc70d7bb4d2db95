"""Sessions: a client's life on the server, across its connections.

A session ends when its client closes it, or when the client has been silent for the session's
timeout. Until then any connection that knows the password may resume it. Times are seconds of a
clock that only goes forward.

One session is the server's own: that of the broker in whose process it runs. It can't outlive the
process, so the next one ends it at once. All others may come back.

One timer serves all sessions. A sign of life only postpones a session's deadline, so the timer may
fire early and then is set again. When it fires late, this process did not run (it was stopped, or
the machine slept), and what the clients sent meanwhile waits in the sockets, unread: every session
then gets its timeout once more.

Source: ZooKeeper's `SessionTrackerImpl`.
"""

import hmac
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hermes.coordination.embedded.tree_changes import SessionOpened

#: A timer that fires later than this proves that the process did not run.
LATE_SECONDS: Final = 1.0

_EXPIRED_AT_A_TIME: Final = 500

_ID_MASK: Final = (1 << 56) - 1  # the byte above it is the server's number, 0 where there is one

_Connection = TypeVar("_Connection", bound=Hashable)


@dataclass(slots=True, eq=False)
class ServerSession(Generic[_Connection]):
    """One session.

    Attributes:
        session_id: never 0.
        password: what a connection must know to resume the session.
        timeout_ms: how long the client may be silent.
        deadline: when it will have been; seconds of the server's clock.
        is_own: whether its client is in the server's own process, this one or an earlier one.
        principal: who may resume it; None for whoever knows the password, as after a restart.
    """

    session_id: int
    password: bytes
    timeout_ms: int
    deadline: float
    connection: _Connection | None = None
    is_own: bool = False
    principal: str | None = None

    def touch(self, now: float) -> None:
        self.deadline = now + self.timeout_ms / 1000


class SessionTable(Generic[_Connection]):
    def __init__(self) -> None:
        self._sessions: dict[int, ServerSession[_Connection]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ServerSession[_Connection]]:
        return iter(self._sessions.values())

    def restore(self, stored: Iterable[SessionOpened], now: float) -> None:
        """Take over the sessions of an earlier process; each has its whole timeout from now on."""
        for session_id, password, timeout_ms, is_own in stored:
            self.open(session_id, password, timeout_ms, now).is_own = is_own
            self._last_id = max(self._last_id, session_id)  # also where the wall clock went back

    def open(
        self, session_id: int, password: bytes, timeout_ms: int, now: float
    ) -> ServerSession[_Connection]:
        session: ServerSession[_Connection] = ServerSession(session_id, password, timeout_ms, 0.0)
        session.touch(now)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> ServerSession[_Connection] | None:
        return self._sessions.get(session_id)

    def find(self, session_id: int, password: bytes) -> ServerSession[_Connection] | None:
        session = self._sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        return session

    def close(self, session: ServerSession[_Connection]) -> None:
        self._sessions.pop(session.session_id, None)

    def unused_id(self, now_ms: int) -> int:
        """Choose a positive 56-bit id that no session has had, as ZooKeeper does: from the time."""
        self._last_id = max((now_ms << 16) & _ID_MASK, self._last_id + 1)
        while self._last_id in self._sessions:
            self._last_id += 1
        return self._last_id

    @property
    def next_deadline(self) -> float | None:
        """When the next session expires, unless its client is heard of; None without sessions."""
        return min((session.deadline for session in self._sessions.values()), default=None)

    def expired(self, now: float) -> list[ServerSession[_Connection]]:
        """The sessions whose deadline has passed; they are still in the table."""
        return [session for session in self._sessions.values() if session.deadline <= now]


class ExpiryTimer(Generic[_Connection]):
    def __init__(
        self,
        clock: IReactorTime,
        sessions: SessionTable[_Connection],
        expire: Callable[[list[ServerSession[_Connection]]], None],
    ) -> None:
        self._clock = clock
        self._sessions = sessions
        self._expire = expire
        self._call: IDelayedCall | None = None

    def update(self) -> None:
        deadline = self._sessions.next_deadline
        if deadline is not None:
            self.note(deadline)

    def note(self, deadline: float) -> None:
        """There may be an earlier deadline now: a session was opened or its timeout changed."""
        if self._call is not None:
            if self._call.getTime() <= deadline:
                return
            self._call.cancel()
        delay = max(0.0, deadline - self._clock.seconds())
        self._call = self._clock.callLater(delay, self._fire, deadline)

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _fire(self, due: float) -> None:
        self._call = None
        now = self._clock.seconds()
        expired = self._sessions.expired(now)
        if now - due > LATE_SECONDS:
            for session in expired:
                session.touch(now)
        elif expired:
            self._expire(expired[:_EXPIRED_AT_A_TIME])  # the others: at once, by the next timer
        self.update()
