"""Certificates for tests: good ones and every kind of bad one, of authorities made on the spot.

The keys are P-256, which takes a millisecond to make. The fixture `certificates` has one set for a
whole session; files are made when they are first asked for, and never changed. What a test wants
to change it issues itself, with `Authority(tmp_path, ...)`.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Where tests find a server.
HOSTS = ("localhost", "127.0.0.1", "::1")

#: As long as a certificate is valid unless a test says otherwise: beyond what is warned of.
VALID = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files.

    Attributes:
        certificate: PEM; the end entity's alone.
        key: PEM, PKCS #8, not encrypted, mode 0600.
    """

    certificate: Path
    key: Path

    def replace(self, other: "Pair") -> None:
        """Put another pair's content in this one's files, as an operator would: by renaming."""
        for mine, theirs in ((self.key, other.key), (self.certificate, other.certificate)):
            new = mine.with_name(f"{mine.name}.new")
            new.write_bytes(theirs.read_bytes())
            new.chmod(0o600)
            os.replace(new, mine)


class Authority:
    """A certificate authority that writes what it issues into a directory.

    Args:
        directory: where the files go; made if it isn't there.
        name: its common name, and part of the names of its files.
        issuer: what signs its own certificate; itself unless given.

    Attributes:
        path: its own certificate, PEM: what peers trust.
    """

    def __init__(
        self, directory: Path, name: str = "test authority", issuer: "Authority | None" = None
    ) -> None:
        self._directory = directory
        self._stem = name.replace(" ", "-")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        by = issuer or self
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(by._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(key_id, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(by._key.public_key()),
                critical=False,
            )
            .sign(by._key, hashes.SHA256())
        )
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{self._stem}.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", hosts: Sequence[str] = HOSTS, **options: Any) -> Pair:
        """Issue a server's certificate; see `issue`.

        Args:
            name: of the files, and the common name.
            hosts: the names and addresses that it is good for.
        """
        sans = [_host(host) for host in hosts]
        return self.issue(name, common_name=name, sans=sans, client=False, **options)

    def client(self, name: str, **options: Any) -> Pair:
        """Issue a client's certificate, with `name` as its common name; see `issue`.

        Args:
            name: of the files, and the common name unless that is given.
        """
        return self.issue(name, **{"common_name": name, "client": True, **options})

    def issue(
        self,
        file_name: str,
        *,
        common_name: str | None,
        sans: Sequence[x509.GeneralName] = (),
        client: bool,
        begin: timedelta = timedelta(hours=-1),
        end: timedelta = VALID,
        subject: Sequence[tuple[x509.ObjectIdentifier, str]] = (),
        key: Any = None,
    ) -> Pair:
        """Issue a certificate.

        Args:
            file_name: without its ending; must be new.
            common_name: the last part of its subject; None: no common name.
            sans: its alternative names: `x509.DNSName`, `RFC822Name`, `UniformResourceIdentifier`.
            client: whether it is a client's, else a server's.
            begin, end: its validity, from now on; both in the past make an expired one.
            subject: what stands in the subject before the common name.
            key: the private key; a new one of P-256 unless given.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        parts = [x509.NameAttribute(oid, text) for oid, text in subject]
        if common_name is not None:
            parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        public = self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(parts))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False
            )
        )
        if sans:
            # Critical where nothing else names the holder (RFC 5280, 4.2.1.6).
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=not parts)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = Pair(
            self._directory / f"{self._stem}-{file_name}.pem",
            self._directory / f"{self._stem}-{file_name}.key",
        )
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.touch(mode=0o600, exist_ok=False)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair


class Certificates:
    """What most tests need; made when first asked for, and to be left as it is.

    Args:
        directory: where the files go.

    Attributes:
        authority: what servers and clients of tests trust.
        other_authority: one that nobody trusts.
    """

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "test authority")
        self.other_authority = Authority(directory, "other authority")
        self._clients: dict[str, Pair] = {}

    @property
    def ca(self) -> Path:
        """The certificate of the authority: what peers trust."""
        return self.authority.path

    @property
    def other_ca(self) -> Path:
        """The certificate of an authority that has issued none of the good ones."""
        return self.other_authority.path

    @cached_property
    def server(self) -> Pair:
        """A server's, for localhost, 127.0.0.1 and ::1."""
        return self.authority.server()

    @cached_property
    def untrusted_server(self) -> Pair:
        """A server's of the other authority."""
        return self.other_authority.server()

    @cached_property
    def expired_server(self) -> Pair:
        """A server's that ended yesterday."""
        return self.authority.server("expired-server", begin=_days(-9), end=_days(-1))

    @cached_property
    def wrong_host_server(self) -> Pair:
        """A server's, for a host where no test's server is."""
        return self.authority.server("wrong-host-server", hosts=("hermes.example",))

    def client(self, name: str) -> Pair:
        """A client's, with a common name."""
        if name not in self._clients:
            self._clients[name] = self.authority.client(name)
        return self._clients[name]

    @cached_property
    def untrusted_client(self) -> Pair:
        """A client's of the other authority."""
        return self.other_authority.client("alice")

    @cached_property
    def expired_client(self) -> Pair:
        """A client's that ended yesterday."""
        return self.authority.client(
            "expired-alice", common_name="alice", begin=_days(-9), end=_days(-1)
        )


def _days(count: int) -> timedelta:
    return timedelta(days=count)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage(**used: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: used.get(name, False) for name in names})
