"""Which hosts a request may be addressed to: the defence against DNS rebinding.

A page of evil.example can point its own name at 127.0.0.1 and then read, through its visitor's
browser, what is served there. Such a request says `Host: evil.example`.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")


class AcceptedHosts:
    """The names that a `Host` header may have.

    `names`: host names and addresses, in addition to those of the loopback interface; in any case,
    IPv6 addresses with or without brackets.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.use(names)

    def use(self, names: Iterable[str]) -> None:
        self._names = {_normal(name.strip("[]")) for name in names} | {"localhost"}

    def accepts(self, headers: Iterable[bytes]) -> bool:
        """Whether a request's `Host` headers are exactly one, of an accepted name."""
        values = list(headers)
        if len(values) != 1:
            return False
        match = _HOST.fullmatch(values[0].decode("latin-1").lower())
        if match is None:
            return False
        name = _normal(match["six"] or match["name"])
        return name in self._names or _is_loopback(name)

    @staticmethod
    def is_loopback(header: bytes) -> bool:
        """Whether a `Host` header is a name of the loopback interface; a malformed one counts."""
        match = _HOST.fullmatch(header.decode("latin-1").lower())
        name = "localhost" if match is None else _normal(match["six"] or match["name"])
        return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _normal(name: str) -> str:
    """Normalize a name: no dot at its end, an address in its shortest form."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower().removesuffix(".")


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
