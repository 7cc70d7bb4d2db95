"""What stands for `threading`, clocks and chance in the product's modules while a schedule runs.

Its code runs in a simulated process's threads (`machines.py`): `simulated_threads` puts `Threading`
where its modules say `threading`.
"""

import random as real_random
import sys
import threading as real_threading
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from machines import KilledError, SimulatedThread, current_thread
from world import BrokenError, World

__all__ = ["SimulatedEvent", "SimulatedLock", "Threading", "simulated_threads"]


class SimulatedLock:
    """A lock of the process that made it."""

    is_reentrant = False

    def __init__(self) -> None:
        self._process = Threading.world.process
        self._owner: Any = None
        self._depth = 0
        self._waiting: deque[SimulatedThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        process = self._process or Threading.world.process
        if process.is_dead:
            raise KilledError
        thread = current_thread()
        me = thread or process
        if thread is not None and not thread.held and process.machine.chance.random() < 0.05:
            thread.sleep(process.machine.wake_us())  # others come before it
        if self._owner is None:
            pass
        elif self.is_reentrant and self._owner is me:
            self._depth += 1
            return True
        elif not blocking:
            return False
        elif thread is None:
            raise BrokenError(f"{process}: the reactor waits for a lock that {self._owner} holds")
        else:
            self._wait(thread)
        self._owner, self._depth = me, 1
        if thread is not None:
            thread.held += 1
        return True

    def _wait(self, thread: SimulatedThread) -> None:
        while self._owner is not None:
            self._waiting.append(thread)
            thread.pause()

    def release(self) -> None:
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if self._depth:
            return
        if isinstance(self._owner, SimulatedThread):
            self._owner.held -= 1
        self._owner = None
        if self._waiting:
            thread = self._waiting.popleft()
            thread.resume_later(thread.process.machine.wake_us())

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedRLock(SimulatedLock):
    is_reentrant = True


class SimulatedEvent:
    def __init__(self) -> None:
        self._is_set = False
        self._waiting: dict[SimulatedThread, None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, {}
        for thread in waiting:
            thread.resume_later(thread.process.machine.wake_us())

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        thread, process = current_thread(), Threading.world.process
        if thread is None:
            raise BrokenError(f"{process}: the reactor waits for an event")
        if process.is_dead:
            raise KilledError
        self._waiting[thread] = None
        timer = None
        if timeout is not None:
            us = max(1, int(timeout * 1e6 / process.clock.rate))
            timer = process.world.at(us, process.run_thread, self._timed_out, thread)
        thread.pause()
        if timer is not None:
            timer.cancel()
        return self._is_set

    def _timed_out(self, thread: SimulatedThread) -> None:
        if thread in self._waiting:
            del self._waiting[thread]
            thread.resume()


class ProductThread:
    """`threading.Thread`, as far as the product asks for it."""

    def __init__(
        self,
        target: Callable[..., Any],
        name: str = "thread",
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self._target = partial(target, *args)
        self._thread: SimulatedThread | None = None

    def start(self) -> None:
        process = Threading.world.process
        self._thread = process.thread(self.name, self._target)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        if self._thread is None or self._thread.is_over:
            return
        if current_thread() is None and self._thread.process.is_stopping:
            return  # which is over soon
        over = SimulatedEvent()
        self._thread.on_over.append(over.set)
        over.wait(timeout)


class Threading:
    """Stands for the module `threading` in what a schedule runs."""

    world: World

    Lock = SimulatedLock
    RLock = SimulatedRLock
    Event = SimulatedEvent
    Thread = ProductThread

    @staticmethod
    def get_ident() -> int:
        thread = current_thread()
        return id(thread) if thread is not None else id(Threading.world.process)


#: Where threads, clocks and chance are the simulator's while a schedule runs.
_ROOMS = (
    *("hermes.storage.", "hermes.partition.", "hermes.cluster.", "hermes.groups."),
    *("hermes.replication.", "hermes.broker.", "hermes.server.", "hermes.kafka."),
    *("hermes.coordination.registration", "hermes.coordination.replicas"),
    "hermes.coordination.cluster_id",
)


def _replacements(world: World) -> dict[int, Any]:
    """What stands for what, by the identity of what it replaces."""

    def made_uuid() -> UUID:
        return UUID(int=world.random.getrandbits(128), version=4)

    def process() -> Any:
        return world.process

    clock = SimpleNamespace(
        monotonic=lambda: process().clock.seconds(),  # noqa: PLW0108 - each has its own
        time=lambda: process().clock.now_ms() / 1000,
        time_ns=lambda: process().clock.now_ms() * 1_000_000,
    )
    return {
        id(real_threading): Threading,
        id(real_threading.Lock): SimulatedLock,
        id(real_threading.RLock): SimulatedRLock,
        id(real_threading.Event): SimulatedEvent,
        id(real_threading.Thread): ProductThread,
        id(real_threading.get_ident): Threading.get_ident,
        id(real_time): clock,
        id(real_uuid): SimpleNamespace(uuid4=made_uuid, UUID=UUID),
        id(real_uuid.uuid4): made_uuid,
        id(real_random): world.child("product"),
    }


@contextmanager
def simulated_threads(world: World) -> Iterator[None]:
    """Have the product's modules use this world's threads, clocks and chance.

    Import them before: what is imported meanwhile has the real ones.
    """
    stands_for = _replacements(world)
    Threading.world = world
    changed: list[tuple[Any, str, Any]] = []
    for module_name in sorted(sys.modules):
        if not module_name.startswith(_ROOMS):
            continue
        module = sys.modules[module_name]
        for name, value in list(vars(module).items()):
            if id(value) in stands_for:
                changed.append((module, name, value))
                setattr(module, name, stands_for[id(value)])
    try:
        yield
    finally:
        world.end()
        for module, name, value in changed:
            setattr(module, name, value)
