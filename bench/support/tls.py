"""TLS for the benchmarks: a certificate of their own, and both sides' settings."""

import ipaddress
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["OwnCertificate", "decryption_seconds"]

_RECORD_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate for 127.0.0.1, signed by itself, with its key: two PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def write(cls, directory: Path) -> "OwnCertificate":
        """Make one, with a key of P-256 as they are common."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(key, hashes.SHA256())
        )
        files = cls(directory / "bench.pem", directory / "bench.key")
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    @property
    def client(self) -> ssl.SSLContext:
        """What a client that trusts it connects by: TLS 1.3, which ends up with AES-256-GCM."""
        return ssl.create_default_context(cafile=self.certificate)

    def listener(self) -> dict[str, object]:
        """A listener of broker.yaml's that has it."""
        files = {"certificate": str(self.certificate), "key": str(self.key)}
        return {"endpoint": "tcp:0:interface=127.0.0.1", "tls": files}


def decryption_seconds(own: OwnCertificate, megabytes: int) -> float:
    """Measure what OpenSSL alone takes, called as Twisted calls it, for data that is in memory.

    Args:
        own: the server's certificate.
        megabytes: how much is decrypted, in records of 16 KiB.

    Returns:
        Seconds of processor time per million bytes.
    """
    from OpenSSL import SSL

    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.use_certificate_file(str(own.certificate))
    context.use_privatekey_file(str(own.key))
    server = SSL.Connection(context, None)
    server.set_accept_state()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = own.client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    for _ in range(3):
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        with suppress(SSL.Error):  # nothing to write, or the handshake lacks more
            server.bio_write(outgoing.read())
            server.do_handshake()
        with suppress(SSL.WantReadError):
            incoming.write(server.bio_read(1 << 16))
    data, spent = bytes(_RECORD_BYTES), 0.0
    rounds = megabytes * 1_000_000 // (4 * _RECORD_BYTES)
    for _ in range(rounds):
        for _ in range(4):
            client.write(data)
        records = outgoing.read()
        began = time.process_time()
        server.bio_write(records)
        for _ in range(4):
            server.recv(2**15)
        spent += time.process_time() - began
    return spent / (rounds * 4 * _RECORD_BYTES / 1e6)
