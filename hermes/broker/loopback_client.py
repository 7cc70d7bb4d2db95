"""How parts of a broker's own process are its clients where it demands proof of clients.

Console, registry, embedded mirror and the broker's registration need a way in whatever listeners
others use. So there is one more, on the loopback interface and a port of its own, for one name and
a password that exists in this process's memory only, made at each start.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes.config.listeners import BY_PASSWORD, ListenerConfig
from hermes.interfaces import IAuthenticator, User
from hermes.security import INTERNAL, PLAIN, ClientSecurity

if TYPE_CHECKING:
    from hermes.web import WebServer

#: Where the broker listens for itself.
OWN_LISTENER: Final = ListenerConfig(
    "tcp:0:interface=127.0.0.1", authentication=BY_PASSWORD, name="own"
)

_PASSWORD_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class OwnAccess:
    """The credentials of a broker as its own client.

    The password is random and never leaves the memory of this process and its mirror; `security`
    is the same, as clients take it.
    """

    password: str = field(repr=False)
    security: ClientSecurity

    @classmethod
    def make(cls) -> "OwnAccess":
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        return cls(password, ClientSecurity(user=INTERNAL, password=password))

    def authenticator(self) -> IAuthenticator:
        from hermes.security.users import Users  # few brokers have users

        return Users.only(INTERNAL, self.password)

    def serve_http(self, reactor: Any, web: "WebServer") -> str:
        """Open one more HTTP port, for this one user; returns the registry's URL."""
        from twisted.internet.defer import Deferred, succeed

        from hermes.listening import Listener
        from hermes.web import Logins, WebGate

        def check(address: str, user: str, password: str) -> "Deferred[User | None]":
            return succeed(User(user) if self._is_own(user, password) else None)

        listener = Listener(reactor, "http_listen", OWN_LISTENER)
        gate = WebGate(OWN_LISTENER.authentication, Logins(lambda: None, check))
        host, port = web.open_own(listener, gate)
        return f"http://{host}:{port}/registry"

    def _is_own(self, user: str, password: str) -> bool:
        given = password.encode(errors="replace")
        return user == INTERNAL and hmac.compare_digest(given, self.password.encode())


class OwnClient(NamedTuple):
    """How this process reaches its own broker; `security` is what a client brings there."""

    host: str
    port: int
    security: ClientSecurity = PLAIN
