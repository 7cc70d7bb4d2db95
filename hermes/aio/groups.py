"""Consumers in groups for event loops: the members of `hermes.client.groups`, awaited.

There is no second membership: joining, rebalancing and fetching ahead go on in the threads of the
blocking connector, and what they have fetched is taken by the loop without waiting. What needs the
loop is in the methods that `ConnectorTwin` leaves open; asyncio's connector is here, Twisted's in
`hermes.aio.twisted`.
"""

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.connector import Connector as BlockingConnector
from hermes.client.groups.streams import MessageStream as BlockingStream
from hermes.client.groups.streams import StreamMessage
from hermes.coordination.filters import TopicFilter
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ClientError

__all__ = ["AsyncRebalanceListener", "Connector", "ConnectorTwin", "Consumer", "MessageStream"]

R = TypeVar("R")

# How soon a stream looks again whether its session lives; nothing tells it.
_LEASE_CHECK_SECONDS: Final = 0.1
# After so many messages that were there at once, others of the loop have a turn.
_MESSAGES_PER_TURN: Final = 64


class AsyncRebalanceListener(Protocol):
    """Hears of partitions that come and go, in the event loop. Methods may be coroutines.

    A release waits for it, for as long as a session's timeout: don't take long.

    Example:
        class Caches:
            async def before_release(self, partitions):
                await flush_caches_of(partitions)

            def after_take(self, partitions):
                pass
    """

    def before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> Any:
        """See `hermes.client.groups.RebalanceListener`."""

    def after_take(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> Any:
        """See `hermes.client.groups.RebalanceListener`."""


class MessageStream:
    """An asynchronous iterator over messages; see `hermes.client.groups.MessageStream`.

    One task at a time iterates. Asking for the next message says that the last one is finished
    with. It ends when the connector is shut down.

    Example:
        async for message, topic, partition, offset, *_ in stream:
            await index(message)

    Args:
        stream: what it takes messages from.
        loop: the connector's ways with its loop.
        timeout_seconds: how long to wait for a message; None for ever.
    """

    def __init__(
        self, stream: BlockingStream, loop: "ConnectorTwin", timeout_seconds: float | None
    ) -> None:
        self._stream = stream
        self._loop = loop
        self._timeout_seconds = timeout_seconds
        self._waiting: Callable[[], None] | None = None
        self._at_once = 0
        stream.observe(self._changed)

    @property
    def name(self) -> str:
        """For messages to people."""
        return self._stream.name

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamMessage:
        """Wait for the next message.

        Raises:
            ConsumerTimeoutError, EncodingError, HermesError: as the blocking stream's `next`.
        """
        self._at_once += 1
        if self._at_once >= _MESSAGES_PER_TURN:
            self._at_once = 0
            await self._loop._sleep(0)
        deadline: float | None = None
        while (found := self._poll()) is None:
            self._at_once = 0
            now = time.monotonic()
            if deadline is None and self._timeout_seconds is not None:
                deadline = now + self._timeout_seconds
            if deadline is not None and now >= deadline:
                raise self._stream.timed_out()
            await self._wait_for_news(min(_LEASE_CHECK_SECONDS, (deadline or now + 1) - now))
        return found

    def partitions(self) -> list[tuple[str, BrokerPartition]]:
        """What the stream owns now."""
        return self._stream.partitions()

    def pause(self, *partitions: tuple[str, BrokerPartition]) -> None:
        """See the blocking stream."""
        self._stream.pause(*partitions)

    def resume(self, *partitions: tuple[str, BrokerPartition]) -> None:
        """See the blocking stream."""
        self._stream.resume(*partitions)

    def seek(self, topic: str, partition: BrokerPartition, offset: int) -> None:
        """See the blocking stream."""
        self._stream.seek(topic, partition, offset)

    def _poll(self) -> StreamMessage | None:
        try:
            return self._stream.poll(self._loop._reader())
        except StopIteration:
            raise StopAsyncIteration from None

    async def _wait_for_news(self, seconds: float) -> None:
        tell, news = self._loop._make_news()
        self._waiting = tell
        try:
            # What came between the look and now told nobody.
            if not self._stream.has_news():
                await self._loop._wait(news, seconds)
        finally:
            self._waiting = None

    def _changed(self) -> None:
        """In any thread: wakes the reader, if it waits."""
        waiting = self._waiting
        if waiting is not None:
            waiting()


class ConnectorTwin(ABC):
    """One member of a group, in an event loop of any kind.

    Args:
        config: as for `hermes.client.groups.Consumer`.
        listener: hears of rebalances.
    """

    def __init__(
        self, config: ConsumerConfig, listener: AsyncRebalanceListener | None = None
    ) -> None:
        self.config = config
        self._listener = listener
        self._connector: BlockingConnector | None = None
        self._closed = False

    # -- what depends on the loop ---------------------------------------------------------------

    @abstractmethod
    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        """Call a function that blocks, in a thread."""

    @abstractmethod
    def _from_thread(self, function: Callable[[], Awaitable[Any]], timeout_seconds: float) -> None:
        """Call a coroutine function in the loop, from another thread, and wait for its end."""

    @abstractmethod
    def _reader(self) -> object:
        """What tells the task that runs now from others."""

    @abstractmethod
    def _make_news(self) -> tuple[Callable[[], None], Any]:
        """Make what tells of news, in any thread, and what `_wait` waits for."""

    @abstractmethod
    async def _wait(self, news: Any, seconds: float) -> None:
        """Wait for news, for a time at most."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Let others have a turn."""

    # -- as the blocking connector --------------------------------------------------------------

    async def start(self) -> None:
        """Connect to ZooKeeper; `async with` does it.

        Raises:
            CoordinationUnavailableError: ZooKeeper can't be reached.
            PluginError: the decoder is missing or wrong.
        """
        if self._closed or self._connector is not None:
            raise ClientError("a connector is started once; use another one")
        try:
            await self._in_thread(self._open)
        except BaseException:
            self._closed = True  # what opens in spite of a cancellation closes at once
            raise

    @property
    def consumer_id(self) -> str:
        """The member's id, once it is started."""
        return self._started().consumer_id

    async def create_message_streams(
        self, streams: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]:
        """Join the group for some topics; see the blocking connector."""
        made = await self._in_thread(self._started().create_message_streams, streams)
        return {topic: [self._twin(each) for each in some] for topic, some in made.items()}

    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[MessageStream]:
        """Join the group for all topics that a list allows; see the blocking connector."""
        create = self._started().create_message_streams_by_filter
        return [self._twin(each) for each in await self._in_thread(create, topic_filter, count)]

    async def commit_offsets(self) -> None:
        """Store how far the application has come.

        Messages count that it has finished with; and the one in the hands of the task that calls,
        since that task says so.

        Raises:
            CoordinationUnavailableError: ZooKeeper does not answer; some may be stored.
        """
        connector = self._started()
        connector.finish(self._reader())
        await self._in_thread(connector.commit_finished)

    async def shutdown(self) -> None:
        """Commit (with auto_commit), leave the group, end the streams. Idempotent."""
        self._closed = True
        if self._connector is not None:
            await self._in_thread(self._connector.shutdown)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    # -- inside ---------------------------------------------------------------------------------

    def _open(self) -> None:
        listener = None if self._listener is None else _InLoop(self, self._listener)
        connector = BlockingConnector(self.config, listener)
        if self._closed:
            connector.shutdown()
        else:
            self._connector = connector

    def _started(self) -> BlockingConnector:
        if self._connector is None:
            raise ClientError("the connector is not started: use it in `async with`")
        return self._connector

    def _twin(self, stream: BlockingStream) -> MessageStream:
        timed = self.config.consumer_timeout is not None
        return MessageStream(
            stream, self, self.config.seconds("consumer_timeout") if timed else None
        )


class _InLoop:
    """A listener of the blocking connector's, which has the loop call that of the application."""

    def __init__(self, connector: ConnectorTwin, listener: AsyncRebalanceListener) -> None:
        self._connector = connector
        self._listener = listener
        self._timeout_seconds = connector.config.seconds("zookeeper_session_timeout")

    def before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        self._call(self._listener.before_release, partitions)

    def after_take(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        self._call(self._listener.after_take, partitions)

    def _call(self, method: Callable[[Any], Any], partitions: Any) -> None:
        async def call() -> None:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result

        self._connector._from_thread(call, self._timeout_seconds)


class Connector(ConnectorTwin):
    """One member of a group, for asyncio. Use it in one event loop.

    Example:
        config = ConsumerConfig(group="search", zookeeper_connect="localhost:2181")
        async with Consumer.create(config) as connector:
            (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
            async for message, topic, partition, offset, *_ in stream:
                await index(message)
    """

    async def start(self) -> None:
        """See `ConnectorTwin.start`."""
        self._loop = asyncio.get_running_loop()
        await super().start()

    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        return asyncio.to_thread(function, *arguments)

    def _from_thread(self, function: Callable[[], Awaitable[Any]], timeout_seconds: float) -> None:
        async def call() -> None:
            await function()

        called = call()
        try:
            future = asyncio.run_coroutine_threadsafe(called, self._loop)
        except RuntimeError:
            called.close()  # the loop is closed, so nobody is there to hear
            return
        future.result(timeout_seconds)

    def _reader(self) -> object:
        return asyncio.current_task()

    def _make_news(self) -> tuple[Callable[[], None], asyncio.Event]:
        loop, news = self._loop, asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, so nobody waits
                loop.call_soon_threadsafe(news.set)

        return tell, news

    async def _wait(self, news: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), seconds)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Consumer:
    """Where consumers in groups come from, for asyncio; see `Connector`.

    Example:
        async with Consumer.create(config) as connector:
            (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
    """

    @staticmethod
    def create(config: ConsumerConfig, listener: AsyncRebalanceListener | None = None) -> Connector:
        """Make a member, which connects when it is entered with `async with`.

        Args:
            config: what the consumer does.
            listener: hears of rebalances.
        """
        return Connector(config, listener)
