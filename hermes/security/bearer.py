"""Bearer tokens by SASL (OAUTHBEARER): the broker's half of the conversation, without I/O.

    client                                          broker
    "n," [identity] "," ^A "auth=Bearer " token     ->
    ^A [key "=" value ^A]... ^A
                                                    <- nothing: it is taken
                                                    <- {"status":"invalid_token"}
    ^A                                              -> and the refusal

Source: RFC 7628, section 3; RFC 6750, section 2.1.
"""

import re
from typing import Final, NamedTuple

from hermes.errors import NotAuthenticatedError

__all__ = ["INVALID", "BearerMessage", "read_bearer"]

#: What a client is told whose token isn't taken; with its next message it is refused.
INVALID: Final = b'{"status":"invalid_token"}'

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<identity>[^,\x00]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01"
)
_TOKEN: Final = re.compile(r"[Bb]earer +([-A-Za-z0-9._~+/]+=*)")
_MALFORMED: Final = "expected a bearer token, as RFC 7628 has it"


class BearerMessage(NamedTuple):
    """What a client says first: its token; and as whom it wants to act, empty for itself."""

    identity: str
    token: str


def read_bearer(message: bytes) -> BearerMessage:
    """Raises NotAuthenticatedError: it is no such message. What else it says is left alone."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeError:
        found = None
    if found is None:
        raise NotAuthenticatedError(_MALFORMED)
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01")[:-1])
    token = _TOKEN.fullmatch(pairs.get("auth", ""))
    if token is None:
        raise NotAuthenticatedError(_MALFORMED)
    identity = (found["identity"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(identity, token[1])
