"""Who a request comes from: as log lines name it, and as access rules know it."""

from typing import Any, Final

from hermes.coordination.listeners import ListenerNode
from hermes.security import ANONYMOUS, INTERNAL

_PLAIN: Final = ListenerNode("0", "", 0, False, "none")


class Client:
    """One client, for as long as its connection lasts.

    Attributes:
        listener: what it has connected to; the host and port don't matter.
        principal: who it has proved to be; `ANONYMOUS` until then.
        groups: the principal's.
        knows_own_codes: whether it has authenticated by a request that no client of Kafka 0.7
            knows: then any error code may answer it.
        has_left: whether its connection is lost.
        token_session: what its connection is held by, where that is a token.
    """

    __slots__ = (
        "_address",
        "groups",
        "has_left",
        "knows_own_codes",
        "listener",
        "principal",
        "token_session",
    )

    def __init__(self, address: Any, listener: ListenerNode = _PLAIN) -> None:
        self._address = address
        self.listener = listener
        self.principal = ANONYMOUS
        self.groups: frozenset[str] = frozenset()
        self.knows_own_codes = False
        self.has_left = False
        self.token_session: Any = None

    @property
    def host(self) -> str:
        """The IP address; empty for a UNIX socket or a test."""
        return str(getattr(self._address, "host", ""))

    def __str__(self) -> str:
        """`HOST:PORT`, with `PRINCIPAL@` before it once authenticated."""
        address = self._address
        host = getattr(address, "host", None)
        where = str(address) if host is None else f"{host}:{address.port}"
        return where if self.principal in (ANONYMOUS, INTERNAL) else f"{self.principal}@{where}"


def _broker_itself() -> Client:
    client = Client("the broker itself")
    client.principal = INTERNAL
    return client


#: Whoever asks without a connection: a test, the broker itself.
UNKNOWN_CLIENT = _broker_itself()
