"""Explains failed TLS handshakes, so that an operator knows what to do."""

from typing import Final

from OpenSSL import SSL

from hermes.config.listeners import TlsConfig
from hermes.security.openssl_reasons import (
    EXPIRED,
    ISSUER_IS_NO_AUTHORITY,
    NOT_YET_VALID,
    SELF_SIGNED,
    UNKNOWN_AUTHORITY,
    is_not_tls,
    reasons,
)

__all__ = ["failure_text"]

_CERTIFICATE: Final = {
    NOT_YET_VALID: "is not valid yet",
    EXPIRED: "has expired",
    **dict.fromkeys(UNKNOWN_AUTHORITY, "is signed by an authority that is not in client_ca"),
    SELF_SIGNED: "is signed by itself, and not in client_ca",
    ISSUER_IS_NO_AUTHORITY: "is signed by one that is no authority",
    26: "is not meant for clients (its extended key usage)",
    66: "has too weak a key",
    67: "is signed by an authority with too weak a key",
    68: "is signed with too weak a digest",
}


def failure_text(
    error: BaseException | None, tls: TlsConfig, verification_error: int | None
) -> str:
    """Why a handshake failed; empty if the client just left.

    Args:
        error: what Twisted's `connectionLost` was told.
        verification_error: OpenSSL's number for why it refused the client's certificate.
    """
    if verification_error is not None:
        what = _CERTIFICATE.get(verification_error, f"is refused (error {verification_error})")
        return f"its certificate {what}"
    if not isinstance(error, SSL.Error):
        return ""
    said = reasons(error)
    if not said:
        return ""
    reason = said[-1]
    if is_not_tls(reason):
        return "what it sends is not TLS, which this listener speaks"
    if reason in ("unsupported protocol", "version too low"):
        lowest = "1.3" if tls.ciphers == "modern" else tls.versions
        return f"it knows no version of TLS from {lowest} on"
    if reason in ("no shared cipher", "no suitable signature algorithm", "no shared group"):
        return f"it has no cipher in common with this listener ({reason})"
    if reason == "peer did not return a certificate":
        return "it has no client certificate, which this listener demands"
    if "alert" in reason:
        return f"it refuses this listener or its certificate ({reason})"
    return reason
