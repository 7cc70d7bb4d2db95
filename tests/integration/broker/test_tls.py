"""A broker over TLS: the same answers as without, whatever a peer does; who is not let in."""

import os
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import Authority, Certificates, Pair
from hermes_testkit import (
    BrokerProcess,
    RawClient,
    fetch,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
    waiting_fetch,
)
from tls_clients import TlsClient, client_context, tls_listener

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def trusting(certificates: Certificates) -> ssl.SSLContext:
    """A client that trusts the right authority, and has no certificate."""
    return client_context(certificates.ca)


def plain_port(broker: BrokerProcess) -> int:
    """The port of the second listener."""
    line = broker.wait_for_line("is ready: Hermes")
    return int(re.findall(r"127\.0\.0\.1:(\d+)", line)[1])


def reason_in(line: str) -> str:
    """Why no TLS was agreed upon, as the broker says."""
    return re.sub(r"^.*no TLS with 127\.0\.0\.1:\d+: ", "", line).strip()


# -- the same answers ---------------------------------------------------------------------------


def test_tls_and_plain_listeners_give_the_same_bytes(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    listeners = [tls_listener(certificates.server), "tcp:0:interface=127.0.0.1"]
    broker = start_broker(listen=listeners)
    payloads = [os.urandom(size) for size in (0, 1, 16_384, 100_000, 900_000)]
    stored = b"".join(map(message, payloads))
    with TlsClient(broker.port, trusting) as client, RawClient(plain_port(broker)) as plain:
        assert client.socket.version() == "TLSv1.3"
        acknowledged = client.call(produce_acknowledged(("t", 0, stored)))
        assert acknowledged[:6] == plain.call(produce_acknowledged(("u", 0, stored)))[:6]
        client.send(produce("t", 0, stored))
        wait_until_visible(client, "t", 0, 2 * len(stored))
        for request in (
            fetch("t", 0, 0, 10_000_000),
            fetch("t", 0, 0, 1),
            fetch("t", 0, len(stored), 4_000_000),
            fetch("t", 0, 1 << 40),
            waiting_fetch(("t", 0, 0, 10_000_000), ("t", 0, len(stored), 100_000)),
        ):
            assert client.call(request) == plain.call(request)
        assert client.call(fetch("t", 0, 0, len(stored)))[6:] == stored


def test_pipelined_fetches_are_answered_in_order(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    stored = b"".join(message(os.urandom(1000)) for _ in range(3000))
    step = len(message(bytes(1000)))
    with TlsClient(broker.port, trusting) as client:
        client.call(produce_acknowledged(("t", 0, stored)))
        offsets = [step * (7 * n % 2000) for n in range(200)]
        sizes = [1 + 137 * n * n % 700_000 for n in range(200)]
        pairs = list(zip(offsets, sizes, strict=True))
        # Some kilobytes, for which there is room; two threads must not share Python's SSL sockets.
        client.send(b"".join(fetch("t", 0, *pair) for pair in pairs))
        for offset, size in pairs:
            answer = client.answer()
            assert answer[4:6] == b"\0\0"
            assert answer[6:] == stored[offset : offset + size]


def test_what_is_sent_right_behind_the_handshake_is_served(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    """The end of the handshake and the first requests arrive together."""
    broker = start_broker(listen=[tls_listener(certificates.server)])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", broker.port), 60) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    plain.sendall(outgoing.read())
                incoming.write(plain.recv(65536))
        tls.write(produce("t", 0, message(b"at once")))
        plain.sendall(outgoing.read())
    with TlsClient(broker.port, trusting) as client:
        wait_until_visible(client, "t", 0, len(message(b"at once")))


@pytest.mark.parametrize("is_polite", [True, False], ids=["close_notify", "end of TCP only"])
def test_a_producer_may_send_and_leave(
    start_broker: StartBroker,
    certificates: Certificates,
    trusting: ssl.SSLContext,
    is_polite: bool,
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    stored = b"".join(message(os.urandom(900)) for _ in range(1000))
    client = TlsClient(broker.port, trusting)
    client.send(produce("t", 0, stored) * 5)
    if is_polite:
        client.socket.unwrap().close()
    client.close()
    with TlsClient(broker.port, trusting) as reader:
        wait_until_visible(reader, "t", 0, 5 * len(stored))


def test_a_client_that_never_reads_costs_little_memory_and_no_one_waits(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    stored = b"".join(message(os.urandom(100_000)) for _ in range(100))
    with TlsClient(broker.port, trusting) as client:
        client.call(produce_acknowledged(("t", 0, stored)))
        client.call(fetch("t", 0, 0, 1_000_000))
        before = broker.memory_bytes()
        deaf = [TlsClient(broker.port, trusting) for _ in range(20)]
        for each in deaf:
            each.send(fetch("t", 0, 0, 10_000_000) * 20)
        for _ in range(20):
            assert client.call(fetch("t", 0, 0, 500_000))[6:] == stored[:500_000]
        assert broker.memory_bytes() - before < 20_000_000
        for each in deaf:
            each.close()


def test_a_stop_lets_responses_under_way_leave(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    stored = b"".join(message(os.urandom(100_000)) for _ in range(200))
    with TlsClient(broker.port, trusting) as client:
        client.call(produce_acknowledged(("t", 0, stored)))
        client.send(fetch("t", 0, 0, len(stored)))
        head = client.receive(6)
        assert head == struct.pack(">ih", len(stored) + 2, 0)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        assert client.receive(len(stored)) == stored
        assert client.receive(1) == b"", "and it is not waited for to close, too"
        stopping.join()
    assert broker.wait() == 0


def test_a_stop_does_not_wait_for_a_client_that_does_not_answer_the_close(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)], stop_timeout="300 ms")
    with TlsClient(broker.port, trusting) as client:
        assert client.alive()
        assert broker.stop() == 0  # while nobody reads the broker's close_notify


# -- what does not get in -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [fetch("t", 0, 0) * 3, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64)],
    ids=["0.7", "HTTP", "zeros"],
)
def test_plain_bytes_on_a_tls_port_are_refused_with_a_line(
    start_broker: StartBroker, certificates: Certificates, sent: bytes
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    with broker.connect() as client:
        client.send(sent)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive(1) in (b"", b"\x15"), "at most an alert"
    line = broker.wait_for_line("no TLS with")
    assert reason_in(line) == "what it sends is not TLS, which this listener speaks"


def test_tls_on_a_plain_port_is_refused_with_a_line(
    start_broker: StartBroker, trusting: ssl.SSLContext
) -> None:
    broker = start_broker()
    with pytest.raises((ssl.SSLError, OSError)):
        TlsClient(broker.port, trusting)
    assert "it is TLS, which this listener does not have" in broker.wait_for_line(
        "closing the connection of"
    )


@pytest.mark.parametrize(
    ("server", "match"),
    [
        ("untrusted_server", "unable to get local issuer certificate"),
        ("expired_server", "certificate has expired"),
        ("wrong_host_server", "not valid for 'localhost'"),
    ],
)
def test_a_client_refuses_a_server_that_it_can_not_trust(
    start_broker: StartBroker,
    certificates: Certificates,
    trusting: ssl.SSLContext,
    server: str,
    match: str,
) -> None:
    broker = start_broker(listen=[tls_listener(getattr(certificates, server))])
    with pytest.raises(ssl.SSLCertVerificationError, match=match):
        TlsClient(broker.port, trusting)
    line = broker.wait_for_line("no TLS with")
    assert reason_in(line).startswith("it refuses this listener or its certificate")
    if server == "expired_server":
        assert "has ended on" in broker.wait_for_line("has ended on")


def say(broker: BrokerProcess, context: ssl.SSLContext, data: bytes) -> None:
    """Send something and wait for what comes of it: with TLS 1.3 only that says who is refused."""
    with TlsClient(broker.port, context) as client:
        client.send(data)
        client.socket.recv(1)


def test_authorities_between_are_sent_along(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path, trusting: ssl.SSLContext
) -> None:
    between = Authority(tmp_path / "between", "authority between", certificates.authority)
    pair = between.server()
    alone = start_broker(log_dir="alone", listen=[tls_listener(pair)])
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        TlsClient(alone.port, trusting)
    chain = pair.certificate.read_bytes() + between.path.read_bytes()
    pair.certificate.write_bytes(chain)
    broker = start_broker(listen=[tls_listener(pair)])
    with TlsClient(broker.port, trusting) as client:
        assert client.alive()


def with_certificate(certificates: Certificates, pair: Pair | None) -> ssl.SSLContext:
    return client_context(certificates.ca, pair)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_good_certificates_of_clients_are_let_in(
    start_broker: StartBroker, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    listener = tls_listener(
        certificates.server, client_ca=certificates.ca, client_certificate="required"
    )
    broker = start_broker(listen=[listener])
    bad: dict[str, Pair | None] = {
        "it has no client certificate, which this listener demands": None,
        "its certificate has expired": certificates.expired_client,
        "its certificate is signed by an authority that is not in client_ca": (
            certificates.untrusted_client
        ),
        "its certificate is not meant for clients (its extended key usage)": certificates.server,
    }
    for reason, pair in bad.items():
        context = with_certificate(certificates, pair)
        context.maximum_version = version
        with pytest.raises(OSError):
            say(broker, context, produce("t", 0, message(b"nobody's")))
        assert reason_in(broker.wait_for_line(reason)) == reason
    context = with_certificate(certificates, certificates.client("alice"))
    context.maximum_version = version
    with TlsClient(broker.port, context) as client:
        assert client.alive()
    assert not (broker.log_dir / "t-0").exists()


def test_an_optional_certificate_may_be_missing_but_not_bad(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    listener = tls_listener(
        certificates.server, client_ca=certificates.ca, client_certificate="optional"
    )
    broker = start_broker(listen=[listener])
    with TlsClient(broker.port, trusting) as client:
        assert client.alive()
    with TlsClient(
        broker.port, with_certificate(certificates, certificates.client("alice"))
    ) as client:
        assert client.alive()
    with pytest.raises(OSError):
        say(broker, with_certificate(certificates, certificates.untrusted_client), b"")


@pytest.mark.parametrize("name", ["anonymous", "hermes-internal", "a\nb", " alice"])
def test_a_certificate_that_names_nobody_is_refused(
    start_broker: StartBroker, certificates: Certificates, name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.client("nobody", common_name=name)
    listener = tls_listener(
        certificates.server,
        client_ca=authority.path,
        client_certificate="required",
        authentication="tls",
    )
    broker = start_broker(listen=[listener])
    with TlsClient(broker.port, with_certificate(certificates, pair)) as client:
        with suppress(OSError):  # it may be cut off before
            client.send(produce("t", 0, message(b"nobody's")))
        assert client.closed()
    assert reason_in(broker.wait_for_line("no TLS with")).startswith("its certificate names")
    assert not (broker.log_dir / "t-0").exists()


# -- who pays for it ------------------------------------------------------------------------------


def test_a_broker_without_tls_never_loads_openssl(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    """Twisted would import it, 12 MB of it."""

    def has_loaded(broker: BrokerProcess) -> bool:
        maps = Path(f"/proc/{broker.process.pid}/maps").read_text()
        return "/cryptography/" in maps

    without = start_broker(log_dir="without", http_listen="tcp:0:interface=127.0.0.1")
    with without.connect() as client:
        assert client.alive()
    with_tls = start_broker(listen=[tls_listener(certificates.server)])
    with TlsClient(with_tls.port, trusting) as client:
        assert client.alive()
    assert (has_loaded(without), has_loaded(with_tls)) == (False, True)
