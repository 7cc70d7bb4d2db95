"""Who users are, for one broker: asked off the reactor, tried slowly, looked up again.

The authenticator, a plugin, knows users; it is only called in worker threads. `gates` has what a
connection may do until it has said who it is; here is what all connections, HTTP and coordination
share: how fast passwords may be tried, how often what was counted, whose connections end because
their user is gone or has another password, and what is remembered of users' groups.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from hermes.errors import HermesError, NotAuthenticatedError
from hermes.interfaces import IAuthenticator, ITokenVerifier, TokenHolder, User
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.security import ANONYMOUS, INTERNAL
from hermes.security.login_attempts import LoginAttempts
from hermes.security.principals import is_user_name
from hermes.server.turns import Turns

#: How often users that don't tell whether they have changed are looked up again.
REFRESH_SECONDS: Final = 60.0

# Checks of clear passwords, each some ms of a processor in a thread that disks need as well.
_CHECKS_AT_ONCE: Final = 2
_MOST_CHECKS_WAITING: Final = 64

#: Nobody but a broker's own parts has these names.
RESERVED: Final = frozenset((ANONYMOUS, INTERNAL))

_UNSEEN: Final = object()

_TOKEN: Final = "OAUTHBEARER"


class UserConnection(Protocol):
    def groups_changed(self, groups: frozenset[str]) -> None: ...

    def revoke(self, reason: str) -> None:
        """End it: its user was removed, or has another password."""


class Authentication:
    """What one broker knows of users. Lives in the reactor's thread, but for `groups_of`.

    `counts` is by (how, result), for metrics; `revision` changes with every change of users seen.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        authenticator: IAuthenticator | None,
        clock: IReactorTime,
        in_thread: "Callable[..., Deferred[Any]]",
        token_verifier: ITokenVerifier | None = None,
    ) -> None:
        self.authenticator = authenticator
        self.token_verifier = token_verifier
        self.clock = clock
        self.in_thread = in_thread
        self.attempts = LoginAttempts(clock.seconds)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.limited_log = LimitedLog(self._log, clock.seconds)
        self.revision = 0
        self._known: dict[str, User] = {}  # of all who have come since the start
        # By principal: each as it was when it came, or None where a certificate says who it is.
        self._connected: dict[str, dict[UserConnection, User | None]] = {}
        self._seen: object = None if authenticator is None else authenticator.revision()
        self._refreshed_seconds = clock.seconds()
        self._problem: str | None = None
        self._checks = Turns(_CHECKS_AT_ONCE)
        self._token_checks = Turns(_CHECKS_AT_ONCE)
        self._observers: list[Callable[[], None]] = []

    @property
    def is_current(self) -> bool:
        """Whether users are as their source says now: False after a failed read."""
        return self._problem is None

    def on_change(self, observer: Callable[[], None]) -> None:
        """Have `observer` called when users or their groups may have changed."""
        self._observers.append(observer)

    def groups_of(self, principal: str) -> frozenset[str]:
        """The groups of a principal seen since the start; any thread may ask."""
        user = self._known.get(principal)
        return frozenset() if user is None else user.groups

    # -- look-ups -------------------------------------------------------------------------------

    def groups_of_certified(
        self, connection: UserConnection, principal: str
    ) -> "Deferred[frozenset[str]]":
        """Look up the groups of whom a certificate names, and keep them up to date."""
        authenticator = self.authenticator
        if authenticator is None:
            return succeed(frozenset())

        def look_up() -> tuple[object, User | None]:
            return authenticator.revision(), authenticator.find(principal)

        def found(result: tuple[object, User | None]) -> frozenset[str]:
            revision, user = result
            self._connect(connection, principal, None, revision)
            if user is not None:
                self._known[principal] = user
            return self.groups_of(principal)

        return self.in_thread(look_up).addCallback(found)

    def introduce(self, principal: str) -> "Deferred[None]":
        """Have `groups_of` know whom a certificate names, where connections are short.

        The Deferred fails with a HermesError when users can't be looked up now.
        """
        authenticator = self.authenticator
        if authenticator is None or principal in self._known:
            return succeed(None)

        def found(user: User | None) -> None:
            if user is not None:
                self._known[principal] = user

        def failed(failure: Any) -> None:
            self.failed("certificate", failure.value)
            raise HermesError("users can't be looked up now")

        return self.in_thread(authenticator.find, principal).addCallbacks(found, failed)

    def check_password(self, address: str, name: str, password: str) -> "Deferred[User | None]":
        """Check a clear password, where a protocol has no better; None: it is wrong.

        Takes some ms, or seconds after many failures from `address` (empty: no IP address). Fails
        with a HermesError when users can't be looked up now.
        """
        return Deferred.fromCoroutine(self._check(address, name, password))

    async def _check(self, address: str, name: str, password: str) -> User | None:
        from hermes.security.passwords import verify_password  # few brokers have users

        authenticator = self.authenticator
        if authenticator is None:
            return None
        if self._checks.waiting >= _MOST_CHECKS_WAITING:
            raise HermesError("too many passwords are being checked")
        wait = self.attempts.begin(address, name)
        if wait is None:
            self.refused("password", "too_many", address, None)
            return None
        if wait:
            await deferLater(self.clock, wait)
        try:
            user: User | None = await self._checks.run(
                self.in_thread, verify_password, authenticator, name, password
            )
        except CancelledError:
            raise
        except Exception as error:
            self.failed("password", error)
            raise HermesError("users can't be looked up now") from None
        if user is None or user.name in RESERVED:
            known = await self.in_thread(authenticator.find, name)
            self.refused("password", "wrong", address, known)
            return None
        self.attempts.succeeded(address, name)
        self.counts["password", "accepted"] += 1
        self._known[user.name] = user
        return user

    async def check_token(self, token: str) -> TokenHolder:
        """Have the verifier say whose a bearer token is.

        Raises:
            NotAuthenticatedError: it isn't valid; the text says why.
            HermesError: that can't be told now, which is counted and logged.
        """
        verifier = self.token_verifier
        assert verifier is not None  # else there is no such listener
        if self._token_checks.waiting >= _MOST_CHECKS_WAITING:
            raise HermesError("too many tokens are being checked")
        try:
            holder: TokenHolder = await self._token_checks.run(
                self.in_thread, verifier.verify, token
            )
        except (CancelledError, NotAuthenticatedError):
            raise
        except Exception as error:  # whatever a verifier raises
            self.counts[_TOKEN, "failed"] += 1
            self.limited_log.error(
                "tokens",
                "tokens can't be checked: {error}",
                error=f"{type(error).__name__}: {error}",
            )
            raise HermesError("tokens can't be checked now; the broker's log says why") from None
        if holder.name in RESERVED or not is_user_name(holder.name):
            raise NotAuthenticatedError("the token's holder has a name that nobody can have")
        return holder

    # -- results --------------------------------------------------------------------------------

    def refused(self, how: str, result: str, where: object, found: User | None) -> None:
        """Count and log a failed attempt; but no unknown name: people type passwords there."""
        self.counts[how, result] += 1
        self.limited_log.warn(
            "refused",
            "{where} could not authenticate as {whom}: {reason}",
            where=where,
            whom="a user that there isn't" if found is None else found.name,
            reason=_REASONS[result],
        )

    def token_refused(self, where: object, reason: str) -> None:
        self.counts[_TOKEN, "wrong"] += 1
        self.limited_log.warn(
            "token",
            "{where} showed a token that is not taken: {reason}",
            where=where,
            reason=reason,
        )

    def failed(self, how: str, error: object) -> None:
        """Count and log an attempt that could not be judged."""
        self.counts[how, "failed"] += 1
        self.limited_log.error("failed", "users can't be looked up: {error}", error=error)

    def connected(self, connection: UserConnection, user: User, revision: object) -> None:
        self._known[user.name] = user
        self._connect(connection, user.name, user, revision)

    def _connect(
        self, connection: UserConnection, name: str, user: User | None, revision: object
    ) -> None:
        self._connected.setdefault(name, {})[connection] = user
        if revision != self._seen:
            self._seen = _UNSEEN  # they have changed since, or not been seen to

    def disconnected(self, connection: UserConnection, name: str) -> None:
        """A connection is lost; it need not have proved anything."""
        connections = self._connected.get(name)
        if connections is not None:
            connections.pop(connection, None)
            if not connections:
                del self._connected[name]

    # -- changes --------------------------------------------------------------------------------

    def refresh(self) -> "Deferred[None]":
        """Check for changed users; call it every second or so, never while it is under way."""
        now = self.clock.seconds()
        is_due = now - self._refreshed_seconds >= REFRESH_SECONDS
        names = {*self._known, *self._connected}
        looked: Deferred[Any] = self.in_thread(self._look_up, self._seen, is_due, names)
        return looked.addCallback(self._refreshed)

    def _look_up(
        self, seen: object, is_due: bool, names: Iterable[str]
    ) -> tuple[object, dict[str, User | None] | None]:
        """In a thread: the users of these names; None if nothing has changed."""
        authenticator = self.authenticator
        assert authenticator is not None
        revision = authenticator.revision()
        if revision == seen and (revision is not None or not is_due):
            return revision, None
        return revision, {name: authenticator.find(name) for name in names}

    def _refreshed(self, result: tuple[object, dict[str, User | None] | None]) -> None:
        revision, found = result
        problem: str | None = getattr(self.authenticator, "problem", None)
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                self._log.error("users stay as they were: {problem}", problem=problem)
        if found is None:
            return
        came_meanwhile = not found.keys() >= {*self._known, *self._connected}
        self._seen = _UNSEEN if came_meanwhile else revision  # else they'd stay whatever they are
        self._refreshed_seconds = self.clock.seconds()
        self.revision += 1
        for name, user in found.items():
            if user is None:
                self._known.pop(name, None)
            else:
                self._known[name] = user
            self._apply(name, user)
        for observer in self._observers:
            observer()

    def _apply(self, name: str, user: User | None) -> None:
        for connection, before in list(self._connected.get(name, {}).items()):
            if before is not None and user is None:
                connection.revoke("its user was removed")
            elif before is not None and user is not None and user.verifiers != before.verifiers:
                connection.revoke("its user has another password")
            else:
                connection.groups_changed(frozenset() if user is None else user.groups)


_REASONS: Final = {
    "wrong": "the user or the password is wrong",
    "malformed": "what it sent proves nothing",
    "too_many": "there were too many failures from there, so it was not checked",
}
