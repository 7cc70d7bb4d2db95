"""Coordination as processes see it through a network: the embedded server's tree, and what is lost.

A call takes time; it may be lost on its way, or its answer may: nobody knows then whether it was
done. A session that isn't heard of for its timeout expires, with its ephemeral nodes. Reads may lag
behind what others have written, until `sync`; watches fire late.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from machines import Machine, Process
from memory_coordination import MemoryCoordination, MemorySession
from network import Network
from world import World

from hermes.coordination.embedded.tree import parent_path
from hermes.coordination.nodes import Node, NodeTransaction
from hermes.coordination.sessions import Lease
from hermes.errors import CoordinationError, CoordinationUnavailableError

__all__ = ["Coordination", "SimulatedSession"]

#: How often sessions are looked at, and how long a watch may be late at the most, in µs.
_LOOK_US, _WATCH_US = 500_000, 20_000


class Coordination:
    """The server, on a machine of its own that never fails.

    Attributes:
        lost: how often a call is lost on its way, or its answer on the way back.
        lagging: how often a read shows what was there a while ago.
        machine: where it is; cut it off by `Network.cut`.
    """

    def __init__(
        self, world: World, network: Network, *, lost: float = 0.0, lagging: float = 0.0
    ) -> None:
        self.world = world
        self.network = network
        self.lost, self.lagging = lost, lagging
        self.machine = Machine(world, "coordination")
        self.machine.start()
        self.server = MemoryCoordination()
        self.chance = world.child("coordination")
        self.sessions: list[SimulatedSession] = []
        self.history = _History(self.server)
        world.at(_LOOK_US, self._look)

    def session(
        self,
        process: Process,
        on_change: Callable[[], None] = lambda: None,
        timeout_seconds: float = 6.0,
    ) -> "SimulatedSession":
        """An unstarted session of a process; `on_change` is called as by a thread of its own."""
        return SimulatedSession(self, process, on_change, timeout_seconds)

    def nodes(self, path: str) -> dict[str, bytes]:
        """What stands at a path and below it, for those who look from outside."""
        below = path.rstrip("/") + "/"
        return {
            each: node.data or b""
            for each, node in sorted(self.server.tree.nodes.items())
            if each == path or each.startswith(below)
        }

    def reaches(self, process: Process) -> bool:
        """Whether what a process sends arrives, and what it is answered."""
        network, here, there = self.network, process.machine, self.machine
        return not (network.is_cut(here, there) or network.is_cut(there, here))

    def expire(self, session: "SimulatedSession") -> None:
        """End a session as if it had been silent for too long."""
        session.expire()

    def _look(self) -> None:
        self.world.at(_LOOK_US, self._look)
        for session in list(self.sessions):
            session.look()


class _History:
    """What nodes have been, so that reads can lag: by path, with the number of the change."""

    def __init__(self, server: MemoryCoordination) -> None:
        self.number = 0
        self._nodes = server.tree.nodes
        self._past: dict[str, list[tuple[int, Node | None, list[str]]]] = {}
        server.on_events = self._note

    def _note(self, paths: Sequence[str]) -> None:
        self.number += 1
        for path in dict.fromkeys([*paths, *(parent_path(each) for each in paths)]):
            self._past.setdefault(path, []).append((self.number, *self.now(path)))

    def now(self, path: str) -> tuple[Node | None, list[str]]:
        node = self._nodes.get(path)
        if node is None:
            return None, []
        return Node(node.data or b"", node.version, node.owner), sorted(node.children)

    def has_changed(self, number: int, path: str) -> bool:
        """Whether a change after that number touched a node, even if it is as it was."""
        past = self._past.get(path)
        return past is not None and past[-1][0] > number

    def at(self, number: int, path: str) -> tuple[Node | None, list[str]]:
        past = self._past.get(path)
        if past is None:
            return self.now(path)
        for made, node, children in reversed(past):
            if made <= number:
                return node, children
        return None, []


class SimulatedSession:
    """A `TreeSession` of a process, and what else `sessions.Session` has.

    Its calls are for threads: in a reactor they break the run.
    """

    def __init__(
        self,
        server: Coordination,
        process: Process,
        on_change: Callable[[], None],
        timeout_seconds: float,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.process = process
        self._server = server
        self._on_change = on_change
        self._inner: MemorySession | None = None
        self._is_connected = False
        self._is_stopped = False
        self._heard_us = 0
        self._seen = 0
        self._lease = Lease(0)

    # -- its life -------------------------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        return self._inner.session_id if self._inner is not None and self._is_connected else None

    def start(self) -> None:
        self._take_time("a session")
        if not self._server.reaches(self.process):
            self._wait_in_vain()
        self._begin()
        self._server.sessions.append(self)

    def _begin(self) -> None:
        self._inner = self._server.server.session(self._changed)
        self._is_connected = True
        self._heard_us = self._server.world.now_us
        assert self.session_id is not None
        self._lease = Lease(self.session_id, self.process.clock.seconds)
        self._extend_lease()
        self._server.world.note(self.process, f"session {self.session_id}")

    def lease(self, session_id: int) -> Lease:
        """For how long it lives for certain; of another session than it has: not at all."""
        return self._lease if session_id == self._lease.session_id else Lease(session_id)

    def _extend_lease(self) -> None:
        self._lease.until = self.process.clock.seconds() + self.timeout_seconds * 2 / 3

    def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        self._is_connected = False
        if self in self._server.sessions and self._server.reaches(self.process):
            self._end()  # else it expires

    def expire(self) -> None:
        inner = self._inner
        if inner is not None and inner.session_id is not None:
            self._server.world.note(self.process, f"session {inner.session_id} expires")
            self._end()
            if not self._is_stopped and not self.process.is_dead:
                self._server.sessions.append(self)

    def _end(self) -> None:
        self._lease.until = -inf
        if self in self._server.sessions:
            self._server.sessions.remove(self)
        if self._inner is not None:
            self._server.server.end(self._inner)

    def look(self) -> None:
        """What the server and the client find out about each other by time."""
        server, inner = self._server, self._inner
        now_us, process = server.world.now_us, self.process
        is_there = not (process.is_dead or process.is_paused or self._is_stopped)
        if is_there and server.reaches(process):
            self._heard_us = now_us
            if inner is None or inner.session_id is None:
                self._begin()
                self._changed()
            elif not self._is_connected:
                self._is_connected = True
                self._changed()
            self._extend_lease()
            return
        silent = (now_us - self._heard_us) / 1e6
        if is_there and self._is_connected and silent > self.timeout_seconds * 2 / 3:
            self._is_connected = False
            self._changed()
        if silent > self.timeout_seconds and inner is not None:
            self.expire()

    def _changed(self) -> None:
        if not self.process.is_dead and not self._is_stopped:
            late_us = 1 + int(_WATCH_US * self._server.chance.random() ** 4)
            self.process.at(late_us, self._on_change)

    # -- calls ----------------------------------------------------------------------------------

    def _take_time(self, what: str) -> None:
        self.process.wait(self._server.network.delay_us(), what)

    def _wait_in_vain(self) -> None:
        self.process.wait(int(self.timeout_seconds * 1e6 / 2), "coordination")
        raise CoordinationUnavailableError("no answer came")

    def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Have a call done by the server; perhaps nobody hears of it, there or here."""
        server = self._server
        self._take_time("coordination")
        if self._is_stopped:
            raise CoordinationUnavailableError("the session was stopped")
        if not server.reaches(self.process):
            self._wait_in_vain()
        if server.chance.random() < server.lost and server.world.fault("a call is lost"):
            self._wait_in_vain()
        if self.session_id is None:
            raise CoordinationUnavailableError("the session has expired")
        try:
            result: Any = call(*arguments)
        except CoordinationError as error:
            result = error
        self._take_time("coordination")
        if server.chance.random() < server.lost and server.world.fault("an answer is lost"):
            self._wait_in_vain()
        if not server.reaches(self.process):
            self._wait_in_vain()
        if isinstance(result, CoordinationError):
            raise result
        return result

    def _changing(self, name: str, *arguments: Any) -> Any:
        def change() -> Any:
            try:
                return getattr(self._inner, name)(*arguments)
            finally:
                self._seen = self._server.history.number

        return self._call(change)

    def _read(self, path: str, watch: bool) -> tuple[Node | None, list[str]]:
        history = self._server.history
        if self._server.chance.random() >= self._server.lagging:
            self._seen = history.number
        found = history.at(self._seen, path)
        if watch and history.has_changed(self._seen, path):
            self._changed()  # behind what this session sees
        return found

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        def read() -> Node | None:
            assert self._inner is not None
            self._inner.get(path, watch=watch)
            return self._read(path, watch)[0]

        found: Node | None = self._call(read)
        return found

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        if not paths:
            return []
        found: list[Node | None] = self._call(
            lambda: [self._read(path, False)[0] for path in paths]
        )
        return found

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        def read() -> list[str]:
            assert self._inner is not None
            self._inner.children(path, watch=watch)
            return self._read(path, watch)[1]

        found: list[str] = self._call(read)
        return found

    def sync(self, path: str) -> None:
        self._changing("sync", path)

    def create(self, path: str, value: bytes) -> bool:
        return bool(self._changing("create", path, value))

    def create_ephemeral(self, path: str, value: bytes) -> Node | None:
        found: Node | None = self._changing("create_ephemeral", path, value)
        return found

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        return int(self._changing("set", path, value, version))

    def put(self, path: str, value: bytes) -> None:
        self._changing("put", path, value)

    def delete(self, path: str, version: int) -> bool:
        return bool(self._changing("delete", path, version))

    def delete_own(self, path: str) -> bool:
        found = self.get(path)
        if found is None or found.owner != self.session_id:
            return False
        return self.delete(path, found.version)

    def ensure_path(self, path: str) -> None:
        self._changing("ensure_path", path)

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        found: list[Any] = self._changing("transact", fill)
        return found
