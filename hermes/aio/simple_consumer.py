"""`hermes.SimpleConsumer` for event loops: the same conversations, awaited.

`BaseConsumer` awaits nothing but its connection; the consumer for asyncio is here, the one for
Twisted in `hermes.aio.twisted`.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

from hermes.aio.asyncio_connection import AsyncioConnection
from hermes.aio.channel import AsyncChannel, AsyncConnection
from hermes.client import admin, conversations
from hermes.client.append_times import AppendTime, append_times
from hermes.client.arguments import check_choice, check_least, check_seconds
from hermes.client.connection import DEFAULT_MAX_RESPONSE_BYTES
from hermes.client.conversations import Conversation
from hermes.client.fetching import (
    DEFAULT_MAX_FETCH_BYTES,
    FetchedSet,
    FetchResult,
    FetchRules,
    counted,
    fetch,
    multifetch,
    waiting_fetch,
)
from hermes.client.metrics import ConsumerCounters, ConsumerMetrics
from hermes.keywords import explains_keywords
from hermes.protocol import (
    DEFAULT_MAX_EXPANDED_BYTES,
    BrokerMetadata,
    ClusterBroker,
    FetchRequest,
    LogLines,
    MessageAndOffset,
    PartitionDescription,
    SettingDescription,
    core,
)
from hermes.security import ClientSecurity

_Fetched = TypeVar("_Fetched", FetchedSet, list[FetchResult])


class BaseConsumer:
    """`hermes.SimpleConsumer` over any asynchronous connection."""

    def __init__(self, connection: AsyncConnection, options: "ConsumerOptions") -> None:
        self._channel = AsyncChannel(
            connection, supports_hermes_requests=options.supports_hermes_requests
        )
        self._poll_interval_ms = options.poll_interval_ms
        self._counters = ConsumerCounters()
        self._rules = FetchRules(
            options.max_fetch_bytes,
            options.on_corrupt,
            options.max_expanded_bytes,
            self._count_skipped,
            self._channel.refused,
            self._channel.broker_versions,
        )

    @property
    def skipped_count(self) -> int:
        return self._counters.snapshot().skipped

    def metrics(self) -> ConsumerMetrics:
        return self._counters.snapshot()

    async def fetch(self, request: FetchRequest) -> FetchedSet:
        """Iterating over the result needs no awaiting."""
        return await self._fetched(fetch(request, self._rules))

    async def multifetch(self, requests: Sequence[FetchRequest]) -> list[FetchResult]:
        return await self._fetched(multifetch(requests, self._rules))

    async def fetch_waiting(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int = 1
    ) -> list[FetchResult]:
        await self._channel.versions()  # a failure of this is none of a fetch
        return await self._fetched(
            waiting_fetch(requests, max_wait_ms, min_bytes, self._rules, self._poll_interval_ms)
        )

    def follow(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_size: int = 1024 * 1024,
        max_wait_ms: int = 1000,
    ) -> AsyncIterator[MessageAndOffset]:
        """Iterate over a partition, waiting at its end for new messages; it never ends by itself.

        Args:
            offset: where to start.
            max_size: how many bytes to fetch at once.
            max_wait_ms: how long one request waits at the end.

        Yields:
            Messages, each with the offset to resume from after it.

        Raises:
            HermesError: as `fetch`. What was yielded stays valid: start again at the last offset.
        """
        first = FetchRequest(topic, partition, offset, max_size)
        return _Following(self.fetch_waiting, self._channel.connection.sleep, first, max_wait_ms)

    async def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int = 1
    ) -> list[int]:
        return await self._channel.run(
            conversations.offsets_before(topic, partition, time, max_offsets)
        )

    async def metadata(self, topics: Sequence[str] | None = None) -> BrokerMetadata:
        return await self._channel.ask(conversations.metadata, topics)

    async def boundary_before(self, topic: str, partition: int, offset: int) -> int:
        return await self._channel.ask(conversations.boundary_before, topic, partition, offset)

    async def append_times(
        self, topic: str, partition: int, start: int, end: int, interval_ms: int = 1
    ) -> list[AppendTime]:
        return await self._channel.ask(append_times, topic, partition, start, end, interval_ms)

    async def create_topic(self, topic: str, settings: Mapping[str, object] | None = None) -> None:
        await self._channel.ask(admin.create_topic, topic, settings or {})

    async def alter_topic(
        self,
        topic: str,
        settings: Mapping[str, object] | None = None,
        reset: Iterable[str] | None = (),
    ) -> None:
        await self._channel.ask(admin.alter_topic, topic, settings or {}, reset)

    async def reload_config(self) -> admin.ReloadedConfig:
        return await self._channel.ask(admin.reload_config)

    async def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        return await self._channel.ask(admin.describe_settings, topic)

    async def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        return await self._channel.ask(admin.describe_partitions, topic)

    async def cluster_id(self) -> str:
        return await self._channel.ask(conversations.cluster_id)

    async def brokers(self) -> list[ClusterBroker]:
        return await self._channel.ask(conversations.cluster_brokers)

    async def recent_log_lines(self, first: int | None = None, max_lines: int = 100) -> LogLines:
        return await self._channel.ask(admin.recent_log_lines, first, max_lines)

    async def close(self) -> None:
        await self._channel.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _fetched(self, conversation: Conversation[_Fetched]) -> _Fetched:
        return await self._channel.run(counted(conversation, self._counters))

    def _count_skipped(self, count: int) -> None:
        self._counters.count_skipped(count)


class _Following(core.AsyncSupply[MessageAndOffset]):
    """An error ends it, as it does a generator."""

    def __init__(
        self,
        fetch: Callable[[Sequence[FetchRequest], int], Awaitable[list[FetchResult]]],
        sleep: Callable[[float], Awaitable[None]],
        first: FetchRequest,
        max_wait_ms: int,
    ) -> None:
        self._fetch = fetch
        self._sleep = sleep
        self._request = first
        self._max_wait_ms = max_wait_ms
        self._messages: FetchedSet | None = None
        self._is_over = False

    async def aclose(self) -> None:
        self._is_over, self._items = True, None

    async def _refill(self) -> MessageAndOffset:
        read = self._messages
        if self._is_over or (read is not None and not read.is_read):
            raise StopAsyncIteration
        self._is_over = True  # unless all goes well
        if read is not None:
            self._request = replace(self._request, offset=read.next_offset)
        found = await self._next_set()
        self._is_over = False
        return found

    async def _next_set(self) -> MessageAndOffset:
        """Fetch until there is a message; returns the first, and keeps the others."""
        wait_seconds = self._max_wait_ms / 1000
        while True:
            asked = time.monotonic()
            (result,) = await self._fetch([self._request], self._max_wait_ms)
            self._messages, self._items = result.messages, iter(result)
            for found in self._items:
                return found
            left = asked + wait_seconds - time.monotonic()
            if not len(result.messages) and left > 0:
                # A broker that doesn't wait is not asked again at once.
                await self._sleep(left)
            self._request = replace(self._request, offset=result.messages.next_offset)


@explains_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientSecurity):
    """The options of asynchronous consumers; they mean what they mean to `hermes.SimpleConsumer`.

    Raises:
        ConfigError: one is out of range; the text names it.
    """

    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 5.0
    max_fetch_bytes: int = DEFAULT_MAX_FETCH_BYTES
    on_corrupt: Literal["raise", "skip"] = "raise"
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES
    supports_hermes_requests: bool | None = None
    poll_interval_ms: int = 100

    def __post_init__(self) -> None:
        ClientSecurity.__post_init__(self)
        for key in ("timeout_seconds", "connect_timeout_seconds"):
            check_seconds(key, getattr(self, key))
        for key in ("max_fetch_bytes", "poll_interval_ms"):
            check_least(key, getattr(self, key), 1)
        check_choice("on_corrupt", self.on_corrupt, ("raise", "skip"))

    @property
    def max_response_bytes(self) -> int:
        return max(2 * self.max_fetch_bytes, DEFAULT_MAX_RESPONSE_BYTES)


@explains_keywords
class SimpleConsumer(BaseConsumer):
    """Reads partitions of one broker, for asyncio.

    Methods and errors are those of `hermes.SimpleConsumer`. Tasks may share it, taking turns.

    Example:
        async with SimpleConsumer("localhost:9092") as consumer:
            async for message, next_offset in consumer.follow("clicks", 0, offset=0):
                print(message.payload)

    Args:
        host: the broker's name or address, or both as in `localhost:9092`.
        port: its port; None for the one in `host`, or else 9092.
        **options: see `ConsumerOptions`.
    """

    def __init__(self, host: str, port: int | None = None, **options: Any) -> None:
        chosen = ConsumerOptions(**options)
        connection = AsyncioConnection(
            host,
            port,
            chosen.timeout_seconds,
            chosen.connect_timeout_seconds,
            chosen.max_response_bytes,
            chosen.security,
        )
        super().__init__(connection, chosen)
