"""X.509 certificates: parsed from PEM, their validity, whom they name.

Imports `cryptography`, so whoever can do without certificates imports this where it is called.
Whether a certificate is trusted is for TLS to decide; here it has been, or is our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.security.principals import ANONYMOUS, INTERNAL

__all__ = ["KeyPair", "principal_of", "read_authorities", "read_pair"]

PrivateKey = (
    rsa.RSAPrivateKey
    | ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)

#: As long as a user's name may be.
_LONGEST: Final = 255


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with those between it and an authority, and its private key.

    `chain`: the certificate first, then its issuer's, and so on.
    """

    chain: tuple[x509.Certificate, ...]
    key: PrivateKey = field(repr=False)

    @property
    def begin(self) -> datetime:
        """From when on all of the chain is valid; UTC."""
        return max(each.not_valid_before_utc for each in self.chain)

    @property
    def end(self) -> datetime:
        """Until when all of the chain is valid; UTC."""
        return min(each.not_valid_after_utc for each in self.chain)

    @property
    def subject(self) -> str:
        """The subject, as RFC 4514 writes it."""
        return self.chain[0].subject.rfc4514_string()

    def is_for(self, host: str) -> bool:
        """Whether the certificate is valid for a host name or an IP address."""
        from service_identity import CertificateError, VerificationError, cryptography

        try:
            if _is_address(host):
                cryptography.verify_certificate_ip_address(self.chain[0], host)
            else:
                cryptography.verify_certificate_hostname(self.chain[0], host)
        except (CertificateError, VerificationError):
            return False
        return True


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_pair(certificate: bytes, key: bytes) -> KeyPair:
    """Parse a certificate, its intermediates, and its private key.

    Args:
        certificate: PEM, the end entity's first.
        key: PEM, without a password.

    Raises:
        ConfigError: one is damaged, or they don't belong together; its key is `certificate` or
            `key`, and its text has nothing of the files.
    """
    chain = _certificates("certificate", certificate)
    private = _private_key(key)
    public = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*public) != chain[0].public_key().public_bytes(*public):
        raise ConfigError("key", "it is not the key of the certificate")
    return KeyPair(chain, private)


def read_authorities(pem: bytes, setting: str = "client_ca") -> tuple[x509.Certificate, ...]:
    """Raises ConfigError: there is none, or one is damaged; its key is `setting`."""
    return _certificates(setting, pem)


def _certificates(setting: str, pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(setting, "it holds no certificate as PEM, or a damaged one") from None


def _private_key(pem: bytes) -> PrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise ConfigError(
            "key", "it is encrypted, and there is nobody to ask for its password"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("key", "it holds no private key as PEM, or a damaged one") from None
    if not isinstance(key, PrivateKey):
        raise ConfigError("key", "it is neither RSA nor of an elliptic curve")
    return key


# -- who is named ---------------------------------------------------------------------------------


def principal_of(certificate: x509.Certificate, rule: str) -> str:
    """The principal that a client's verified certificate names.

    Args:
        rule: which part counts: `CN`, `SUBJECT` (all of it, as RFC 4514 writes it), `SAN:DNS`,
            `SAN:EMAIL` or `SAN:URI`: the first of its kind.

    Raises:
        ValueError: that part is missing, or a reserved name; the text says why.
    """
    names = _names(certificate, rule)
    if not names:
        raise ValueError(f"its certificate has no {rule}, which principals are taken from")
    if rule == "CN" and len(names) > 1:
        raise ValueError("its certificate has several CN, and it isn't clear which one is meant")
    name = names[0]
    if name in (ANONYMOUS, INTERNAL):
        raise ValueError(f"its certificate names {quoted(name)}, which is reserved")
    if not 0 < len(name) <= _LONGEST or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"its certificate names {quoted(name)}: a principal has 1 to {_LONGEST} printable "
            "characters, and no space at its ends"
        )
    return name


def _names(certificate: x509.Certificate, rule: str) -> Sequence[str]:
    try:
        if rule == "CN":
            attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            return [str(attribute.value) for attribute in attributes]
        if rule == "SUBJECT":
            return [certificate.subject.rfc4514_string()]
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        sans = extension.value
        if rule == "SAN:DNS":
            return sans.get_values_for_type(x509.DNSName)
        if rule == "SAN:EMAIL":
            return sans.get_values_for_type(x509.RFC822Name)
        return sans.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        return []
    except (ValueError, x509.DuplicateExtension):
        raise ValueError("its certificate is malformed") from None
