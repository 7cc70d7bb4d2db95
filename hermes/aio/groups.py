"""Consumers in groups for event loops: the members of `hermes.client.groups`, awaited.

Joining, rebalancing and fetching ahead are done by the threads of the blocking connector; the loop
takes what they have fetched without waiting.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

from hermes.aio.event_loops import AsyncioLoop, EventLoop, Signal
from hermes.aio.openings import Opening
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.connector import Connector as BlockingConnector
from hermes.client.groups.streams import MessageStream as BlockingStream
from hermes.client.groups.streams import StreamMessage
from hermes.client.metrics import GroupMetrics
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.topic_filters import TopicFilter
from hermes.errors import ClientError
from hermes.keywords import explains_keywords

# How often a waiting stream checks whether its session lives; nothing notifies it.
_LEASE_CHECK_SECONDS: Final = 0.1
# After this many messages without waiting, other tasks of the loop run.
_MESSAGES_AT_ONCE: Final = 64


class AsyncRebalanceListener(Protocol):
    """Is notified of rebalances, in the event loop. Methods may be coroutines.

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

    One task at a time iterates. Asking for the next message means that the application has finished
    with the last one. It ends when the connector is shut down.

    Example:
        async for message, topic, partition, offset, *_ in stream:
            await index(message)
    """

    def __init__(
        self, stream: BlockingStream, loop: EventLoop, timeout_seconds: float | None
    ) -> None:
        self._stream = stream
        self._loop = loop
        self._timeout_seconds = timeout_seconds
        self._waiting: Signal | None = None
        self._at_once = 0
        stream.observe(self._changed)

    @property
    def name(self) -> str:
        """Its name in errors."""
        return self._stream.name

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamMessage:
        """Wait for the next message; raises as the blocking stream's `next` does."""
        self._at_once += 1
        if self._at_once >= _MESSAGES_AT_ONCE:
            self._at_once = 0
            await self._loop.sleep(0)
        found = self._poll()
        return found if found is not None else await self._wait()

    def partitions(self) -> list[tuple[str, BrokerPartition]]:
        """The partitions that the stream owns now."""
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
            return self._stream.poll(self._loop.current_task())
        except StopIteration:
            raise StopAsyncIteration from None

    async def _wait(self) -> StreamMessage:
        timeout = self._timeout_seconds
        deadline = None if timeout is None else time.monotonic() + timeout
        self._at_once = 0
        while True:
            left = _LEASE_CHECK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise self._stream.timed_out()
            await self._wait_for_news(min(_LEASE_CHECK_SECONDS, left))
            found = self._poll()
            if found is not None:
                return found

    async def _wait_for_news(self, seconds: float) -> None:
        self._waiting = signal = self._loop.signal()
        try:
            # What arrived between the poll and now notified nobody.
            if not self._stream.has_news():
                await signal.wait(seconds)
        finally:
            self._waiting = None

    def _changed(self) -> None:
        """In any thread: wakes the reader, if it waits."""
        waiting = self._waiting
        if waiting is not None:
            waiting.send()


class BaseConnector:
    """One member of a group, in an event loop of any kind.

    See `hermes.client.groups.Consumer`; `make_loop` is called in the loop when it starts.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        listener: AsyncRebalanceListener | None,
        make_loop: Callable[[], EventLoop],
    ) -> None:
        self.config = config
        self._listener = listener
        self._make_loop = make_loop
        self._member: tuple[BlockingConnector, EventLoop] | None = None
        self._is_started = self._closed = False

    async def start(self) -> None:
        """Connect to ZooKeeper; `async with` does it. Raises as the blocking connector does."""
        if self._closed or self._is_started:
            raise ClientError("a connector is started once; use another one")
        self._is_started = True
        loop = self._make_loop()
        opening = Opening(partial(self._open, loop), BlockingConnector.shutdown)
        try:
            self._member = await loop.in_thread(opening.open), loop
        except BaseException:
            self._closed = True
            opening.give_up()
            raise
        if self._closed:  # meanwhile
            await self.shutdown()

    @property
    def consumer_id(self) -> str:
        return self._started()[0].consumer_id

    async def create_message_streams(
        self, streams: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]:
        """Join the group for some topics."""
        connector, loop = self._started()
        made = await loop.in_thread(connector.create_message_streams, streams)
        return {topic: [self._stream(each) for each in some] for topic, some in made.items()}

    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[MessageStream]:
        """Join the group for all topics that a filter allows."""
        connector, loop = self._started()
        create = connector.create_message_streams_by_filter
        return [self._stream(each) for each in await loop.in_thread(create, topic_filter, count)]

    async def commit_offsets(self) -> None:
        """Commit the application's position, the calling task's message included."""
        connector, loop = self._started()
        connector.finish(loop.current_task())
        await loop.in_thread(connector.commit_finished)

    def metrics(self) -> GroupMetrics:
        return self._started()[0].metrics()

    async def shutdown(self) -> None:
        """Commit (with auto_commit), leave the group, end the streams. Idempotent."""
        self._closed = True
        if self._member is not None:
            connector, loop = self._member
            await loop.in_thread(connector.shutdown)

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

    def _open(self, loop: EventLoop) -> BlockingConnector:
        listener = None
        if self._listener is not None:
            listener = _InLoop(loop, self._listener, self.config)
        return BlockingConnector(self.config, listener)

    def _started(self) -> tuple[BlockingConnector, EventLoop]:
        if self._member is None:
            raise ClientError("the connector is not started: use it in `async with`")
        return self._member

    def _stream(self, stream: BlockingStream) -> MessageStream:
        is_timed = self.config.consumer_timeout is not None
        timeout = self.config.seconds("consumer_timeout") if is_timed else None
        return MessageStream(stream, self._started()[1], timeout)


class _InLoop:
    def __init__(
        self, loop: EventLoop, listener: AsyncRebalanceListener, config: ConsumerConfig
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._timeout_seconds = config.seconds("zookeeper_session_timeout")

    def before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        self._call(self._listener.before_release, partitions)

    def after_take(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        self._call(self._listener.after_take, partitions)

    def _call(self, method: Callable[[Any], Any], partitions: Any) -> None:
        async def call() -> None:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result

        self._loop.run_from_thread(call, self._timeout_seconds)


@explains_keywords
class Connector(BaseConnector):
    """One member of a group, for asyncio. Use it in one event loop.

    Example:
        config = ConsumerConfig(group="search", brokers="localhost:9092")
        async with Consumer(config) as connector:
            (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
            async for message, topic, partition, offset, *_ in stream:
                await index(message)
    """

    def __init__(
        self, config: ConsumerConfig, listener: AsyncRebalanceListener | None = None
    ) -> None:
        super().__init__(config, listener, AsyncioLoop)


class Consumer(Connector):
    """A consumer in a group, for asyncio: a `Connector`, under the name users look for.

    It connects when it is entered with `async with`.

    Example:
        async with Consumer(config) as connector:
            (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
    """

    @staticmethod
    def create(
        config: ConsumerConfig, listener: AsyncRebalanceListener | None = None
    ) -> "Consumer":
        """Make one; the same as `Consumer(config, listener)`."""
        return Consumer(config, listener)
