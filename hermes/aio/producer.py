"""The asynchronous twin of `hermes.Producer`: its batching and its sender, awaited.

There is no second copy of queue, batches and retries: this is the producer with its sender thread,
whose outcomes are handed over to the event loop.
"""

import asyncio
import dataclasses
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from hermes.client.batching import SendHandle
from hermes.client.metrics import ProducerMetrics
from hermes.client.producer import Producer as BlockingProducer
from hermes.client.producer_config import ProducerConfig
from hermes.client.producing import SendResult

__all__ = ["Producer"]


class Producer:
    """Publishes messages, for asyncio.

        config = ProducerConfig(broker_list="0:localhost:9092", acks="flushed")
        async with Producer(config) as producer:
            result = await producer.send("clicks", b"payload")

    Messages of concurrent tasks leave in common batches. Use it in the event loop's thread.

    Args:
        config: as for `hermes.Producer`; `producer_type` is "async" here whatever it says.

    Raises:
        PluginError: a plugin that the configuration names is missing or wrong.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = dataclasses.replace(config, producer_type="async")
        self._producer = BlockingProducer(self.config)

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
        return await await_handle(await self.enqueue(topic, messages, key))

    async def enqueue(self, topic: str, messages: Any, key: Any = None) -> SendHandle:
        """Accept messages without waiting for their outcome; only for room in the queue.

        Returns:
            The outcome, for `await_handle`. Its `result` would block the event loop.
        """
        if self._producer.has_room:
            return self._producer.send(topic, messages, key)
        return await asyncio.to_thread(self._producer.send, topic, messages, key)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """See `hermes.Producer.flush`."""
        await asyncio.to_thread(self._producer.flush, timeout_seconds)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """See `hermes.Producer.close`."""
        await asyncio.to_thread(self._producer.close, timeout_seconds)

    def metrics(self) -> ProducerMetrics:
        """See `hermes.Producer.metrics`."""
        return self._producer.metrics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def await_handle(handle: SendHandle) -> SendResult:
    """Wait for a handle's outcome in an event loop.

    Raises:
        Exception: what the send failed with.
    """
    if not handle.done:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell(_: SendHandle) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, so nobody waits
                loop.call_soon_threadsafe(done.set)

        handle.add_done_callback(tell)
        await done.wait()
    return handle.result(0)
