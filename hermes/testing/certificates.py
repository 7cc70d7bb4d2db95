"""A certificate authority for one test; what it issues is valid on this machine, for a month."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_VALID: Final = timedelta(days=30)  # longer than brokers warn before the end


class Authority:
    """Issues certificates, and writes them as PEM; its own key is in memory only.

    Args:
        folder: where the files go.

    Attributes:
        path: its own certificate, for whoever is to trust it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("hermes test authority")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.path = folder / "ca.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self) -> tuple[Path, Path]:
        """Issue a certificate for this machine, as localhost; returns its file and its key's."""
        return self._issue("server", ExtendedKeyUsageOID.SERVER_AUTH, _HOSTS)

    def client(self, name: str) -> tuple[Path, Path]:
        """Issue a certificate with this common name; returns its file and its key's."""
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _issue(
        self, name: str, usage: x509.ObjectIdentifier, hosts: Sequence[str]
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts:
            sans = x509.SubjectAlternativeName(list(map(_host, hosts)))
            builder = builder.add_extension(sans, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        # Numbered: a name may hold what a file's can't.
        number = len(list(self._folder.glob("*.key")))
        paths = self._folder / f"{number}.pem", self._folder / f"{number}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        public, own = key.public_key(), self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
