"""Both servers for the tests of this folder: a real ZooKeeper and the embedded one.

Each test that needs a server runs on both, in a chroot of its own.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordination_servers import KINDS, ServerProcess
from group_cluster import Cluster

from hermes.coordination.sessions import Session

_numbers = itertools.count()


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two."""
    return str(request.param)


@pytest.fixture
def shared_server(kind: str, coordination_server: Callable[[str], ServerProcess]) -> ServerProcess:
    """A server for all tests that leave it as it is."""
    return coordination_server(kind)


@pytest.fixture
def connect(shared_server: ServerProcess) -> str:
    """`host:port/chroot` of a tree that is empty."""
    return f"{shared_server.address}/group-{next(_numbers)}"


@pytest.fixture
def cluster(connect: str) -> Iterator[Cluster]:
    """Brokers and consumers in that tree."""
    with ExitStack() as stack:
        yield Cluster(connect, stack)


@pytest.fixture
def own_server(kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """One that a test may pause and kill."""
    server = KINDS[kind](tmp_path / "coordination")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def make_session() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def make(connect: str, **options: Any) -> Session:
        session = Session(connect, **options)
        sessions.append(session)
        session.start()
        return session

    yield make
    for session in sessions:
        session.stop()


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until a condition holds, and returns what it gave; fails after a minute."""

    def wait(condition: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + 60
        pause = threading.Event()
        while not (found := condition()):
            assert time.monotonic() < deadline, what or "it never happened"
            pause.wait(0.01)
        return found

    return wait


@pytest.fixture
def expire() -> Callable[[Session], None]:
    """Ends a session behind its owner's back, as if its timeout had passed."""

    def end(session: Session) -> None:
        from kazoo.client import KazooClient

        client = session._client
        twin = KazooClient(f"{client.hosts[0][0]}:{client.hosts[0][1]}", client_id=client.client_id)
        twin.start()
        twin.stop()
        twin.close()

    return end
