"""Sessions with the tree: over kazoo with both servers, and in memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from coordination_servers import KINDS, ServerProcess
from kazoo.client import KazooClient
from memory_coordination import MemoryCoordination

from hermes.coordination.nodes import TreeSession
from hermes.coordination.sessions import Session


class RealCoordination:
    """Makes sessions with a server, and ends them behind their owner's back."""

    def __init__(self, server: ServerProcess, chroot: str, stack: ExitStack) -> None:
        self._server = server
        self._chroot = chroot
        self._stack = stack

    def session(self, on_change: Callable[[], None] = lambda: None) -> Session:
        session = Session(self._server.address + self._chroot, on_change=on_change)
        self._stack.callback(session.stop)
        return session

    def expire(self, session: Session) -> None:
        with closing(
            KazooClient(self._server.address, client_id=session._client.client_id)
        ) as twin:
            twin.start()
            twin.stop()


@pytest.fixture(params=["memory", *sorted(KINDS)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def coordination(
    kind: str, request: pytest.FixtureRequest
) -> Iterator[MemoryCoordination | RealCoordination]:
    if kind == "memory":
        yield MemoryCoordination()
        return
    with ExitStack() as stack:
        chroot = request.getfixturevalue("chroot")
        yield RealCoordination(request.getfixturevalue("server"), chroot, stack)


@pytest.fixture
def start(coordination: MemoryCoordination | RealCoordination) -> Callable[..., TreeSession]:
    def make(on_change: Callable[[], None] = lambda: None) -> TreeSession:
        session: TreeSession = coordination.session(on_change)
        session.start()
        return session

    return make


@pytest.fixture
def session(start: Callable[..., TreeSession]) -> TreeSession:
    return start()
