"""OpenSSL contexts, by pyOpenSSL, with Mozilla's parameters.

Sessions are not resumed: one costs one handshake, and a client that is no longer trusted can't
connect by an old ticket.

Source of the profiles: Mozilla's Server Side TLS guidelines, version 5.7, without the ciphers that
need Diffie-Hellman parameters in a file.
"""

from typing import Any, Final

from cryptography import x509
from OpenSSL import SSL
from OpenSSL.crypto import X509

from hermes.config.listeners import TlsConfig
from hermes.security.certificates import KeyPair

__all__ = ["make_context"]

_VERSIONS: Final = {"1.2": SSL.TLS1_2_VERSION, "1.3": SSL.TLS1_3_VERSION}

#: TLS 1.3 has no other ciphers than good ones; this is about TLS 1.2.
_CIPHERS: Final = (
    b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    b"ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    b"ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)

# Nobody negotiates anew: it lets a client make a server work, and hides who speaks (CVE-2009-3555,
# CVE-2011-1473). Compression tells secrets by their length (CVE-2012-4929).
_OPTIONS: Final = SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_NO_TICKET


def make_context(
    config: TlsConfig, pair: KeyPair, authorities: tuple[x509.Certificate, ...], verify_mode: int
) -> SSL.Context:
    """Make the context of a listener.

    Args:
        authorities: of clients' certificates.
        verify_mode: OpenSSL's, whether clients need one.

    Raises:
        SSL.Error, ValueError: OpenSSL doesn't take the certificate, for instance a weak key.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    modern = config.ciphers == "modern"
    context.set_min_proto_version(SSL.TLS1_3_VERSION if modern else _VERSIONS[config.versions])
    context.set_cipher_list(_CIPHERS)
    context.set_options(_OPTIONS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # else an idle connection keeps 34 KiB
    context.use_certificate(pair.chain[0])
    for issuer in pair.chain[1:]:
        context.add_extra_chain_cert(issuer)
    context.use_privatekey(pair.key)
    context.check_privatekey()
    context.set_verify(verify_mode, _verified)
    store: Any = context.get_cert_store()
    for authority in authorities:
        store.add_cert(X509.from_cryptography(authority))
        context.add_client_ca(authority)
    return context


def _verified(connection: SSL.Connection, _: X509, error: int, depth: int, ok: int) -> bool:
    """Keep OpenSSL's verdict on a client's certificate for the log."""
    if not ok:
        connection.get_app_data().verification_error = error
    return bool(ok)
