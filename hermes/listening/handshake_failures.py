"""Explains failed TLS handshakes, so that an operator knows what to do.

OpenSSL's texts say what it saw. Source of the numbers: `X509_V_ERR_...` of OpenSSL's `x509_vfy.h`.
"""

from typing import Final

from OpenSSL import SSL

from hermes.config.listeners import TlsConfig

__all__ = ["failure_text"]

#: What OpenSSL says of bytes that are no TLS at all.
_NOT_TLS: Final = {
    "wrong version number",
    "http request",
    "https proxy request",
    "packet length too long",
    "bad record type",
    "unknown protocol",
    "record layer failure",
}

_CERTIFICATE: Final = {
    9: "is not valid yet",
    10: "has expired",
    18: "is signed by itself, and not in client_ca",
    19: "is signed by an authority that is not in client_ca",
    20: "is signed by an authority that is not in client_ca",
    21: "is signed by an authority that is not in client_ca",
    24: "is signed by one that is no authority",
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
    errors = error.args[0] if error.args else None
    if not isinstance(errors, list) or not errors:
        return ""
    reason = str(errors[-1][-1])
    if reason in _NOT_TLS:
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
