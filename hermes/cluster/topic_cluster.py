"""The state of the cluster's topics in coordination, kept up with in a thread.

The thread reads whatever has changed, carries out what this broker's own partitions change there
(local_partitions.py decides that), and tells the reactor. While coordination is out of reach, what
was read last holds; changes fail, and can be repeated.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred

from hermes.cluster.local_partitions import LocalChanges, LocalPartitions, Removal
from hermes.coordination.layout import parse_broker_id
from hermes.coordination.listeners import HERMES_BROKERS, BrokerListeners, parse_listeners
from hermes.coordination.nodes import TreeSession
from hermes.coordination.replicas import as_life
from hermes.coordination.throttles import Throttle
from hermes.coordination.topic_tree import TopicTree, TreeContents
from hermes.errors import (
    CoordinationError,
    CoordinationNotAuthorizedError,
    CoordinationUnavailableError,
    InvalidNodeError,
)

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0

#: How many broken nodes are told.
_MOST_FAULTS: Final = 1000

#: How often it is looked whether the broker is registered yet.
_BEGIN_SECONDS: Final = 0.02


class ClusterState(NamedTuple):
    """What coordination has.

    Attributes:
        brokers: where those listen that are registered.
        values: what nodes of the cluster hold that `ClusterValue`s follow; without one that this
            broker may not read.
        lives: of the registered brokers the session in which each is.
        throttles: how fast brokers make copies, of those for which it is set.
    """

    contents: TreeContents
    brokers: Mapping[int, BrokerListeners]
    values: Mapping[str, bytes] = MappingProxyType({})
    lives: Mapping[int, int] = MappingProxyType({})
    throttles: Mapping[int, Throttle] = MappingProxyType({})


class TopicCluster:
    """Reads and changes the cluster's topics. Lives in the reactor's thread, and has its own.

    `on_state`: called with the state whenever it may have changed; `followed`: the paths of its
    values; the others as in `Following`.
    """

    def __init__(
        self,
        broker_id: int,
        connect: Callable[[Callable[[], None]], TreeSession | None],
        from_thread: Callable[[Callable[[], None]], None],
        in_thread: "Callable[..., Deferred[Any]]",
        on_state: Callable[[ClusterState], None],
        followed: Sequence[str] = (),
    ) -> None:
        self._connect = connect
        self._from_thread = from_thread
        self._in_thread = in_thread
        self._on_state = on_state
        self._followed = followed
        self._refused: set[str] = set()
        self._faults: set[str] = set()
        self._local: Mapping[str, LocalPartitions] = {}
        self._asked = 0
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self._wake = threading.Event()
        self._stopping = False
        self._session: TreeSession | None = None
        self._tree: TopicTree | None = None
        self._state: ClusterState | None = None
        self._changes = LocalChanges(broker_id)
        self._thread = threading.Thread(target=self._run, name="hermes-kafka-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> "Deferred[None]":
        """Fires when the session has ended. What waits fails."""
        self._stopping = True
        self._wake.set()
        self._settle(self._asked, _unreachable())
        stopped: Deferred[None] = self._in_thread(self._end)
        return stopped

    def _end(self) -> None:
        session = self._session
        if session is not None:
            session.stop()  # which ends what the thread may still wait for
        if self._thread.is_alive():
            self._thread.join()
        if self._session is not None:
            self._session.stop()

    # -- in the reactor's thread ----------------------------------------------------------------

    def publish_local(self, local: Mapping[str, LocalPartitions]) -> None:
        """Publish this broker's partitions, by topic; the mapping must not change any more."""
        self._local = local
        self._wake.set()

    async def do(self, change: Callable[[TopicTree], Any]) -> Any:
        """Change the tree in a worker thread, and wait until that was read back.

        Raises CoordinationError: it isn't done, or nobody knows.
        """
        if self._tree is None:
            await self.refreshed()  # right after a start: the first look is on its way
        tree = self._tree
        if tree is None or self._stopping:
            raise _unreachable()
        result = await self._in_thread(change, tree)
        await self.refreshed()
        return result

    def refreshed(self) -> "Deferred[None]":
        """Fires once the state of now has been read."""
        refreshed: Deferred[None] = Deferred()
        if self._stopping:
            refreshed.errback(_unreachable())
            return refreshed
        self._asked += 1
        self._waiting.append((self._asked, refreshed))
        self._wake.set()
        return refreshed

    @property
    def tree(self) -> TopicTree | None:
        """None before coordination was reached."""
        return self._tree

    def claim_producer_ids(self, count: int, at_least: int) -> int:
        """Take producer ids that nobody in the cluster has had; blocks, in a worker thread.

        Raises CoordinationError: there are none to be had now.
        """
        tree = self._tree
        if tree is None:
            raise _unreachable()
        return tree.claim_producer_ids(count, at_least)

    def _tell(self, state: ClusterState | None, asked: int) -> None:
        """In the reactor's thread: something was read."""
        if self._stopping:
            return
        try:
            if state is not None:
                self._on_state(state)
        finally:
            self._settle(asked)

    def _failed(self, asked: int) -> None:
        """In the reactor's thread: nothing could be read. Who asked before is told."""
        self._settle(asked, _unreachable())

    def _settle(self, asked: int, error: CoordinationUnavailableError | None = None) -> None:
        done = [each for number, each in self._waiting if number <= asked]
        self._waiting = [each for each in self._waiting if each[0] > asked]
        for refreshed in done:
            refreshed.callback(None) if error is None else refreshed.errback(error)

    # -- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        problem = ""
        while not self._stopping:
            self._wake.clear()
            asked = self._asked
            try:
                tree = self._connected()
                if tree is None:
                    self._wake.wait(_BEGIN_SECONDS)
                    continue
                self._look(tree, asked)
                if problem:
                    _log.warning("the topics of Kafka's clients are kept up with again")
                problem = ""
            except Exception as error:  # without this thread nothing would be known any more
                if str(error) != problem and not self._stopping:
                    fault = None if isinstance(error, CoordinationError) else error
                    _log.warning(
                        "the topics of Kafka's clients are as they were: %s", error, exc_info=fault
                    )
                problem = str(error) or repr(error)
                self._from_thread(partial(self._failed, asked))
            self._wake.wait(_RETRY_SECONDS if problem else None)

    def _look(self, tree: TopicTree, asked: int) -> None:
        contents = tree.read(None if self._state is None else self._state.contents)
        if self._register(tree, contents):
            contents = tree.read(contents)
        brokers, lives = self._read_brokers()
        values = self._read_values(tree)
        state = ClusterState(contents, brokers, values, lives, tree.throttles())
        is_new = state != self._state
        self._state = state
        self._from_thread(partial(self._tell, state if is_new else None, asked))

    def _connected(self) -> TopicTree | None:
        if self._session is None:
            session = self._connect(self._wake.set)
            if session is None:
                return None
            session.start()
            self._session = session
        if self._tree is None:
            tree = TopicTree(self._session, self._left_out)
            tree.prepare()
            self._tree = tree
        return self._tree

    def _left_out(self, fault: InvalidNodeError) -> None:
        """Say so once: what is broken is read at each look."""
        text = str(fault)
        if text not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(text)
            _log.warning("left out: %s", text)

    def _read_brokers(self) -> tuple[dict[int, BrokerListeners], dict[int, int]]:
        assert self._session is not None
        found, lives = {}, {}
        names = self._session.children(HERMES_BROKERS, watch=True)
        paths = [f"{HERMES_BROKERS}/{name}" for name in names]
        for name, path, node in zip(names, paths, self._session.get_all(paths), strict=True):
            with suppress(InvalidNodeError):
                broker_id = parse_broker_id(path, name)
                if node is not None:
                    found[broker_id] = parse_listeners(path, node.value)
                    lives[broker_id] = as_life(node.owner)
        return found, lives

    def _read_values(self, tree: TopicTree) -> dict[str, bytes]:
        found = {}
        for path in self._followed:
            try:
                found[path] = tree.value(path)
                self._refused.discard(path)
            except CoordinationNotAuthorizedError as error:
                if path not in self._refused:
                    _log.error("this broker goes on with what it has of the cluster: %s", error)
                self._refused.add(path)
        return found

    def _register(self, tree: TopicTree, contents: TreeContents) -> bool:
        changes = self._changes.find(self._local, contents)
        for change in changes:
            if self._stopping:
                break
            with suppress(InvalidNodeError):  # it was told as it was read, and costs this topic
                tree.change(change.topic, change.apply)
                if isinstance(change, Removal):
                    tree.delete(change.topic, change.is_gone_everywhere)
        return bool(changes)


def _unreachable() -> CoordinationUnavailableError:
    return CoordinationUnavailableError("coordination isn't reached yet; try again")
