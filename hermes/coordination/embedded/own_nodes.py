"""The nodes as the broker in the server's own process reads and changes them, without a connection.

It may do all, and has no session. What it is told is on disk, as it is for clients.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from twisted.python.failure import Failure

from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.processor import RequestProcessor
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.transaction import Transaction
from hermes.coordination.embedded.tree import DataTree, parent_path
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    CheckRequest,
    CreateRequest,
    DeleteRequest,
    SetDataRequest,
)
from hermes.coordination.nodes import Node, NodeTransaction
from hermes.errors import CoordinationError, CoordinationUnavailableError
from hermes.security import INTERNAL

#: How long a thread waits for the reactor and the disk.
_ANSWER_SECONDS: Final = 10.0

_Result = TypeVar("_Result")


class OwnNodes:
    """`TreeNodes`, on the server's own tree.

    One thread at a time may call: the reactor's from within `call_then`, or another one, whose
    calls wait for the reactor and for the disk.

    Args:
        clients: have the processor that serves them.

    Attributes:
        on_lost: called, in the reactor's thread, when calls of `call_then` may have been lost.
    """

    def __init__(self, reactor: Any, clients: Clients) -> None:
        self._reactor = reactor
        self._clients = clients
        self.on_lost: list[Callable[[], None]] = []
        self._rights = Rights(principal=INTERNAL)
        self._thread = 0  # that of `call_then`, while it is under way
        self._waiting: deque[Callable[[Any], object]] = deque()  # for the disk

    def call_then(
        self, then: Callable[[Any], object], function: Callable[..., Any], *args: Any
    ) -> None:
        """Call a function that uses the nodes, in the reactor's thread.

        `then` is called with its result, or a Failure, once all that it did or saw is on disk.
        """
        result: Any
        self._thread = threading.get_ident()
        try:
            result = function(*args)
        except Exception:
            result = Failure()  # type: ignore[no-untyped-call]
        finally:
            self._thread = 0
        processor = self._clients.processor
        if processor is None:
            then(_lost())
        else:
            self._waiting.append(then)
            processor.queue.call_after(self._tell, result)

    def _tell(self, result: Any) -> None:
        self._waiting.popleft()(result)

    def abort(self) -> None:
        """Nobody knows what becomes of what isn't on disk yet: the server is out of service."""
        for observer in self.on_lost:
            observer()
        waiting, self._waiting = self._waiting, deque()
        for then in waiting:
            then(_lost())

    def stop(self) -> None:
        """There is nothing to end."""

    # -- reading --------------------------------------------------------------------------------

    def get(self, path: str) -> Node | None:
        return self.get_all([path])[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return self._do(lambda processor: [_node(processor.state.tree, each) for each in paths])

    def children(self, path: str) -> list[str]:
        def names(processor: RequestProcessor) -> list[str]:
            node = processor.state.tree.nodes.get(path)
            return [] if node is None else sorted(node.children)

        return self._do(names)

    def sync(self, path: str) -> None:
        """There is no other server that could know more."""

    # -- changes --------------------------------------------------------------------------------

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        request = SetDataRequest(path, value, version)
        return int(self._change(Transaction.set_data, request).version)

    def ensure_path(self, path: str) -> None:
        self._change(_ensure, path)

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        collected = _Collected()
        fill(collected)
        operations = collected.operations
        try:
            return self._do(lambda processor: processor.change(self._rights, operations))
        except RequestRefusedError as refusal:
            return [refusal] * len(operations)

    # -- parts ----------------------------------------------------------------------------------

    def _change(self, operation: Callable[[Transaction, Any], Any], argument: Any) -> Any:
        operations = ((operation, argument),)
        try:
            return self._do(lambda processor: processor.change(self._rights, operations))[0]
        except RequestRefusedError as refusal:
            if refusal.code in (ZooKeeperCode.NO_NODE, ZooKeeperCode.BAD_VERSION):
                raise CoordinationUnavailableError(f"it was changed meanwhile: {refusal}") from None
            raise CoordinationError(f"embedded coordination: {refusal}") from None

    def _do(self, work: Callable[[RequestProcessor], _Result]) -> _Result:
        if self._thread == threading.get_ident():
            processor = self._clients.processor
            return self._done(work) if processor is None else work(processor)
        answer: SimpleQueue[Any] = SimpleQueue()
        self._reactor.callFromThread(self.call_then, answer.put, self._done, work)
        try:
            result = answer.get(timeout=_ANSWER_SECONDS)
        except Empty:
            raise CoordinationUnavailableError("embedded coordination doesn't answer") from None
        if isinstance(result, Failure):
            result.raiseException()
        done: _Result = result
        return done

    def _done(self, work: Callable[[RequestProcessor], _Result]) -> _Result:
        processor = self._clients.processor
        if processor is None:
            raise CoordinationUnavailableError("embedded coordination is out of service")
        return work(processor)


class _Collected:
    """A `NodeTransaction`: its operations, to be done one after the other."""

    def __init__(self) -> None:
        self.operations: list[tuple[Callable[[Transaction, Any], object], Any]] = []

    def create(self, path: str, value: bytes = b"") -> None:
        self.operations.append((Transaction.create, CreateRequest(path, value, OPEN_ACL, 0)))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        self.operations.append((Transaction.set_data, SetDataRequest(path, value, version)))

    def delete(self, path: str, version: int = -1) -> None:
        self.operations.append((Transaction.delete, DeleteRequest(path, version)))

    def check(self, path: str, version: int) -> None:
        self.operations.append((Transaction.check, CheckRequest(path, version)))


def _ensure(transaction: Transaction, path: str) -> None:
    if not transaction.has(path):
        _ensure(transaction, parent_path(path))
        transaction.create(CreateRequest(path, b"", OPEN_ACL, 0))


def _node(tree: DataTree, path: str) -> Node | None:
    node = tree.nodes.get(path)
    return None if node is None else Node(node.data or b"", node.version, node.owner)


def _lost() -> Failure:
    error = CoordinationUnavailableError("embedded coordination went out of service")
    return Failure(error)  # type: ignore[no-untyped-call]
