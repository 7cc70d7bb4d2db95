"""What a TLS listener agrees to, looked at from outside as testssl.sh does: see `tls_scan`."""

import re
import socket
import ssl
from collections.abc import Iterator

import pytest
from certificates import Authority, Certificates
from cryptography.hazmat.primitives.asymmetric import rsa
from hermes_testkit import BrokerProcess
from OpenSSL import SSL
from tls_clients import TlsClient, client_context, tls_listener
from tls_scan import (
    GOOD_TLS1_2,
    GOOD_TLS1_3,
    HANDSHAKE_FAILURE,
    PROTOCOL_VERSION,
    SSL3,
    TLS1_0,
    TLS1_1,
    TLS1_2,
    TLS1_3,
    accepted_ciphers,
    hello,
)

EVERY_CIPHER = range(0x10000)


@pytest.fixture(scope="module")
def ports(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[dict[str, tuple[str, int]]]:
    """Where a broker listens, by profile; and with a certificate of RSA."""
    directory = tmp_path_factory.mktemp("agreement")
    key = rsa.generate_private_key(65537, 2048)
    listeners = {
        "intermediate": tls_listener(certificates.server),
        "modern": tls_listener(certificates.server, ciphers="modern"),
        "RSA": tls_listener(Authority(directory / "rsa").server(key=key)),
    }
    settings = {"log_dir": str(directory / "logs"), "listen": [*listeners.values()]}
    broker = BrokerProcess(directory / "broker", settings)
    found = re.findall(r"127\.0\.0\.1:(\d+)", broker.wait_for_line("is ready: Hermes"))
    yield {name: ("127.0.0.1", int(port)) for name, port in zip(listeners, found, strict=True)}
    broker.stop()


@pytest.mark.parametrize("profile", ["intermediate", "modern"])
@pytest.mark.parametrize("version", [SSL3, TLS1_0, TLS1_1], ids=["SSL 3", "TLS 1.0", "TLS 1.1"])
def test_nothing_below_tls_1_2_is_spoken(
    ports: dict[str, tuple[str, int]], profile: str, version: int
) -> None:
    answer = hello(ports[profile], version, [0xC02B, 0xC009, 0xC00A, 0x002F, 0x0035, 0x000A])
    assert (answer.version, answer.alert) == (None, PROTOCOL_VERSION)


def test_of_all_ciphers_there_are_only_good_ones_are_taken(
    ports: dict[str, tuple[str, int]],
) -> None:
    """All 65,536 numbers are offered. Which of the good ones are, depends on the certificate."""
    ecdsa = {number for number, name in GOOD_TLS1_2.items() if "ECDSA" in name}
    assert accepted_ciphers(ports["intermediate"], TLS1_2, EVERY_CIPHER) == ecdsa
    assert accepted_ciphers(ports["RSA"], TLS1_2, EVERY_CIPHER) == set(GOOD_TLS1_2) - ecdsa
    for name in ("intermediate", "RSA"):
        assert accepted_ciphers(ports[name], TLS1_3, EVERY_CIPHER) == set(GOOD_TLS1_3)


def test_the_modern_profile_has_tls_1_3_only(ports: dict[str, tuple[str, int]]) -> None:
    assert hello(ports["modern"], TLS1_2, EVERY_CIPHER[0xC000:0xD000]).alert == PROTOCOL_VERSION
    assert accepted_ciphers(ports["modern"], TLS1_3, EVERY_CIPHER) == set(GOOD_TLS1_3)


def test_a_client_with_weak_ciphers_only_is_refused(ports: dict[str, tuple[str, int]]) -> None:
    weak = {
        "NULL": 0xC006,
        "RC4": 0xC007,
        "3DES": 0xC008,
        "CBC": 0xC009,
        "CBC with SHA-256": 0xC023,
        "anonymous": 0xC018,
        "export": 0x0003,
        "without forward secrecy": 0x009C,
    }
    refused = {
        name: hello(ports["intermediate"], TLS1_2, [number]).alert for name, number in weak.items()
    }
    assert refused == dict.fromkeys(weak, HANDSHAKE_FAILURE)


def test_nothing_is_compressed(ports: dict[str, tuple[str, int]]) -> None:
    answer = hello(ports["intermediate"], TLS1_2, GOOD_TLS1_2, compressions=(1, 0))
    assert (answer.version, answer.compression) == (TLS1_2, 0)


def test_nothing_is_resumed_and_no_heartbeat_is_offered(
    ports: dict[str, tuple[str, int]], certificates: Certificates
) -> None:
    session_ticket, heartbeat = 35, 15
    asked = [(session_ticket, b""), (heartbeat, b"\x01")]
    answer = hello(ports["intermediate"], TLS1_2, GOOD_TLS1_2, extensions=asked)
    assert not {session_ticket, heartbeat} & set(answer.extensions)
    context = client_context(certificates.ca)
    with TlsClient(ports["intermediate"][1], context) as first:
        assert first.alive()  # by then its tickets have arrived
        session = first.socket.session
    plain = socket.create_connection(ports["intermediate"], 60)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as again:
        assert not again.session_reused


def test_nobody_negotiates_anew(
    ports: dict[str, tuple[str, int]], certificates: Certificates
) -> None:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    context.load_verify_locations(str(certificates.ca))
    with socket.create_connection(ports["intermediate"], 60) as plain:
        plain.settimeout(None)
        connection = SSL.Connection(context, plain)
        connection.set_connect_state()
        connection.do_handshake()
        assert connection.get_protocol_version_name() == "TLSv1.2"
        assert connection.renegotiate()
        with pytest.raises(SSL.Error, match="no renegotiation"):
            connection.do_handshake()


def test_a_strict_client_is_served(
    ports: dict[str, tuple[str, int]], certificates: Certificates
) -> None:
    """Strict checks of RFC 5280, as Python 3.13 makes them."""
    context = client_context(certificates.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with TlsClient(ports["intermediate"][1], context) as client:
        assert client.alive()
        assert client.socket.version() == "TLSv1.3"
