"""The embedded server and the machine that it runs on: full disks, taken ports and files."""

import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from embedded_coordination_process import EmbeddedCoordinationProcess
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.retry import KazooRetry
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from zookeeper_process import four_letter_word

from hermes.config.listeners import ListenerConfig
from hermes.coordination.embedded import EmbeddedCoordination
from hermes.coordination.embedded.store import CoordinationStore
from hermes.errors import ConfigError, HermesError, StorageError

LOOPBACK = ListenerConfig("tcp:0:interface=127.0.0.1")
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[EmbeddedCoordinationProcess]:
    process = EmbeddedCoordinationProcess(tmp_path / "server")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def connect() -> Iterator[Callable[[str], Any]]:
    clients: list[Any] = []

    def connect(address: str) -> Any:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
        client = KazooClient(address, timeout=30.0, connection_retry=retry)
        clients.append(client)
        client.start(20)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()


def test_a_disk_that_is_full_for_a_while(
    process: EmbeddedCoordinationProcess, connect: Callable[[str], Any]
) -> None:
    client = connect(process.address)
    client.create("/before", b"x")
    client.create("/e", ephemeral=True)
    session = client.client_id
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    with pytest.raises(ConnectionLoss):
        client.create("/lost")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2, deadline=30)
    assert retry(client.exists, "/lost") is None
    assert client.client_id == session
    assert client.get("/before")[0] == b"x"
    assert client.exists("/e").ephemeralOwner == session[0]
    assert client.create("/after") == "/after"


@pytest_twisted.inlineCallbacks
def test_the_service_serves_until_it_is_stopped(tmp_path: Path) -> Any:
    path = tmp_path / "coordination.sqlite"
    service = EmbeddedCoordination(reactor, path, LOOPBACK)
    service.startService()
    try:
        ((host, port),) = service.addresses
        assert service.connect_string == f"{host}:{port}" == f"127.0.0.1:{port}"
        answer = yield deferToThread(four_letter_word, port, "srvr")
        assert "Node count: 4\n" in answer
        with pytest.raises(StorageError, match="locked"):
            CoordinationStore(path).open()
    finally:
        yield service.stopService()
    assert service.addresses == []
    store = CoordinationStore(path)
    store.open()  # nobody holds it
    store.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))
    with pytest.raises(HermesError, match="no TCP port"):
        _ = service.connect_string


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = ListenerConfig(f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1")
        service = EmbeddedCoordination(reactor, tmp_path / "coordination.sqlite", listen)
        with pytest.raises(HermesError, match="coordination_listen: can't open"):
            service.startService()
    store = CoordinationStore(tmp_path / "coordination.sqlite")
    store.open()  # nobody holds it
    store.close()


def test_what_is_no_endpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="coordination_listen"):
        EmbeddedCoordination(
            reactor, tmp_path / "coordination.sqlite", ListenerConfig("nonsense:2181")
        )


@pytest_twisted.inlineCallbacks
def test_a_second_service_on_the_same_file_leaves_the_first_alone(tmp_path: Path) -> Any:
    path = tmp_path / "coordination.sqlite"
    first = EmbeddedCoordination(reactor, path, LOOPBACK)
    first.startService()
    try:
        with pytest.raises(StorageError, match="locked"):
            EmbeddedCoordination(reactor, path, LOOPBACK).startService()
        answer = yield deferToThread(four_letter_word, first.addresses[0][1], "ruok")
        assert answer == "imok"
    finally:
        yield first.stopService()
