"""A session with ZooKeeper, and how long one may rely on it.

kazoo keeps the connection; this adds what its users must not have to think about:

- a lease. As long as it is held, the session lives on the server for certain, and with it the
  ephemeral nodes. kazoo can't say that: its LOST comes when a server says so, and so never comes
  while all are out of reach. The lease counts from when an answered request was *sent*, and ends
  well before the session can.
- calls that end. A call of kazoo's waits as long as there is no connection; here it waits for one
  request's time and then raises. The caller retries, by reading the current state: so a
  create whose response was lost is found done.
- one callback, `on_change`, for everything that may have changed: a connection made or lost, a
  watch. It runs in kazoo's threads and may only wake somebody up. Watches don't survive a
  connection reliably, so a caller that is woken reads everything again.

The module is long because calls and lease belong together: each answer extends the lease.
"""

import atexit
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts

from hermes.coordination.acls import OwningClient
from hermes.coordination.kazoo_bounds import BoundedConnection, BoundedHandler, QuietLogger
from hermes.coordination.kazoo_security import check_hosts
from hermes.coordination.nodes import Node
from hermes.errors import (
    ConfigError,
    CoordinationError,
    CoordinationNotAuthenticatedError,
    CoordinationNotAuthorizedError,
    CoordinationUnavailableError,
)
from hermes.forks import FORKED, watch_forks
from hermes.protocol import core
from hermes.quoting import quoted
from hermes.security import INTERNAL, PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

# The part of the session's timeout that one may rely on after an answered request was sent. What
# is left is for clocks that differ and for the one message that is handed out in the meantime.
_LEASE_PART: Final = 2 / 3
_BEATS_PER_TIMEOUT: Final = 6
_GOODBYE_SECONDS: Final[float] = 5.0
# A server that answers has done so by then.
_TELL_SECONDS: Final = 1.0
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}

_REFUSALS: Final = (CoordinationNotAuthenticatedError, CoordinationNotAuthorizedError)

_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: A clock that continues while the machine sleeps, as the server's does. Streams read it once per
#: message, hence no function around it.
boot_seconds: Final[Callable[[], float]] = partial(time.clock_gettime, _BOOT_CLOCK)


class Lease(core.Term):
    """How long a session, and what is registered in it, lives for certain. Threads may share it.

    Attributes:
        clock: seconds that never go backwards.
        until: when it ends, by the clock; every answered request extends it, and the end of the
            session ends it. Read it again before relying on it.
    """

    __slots__ = ("__weakref__", "session_id")

    def __init__(self, session_id: int, clock: Callable[[], float] = boot_seconds) -> None:
        self.session_id = session_id
        self.clock = clock
        self.clock_id = _BOOT_CLOCK if clock is boot_seconds else -1
        self.until = -math.inf

    def is_held(self) -> bool:
        """Whether the session lives for certain at this moment."""
        return self.clock() < self.until


