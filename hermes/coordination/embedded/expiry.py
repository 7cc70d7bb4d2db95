"""Ends sessions in time, with one timer for all of them.

A sign of life only moves a session's deadline further away, so the timer may ring early and then
is set again. When it rings late, this process did not run (it was stopped, or the machine slept):
what the clients sent meanwhile waits in the sockets, unread. Every session then gets its timeout
once more, rather than ending because the server was deaf.
"""

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hermes.coordination.embedded.coordinator import Peer
from hermes.coordination.embedded.sessions import Session, SessionTable

__all__ = ["LATE_SECONDS", "ExpiryTimer"]

#: A timer that rings later than this says that the process did not run.
LATE_SECONDS: Final = 1.0

_AT_A_TIME: Final = 500


class ExpiryTimer:
    """Looks after the deadlines of a table of sessions.

    Args:
        clock: the reactor, or a test's `Clock`.
        sessions: the table.
        expire: ends the sessions that it is given.
    """

    def __init__(
        self,
        clock: IReactorTime,
        sessions: SessionTable[Peer],
        expire: Callable[[list[Session[Peer]]], None],
    ) -> None:
        self._clock = clock
        self._sessions = sessions
        self._expire = expire
        self._call: IDelayedCall | None = None

    def update(self) -> None:
        """Set the timer to the next deadline of all; looks at every session."""
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
        self._call = self._clock.callLater(delay, self._ring, deadline)

    def stop(self) -> None:
        """Let no session expire any more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _ring(self, due: float) -> None:
        self._call = None
        now = self._clock.seconds()
        expired = self._sessions.expired(now)
        if now - due > LATE_SECONDS:
            for session in expired:
                session.touch(now)
        elif expired:
            self._expire(expired[:_AT_A_TIME])  # the timer rings again at once for the others
        self.update()
