"""Sessions: a client's life on the server, across its connections.

A session ends when its client closes it, or when nothing was heard of the client for the session's
timeout. Until then any connection that knows the password may go on with it. Times are seconds of
a clock that only goes forward.

One session is the server's own: that of the broker in whose process it runs. It can't outlive the
process, so the next one ends it at once. All others may come back.

Source: ZooKeeper's `SessionTrackerImpl`.
"""

import hmac
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hermes.coordination.embedded.changes import SessionOpened

__all__ = ["Session", "SessionTable"]

_ID_MASK: Final = (1 << 56) - 1  # the byte above it is the server's number, 0 where there is one

_Connection = TypeVar("_Connection", bound=Hashable)


@dataclass(slots=True, eq=False)
class Session(Generic[_Connection]):
    """One session.

    Attributes:
        session_id: never 0.
        password: what a connection must know to go on with the session.
        timeout_ms: how long the client may be silent.
        deadline: when it will have been; seconds of the server's clock.
        connection: the one that uses it; None while there is none.
        is_own: whether its client is in the server's own process, this one or an earlier one.
    """

    session_id: int
    password: bytes
    timeout_ms: int
    deadline: float
    connection: _Connection | None = None
    is_own: bool = False

    def touch(self, now: float) -> None:
        """Note a sign of life."""
        self.deadline = now + self.timeout_ms / 1000


class SessionTable(Generic[_Connection]):
    """The sessions that are alive."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session[_Connection]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session[_Connection]]:
        return iter(self._sessions.values())

    def restore(self, stored: Iterable[SessionOpened], now: float) -> None:
        """Take over the sessions of an earlier process; each has its whole timeout from now on."""
        for session_id, password, timeout_ms, is_own in stored:
            self.open(session_id, password, timeout_ms, now).is_own = is_own
            self._last_id = max(self._last_id, session_id)  # also where the wall clock went back

    def open(
        self, session_id: int, password: bytes, timeout_ms: int, now: float
    ) -> Session[_Connection]:
        """Begin a session."""
        session: Session[_Connection] = Session(session_id, password, timeout_ms, 0.0)
        session.touch(now)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> Session[_Connection] | None:
        """A session that is alive; None when it isn't."""
        return self._sessions.get(session_id)

    def find(self, session_id: int, password: bytes) -> Session[_Connection] | None:
        """Find a session that a client wants to go on with; None when there is none such."""
        session = self._sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        return session

    def close(self, session: Session[_Connection]) -> None:
        """End a session."""
        self._sessions.pop(session.session_id, None)

    def unused_id(self, now_ms: int) -> int:
        """Choose an id that no session has had, as ZooKeeper does: from the time.

        Args:
            now_ms: the time, in ms since 1970.

        Returns:
            A positive 56-bit number.
        """
        self._last_id = max((now_ms << 16) & _ID_MASK, self._last_id + 1)
        while self._last_id in self._sessions:
            self._last_id += 1
        return self._last_id

    @property
    def next_deadline(self) -> float | None:
        """When the next session expires, unless its client is heard of; None without sessions."""
        return min((session.deadline for session in self._sessions.values()), default=None)

    def expired(self, now: float) -> list[Session[_Connection]]:
        """The sessions whose deadline has passed; they are still in the table."""
        return [session for session in self._sessions.values() if session.deadline <= now]