class _Reads:
    """The responses to reads that were sent together, in the form of a result of kazoo's."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get(self, timeout: float) -> list[Node | None]:
        found: list[Node | None] = []
        for result in self._results:
            try:
                value, stat = result.get(timeout=timeout)
                found.append(Node(value, stat.version, stat.ephemeralOwner))
            except NoNodeError as error:
                error.with_traceback(None)  # its frames hold the result, which holds it
                found.append(None)
        return found


class Session:
    """A connection to ZooKeeper and its sessions, one after the other. Threads may share it.

    What can be done with nodes, `nodes.TreeSession` says.

    Args:
        connect: `host:port,host:port/chroot`; the chroot is created when it is missing.
        security: TLS, and the user, who then owns the nodes that are made (acls.py); None for
            neither. A broker's own user owns none: its rules say whose its server's nodes are.
        session_timeout_seconds: after how long without a sign of life the server ends a session,
            above 0; the server may choose another.
        connection_timeout_seconds: how long `start` waits, above 0.
        on_change: called in any thread when something may have changed; it must not call back.
        clock: seconds that never go backwards.

    Raises:
        ConfigError: the files of `security` can't be used, or a password would be sent in clear.
        CoordinationError: `connect` can't be understood.
    """

    def __init__(
        self,
        connect: str,
        *,
        security: ClientSecurity | None = None,
        session_timeout_seconds: float = 6.0,
        connection_timeout_seconds: float = 6.0,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._connect = connect
        hosts, slash, chroot = connect.partition("/")
        self._chroot = (slash + chroot).rstrip("/")
        self.security = PLAIN if security is None else security
        self._connection_timeout = connection_timeout_seconds
        self._timeout = session_timeout_seconds
        self._on_change = on_change
        self._clock = clock
        self._lease = Lease(0, clock)
        self._leases: WeakValueDictionary[int, Lease] = WeakValueDictionary()
        self._lease_lock = threading.Lock()
        self._is_forked = False
        self._is_lost = False
        self._starting_until: float | None = None
        self._refusal: CoordinationError | None = None
        self._has_begun = threading.Event()
        self._goodbye_seconds = _GOODBYE_SECONDS
        self._stopping = threading.Event()
        self._stop_lock = threading.Lock()
        self._beating = threading.Thread(target=self._beat, name="hermes-lease", daemon=True)
        self._says = QuietLogger(logging.getLogger("hermes.coordination.kazoo"), {})
        user, password = self.security.user, self.security.password
        try:
            check_hosts(self.security, collect_hosts(hosts)[0])
            self.security.check()
            kind = KazooClient if user in (None, INTERNAL) else OwningClient
            self._client = kind(
                hosts,
                timeout=session_timeout_seconds,
                connection_retry=_RECONNECT,
                handler=BoundedHandler(connection_timeout_seconds, self.security),
                logger=self._says,
                auth_data=None if user is None else {("digest", f"{user}:{password}")},
            )
        except ConfigError:
            raise
        except Exception as error:
            raise CoordinationError(f"can't connect to {quoted(connect)}: {error}") from error
        self._connection = BoundedConnection(
            self._client,
            connection_timeout_seconds,
            self._note_granted,
            on_refused=self._note_refused,
            on_distrust=self._note_distrust,
            security=self.security,
        )
        self._client._connection = self._connection
        self._client.add_listener(self._state_changed)

    def start(self, on_waiting: Callable[[str], None] = lambda text: None) -> None:
        """Connect.

        Args:
            on_waiting: called once, after a second in which no server has answered, with a line
                that says so, and for how long it is tried.

        Raises:
            CoordinationUnavailableError: no server answered in time, or none that TLS trusts;
                nothing remains.
            CoordinationNotAuthenticatedError: the server refuses the user, or asks for one.
            CoordinationNotAuthorizedError: the chroot is missing, and must not be made.
        """
        end = time.monotonic() + self._connection_timeout
        try:
            self._client.start_async()
            self._wait_until_begun(end, on_waiting)
            if self._refusal is not None:
                raise self._refusal
            if not self._client.connected:
                raise KazooTimeoutError("Connection time-out")
            self._starting_until = end
            if self._chroot:
                self.call(self._client.ensure_path_async, self._chroot)
                self._client.chroot = self._chroot
            self.call(self._client.exists_async, "/")  # takes the lease
            self._starting_until = None
        except Exception as error:
            reason = self._says.reason  # to stop is another one
            self._goodbye_seconds = 0
            self.stop()
            if isinstance(
                error, CoordinationNotAuthenticatedError | CoordinationNotAuthorizedError
            ):
                raise
            if error is self._refusal:
                raise
            raise CoordinationUnavailableError(
                f"ZooKeeper at {quoted(self._connect)} did not answer within "
                f"{self._connection_timeout:g} s: {reason or error}"
            ) from error
        self._beating.start()
        watch_forks(self)

    def _wait_until_begun(self, end: float, on_waiting: Callable[[str], None]) -> None:
        """Wait until a server has answered, or `end`, on the monotonic clock."""
        left = end - time.monotonic()
        if left > _TELL_SECONDS and not self._has_begun.wait(_TELL_SECONDS):
            reason = f" ({self._says.reason})" if self._says.reason else ""
            on_waiting(
                f"ZooKeeper at {quoted(self._connect)} has not answered yet{reason}: trying for "
                f"{self._connection_timeout:g} s"
            )
        self._has_begun.wait(max(0.0, end - time.monotonic()))

    def forked(self) -> None:
        """Leave the session, which is the parent's, and continues there."""
        self._is_forked = True
        # kazoo would stop threads that don't run here.
        atexit.unregister(self._client.handler.stop)

    def stop(self) -> None:
        """End the session, and with it its ephemeral nodes, and disconnect. Idempotent.

        Of several threads the later ones wait until the first is done. In a forked process it does
        nothing, as the session is the parent's.
        """
        if self._is_forked:
            return
        self._stopping.set()
        self._lease.until = -math.inf
        with self._stop_lock:  # kazoo's second stop returns while the first is under way
            self._disconnect()
        if self._beating.is_alive():
            self._beating.join()

    def _disconnect(self) -> None:
        self._connection.hurry()
        # A server that doesn't say goodbye is not waited for any longer than this.
        impatience = threading.Timer(self._goodbye_seconds, self._connection.abandon)
        impatience.daemon = True
        impatience.start()
        try:
            self._client.stop()
            self._client.close()
        finally:
            impatience.cancel()
            impatience.join()

    @property
    def session_id(self) -> int | None:
        """The current session; None without a connection, as then nobody knows."""
        identity = self._client.client_id
        return identity[0] if identity else None

    @property
    def timeout_seconds(self) -> float:
        """The session's timeout, as the server chose it."""
        return self._timeout

    def holds_lease(self, session_id: int) -> bool:
        """Whether that session, and what is registered in it, lives for certain."""
        return self.lease(session_id).is_held()

    def lease(self, session_id: int) -> Lease:
        """The lease of a session: one object for each session, for as long as somebody has it."""
        with self._lease_lock:
            lease = self._leases.get(session_id)
            if lease is None:
                lease = self._leases[session_id] = Lease(session_id, self._clock)
            return lease

    # -- calls ----------------------------------------------------------------------------------

    def call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call one of kazoo's asynchronous methods and wait for its result.

        Raises:
            CoordinationUnavailableError: no response came, or none that can be understood; nobody
                knows whether it was done.
            CoordinationNotAuthorizedError: the server refuses access to the node.
            CoordinationNotAuthenticatedError: the server asks for a user.
            CoordinationError: the server refused otherwise; the node is not as the call needs it.
                Or this is a forked process.
        """
        try:
            return self._call(method, *args, **options)
        except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError) as error:
            raise CoordinationUnavailableError(
                f"{args[0]}: it was changed meanwhile: {error!r}"
            ) from error

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """As `call`, but for what says how a node is: kazoo's errors for that pass."""
        if self._is_forked:
            raise CoordinationError(f"this session with ZooKeeper {FORKED}")
        sent, session_id = self._clock(), self.session_id
        try:
            result = method(*args, **options).get(timeout=self._response_seconds())
        except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError):
            raise
        except NoAuthError as error:
            raise self._not_authorized(str(args[0] if args else "a node")) from error
        except (AuthFailedError, SessionClosedRequireSaslError) as error:
            raise self._not_authenticated() from error
        except (SessionExpiredError, ConnectionClosedError, KazooTimeoutError) as error:
            raise CoordinationUnavailableError(f"no response from ZooKeeper: {error!r}") from error
        except KazooException as error:
            kind = CoordinationUnavailableError if _is_loss(error) else CoordinationError
            raise kind(f"ZooKeeper: {error!r}") from error
        except Exception as error:  # kazoo's, on an invalid response
            raise CoordinationUnavailableError(
                f"ZooKeeper's response can't be understood: {error!r:.100}"
            ) from error
        if session_id is not None and session_id == self.session_id:
            self._lease = self.lease(session_id)
            self._lease.until = sent + self._timeout * _LEASE_PART
        return result

    def _response_seconds(self) -> float:
        until = self._starting_until
        return self._timeout if until is None else max(0.01, until - time.monotonic())

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        try:
            value, stat = self._call(self._client.get_async, path, self._watch(watch))
        except NoNodeError:
            if not watch or self.call(self._client.exists_async, path, self._watch(True)) is None:
                return None
            return self.get(path, watch=True)  # it appeared in between
        return Node(value, stat.version, stat.ephemeralOwner)

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes at once, in hardly more time than one; None for one that isn't there."""

        def read(_what: str) -> _Reads:
            return _Reads([self._client.get_async(path) for path in paths])

        found: list[Node | None] = self._call(read, paths[0]) if paths else []
        return found

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        try:
            names = self._call(self._client.get_children_async, path, self._watch(watch))
        except NoNodeError:
            if not watch or self.call(self._client.exists_async, path, self._watch(True)) is None:
                return []
            return self.children(path, watch=True)
        return sorted(names)

    def create_ephemeral(self, path: str, value: bytes) -> Node | None:
        while True:
            try:
                self._call(self._client.create_async, path, value, ephemeral=True)
            except NoNodeError:
                self._ensure_parent(path)
                continue
            except NodeExistsError:
                found = self.get(path)
                if found is None:
                    continue
                if found.owner != self.session_id:
                    return found
                if found.value != value:
                    self.call(self._client.set_async, path, value)
            return None

    def delete_own(self, path: str) -> bool:
        """Delete a node if it belongs to this session; returns whether it did."""
        found = self.get(path)
        if found is None or found.owner != self.session_id:
            return False
        return self.delete(path, found.version)

    def delete(self, path: str, version: int) -> bool:
        try:
            self._call(self._client.delete_async, path, version)
        except (NoNodeError, BadVersionError, NotEmptyError):
            return False
        return True

    def delete_empty(self, path: str) -> bool:
        """Delete a node unless it has children; returns whether it is gone."""
        try:
            self._call(self._client.delete_async, path)
        except NoNodeError:
            return True
        except NotEmptyError:
            return False
        return True

    def delete_tree(self, path: str) -> None:
        """Delete a node with all below it, if it is there."""
        for name in self.children(path):
            self.delete_tree(f"{path}/{name}")
        self.delete(path, -1)

    def ensure_path(self, path: str) -> None:
        self.call(self._client.ensure_path_async, path)

    def sync(self, path: str) -> None:
        self.call(self._client.sync_async, path)

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        return int(self.call(self._client.set_async, path, value, version).version)

    def put(self, path: str, value: bytes) -> None:
        """Give a persistent node a value; parents are made. It never exists without its value."""
        while True:
            try:
                self._call(self._client.set_async, path, value)
                return
            except NoNodeError:
                if self.create(path, value):
                    return
                # somebody made it in the very moment

    def create(self, path: str, value: bytes) -> bool:
        while True:
            try:
                self._call(self._client.create_async, path, value)
            except NoNodeError:
                self._ensure_parent(path)
            except NodeExistsError:
                return False
            else:
                return True

    def transact(self, fill: Callable[[Any], object]) -> list[Any]:
        """As `TreeSession.transact`; CoordinationNotAuthorizedError: one isn't allowed."""
        transaction = self._client.transaction()
        fill(transaction)
        results: list[Any] = self._call(transaction.commit_async)
        for operation, result in zip(transaction.operations, results, strict=False):
            if isinstance(result, NoAuthError):
                raise self._not_authorized(operation.path)
        return results

    # -- inside ---------------------------------------------------------------------------------

    def _ensure_parent(self, path: str) -> None:
        """Make what must be there before a node can be made; it may go again in the moment."""
        parent = path.rpartition("/")[0]
        with suppress(NoNodeError, NodeExistsError):
            self._call(self._client.ensure_path_async, parent)

    def _not_authorized(self, path: str) -> CoordinationNotAuthorizedError:
        whom = self.security.whom
        return CoordinationNotAuthorizedError(
            f"{path}: ZooKeeper at {quoted(self._connect)} refuses {whom} access to it. Have an "
            "access rule allow it, or connect as another user; to a real ZooKeeper, the owner of a "
            "node is whoever knows the password that it was made with"
        )

    def _not_authenticated(self) -> CoordinationNotAuthenticatedError:
        security = self.security
        if security.user is not None:
            what = f"refuses {security.whom}: check the user and the password"
        else:
            what = f"refuses {security.whom}: it asks for a user and a password"
        return CoordinationNotAuthenticatedError(f"ZooKeeper at {quoted(self._connect)} {what}")

    def _watch(self, wanted: bool) -> Callable[[Any], None] | None:
        # Always the same object: kazoo keeps a set of them for each path until it fires.
        return self._node_changed if wanted else None

    def _node_changed(self, _event: Any) -> None:
        self._on_change()

    def _state_changed(self, state: Any) -> None:
        """Kazoo's listener; it runs in the thread of the connection and so must not wait."""
        if state == KazooState.LOST:
            self._lease.until = -math.inf
        # Whether it is back is known later, when the server has taken the user, too.
        if not self._stopping.is_set() and state != KazooState.CONNECTED:
            self._log_state(state)
        self._on_change()

    def _log_state(self, state: Any) -> None:
        is_back = state == KazooState.CONNECTED
        if is_back and self._is_lost:
            _log.warning("ZooKeeper at %s answers again", self._connect)
        elif not is_back and not self._is_lost:
            reason = self._says.reason or state
            _log.warning("lost ZooKeeper at %s, reconnecting: %s", self._connect, reason)
        self._is_lost = not is_back

    def _beat(self) -> None:
        while not self._stopping.wait(self._timeout / _BEATS_PER_TIMEOUT):
            try:
                self.call(self._client.exists_async, "/")
            except CoordinationError as error:
                _log.debug("no heartbeat: %s", error)
                if isinstance(error.__cause__, KazooTimeoutError):
                    # A server that is there and silent; kazoo notices only when nothing is asked.
                    self._connection.drop()

    def _note_granted(self, seconds: float) -> None:
        """Relying on what was asked for would be wrong by far with a server that allows less."""
        self._timeout = seconds
        if not self._stopping.is_set():
            self._log_state(KazooState.CONNECTED)
        self._has_begun.set()

    def _note_refused(self) -> None:
        self._refusal = self._not_authenticated()
        self._has_begun.set()

    def _note_distrust(self, reason: str) -> None:
        """Of one server; of several, others may be trusted."""
        if not self._has_begun.is_set() and len(self._client.hosts) == 1:
            self._refusal = CoordinationUnavailableError(
                f"ZooKeeper at {quoted(self._connect)}: {reason}"
            )
            self._has_begun.set()


def _is_loss(error: KazooException) -> bool:
    return type(error).__name__ in ("ConnectionLoss", "OperationTimeoutError")
