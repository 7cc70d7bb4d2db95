"""What all ports of a web server share: the users, and what they may do.

A broker makes its `WebGuard` of its own users and rules; `users_guard` makes one from a users file
and a list of rules, for a process that is no broker.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from hermes.listening import Listener, peer_principal
from hermes.security import AccessRule, AccessRules, Operation, Resource, Rights
from hermes.web.gates import Rule, WebGate
from hermes.web.logins import Logins

_CHECKS_AT_ONCE: Final = 2


class WebGuard:
    """Makes the gates of listeners, and the rules of what is mounted. In the reactor's thread.

    Args:
        check: called with an address, a user and a password; fires with the user, or None if the
            password is wrong, and slows down guessing. None where nobody has a password.
        revision: equal as long as no user and no password has changed; cheap.
        find: the user of a name, with `verifiers`, or None. May block; any thread.
        rights: None where everybody may do everything.
        introduce: called with whom a certificate names, before `rights` is asked about them; fires
            when their groups are known.

    Attributes:
        refused: how many requests were refused, by a word for why.
    """

    def __init__(
        self,
        check: "Callable[[str, str, str], Deferred[Any]] | None" = None,
        revision: Callable[[], object] = lambda: None,
        find: Callable[[str], Any] = lambda user: None,
        rights: Rights | None = None,
        introduce: "Callable[[str], Deferred[Any]] | None" = None,
    ) -> None:
        self._introduce = introduce
        self.check = check
        self.find = find
        self.rights = rights
        self.refused: Counter[str] = Counter()
        self._logins = None if check is None else Logins(revision, check)

    def gate(self, listener: Listener) -> WebGate:
        config = listener.config

        def name_of(request: Any) -> str | None:
            return peer_principal(request.channel.transport, config.tls)

        def refused(reason: str) -> None:
            self.refused[reason] += 1

        return WebGate(config.authentication, self._logins, name_of, refused, self._introduce)

    def rule(self, operation: Operation, resource: Resource) -> Rule:
        rights = self.rights
        if rights is None:
            return Rule()
        return Rule(
            allows=lambda principal: rights(principal, operation, resource),
            action=f"{operation} {resource}",
        )


class UserChecks:
    """Checks passwords, and slows down guessing. Lives in the reactor's thread.

    `authenticator` is only called in threads.
    """

    def __init__(self, reactor: Any, authenticator: Any) -> None:
        from hermes.security.login_attempts import LoginAttempts  # as little needed as users are

        self._reactor = reactor
        self._authenticator = authenticator
        self._attempts = LoginAttempts(reactor.seconds)
        self._pool = ThreadPool(0, _CHECKS_AT_ONCE, "hermes-logins")
        self._pool.start()

    def check(self, address: str, name: str, password: str) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._check(address, name, password))

    async def _check(self, address: str, name: str, password: str) -> Any:
        from hermes.security.passwords import verify_password

        wait = self._attempts.begin(address, name)
        if wait is None:
            return None
        if wait:
            await deferLater(self._reactor, wait)
        user = await deferToThreadPool(
            self._reactor, self._pool, verify_password, self._authenticator, name, password
        )
        if user is not None:
            self._attempts.succeeded(address, name)
        return user

    def stop(self) -> None:
        self._pool.stop()


def users_guard(
    reactor: Any, users_file: str | Path | None, access: Iterable[AccessRule] | None = None
) -> "tuple[WebGuard, Callable[[], None]]":
    """Make the guard of a process that is no broker.

    Args:
        users_file: None where no listener needs any.
        access: None where everybody may do everything.

    Returns:
        The guard, and what stops its threads.

    Raises:
        ConfigError: the users file can't be used.
    """
    if users_file is None:
        return WebGuard(rights=_rights(access, lambda name: frozenset())), lambda: None
    from hermes.security.users_file import UsersFile

    file = UsersFile(users_file, reactor.seconds)
    checks = UserChecks(reactor, file)
    rights = _rights(access, lambda name: file.current().groups(name))
    return WebGuard(checks.check, file.revision, file.find, rights), checks.stop


def _rights(
    access: Iterable[AccessRule] | None, groups_of: Callable[[str], frozenset[str]]
) -> Rights | None:
    if access is None:
        return None
    rules = AccessRules(access)
    return lambda who, what, on: rules.decide(who, groups_of(who), what, on).allowed
