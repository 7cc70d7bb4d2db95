"""Certificates: what is read, what is refused, and whom one names."""

from collections.abc import Sequence
from ipaddress import IPv6Address
from pathlib import Path

import pytest
from certificates import Authority, Certificates
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from hermes.errors import ConfigError
from hermes.security.certificates import principal_of, read_authorities, read_pair


def pem_of(key: ec.EllipticCurvePrivateKey | x25519.X25519PrivateKey, password: bytes) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def test_a_pair_knows_how_long_all_of_its_chain_is_valid(certificates: Certificates) -> None:
    server, expired = certificates.server, certificates.expired_server
    alone = read_pair(server.certificate.read_bytes(), server.key.read_bytes())
    chain = server.certificate.read_bytes() + expired.certificate.read_bytes()
    pair = read_pair(chain, server.key.read_bytes())
    assert pair.end < alone.begin < alone.end
    assert pair.subject == "CN=server"
    assert len(pair.chain) == 2


def test_a_pair_does_not_show_its_key(certificates: Certificates) -> None:
    server = certificates.server
    pair = read_pair(server.certificate.read_bytes(), server.key.read_bytes())
    assert "key" not in repr(pair)


@pytest.mark.parametrize(
    ("certificate", "key", "setting", "message"),
    [
        (b"", None, "certificate", "no certificate as PEM"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            None,
            "certificate",
            "damaged",
        ),
        (b"\xff" * 100, None, "certificate", "damaged"),
        (None, b"", "key", "no private key as PEM"),
        (None, b"secret-planted", "key", "no private key as PEM"),
        (None, pem_of(ec.generate_private_key(ec.SECP256R1()), b"pw"), "key", "is encrypted"),
        (None, pem_of(ec.generate_private_key(ec.SECP256R1()), b""), "key", "not the key of the"),
        (None, pem_of(x25519.X25519PrivateKey.generate(), b""), "key", "neither RSA nor of an"),
    ],
)
def test_what_is_no_pair_is_refused_without_a_word_of_it(
    certificates: Certificates,
    certificate: bytes | None,
    key: bytes | None,
    setting: str,
    message: str,
) -> None:
    server = certificates.server
    with pytest.raises(ConfigError, match=message) as refused:
        read_pair(
            server.certificate.read_bytes() if certificate is None else certificate,
            server.key.read_bytes() if key is None else key,
        )
    assert refused.value.key == setting
    assert "planted" not in str(refused.value)


def test_authorities_are_read_all(certificates: Certificates) -> None:
    pem = certificates.ca.read_bytes() + certificates.other_ca.read_bytes()
    assert len(read_authorities(pem)) == 2
    with pytest.raises(ConfigError, match="client_ca"):
        read_authorities(b"")


# -- whom one names -------------------------------------------------------------------------------


def issued(
    directory: Path,
    common_name: str | None = "alice",
    sans: Sequence[x509.GeneralName] = (),
    subject: Sequence[tuple[x509.ObjectIdentifier, str]] = (),
) -> x509.Certificate:
    pair = Authority(directory).client("a", common_name=common_name, sans=sans, subject=subject)
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def test_a_principal_is_the_part_that_the_rule_says(tmp_path: Path) -> None:
    certificate = issued(
        tmp_path,
        "alice",
        [
            x509.RFC822Name("alice@example.org"),
            x509.DNSName("web1.example.org"),
            x509.DNSName("web2.example.org"),
            x509.UniformResourceIdentifier("spiffe://example.org/web"),
        ],
        [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Example, Inc.")],
    )
    assert principal_of(certificate, "CN") == "alice"
    assert principal_of(certificate, "SUBJECT") == "CN=alice,O=Example\\, Inc.,C=DE"
    assert principal_of(certificate, "SAN:DNS") == "web1.example.org"
    assert principal_of(certificate, "SAN:EMAIL") == "alice@example.org"
    assert principal_of(certificate, "SAN:URI") == "spiffe://example.org/web"


@pytest.mark.parametrize("rule", ["SAN:DNS", "SAN:EMAIL", "SAN:URI"])
def test_a_certificate_without_that_part_names_nobody(tmp_path: Path, rule: str) -> None:
    with pytest.raises(ValueError, match=f"has no {rule}"):
        principal_of(issued(tmp_path / "none"), rule)
    other = issued(tmp_path / "other", sans=[x509.IPAddress(IPv6Address("::1"))])
    with pytest.raises(ValueError, match=f"has no {rule}"):
        principal_of(other, rule)


def test_a_certificate_without_a_subject_names_nobody(tmp_path: Path) -> None:
    certificate = issued(tmp_path, None, [x509.DNSName("web1")])
    with pytest.raises(ValueError, match="has no CN"):
        principal_of(certificate, "CN")
    with pytest.raises(ValueError, match="printable"):
        principal_of(certificate, "SUBJECT")
    assert principal_of(certificate, "SAN:DNS") == "web1"


def test_two_common_names_are_one_too_many(tmp_path: Path) -> None:
    certificate = issued(tmp_path, "alice", subject=[(NameOID.COMMON_NAME, "admin")])
    with pytest.raises(ValueError, match="several CN"):
        principal_of(certificate, "CN")


@pytest.mark.parametrize(
    "name",
    ["anonymous", "hermes-internal", "alice\0.example", "alice\n", " alice", "al\u202eice", "\x7f"],
)
def test_names_that_no_client_can_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="its certificate names") as refused:
        principal_of(issued(tmp_path, name), "CN")
    assert str(refused.value).isprintable()


def test_a_name_may_be_foreign(tmp_path: Path) -> None:
    assert principal_of(issued(tmp_path, "Ольга Ö"), "CN") == "Ольга Ö"
