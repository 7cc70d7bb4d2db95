"""Identifies the peer of a connection: by its address, and by its certificate."""

from typing import Any

from hermes.config.listeners import TlsConfig

__all__ = ["peer_principal", "peer_text"]


def peer_principal(transport: Any, tls: TlsConfig | None) -> str | None:
    """The principal that the peer's certificate names; None without TLS or without a certificate.

    Args:
        transport: once its handshake is over.
        tls: its `principal` says which part of a certificate counts.

    Raises:
        ValueError: the certificate names nobody, or a reserved name.
    """
    if tls is None:
        return None
    certificate = transport.getPeerCertificate()
    if certificate is None:
        return None
    from hermes.security.certificates import principal_of  # few brokers need `cryptography`

    return principal_of(certificate.to_cryptography(), tls.principal)


def peer_text(address: Any) -> str:
    """An address of Twisted's, for a log line: `HOST:PORT` where it has them."""
    host = getattr(address, "host", None)
    return str(address) if host is None else f"{host}:{address.port}"
