"""TLS listeners whose peers don't go on, or whose certificates change: others don't notice."""

import random
import select
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority, Certificates
from hermes_testkit import BrokerProcess, fetch, message, produce_acknowledged
from scraping import Scrape, until
from tls_attacks import half_open, hostile_handshakes, served_by
from tls_clients import TlsClient, client_context, tls_listener

StartBroker = Callable[..., BrokerProcess]

HTTP = "tcp:0:interface=127.0.0.1"
LABEL = "listen.0"


@pytest.fixture
def trusting(certificates: Certificates) -> ssl.SSLContext:
    return client_context(certificates.ca)


def metrics_url(broker: BrokerProcess) -> str:
    line = broker.wait_for_line("is ready: Hermes")
    return "http://" + line.partition("HTTP on ")[2].partition(",")[0]


def handshakes(found: Scrape, outcome: str) -> float:
    labels = frozenset({("listener", LABEL), ("outcome", outcome)})
    return found.samples["hermes_tls_handshakes_total", labels]


def test_half_open_handshakes_keep_nobody_out_and_make_room_for_each_other(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)], http_listen=HTTP)
    assert served_by(broker, trusting)
    with half_open(broker, 400) as connections:
        for _ in range(20):
            assert served_by(broker, trusting)
        under_way = frozenset({("listener", LABEL)})

        def has_cut(found: Scrape) -> bool:
            assert found.samples["hermes_tls_handshakes_in_progress", under_way] <= 256
            return handshakes(found, "crowded_out") + handshakes(found, "timed_out") >= 400 - 256

        until(metrics_url(broker), has_cut)
        readable, _, _ = select.select(connections, [], [], 0)
        assert len(readable) >= 400 - 256
    assert served_by(broker, trusting)
    assert broker.stop() == 0


def test_damaged_hellos_harm_nobody(
    start_broker: StartBroker, certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    hostile_handshakes(broker, random.Random(14), 400)
    assert served_by(broker, trusting)
    output = "".join(broker.lines)
    assert "Traceback" not in output
    assert "Unhandled" not in output


def test_certificates_are_replaced_under_load_and_nobody_notices(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    """Clients come and go, and one stays; good pairs and bad ones follow each other."""
    authority = Authority(tmp_path / "authority")
    pair = authority.server("first")
    broker = start_broker(listen=[tls_listener(pair)])
    context = client_context(authority.path)
    stored = b"".join(message(b"%d" % number) for number in range(1000))
    ended, failures, seen = threading.Event(), list[BaseException](), set[str]()

    def come_and_go() -> None:
        try:
            while not ended.is_set():
                with TlsClient(broker.port, context) as client:
                    certificate = client.socket.getpeercert()
                    assert certificate is not None
                    seen.add(str(dict(part[0] for part in certificate["subject"])["commonName"]))
                    assert client.call(fetch("t", 0, 0, len(stored)))[6:] == stored
        except BaseException as error:
            failures.append(error)

    with TlsClient(broker.port, context) as staying:
        staying.call(produce_acknowledged(("t", 0, stored)))
        clients = [threading.Thread(target=come_and_go) for _ in range(3)]
        for client in clients:
            client.start()
        try:
            for number in range(3):
                pair.certificate.write_bytes(b"damaged %d" % number)
                broker.wait_for_line("the certificate in use is kept")
                name = f"renewed-{number}"
                pair.replace(authority.server(name))
                broker.wait_for_line(f"a new certificate is in use: CN={name}")
                assert staying.call(fetch("t", 0, 0, len(stored)))[6:] == stored
        finally:
            ended.set()
            for client in clients:
                client.join()
    assert failures == []
    assert seen == {"first", "renewed-0", "renewed-1", "renewed-2"}
    assert broker.stop() == 0
