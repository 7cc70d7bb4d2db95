"""Where schema registries listen: one URL, or several that share their schemas.

Credentials are settings of the client, or stand in a URL, or in the environment's
HERMES_REGISTRY_CREDENTIALS (`user:password`), so that they needn't be in a command line or in a
plan of Spark's. They are never shown.
"""

import base64
import os
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from hermes.quoting import quoted

#: The variable with the user's name and password.
CREDENTIALS: Final = "HERMES_REGISTRY_CREDENTIALS"

_PORTS: Final = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where one registry listens.

    Attributes:
        host: a name or an address, IPv6 without brackets.
        path: what the paths of its interface follow; begins with "/" unless it is empty.
        authorization: the header's value; empty for none.
    """

    is_secure: bool
    host: str
    port: int
    path: str = ""
    authorization: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}{self.path}"

    def __repr__(self) -> str:
        """As `str`: what is in a log must not have the password."""
        return f"<Address {self}>"


def parse_addresses(given: str | Sequence[str], user: str = "") -> tuple[Address, ...]:
    """Read one or several URLs.

    Args:
        given: URLs with commas between them, or a sequence of URLs; `host:port` stands for
            `http://host:port`.
        user: `name:password` for those that have none of their own, by TLS or on this machine:
            elsewhere the password would be sent for everybody to read.

    Raises:
        ValueError: there is none, or one is wrong; the text says which, without a password.
    """
    listed = given.split(",") if isinstance(given, str) else given
    is_list = isinstance(listed, Sequence) and not isinstance(listed, bytes)
    if not is_list or not all(isinstance(each, str) for each in listed):
        raise ValueError("expected a URL, or a list of them, as texts")
    addresses = tuple(_parse(each.strip(), user) for each in listed)
    if not addresses:
        raise ValueError("expected a URL such as http://localhost:8081")
    return addresses


def _parse(url: str, user: str) -> Address:
    shown = quoted(_without_user(url))
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{shown} is not a URL: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise ValueError(f"{shown} is not a URL such as http://localhost:8081")
    if parts.query or parts.fragment or any(not "!" <= each <= "~" for each in url):
        raise ValueError(f"{shown}: expected only a scheme, a host, a port and a path")
    is_secure = parts.scheme == "https"
    credentials = os.environ.get(CREDENTIALS, "")
    if user and (is_secure or _is_here(parts.hostname)):
        credentials = user
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    authorization = ""
    if credentials:
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return Address(
        is_secure,
        parts.hostname,
        port or _PORTS[parts.scheme],
        parts.path.rstrip("/"),
        authorization,
    )


def _is_here(host: str) -> bool:
    """Whether a host is this machine, by a name that nobody else can answer to."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


def has_credentials(url: str) -> bool:
    """Whether a URL, or one of several, has a user's name in it."""
    return any(_without_user(each) != each for each in url.split(","))
