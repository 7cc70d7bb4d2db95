"""What a failure of TLS means, in words for whoever set it up: shared by all kinds of clients.

Most of it is wrong for as long as somebody doesn't change a setting or a certificate, and then
BrokerNotTrustedError says that no retry can help; a cut connection may be a broker that restarts.
"""

from typing import Final

from hermes.errors import BrokerNotReachedError, BrokerNotTrustedError
from hermes.quoting import quoted
from hermes.security.credentials import ClientSecurity
from hermes.security.openssl_reasons import (
    EXPIRED,
    NOT_YET_VALID,
    UNKNOWN_AUTHORITY,
    WRONG_ADDRESS,
    WRONG_HOST,
    is_not_tls,
    reasons,
)

# What the peer makes of our certificate, it says in an alert; since versions of OpenSSL differ in
# what comes before that word, these words start there.
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
    said = " | ".join(reasons(error))
    code = getattr(error, "verify_code", None)
    if code in (WRONG_HOST, WRONG_ADDRESS) or type(error).__name__ == "VerificationError":
        return (
            f"its certificate is not for {quoted(host)}: connect by a name or an address that the "
            "certificate holds"
        )
    if code == EXPIRED:
        return "its certificate has expired: renew it there (if this machine's clock is right)"
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet: is this machine's clock right?"
    if code in UNKNOWN_AUTHORITY:
        trusted = quoted(security.tls_ca) if security.tls_ca else "the system's authorities"
        return (
            f"its certificate is signed by none of {trusted}: set tls_ca to the PEM file with its "
            "authority's certificate"
        )
    if "certificate verify failed" in said:
        return f"its certificate is not valid: {getattr(error, 'verify_message', said)}"
    if is_not_tls(said):
        return "it does not speak TLS there: give the port of a listener with tls, or set tls=False"
    if any(words in said for words in _OWN_CERTIFICATE):
        if security.tls_certificate is None:
            return "it wants a client's certificate: set tls_certificate and tls_key"
        return (
            f"it refused the certificate {quoted(security.tls_certificate)} ({said}): is it "
            "still valid, and of an authority that the listener's client_ca trusts?"
        )
    if any(words in said for words in _NOTHING_COMMON):
        own = "" if security.tls_certificate else "; or it wants a client's certificate"
        return f"there is no version of TLS, or no cipher, that both sides accept ({said}){own}"
    return None


def _text(error: BaseException) -> str:
    return " | ".join(reasons(error)) or str(error) or type(error).__name__
