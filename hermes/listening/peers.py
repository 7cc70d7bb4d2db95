"""Who is at the other end of a connection: by its address, and by its certificate."""

from typing import Any

from hermes.config.listeners import TlsConfig

__all__ = ["peer_principal", "peer_text"]


def peer_principal(transport: Any, tls: TlsConfig | None) -> str | None:
    """Say whom the peer's certificate names.

    Args:
        transport: of the connection, once its handshake is over.
        tls: of the listener; its `principal` says which part of a certificate counts.

    Returns:
        The principal, never one of Hermes' own; None without TLS or without a certificate.

    Raises:
        ValueError: the certificate names nobody, or somebody that no client can be.
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
