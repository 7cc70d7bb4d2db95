"""The asynchronous twin of `hermes.Producer`: its batching and its sender, awaited.

There is no second copy of queue, batches and retries: this is the producer with its sender thread,
whose outcomes are handed over to the event loop. What needs the loop is in the two methods that
`ProducerTwin` leaves open; asyncio's producer is here, Twisted's in `hermes.aio.twisted`.
"""

import asyncio
import dataclasses
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from hermes.client.batching import SendHandle
from hermes.client.metrics import ProducerCounters, ProducerMetrics
from hermes.client.producer import Producer as BlockingProducer
from hermes.client.producer_config import ProducerConfig
from hermes.client.sync_producer import SendResult
from hermes.errors import ClientError

__all__ = ["Producer", "ProducerTwin"]

R = TypeVar("R")


class ProducerTwin(ABC):
    """Publishes messages from an event loop of any kind.

    Args:
        config: as for `hermes.Producer`; `producer_type` is "async" here whatever it says.

    Raises:
        PluginError: a plugin that the configuration names is missing or wrong.

    With `zookeeper_connect` all that waits for `async with`, or else for the first message: it
    takes until ZooKeeper answers, in a thread, and raises CoordinationUnavailableError when that
    is not within `zookeeper_connection_timeout`. The next message tries again.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = dataclasses.replace(config, producer_type="async")
        self._producer: BlockingProducer | None = None
        self._making = threading.Lock()
        self._closed = False
        # Calls that find no room wait in their order, and so take one thread in all.
        self._line = self._make_lock()
        self._in_line = 0
        if not self.config.zookeeper_connect:
            self._make()

    @abstractmethod
    def _make_lock(self) -> Any:
        """An asynchronous context manager that lets in one after the other, in their order."""

    @abstractmethod
    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        """Call a function that blocks, in a thread."""

    @abstractmethod
    def _until_done(self, handle: SendHandle) -> Awaitable[Any]:
        """Wait until a handle's outcome is known."""

    async def send(self, topic: str, messages: Any, key: Any = None) -> SendResult:
        """Send one message or a list of messages, and wait for the outcome.

        Args:
            topic: where to.
            messages: one value, or a list of values, all for the same partition.
            key: chooses the partition; None for any.

        Returns:
            Where the messages went.

        Raises:
            HermesError: as `hermes.Producer.send`, and what sending failed with.
        """
        return await self.outcome(await self.enqueue(topic, messages, key))

    async def enqueue(self, topic: str, messages: Any, key: Any = None) -> SendHandle:
        """Accept messages without waiting for their outcome; only for room in the queue.

        Messages stand in the queue in the order of the calls, also when they have to wait for room.

        Returns:
            The outcome, for `outcome`. Its own `result` would block the event loop.
        """
        accepted: SendHandle | Callable[[], SendHandle] | None = None
        if self._producer is not None and not self._in_line:
            accepted = self._producer.offer(topic, messages, key)
            if isinstance(accepted, SendHandle):
                return accepted
        self._in_line += 1
        try:
            async with self._line:
                if accepted is None:
                    accepted = (await self._connected()).offer(topic, messages, key)
                return (
                    accepted
                    if isinstance(accepted, SendHandle)
                    else await self._in_thread(accepted)
                )
        finally:
            self._in_line -= 1

    async def outcome(self, handle: SendHandle) -> SendResult:
        """Wait for what became of messages.

        Args:
            handle: of `enqueue`.

        Raises:
            Exception: what the send failed with.
        """
        if not handle.done:
            await self._until_done(handle)
        return handle.result(0)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """See `hermes.Producer.flush`."""
        if self._producer is not None:
            await self._in_thread(self._producer.flush, timeout_seconds)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """See `hermes.Producer.close`."""
        await self._in_thread(self._close, timeout_seconds)

    def metrics(self) -> ProducerMetrics:
        """See `hermes.Producer.metrics`."""
        producer = self._producer
        return ProducerCounters().snapshot(0) if producer is None else producer.metrics()

    async def __aenter__(self) -> Self:
        async with self._line:
            await self._connected()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _connected(self) -> BlockingProducer:
        """What sends; made first unless it is there. For whoever is first in the line."""
        producer = self._producer
        return await self._in_thread(self._make) if producer is None else producer

    def _make(self) -> BlockingProducer:
        """Make what sends, unless it is there; blocks, and goes on when nobody waits any more."""
        with self._making:
            if self._producer is None:
                if self._closed:
                    raise ClientError("the producer is closed")
                self._producer = BlockingProducer(self.config)
            return self._producer

    def _close(self, timeout_seconds: float | None) -> None:
        with self._making:
            self._closed = True
        if self._producer is not None:
            self._producer.close(timeout_seconds)


class Producer(ProducerTwin):
    """Publishes messages, for asyncio.

    Messages of concurrent tasks leave in common batches. Use it in the event loop's thread; nothing
    of it blocks that.

    Example:
        config = ProducerConfig(broker_list="0:localhost:9092", acks="flushed")
        async with Producer(config) as producer:
            result = await producer.send("clicks", b"payload")
    """

    def _make_lock(self) -> Any:
        return asyncio.Lock()

    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        return asyncio.to_thread(function, *arguments)

    async def _until_done(self, handle: SendHandle) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell(_: SendHandle) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, so nobody waits
                loop.call_soon_threadsafe(done.set)

        handle.add_done_callback(tell)
        await done.wait()
