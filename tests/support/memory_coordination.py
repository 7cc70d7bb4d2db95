"""Coordination in memory: the embedded server's own tree and watches, with nothing in between.

No socket, thread, file or clock: a call is done when it returns, and whoever is woken by it is
woken before that. So what follows coordination can be run step by step, in any order.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.transaction import Transaction
from hermes.coordination.embedded.tree import DataTree, parent_path
from hermes.coordination.embedded.watches import Watches
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    CheckRequest,
    CreateRequest,
    DeleteRequest,
    SetDataRequest,
)
from hermes.coordination.nodes import Node, NodeTransaction
from hermes.errors import CoordinationError, CoordinationUnavailableError

__all__ = ["MemoryCoordination", "MemorySession"]

_Result = TypeVar("_Result")

_EPHEMERAL = 1

#: What says how a node is: the caller looks again.
_CHANGED = frozenset(
    {
        ZooKeeperCode.NO_NODE,
        ZooKeeperCode.NODE_EXISTS,
        ZooKeeperCode.BAD_VERSION,
        ZooKeeperCode.NOT_EMPTY,
    }
)


class MemoryCoordination:
    """One server's state; makes sessions with it.

    Attributes:
        on_events: told the paths of nodes that a transaction has changed, before watches fire.
    """

    def __init__(self) -> None:
        self.on_events: Callable[[list[str]], None] = lambda paths: None
        self.tree = DataTree()
        self.watches: Watches[MemorySession] = Watches()
        self._last_session_id = 0

    def session(self, on_change: Callable[[], None] = lambda: None) -> "MemorySession":
        return MemorySession(self, on_change)

    def next_session_id(self) -> int:
        self._last_session_id += 1
        return self._last_session_id

    def expire(self, session: "MemorySession") -> None:
        """End what a client has, as if it had been silent for too long; it begins another one."""
        self.end(session)
        session.session_id = self.next_session_id()
        session.on_change()

    def end(self, session: "MemorySession") -> None:
        self.watches.forget(session)
        if session.session_id is not None:
            self.commit(session.session_id, lambda ending: ending.delete_ephemerals(1_000_000))
        session.session_id = None

    def commit(self, session_id: int, work: Callable[[Transaction], _Result]) -> _Result:
        """Carry out a transaction, whole or not at all, and wake who watches."""
        transaction = Transaction(self.tree, 0, session_id)
        try:
            result = work(transaction)
        except BaseException:
            transaction.rollback()
            raise
        if transaction.changes:
            transaction.commit()
            self.on_events([path for _, path, *_ in transaction.events])
        woken = {
            watcher: None
            for kind, path, *_ in transaction.events
            for watcher, *_ in list(self.watches.fire(kind, path))
        }
        for watcher in woken:
            watcher.on_change()
        return result


class MemorySession:
    """A `TreeSession`, and `put` as `Session` has it.

    Attributes:
        session_id: None once it was stopped.
        on_change: called when something may have changed.
    """

    def __init__(self, server: MemoryCoordination, on_change: Callable[[], None]) -> None:
        self.on_change = on_change
        self.session_id: int | None = server.next_session_id()
        self._server = server

    def start(self) -> None:
        """It is connected."""

    def stop(self) -> None:
        self._server.end(self)

    # -- reading --------------------------------------------------------------------------------

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        node = self._reached().tree.nodes.get(path)
        if watch:
            self._server.watches.data.add(path, self)
        return None if node is None else Node(node.data or b"", node.version, node.owner)

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return [self.get(path) for path in paths]

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        node = self._reached().tree.nodes.get(path)
        watches = self._server.watches
        if watch:
            (watches.data if node is None else watches.children).add(path, self)
        return [] if node is None else sorted(node.children)

    def sync(self, path: str) -> None:
        self._reached()

    # -- changes --------------------------------------------------------------------------------

    def create(self, path: str, value: bytes) -> bool:
        return self._create(path, value, 0)

    def create_ephemeral(self, path: str, value: bytes) -> Node | None:
        if not self._create(path, value, _EPHEMERAL):
            found = self.get(path)
            if found is None or found.owner != self.session_id:
                return found
            if found.value != value:
                self.set(path, value)
        return None

    def _create(self, path: str, value: bytes, flags: int) -> bool:
        self.ensure_path(parent_path(path))
        try:
            self._commit(lambda each: each.create(CreateRequest(path, value, OPEN_ACL, flags)))
        except RequestRefusedError as refusal:
            if refusal.code is ZooKeeperCode.NODE_EXISTS:
                return False
            raise _told(path, refusal) from refusal
        return True

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        try:
            return self._commit(
                lambda each: each.set_data(SetDataRequest(path, value, version))
            ).version
        except RequestRefusedError as refusal:
            raise _told(path, refusal) from refusal

    def put(self, path: str, value: bytes) -> None:
        if not self.create(path, value):
            self.set(path, value)

    def delete(self, path: str, version: int) -> bool:
        try:
            self._commit(lambda each: each.delete(DeleteRequest(path, version)))
        except RequestRefusedError as refusal:
            if refusal.code in _CHANGED:
                return False
            raise _told(path, refusal) from refusal
        return True

    def ensure_path(self, path: str) -> None:
        if path not in self._reached().tree.nodes:
            self._create(path, b"", 0)

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        collected = _Collected()
        fill(collected)
        try:
            return self._commit(lambda each: [do(each) for do in collected.operations])
        except RequestRefusedError as refusal:
            return [refusal] * len(collected.operations)

    # -- parts ----------------------------------------------------------------------------------

    def _reached(self) -> MemoryCoordination:
        if self.session_id is None:
            raise CoordinationUnavailableError("the session was stopped")
        return self._server

    def _commit(self, work: Callable[[Transaction], _Result]) -> _Result:
        server = self._reached()
        assert self.session_id is not None
        return server.commit(self.session_id, work)


class _Collected:
    """A `NodeTransaction`: its operations, to be done one after the other."""

    def __init__(self) -> None:
        self.operations: list[Callable[[Transaction], object]] = []

    def create(
        self, path: str, value: bytes = b"", acl: None = None, ephemeral: bool = False
    ) -> None:
        request = CreateRequest(path, value, OPEN_ACL, _EPHEMERAL if ephemeral else 0)
        self.operations.append(lambda each: each.create(request))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        self.operations.append(
            lambda each: each.set_data(SetDataRequest(path, value, version)).stat
        )

    def delete(self, path: str, version: int = -1) -> None:
        self.operations.append(lambda each: each.delete(DeleteRequest(path, version)))

    def check(self, path: str, version: int) -> None:
        self.operations.append(lambda each: each.check(CheckRequest(path, version)))


def _told(path: str, refusal: RequestRefusedError) -> CoordinationError:
    if refusal.code in _CHANGED:
        return CoordinationUnavailableError(f"{path}: it was changed meanwhile: {refusal}")
    return CoordinationError(f"{path}: {refusal}")
