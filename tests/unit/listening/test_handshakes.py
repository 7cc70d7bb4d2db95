"""Handshakes without sockets: how long, how many at a time, and what follows one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import log_lines
from certificates import Certificates
from tls_in_memory import TlsServer
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from hermes.listening.handshakes import HANDSHAKE_SECONDS, MAX_HANDSHAKES

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def server(certificates: Certificates) -> Iterator[TlsServer]:
    server = TlsServer(certificates)
    yield server
    server.factory.doStop()
    server.clock.advance(0)
    assert server.clock.getDelayedCalls() == [], "a closed port leaves no timer"


def test_an_application_sees_a_connection_when_its_handshake_is_over(server: TlsServer) -> None:
    protocol, transport = server.accept()
    assert server.application.made == []
    protocol.dataReceived(b"\x16\x03\x01")
    assert server.application.made == []
    protocol, transport, client = server.connect()
    assert len(server.application.made) == 1
    assert server.outcomes == {"completed": 1}
    server.clock.advance(0)
    client.incoming.write(transport.value())
    assert client.tls.read() == b"hello"


def test_a_handshake_may_take_ten_seconds(server: TlsServer) -> None:
    _, early = server.accept()
    server.clock.advance(HANDSHAKE_SECONDS / 2)
    _, late = server.accept()
    with log_lines() as lines:
        server.clock.advance(HANDSHAKE_SECONDS / 2)
        assert early.disconnected
        assert not late.disconnected
        server.clock.advance(HANDSHAKE_SECONDS / 2)
    assert late.disconnected
    assert server.outcomes == {"timed_out": 2}
    assert ["it took longer than 10 s" in line for line in lines] == [True, True]


def test_a_connection_that_has_shaken_hands_may_be_silent(server: TlsServer) -> None:
    _, transport, _ = server.connect()
    server.clock.advance(100 * HANDSHAKE_SECONDS)
    assert not transport.disconnected


def test_the_oldest_makes_room_when_there_are_too_many(server: TlsServer) -> None:
    begun = [server.accept()[1] for _ in range(MAX_HANDSHAKES)]
    assert not any(transport.disconnected for transport in begun)
    _, transport, _ = server.connect()
    assert begun[0].disconnected
    assert not any(each.disconnected for each in begun[1:])
    assert not transport.disconnected
    assert server.outcomes == {"crowded_out": 1, "completed": 1}
    assert len(server.factory.handshakes) == MAX_HANDSHAKES - 1


def test_a_full_application_is_not_asked_to_serve(server: TlsServer) -> None:
    server.application.is_full = True
    _, transport, _ = server.connect()
    assert transport.disconnected


def test_a_closed_port_ends_handshakes_under_way_and_no_connection(server: TlsServer) -> None:
    _, begun = server.accept()
    _, made, _ = server.connect()
    server.factory.doStop()
    assert begun.disconnected
    assert not made.disconnected
    server.factory.doStart()


def test_a_peer_that_just_leaves_is_not_worth_a_line(server: TlsServer) -> None:
    with log_lines() as lines:
        protocol, _ = server.accept()
        protocol.connectionLost(Failure(ConnectionDone()))
    assert lines == []
    assert server.outcomes == {"left": 1}


def test_a_peer_that_does_not_close_is_not_waited_for_long(server: TlsServer) -> None:
    protocol, transport, _ = server.connect()
    protocol.pauseProducing()
    server.application.made[0].transport.loseConnection()
    assert transport.producerState == "producing", "its part of the close is read"
    assert not transport.disconnecting
    server.clock.advance(1)
    assert transport.disconnecting
    server.clock.advance(30)
    assert transport.disconnected


def test_records_that_arrive_together_are_handed_over_together(server: TlsServer) -> None:
    protocol, _, client = server.connect()
    received: list[bytes] = []
    server.application.made[0].dataReceived = received.append
    data = bytes(range(256)) * 400
    client.tls.write(data)
    protocol.dataReceived(client.outgoing.read())
    assert received == [data]
    client.tls.write(b"more")
    sent = client.outgoing.read()
    protocol.dataReceived(sent[:10])
    protocol.dataReceived(sent[10:])
    assert received == [data, b"more"]


def test_what_was_cut_gets_nothing_more(server: TlsServer) -> None:
    protocol, _, client = server.connect()
    received: list[bytes] = []
    server.application.made[0].dataReceived = received.append
    client.tls.write(b"late")
    server.application.made[0].transport.abortConnection()
    protocol.dataReceived(client.outgoing.read())
    assert received == []


LOST = """
import gc, sys, weakref
from pathlib import Path
from certificates import Certificates
from tls_in_memory import TlsServer
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

server = TlsServer(Certificates(Path(sys.argv[1])))
gc.collect()
gc.disable()
for begin in (server.connect, server.accept):
    protocol = begin()[0]
    server.clock.advance(0)
    protocol.connectionLost(Failure(ConnectionDone()))
    server.application.made.clear()
    left = weakref.ref(protocol)
    del protocol
    print(left() is None)
"""


def test_a_connection_that_is_lost_leaves_no_garbage(tmp_path: Path) -> None:
    """In a process of its own: here pytest-twisted keeps what failures hold."""
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", LOST, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("True\nTrue\n", "")


def test_the_ends_of_certificates_are_looked_at_daily(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    tls = server.factory.handshakes.tls
    monkeypatch.setattr(tls, "warn_of_end", lambda: looked.append(server.clock.seconds()))
    for _ in range(3 * 24):
        server.clock.advance(3600)
    assert len(looked) == 3
