"""What a listener asks of its clients before it serves them, and who knows the answers.

With `authentication: scram` it is ZooKeeper's `digest`, whose credential is `user:password`: the
password is checked against the broker's users, and the user becomes the principal. With `tls` it is
a client's certificate, which the handshake has verified. With `none` everybody is served, and
`digest` proves something to ACLs only, as in any ZooKeeper.
"""

import hmac
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from twisted.internet.defer import Deferred, succeed

from hermes.config.listeners import BY_CERTIFICATE, BY_PASSWORD, NONE, TlsConfig
from hermes.coordination.embedded.rights import Rules
from hermes.coordination.embedded.visible_names import VisibleNames
from hermes.security import ANONYMOUS, INTERNAL, ClientSecurity


class GuardedConnection(Protocol):
    def groups_changed(self, groups: frozenset[str]) -> None: ...

    def revoke(self, reason: str) -> None: ...


class KnowsUsers(Protocol):
    def check_password(self, address: str, name: str, password: str) -> "Deferred[Any]":
        """A Deferred of the user, or of None; it fails when passwords can't be checked now."""

    def groups_of_certified(self, connection: GuardedConnection, principal: str) -> "Deferred[Any]":
        """Have the rules know the groups of whom a certificate names; fires once they do.

        It fails when they can't be looked up now.
        """

    def connected(self, connection: GuardedConnection, user: Any, revision: object) -> None:
        """A connection is a user's, and is to be ended when the user is gone."""

    def disconnected(self, connection: GuardedConnection, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one listener.

    Attributes:
        authentication: `none`, `tls` or `scram`, as `ListenerConfig` has it.
        tls: None: it doesn't do TLS.
        users: needed for `scram`, and for the groups of those that `tls` names.
        rules: the access rules; None: there never are any.
        shown: remembers what they say about long lists.
        reserved: the names that no user of this listener has.
    """

    authentication: str = NONE
    tls: TlsConfig | None = None
    users: KnowsUsers | None = field(default=None, repr=False)
    rules: Rules | None = field(default=None, repr=False)
    shown: VisibleNames | None = field(default=None, repr=False)
    reserved: frozenset[str] = frozenset((ANONYMOUS, INTERNAL))

    @property
    def asks_for_passwords(self) -> bool:
        return self.authentication == BY_PASSWORD

    @property
    def asks_for_certificates(self) -> bool:
        return self.authentication == BY_CERTIFICATE

    @property
    def is_open(self) -> bool:
        return self.authentication == NONE and (self.rules is None or not self.rules.is_on)


#: Whoever connects is served, and may do what the nodes' ACLs allow.
OPEN: Final = Guard()


class _Own(NamedTuple):
    name: str


class OwnUsers:
    """The one user of the broker's own port: itself, with a random password."""

    def __init__(self, security: ClientSecurity) -> None:
        self._name = (security.user or "").encode()
        self._password = (security.password or "").encode()

    def check_password(self, address: str, name: str, password: str) -> "Deferred[_Own | None]":
        is_name = hmac.compare_digest(name.encode("utf-8", "replace"), self._name)
        is_password = hmac.compare_digest(password.encode("utf-8", "replace"), self._password)
        return succeed(_Own(self._name.decode()) if is_name and is_password else None)

    def groups_of_certified(
        self, connection: GuardedConnection, principal: str
    ) -> "Deferred[None]":
        """Nobody has a certificate here."""
        return succeed(None)

    def connected(self, connection: GuardedConnection, user: Any, revision: object) -> None:
        """See `KnowsUsers`: this one is never removed."""

    def disconnected(self, connection: GuardedConnection, name: str) -> None:
        pass


def own_guard(security: ClientSecurity) -> Guard:
    return Guard(BY_PASSWORD, users=OwnUsers(security), reserved=frozenset((ANONYMOUS,)))
