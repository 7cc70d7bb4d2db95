"""TLS of Twisted's clients: by pyOpenSSL, as Twisted does it, from the files of `ClientSecurity`.

Importing this takes a while, so only connections with TLS do.
"""

from pathlib import Path
from typing import Any

from OpenSSL.crypto import X509
from twisted.internet import ssl
from twisted.protocols.tls import TLSMemoryBIOFactory

from hermes.errors import ConfigError
from hermes.security import ClientSecurity
from hermes.security.certificates import read_authorities, read_pair


class ClientTls:
    """The TLS of connections to one host: made anew when a file has changed."""

    def __init__(self, host: str, security: ClientSecurity) -> None:
        self._host = host
        self._security = security
        self._made_for: Any = None
        self._made: Any = None

    def wrap(self, factory: Any, reactor: Any) -> TLSMemoryBIOFactory:
        """Put TLS between a transport and a factory; raises ConfigError, UnicodeError.

        The factory's protocols are told that they are connected before the handshake is over.
        Without the reactor, Twisted would use its global one.
        """
        # Checks the files, and tells whether they are others: one judge of that for all clients.
        context = self._security.ssl_context()
        if context is not self._made_for:
            self._made = self._make()
            self._made_for = context
        return TLSMemoryBIOFactory(self._made, True, factory, clock=reactor)

    def _make(self) -> Any:
        security = self._security
        options: dict[str, Any] = {"raiseMinimumTo": ssl.TLSVersion.TLSv1_2}
        if security.tls_ca is not None:
            authorities = read_authorities(_read("tls_ca", security.tls_ca), "tls_ca")
            certificate_of: Any = ssl.Certificate
            trusted = [certificate_of(X509.from_cryptography(each)) for each in authorities]
            trust = ssl.trustRootFromCertificates(trusted)  # type: ignore[no-untyped-call]
        else:
            trust = ssl.platformTrust()  # type: ignore[no-untyped-call]
        if security.tls_certificate is not None:
            certificate = _read("tls_certificate", security.tls_certificate)
            key = security.tls_key
            pair = read_pair(certificate, certificate if key is None else _read("tls_key", key))
            options |= {
                "certificate": pair.chain[0],
                "extraCertChain": list(pair.chain[1:]),
                "privateKey": pair.key,
            }
        return ssl.optionsForClientTLS(self._host, trust, extraCertificateOptions=options)


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(setting, f"{path} can't be read: {error.strerror}") from None
