"""Who a request comes from, as log lines name it."""

from typing import Any


class Client:
    """One client, for as long as its connection lasts.

    Args:
        address: where it is, as Twisted has it.

    Attributes:
        principal: who it has proved to be; empty as long as clients don't prove anything.
    """

    __slots__ = ("_address", "principal")

    def __init__(self, address: Any) -> None:
        self._address = address
        self.principal = ""

    def __str__(self) -> str:
        """`HOST:PORT`, with `PRINCIPAL@` before it where there is one."""
        address = self._address
        host = getattr(address, "host", None)
        where = str(address) if host is None else f"{host}:{address.port}"
        return f"{self.principal}@{where}" if self.principal else where


#: Whoever asks without a connection: a test, the broker itself.
UNKNOWN_CLIENT = Client("the broker itself")
