"""What OpenSSL says of a failed connection, by numbers and words, whichever library passes it on.

Knows neither `ssl` nor pyOpenSSL, but how both say it; what it means for whoever has to change
something is for `tls_failures`, and for listeners. Source of the numbers: `X509_V_ERR_...` of
OpenSSL's `x509_vfy.h`.
"""

from typing import Any, Final

#: What is wrong with a certificate.
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
SELF_SIGNED: Final = 18
ISSUER_IS_NO_AUTHORITY: Final = 24
WRONG_HOST: Final = 62
WRONG_ADDRESS: Final = 64

#: All the ways in which its authority isn't one that is trusted.
UNKNOWN_AUTHORITY: Final = (2, SELF_SIGNED, 19, 20, 21, ISSUER_IS_NO_AUTHORITY)

_NOT_TLS: Final = (
    "wrong version number",
    "http request",
    "https proxy request",
    "packet length too long",
    "bad record type",
    "record layer failure",
    "unknown protocol",
)


def reasons(error: BaseException) -> list[str]:
    """What OpenSSL said, in lower case with spaces, the last of it last; empty if it said nothing.

    `error`: of `ssl`, of pyOpenSSL, or any other.
    """
    found = []
    reason = getattr(error, "reason", None)  # ssl: "WRONG_VERSION_NUMBER"
    if isinstance(reason, str):
        found.append(reason.replace("_", " ").lower())
    listed: Any = error.args[0] if error.args else None
    if isinstance(listed, list):  # pyOpenSSL: [(library, function, "wrong version number"), ...]
        for each in listed:
            if isinstance(each, tuple) and each and isinstance(each[-1], str):
                found.append(each[-1].lower())
    return found


def is_not_tls(reason: str) -> bool:
    """Whether what the peer sent is no TLS at all."""
    return any(words in reason for words in _NOT_TLS)
