"""Twisted's endpoint strings, as far as they can be parsed without Twisted."""

import re
from ipaddress import ip_address
from typing import Final, NamedTuple

from hermes.quoting import quoted

ENDPOINT_EXAMPLE: Final = "tcp:9092 or tcp:9092:interface=127.0.0.1"
_TCP: Final = ("tcp", "tcp4", "tcp6")


class Endpoint(NamedTuple):
    """The parts of an endpoint string; empty where it has none.

    `path`: of a UNIX socket. `interface`: the address that it is bound to; empty for all of them.
    """

    kind: str
    port: str
    path: str
    interface: str

    @property
    def is_tcp(self) -> bool:
        """Whether it is a TCP port by its own words; a plugin's type may be one as well."""
        return self.kind in _TCP

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect: by a loopback address, or a UNIX socket."""
        if not self.is_tcp:
            return self.kind == "unix"
        if self.interface == "localhost":
            return True
        try:
            address = ip_address(self.interface.partition("%")[0])
        except ValueError:
            return False
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def read_endpoint(text: str) -> Endpoint:
    kind, *arguments = [each.replace("\\", "") for each in re.split(r"(?<!\\):", text)]
    named = dict(each.split("=", 1) for each in arguments if "=" in each)
    first = arguments[0] if arguments and "=" not in arguments[0] else ""
    if kind == "unix":
        return Endpoint(kind, "", first or named.get("address", ""), "")
    return Endpoint(kind, first or named.get("port", ""), "", named.get("interface", ""))


def parse_endpoint(value: object) -> str:
    r"""Check a Twisted server endpoint string, as far as possible without Twisted.

    Args:
        value: for instance `tcp:9092`, `unix:/run/hermes.sock`; a colon in an argument is
            escaped with a backslash (`tcp6:9092:interface=\:\:1`).

    Returns:
        The string as it was. Whether Twisted (or a plugin for it) knows the type and the
        arguments turns out only when the endpoint is created.

    Raises:
        ValueError: this can't be an endpoint.
    """
    wanted = f"expected an endpoint such as {ENDPOINT_EXAMPLE}, got {quoted(value)}"
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"{wanted} (write tcp:{value})")
    if not isinstance(value, str):
        raise ValueError(wanted)
    kind, *arguments = re.split(r"(?<!\\):", value)
    if kind.isdigit() and not arguments:
        raise ValueError(f"{wanted} (write tcp:{kind})")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", kind) or kind == "localhost" or kind.isdigit():
        port = next((argument for argument in arguments if argument.isdigit()), None)
        hint = f" (write tcp:{port}:interface={kind})" if port and kind else ""
        raise ValueError(wanted + hint)
    if kind == "ssl":
        raise ValueError(f"{wanted} (write a mapping: endpoint: tcp:PORT, and tls beside it)")
    if not arguments or not arguments[0]:
        raise ValueError(f"{wanted}, which ends after its type")
    if kind in _TCP:
        port = read_endpoint(value).port
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError(f"{wanted}, whose port is not within 0 to 65535")
    return value
