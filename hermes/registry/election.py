"""The election of the one registry of a cluster that decides, by an ephemeral node.

    /registry/leader    ephemeral       {"name": "...", "url": "http://host:port/registry"}

The node is a hint, not a lock: that two can't both decide is a matter of the topic's records alone.
The others forward to it what changes something.
"""

import json
import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from hermes.coordination.nodes import Node
from hermes.coordination.sessions import Session
from hermes.errors import (
    CoordinationError,
    CoordinationUnavailableError,
    HermesError,
    InvalidNodeError,
)
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

#: The leader's node.
LEADER_PATH: Final = "/registry/leader"

_RETRY_SECONDS: Final = 1.0


class Leader(NamedTuple):
    """The registry that decides; `url` is where it is served, without a slash at the end.

    `name`: names a registry whose process can run only once; "" for one that has no such name.
    """

    name: str
    url: str


class Election(Protocol):
    """Knows who leads. Any thread may ask."""

    @property
    def is_leading(self) -> bool: ...

    @property
    def leader(self) -> Leader | None:
        """Who leads, as far as that is known."""

    @property
    def problem(self) -> str:
        """Why nothing is known; empty if something is."""

    def start(self, may_lead: Callable[[], bool], on_change: Callable[[], None]) -> None:
        """`may_lead`: whether this registry could decide now; called in any thread.

        `on_change`: called in any thread when any of the above may have changed.
        """

    def recheck(self) -> None:
        """What `may_lead` says may have changed."""

    def session(self) -> Session:
        """The session with coordination; CoordinationError if there is none at the moment."""

    def stop(self) -> None:
        """Let another lead. Idempotent."""


class NoElection:
    """Where there is no coordination: this registry leads."""

    is_leading = True
    leader = None
    problem = ""

    def start(self, may_lead: Callable[[], bool], on_change: Callable[[], None]) -> None:
        pass

    def recheck(self) -> None:
        pass

    def session(self) -> Session:
        raise CoordinationError("there is no coordination")

    def stop(self) -> None:
        pass


class NodeElection:
    """An election through coordination, in a thread of its own.

    Args:
        connect: where coordination is, None while that isn't known; called when it is needed.
        me: this registry; with an empty `url`, it never stands for election.
        session_timeout_seconds: how long others wait for a leader that was killed.
        security: how to connect to coordination; may block, and raise HermesError.
    """

    def __init__(
        self,
        connect: Callable[[], str | None],
        me: Leader,
        *,
        security: Callable[[], ClientSecurity] = lambda: PLAIN,
        session_timeout_seconds: float = 6.0,
        connection_timeout_seconds: float = 6.0,
    ) -> None:
        self._connect = connect
        self._security = security
        self._me = me
        self._timeouts = session_timeout_seconds, connection_timeout_seconds
        self._session: Session | None = None
        self._starting: Session | None = None  # the same, or about to be
        self._elected_in: int | None = None  # the session in which the node is ours
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="hermes-election", daemon=True)
        self.leader: Leader | None = None
        self.problem = "coordination was not asked yet"

    @property
    def is_leading(self) -> bool:
        session, elected_in = self._session, self._elected_in
        return session is not None and elected_in is not None and session.holds_lease(elected_in)

    def start(self, may_lead: Callable[[], bool], on_change: Callable[[], None]) -> None:
        self._may_lead, self._on_change = may_lead, on_change
        self._thread.start()

    def recheck(self) -> None:
        self._wake.set()

    def session(self) -> Session:
        if self._session is None:
            raise CoordinationUnavailableError(self.problem)
        return self._session

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._starting is not None:
            self._starting.stop()  # which ends what the thread may wait for, and the node
        if self._thread.is_alive():
            self._thread.join()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            before = self.is_leading, self.leader, self.problem
            try:
                self._recheck()
                self.problem = ""
            except Exception as error:
                if not isinstance(error, HermesError) and str(error) != self.problem:
                    _log.exception("a fault of the registry's election, which tries again")
                self._failed(error)
            if before != (self.is_leading, self.leader, self.problem):
                self._on_change()
            self._wake.wait(_RETRY_SECONDS)
            self._wake.clear()
        if self._starting is not None:
            self._starting.stop()

    def _failed(self, error: Exception) -> None:
        self._elected_in = None
        if not (self.problem or self._stopping):
            _log.warning("the registry does not know who leads: %s", error)
        self.problem = str(error)

    def _recheck(self) -> None:
        session = self._session or self._start_session()
        node = session.get(LEADER_PATH, watch=True)
        is_ours = node is not None and node.owner == session.session_id
        if not (self._me.url and self._may_lead()):
            if is_ours:
                session.delete_own(LEADER_PATH)
                node, is_ours = None, False
        elif node is not None and not is_ours and self._is_former_self(node):
            session.delete(LEADER_PATH, node.version)
            node = None
        if node is None and self._me.url and self._may_lead():
            elected_in = session.session_id
            node = session.create_ephemeral(LEADER_PATH, _format(self._me))
            is_ours = node is None
            if is_ours and elected_in == session.session_id:
                self._elected_in = elected_in
                self._use(self._me)
                return
        if is_ours and node is not None:  # also after a failure that the session has survived
            self._elected_in = node.owner
            self._use(self._me)
        elif not is_ours:
            self._elected_in = None
            self._use(None if node is None else _parse(node.value))

    def _is_former_self(self, node: Node) -> bool:
        """Whether it is of an earlier life of this registry, whose data directory we have now."""
        return bool(self._me.name) and _parse(node.value).name == self._me.name

    def _use(self, leader: Leader | None) -> None:
        if leader is not None and leader != self.leader:
            is_me = " (this one): it gives out ids" if self._elected_in is not None else ""
            _log.info("the registry at %s leads%s", leader.url, is_me)
        self.leader = leader

    def _start_session(self) -> Session:
        connect = self._connect()
        if not connect:
            raise CoordinationUnavailableError("coordination is not there yet")
        session = self._starting = Session(
            connect,
            security=self._security(),
            session_timeout_seconds=self._timeouts[0],
            connection_timeout_seconds=self._timeouts[1],
            on_change=self._changed,
        )
        session.start()
        self._session = session
        return session

    def _changed(self) -> None:
        self._wake.set()
        self._on_change()  # what follows a lost lease must not wait for a look


def _format(leader: Leader) -> bytes:
    return json.dumps(leader._asdict()).encode()


def _parse(value: bytes) -> Leader:
    try:
        content = json.loads(value)
        leader = Leader(content["name"], content["url"])
    except (ValueError, RecursionError, KeyError, TypeError):
        leader = None
    if not (
        leader is not None
        and isinstance(leader.name, str)
        and isinstance(leader.url, str)
        and leader.url.startswith(("http://", "https://"))
    ):
        raise InvalidNodeError(
            f"{LEADER_PATH}: expected a name and an address as JSON, got {quoted(value)}; delete it"
        )
    return leader
