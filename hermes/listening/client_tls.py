"""TLS of connections that Twisted makes: by pyOpenSSL, from the files of `ClientSecurity`.

Importing this takes a while, so only connections with TLS do.
"""

from typing import Any

from OpenSSL.crypto import X509
from twisted.internet import ssl
from twisted.protocols.tls import TLSMemoryBIOFactory

from hermes.security import ClientSecurity
from hermes.security.certificates import read_authorities, read_pair
from hermes.security.pem_files import read_pem

__all__ = ["ClientTls"]


class ClientTls:
    """The TLS of connections to one host: made anew when a file has changed. Thread-safe."""

    def __init__(self, host: str, security: ClientSecurity) -> None:
        self._host = host
        self._security = security
        self._made: tuple[Any, Any] = (None, None)

    def wrap(self, factory: Any, reactor: Any) -> TLSMemoryBIOFactory:
        """Put TLS between a transport and a factory; raises what `prepared` does.

        The factory's protocols are told that they are connected before the handshake is over.
        Without the reactor, Twisted would use its global one.
        """
        return TLSMemoryBIOFactory(self.prepared(), True, factory, clock=reactor)

    def prepared(self) -> Any:
        """What makes the OpenSSL side of a connection. Reads the files, if they have changed.

        Raises:
            ConfigError: a file can't be used.
            UnicodeError: the host's name can't be one.
        """
        # Checks the files, and tells whether they are others: one judge of that for all clients.
        context = self._security.ssl_context()
        made_for, made = self._made
        if context is not made_for:
            made = self._make(ssl.TLSVersion.lookupByName(context.minimum_version.name))
            self._made = context, made
        return made

    def _make(self, lowest: Any) -> Any:
        security = self._security
        options: dict[str, Any] = {"raiseMinimumTo": lowest}
        if security.tls_ca is not None:
            authorities = read_authorities(read_pem(security.tls_ca, "tls_ca"), "tls_ca")
            certificate_of: Any = ssl.Certificate
            trusted = [certificate_of(X509.from_cryptography(each)) for each in authorities]
            trust = ssl.trustRootFromCertificates(trusted)  # type: ignore[no-untyped-call]
        else:
            trust = ssl.platformTrust()  # type: ignore[no-untyped-call]
        if security.tls_certificate is not None:
            certificate = read_pem(security.tls_certificate, "tls_certificate")
            key = security.tls_key
            pair = read_pair(certificate, certificate if key is None else read_pem(key, "tls_key"))
            options |= {
                "certificate": pair.chain[0],
                "extraCertChain": list(pair.chain[1:]),
                "privateKey": pair.key,
            }
        return ssl.optionsForClientTLS(self._host, trust, extraCertificateOptions=options)
