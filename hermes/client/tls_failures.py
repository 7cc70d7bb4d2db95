"""What a failure of TLS means, in words for whoever set it up: shared by all kinds of clients.

Knows neither `ssl` nor pyOpenSSL, but how both say what failed. Most of it is wrong for as long as
somebody doesn't change a setting or a certificate, and then BrokerNotTrustedError says that no
retry can help; a connection that was cut may be a broker that restarts.
"""

from collections.abc import Iterator
from typing import Any, Final

from hermes.errors import BrokerNotReachedError, BrokerNotTrustedError
from hermes.quoting import quoted
from hermes.security import ClientSecurity

# OpenSSL's codes of what is wrong with a certificate (x509_vfy.h).
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_WRONG_NAME: Final = (62, 64)
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21, 24)

# Words of OpenSSL's reasons. What the peer makes of our certificate, it says in an alert; since
# versions of OpenSSL differ in what comes before that word, it starts there.
_NO_TLS: Final = (
    "wrong version number",
    "http request",
    "packet length too long",
    "record layer failure",
    "unknown protocol",
)
_OWN_CERTIFICATE: Final = (
    "alert certificate required",
    "alert bad certificate",
    "alert unsupported certificate",
    "alert certificate revoked",
    "alert certificate expired",
    "alert certificate unknown",
    "alert unknown ca",
    "alert access denied",
    "alert decrypt error",
)
_NOTHING_COMMON: Final = (
    "alert handshake failure",
    "alert protocol version",
    "alert insufficient security",
    "unsupported protocol",
    "no protocols available",
    "no ciphers available",
)


def tls_failure(
    error: BaseException, host: str, port: int, security: ClientSecurity
) -> BrokerNotReachedError:
    """Make the error for a connection that was refused, or cut, before its first request.

    `error` is one of `ssl`, of pyOpenSSL or of service_identity, or an OSError.
    """
    refusal = tls_refusal(error, host, port, security)
    if refusal is not None:
        return refusal
    hint = ", or has this port no TLS" if security.uses_tls else ""
    return BrokerNotReachedError(
        f"{host}:{port}: the connection was cut before it was ready ({_text(error)}); is the "
        f"broker being restarted{hint}?"
    )


def tls_refusal(
    error: BaseException, host: str, port: int, security: ClientSecurity
) -> BrokerNotTrustedError | None:
    """Make the error for what one side of a connection by TLS has refused.

    None if the connection merely broke, so that another may be better.
    """
    why = _refusal(error, host, security) if security.uses_tls else None
    return None if why is None else BrokerNotTrustedError(f"{host}:{port}: {why}")


def _refusal(error: BaseException, host: str, security: ClientSecurity) -> str | None:
    reasons = " | ".join(_reasons(error))
    code = getattr(error, "verify_code", None)
    if code in _WRONG_NAME or type(error).__name__ == "VerificationError":
        return (
            f"its certificate is not for {quoted(host)}: connect by a name or an address that the "
            "certificate holds"
        )
    if code == _EXPIRED:
        return "its certificate has expired: renew it there (if this machine's clock is right)"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet: is this machine's clock right?"
    if code in _UNKNOWN_AUTHORITY:
        trusted = quoted(security.tls_ca) if security.tls_ca else "the system's authorities"
        return (
            f"its certificate is signed by none of {trusted}: set tls_ca to the PEM file with its "
            "authority's certificate"
        )
    if "certificate verify failed" in reasons:
        return f"its certificate is not valid: {getattr(error, 'verify_message', reasons)}"
    if any(words in reasons for words in _NO_TLS):
        return "it does not speak TLS there: give the port of a listener with tls, or set tls=False"
    if any(words in reasons for words in _OWN_CERTIFICATE):
        if security.tls_certificate is None:
            return "it wants a client's certificate: set tls_certificate and tls_key"
        return (
            f"it refused the certificate {quoted(security.tls_certificate)} ({reasons}): is it "
            "still valid, and of an authority that the listener's client_ca trusts?"
        )
    if any(words in reasons for words in _NOTHING_COMMON):
        own = "" if security.tls_certificate else "; or it wants a client's certificate"
        return f"there is no version of TLS, or no cipher, that both sides accept ({reasons}){own}"
    return None


def _reasons(error: BaseException) -> Iterator[str]:
    """What OpenSSL said, in lower case with spaces."""
    reason = getattr(error, "reason", None)  # ssl: "WRONG_VERSION_NUMBER"
    if isinstance(reason, str):
        yield reason.replace("_", " ").lower()
    listed: Any = error.args[0] if error.args else None
    if isinstance(listed, list):  # pyOpenSSL: [(library, function, "wrong version number"), ...]
        for each in listed:
            if isinstance(each, tuple) and each and isinstance(each[-1], str):
                yield each[-1].lower()


def _text(error: BaseException) -> str:
    return " | ".join(_reasons(error)) or str(error) or type(error).__name__
