"""What members of groups need of an event loop, for loops of any kind.

asyncio's is here, Twisted's in `hermes.aio.twisted`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

R = TypeVar("R")


class Signal(Protocol):
    """Wakes one coroutine, once."""

    def send(self) -> None:
        """Wake it; in any thread, also when the loop has been closed."""

    async def wait(self, seconds: float) -> None:
        """Wait for the signal, or until the time is up; in the loop."""


class EventLoop(ABC):
    """An event loop, as connectors use it, in its thread but for `run_from_thread`."""

    @abstractmethod
    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        """Call a function that blocks, in a worker thread."""

    @abstractmethod
    def run_from_thread(
        self, function: Callable[[], Awaitable[Any]], timeout_seconds: float
    ) -> None:
        """Run a coroutine function in the loop and wait for its end; called in another thread."""

    @abstractmethod
    def current_task(self) -> object:
        """An object that identifies the running task."""

    @abstractmethod
    def signal(self) -> Signal:
        pass

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        pass


class AsyncioLoop(EventLoop):
    """The loop of asyncio that runs now."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        return asyncio.to_thread(function, *arguments)

    def run_from_thread(
        self, function: Callable[[], Awaitable[Any]], timeout_seconds: float
    ) -> None:
        """Does nothing when the loop is closed."""

        async def call() -> None:
            await function()

        called = call()
        try:
            future = asyncio.run_coroutine_threadsafe(called, self._loop)
        except RuntimeError:
            called.close()  # the loop is closed, so nobody is there to hear
            return
        future.result(timeout_seconds)

    def current_task(self) -> object:
        return asyncio.current_task()

    def signal(self) -> Signal:
        return _AsyncioSignal(self._loop)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _AsyncioSignal:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sent = asyncio.Event()

    def send(self) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile, so nobody waits
            self._loop.call_soon_threadsafe(self._sent.set)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._sent.wait(), seconds)
