"""An embedded coordination server in this process, whose nodes are used without a connection."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from twisted.internet.threads import blockingCallFromThread
from twisted.python.failure import Failure

from hermes.config.listeners import ListenerConfig
from hermes.coordination.embedded import EmbeddedCoordination
from hermes.errors import HermesError
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import Change, StoredGroup
from hermes.reactors import make_reactor, release_reactor

__all__ = ["AtOnce", "OwnCoordination", "own_coordination"]


class OwnCoordination:
    """A server that runs, in a reactor of its own, in a thread of its own."""

    def __init__(self, reactor: Any, service: EmbeddedCoordination) -> None:
        self._reactor = reactor
        self.service = service
        self.nodes = service.own_nodes

    def at_once(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that uses the nodes in the reactor's thread; returns what it gave."""
        answer: SimpleQueue[Any] = SimpleQueue()
        self._reactor.callFromThread(self.nodes.call_then, answer.put, function, *args)
        result = answer.get(timeout=60)
        if isinstance(result, Failure):
            result.raiseException()
        return result

    def wait_until_serving(self) -> None:
        serves = threading.Event()

        def ask() -> None:
            self.service.on_serving = serves.set
            if self.service.is_serving:
                serves.set()

        self._reactor.callFromThread(ask)
        assert serves.wait(60)

    def in_reactor(self, function: Callable[..., Any], *args: Any) -> Any:
        return blockingCallFromThread(self._reactor, function, *args)


@contextmanager
def own_coordination(path: Path) -> Iterator[OwnCoordination]:
    reactor = make_reactor()
    service = EmbeddedCoordination(reactor, path, ListenerConfig("tcp:0:interface=127.0.0.1"))
    thread = threading.Thread(target=reactor.run, kwargs={"installSignalHandlers": False})
    thread.start()
    own = OwnCoordination(reactor, service)
    try:
        own.in_reactor(service.startService)
        yield own
    finally:
        own.in_reactor(service.stopService)
        reactor.callFromThread(reactor.stop)
        thread.join()
        release_reactor(reactor)


class AtOnce:
    """A `GroupStore` whose calls are made in the reactor's thread."""

    def __init__(self, own: OwnCoordination) -> None:
        self._store = OffsetTree(lambda: own.nodes)
        own.nodes.on_lost.append(self._store.distrust)
        self._call = own.at_once

    def names(self) -> list[str]:
        names: list[str] = self._call(self._store.names)
        return names

    def load(self, group: str) -> StoredGroup | None:
        found: StoredGroup | None = self._call(self._store.load, group)
        return found

    def write(self, changes: Sequence[Change]) -> list[HermesError | None]:
        results: list[HermesError | None] = self._call(self._store.write, changes)
        return results

    def release(self, group: str) -> None:
        self._call(self._store.release, group)

    def close(self) -> None:
        self._call(self._store.close)
