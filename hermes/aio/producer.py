"""The asynchronous twin of `hermes.Producer`: its batching and its sender, awaited.

There is no second copy of queue, batches and retries: this is the producer with its sender thread,
which hands the outcomes over to the event loop, once per batch. What needs the loop is in the
methods that `BaseAsyncProducer` leaves open; asyncio's is here, Twisted's in `hermes.aio.twisted`.
"""

import asyncio
import dataclasses
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Never, Self, TypeVar

from hermes.client.batching import Batch, Outcome, SendHandle, WaitingSend
from hermes.client.metrics import ProducerCounters, ProducerMetrics
from hermes.client.payloads import GivenHeaders, with_options
from hermes.client.producer import Producer as BlockingProducer
from hermes.client.producer_config import ProducerConfig
from hermes.client.sync_producer import SendResult
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ClientError, HermesError
from hermes.keywords import explains_keywords

R = TypeVar("R")


class BaseAsyncProducer(ABC):
    """Publishes messages from an event loop of any kind; `producer_type` is always "async" here.

    With `zookeeper_connect` it connects at `async with`, or else with the first message, in a
    thread: that raises CoordinationUnavailableError if ZooKeeper does not answer within
    `zookeeper_connection_timeout`, and the next message tries again.

    Raises:
        PluginError: a plugin that the configuration names is missing or wrong.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = dataclasses.replace(config, producer_type="async")
        self._producer: BlockingProducer | None = None
        self._making = threading.Lock()
        self._closed = False
        # Calls that find no room wait in their order, and so take one thread in all.
        self._line = self._make_lock()
        self._in_line = 0
        # Who waits for the outcomes of a batch; touched in the loop's thread only.
        self._awaited: dict[Batch, _BatchWaiters] = {}
        if not self.config.zookeeper_connect:
            self._make()

    @abstractmethod
    def _make_lock(self) -> Any:
        """An asynchronous context manager that admits one after the other, in their order."""

    @abstractmethod
    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        """Call a function that blocks, in a thread."""

    @abstractmethod
    def _loop_tools(self) -> tuple[Callable[[], Any], Callable[..., object]]:
        """What makes a future, and what calls a function in this loop's thread from any other."""

    @abstractmethod
    def _resolve(self, futures: Sequence[Any], outcomes: Iterable[Outcome]) -> None:
        """End the waits for futures but those that were cancelled, each with its outcome."""

    async def send(
        self,
        topic: str,
        messages: Any,
        key: Any = None,
        *,
        headers: GivenHeaders | None = None,
        partition: int | BrokerPartition | None = None,
        **unknown: Never,
    ) -> SendResult:
        """Send one message or a list of messages, and return where they went.

        Arguments and errors as of `hermes.Producer.send`; also raises what sending failed with.
        """
        if headers is not None or partition is not None or unknown:
            messages, key = with_options(messages, key, headers, partition, unknown)
        producer = self._producer
        accepted: SendHandle | WaitingSend | None = None
        if producer is not None and not self._in_line:
            accepted = producer.offer(topic, messages, key)
            if isinstance(accepted, SendHandle):
                return await self._outcome(accepted)
        return await self._outcome(await self._wait_in_line(accepted, topic, messages, key))

    async def enqueue(
        self,
        topic: str,
        messages: Any,
        key: Any = None,
        *,
        headers: GivenHeaders | None = None,
        partition: int | BrokerPartition | None = None,
        **unknown: Never,
    ) -> SendHandle:
        """Accept messages without waiting for their outcome; only for room in the queue.

        Messages are queued in the order of the calls, also when they have to wait for room. Wait
        with `outcome`: the `result` of what it returns would block the event loop.
        """
        if headers is not None or partition is not None or unknown:
            messages, key = with_options(messages, key, headers, partition, unknown)
        accepted: SendHandle | WaitingSend | None = None
        if self._producer is not None and not self._in_line:
            accepted = self._producer.offer(topic, messages, key)
            if isinstance(accepted, SendHandle):
                return accepted
        return await self._wait_in_line(accepted, topic, messages, key)

    async def outcome(self, handle: SendHandle) -> SendResult:
        """Wait for the outcome that `enqueue` returned; raises what the send failed with."""
        return await self._outcome(handle)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        if self._producer is not None:
            await self._in_thread(self._producer.flush, timeout_seconds)

    async def close(self, timeout_seconds: float | None = None) -> None:
        await self._in_thread(self._close, timeout_seconds)

    def metrics(self) -> ProducerMetrics:
        producer = self._producer
        return ProducerCounters().snapshot(0) if producer is None else producer.metrics()

    async def __aenter__(self) -> Self:
        try:
            async with self._line:
                await self._connected()
        except HermesError:
            raise
        except BaseException:  # cancelled: the thread goes on, and nobody would close what it makes
            threading.Thread(target=self._close, args=(None,), name="hermes-leaving").start()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _connected(self) -> BlockingProducer:
        """The blocking producer; made first if necessary. For whoever is first in the line."""
        producer = self._producer
        return await self._in_thread(self._make) if producer is None else producer

    def _make(self) -> BlockingProducer:
        """Make the blocking producer if necessary; blocks, also when nobody waits any longer."""
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

    async def _wait_in_line(
        self,
        accepted: SendHandle | WaitingSend | None,
        topic: str,
        messages: Any,
        key: Any,
    ) -> SendHandle:
        """Accept messages after those before them. `accepted`: what `offer` returned, if asked."""
        self._in_line += 1
        try:
            async with self._line:
                if accepted is None:
                    accepted = (await self._connected()).offer(topic, messages, key)
                if isinstance(accepted, SendHandle):
                    return accepted
                try:
                    return await self._in_thread(accepted)
                except BaseException:
                    accepted.give_up()  # if this was cancelled, the thread is free for others
                    raise
        finally:
            self._in_line -= 1

    def _outcome(self, handle: SendHandle) -> Awaitable[SendResult]:
        batch, index = handle
        awaited = self._awaited.get(batch)
        if awaited is None:
            make_future, call_in_loop = self._loop_tools()
            awaited = self._awaited[batch] = _BatchWaiters(make_future, [], [])
            handle.add_done_callback(partial(self._announce, call_in_loop))
        else:
            batch.observe(index)
        make_future, indices, futures = awaited
        future: Awaitable[SendResult] = make_future()
        indices.append(index)
        futures.append(future)
        return future

    def _announce(self, call_in_loop: Callable[..., object], handle: SendHandle) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile, so nobody waits
            call_in_loop(self._wake, handle[0])

    def _wake(self, batch: Batch) -> None:
        _, indices, futures = self._awaited.pop(batch)
        self._resolve(futures, batch.outcomes(indices))


class _BatchWaiters(NamedTuple):
    """Who waits for the outcomes of a batch: items and futures, in the same order."""

    make_future: Callable[[], Any]
    indices: list[int]
    futures: list[Any]


@explains_keywords
class Producer(BaseAsyncProducer):
    """Publishes messages, for asyncio.

    Messages of concurrent tasks share batches. Use it in the event loop's thread; it never blocks.

    Example:
        config = ProducerConfig(broker_list="localhost:9092", acks="flushed")
        async with Producer(config) as producer:
            result = await producer.send("clicks", b"payload")
    """

    def _make_lock(self) -> Any:
        return asyncio.Lock()

    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        return asyncio.to_thread(function, *arguments)

    def _loop_tools(self) -> tuple[Callable[[], Any], Callable[..., object]]:
        loop = asyncio.get_running_loop()
        return loop.create_future, loop.call_soon_threadsafe

    def _resolve(self, futures: Sequence[Any], outcomes: Iterable[Outcome]) -> None:
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, SendResult):
                future.set_result(outcome)
            elif isinstance(outcome, StopIteration):  # which no future takes
                future.set_exception(ClientError(f"sending failed: {outcome!r}"))
            else:
                future.set_exception(outcome)
