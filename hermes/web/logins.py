"""Users' passwords in requests: each carries one, and few of them are checked.

To check a password costs milliseconds of a processor on purpose, and programs send it with every
request (RFC 7617). So what was right a moment ago is right again: it is remembered as an HMAC with
a key of this process, for a minute, and no longer than the authenticator's users are unchanged.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, succeed

from hermes.announcement import Announcement
from hermes.errors import HermesError

#: How long a password that was right isn't checked again.
REMEMBERED_SECONDS: Final = 60.0

_MOST_REMEMBERED: Final = 10_000
_MOST_WAITING: Final = 64
# Beyond this no user's name and no password is looked at.
_MOST_BYTES: Final = 4096


class BadCredentialsError(Exception):
    """Malformed credentials; the text says what is expected."""


class TooBusyError(HermesError):
    """A password was not checked: there are too many others."""


class PasswordCredentials(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        """Shows nothing: a log must not have the password."""
        return "<Credentials>"


def parse_authorization(header: bytes) -> PasswordCredentials:
    """Basic authentication (RFC 7617), in UTF-8; BadCredentialsError: it is something else."""
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        raise BadCredentialsError("basic authentication is expected")
    if len(encoded) > _MOST_BYTES:
        raise BadCredentialsError("the user's name and password are too long")
    try:
        text = base64.b64decode(encoded.strip(b" "), validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    user, colon, password = text.partition(":")
    if not (user and colon) or any(each < " " or each == "\x7f" for each in text):
        raise BadCredentialsError("Base64 of USER:PASSWORD in UTF-8 is expected")
    return PasswordCredentials(user, password)


class Logins:
    """Checks the passwords of requests; of several with the same one at once only the first.

    Lives in the reactor's thread.

    Args:
        revision: equal as long as no user and no password has changed; cheap.
        check: called with an address, a user and a password; fires with the user, or None if the
            password is wrong, and slows down guessing.
    """

    def __init__(
        self,
        revision: Callable[[], object],
        check: "Callable[[str, str, str], Deferred[Any]]",
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_revision = revision
        self._check = check
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._revision: object = None
        self._right: OrderedDict[bytes, tuple[str, float]] = OrderedDict()  # whose, until when
        self._under_way: dict[bytes, Announcement[str | None]] = {}

    def check(self, address: str, given: PasswordCredentials) -> "Deferred[str | None]":
        """Whose password it is, by the user's own name; None: it is wrong.

        Args:
            address: the client's IP address; empty where there is none.

        Raises:
            TooBusyError: too many are being checked. As every HermesError that the Deferred fails
                with, it says nothing about the password.
        """
        revision = self._read_revision()
        if revision != self._revision:
            self._right.clear()
            self._revision = revision
        key = self._mac(given)
        whose, until = self._right.get(key, (None, 0.0))
        if self._seconds() < until:
            return succeed(whose)
        # Whose failure it would be depends on the address.
        place = key + address.encode(errors="replace")
        others = self._under_way.get(place)
        if others is not None:
            return others.wait()
        if len(self._under_way) >= _MOST_WAITING:
            raise TooBusyError("too many passwords are being checked")
        known = self._under_way[place] = Announcement()
        waiting = known.wait()

        def judge(found: Any) -> str | None:
            if found is None:
                return None
            name: str = found.name
            if revision == self._read_revision():
                self._remember(key, name)
            return name

        def tell(result: Any) -> None:
            del self._under_way[place]
            known.tell(result)

        self._check(address, *given).addCallback(judge).addBoth(tell)
        return waiting

    def _remember(self, key: bytes, name: str) -> None:
        self._right[key] = name, self._seconds() + REMEMBERED_SECONDS
        self._right.move_to_end(key)
        if len(self._right) > _MOST_REMEMBERED:
            self._right.popitem(last=False)

    def _mac(self, given: PasswordCredentials) -> bytes:
        return hmac.digest(self._key, "\0".join(given).encode(), hashlib.sha256)
