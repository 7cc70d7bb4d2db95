"""The twin of `hermes.client.retrying` for asyncio: a coroutine function handles the messages.

The blocking consumer does the work, in threads; each waits while the loop runs the function.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from hermes.aio.openings import Opening
from hermes.client.groups.config import ConsumerConfig
from hermes.client.metrics import RetryMetrics
from hermes.client.retrying import RetryingConsumer as BlockingConsumer
from hermes.client.retrying import RetryMessage
from hermes.errors import ArgumentError, ClientError
from hermes.keywords import explains_keywords


class _CancelledError(BaseException):
    """The function was cancelled: its message has not failed, it is handled again later."""


class _NoCoroutineError(BaseException):
    """The function is none that can be awaited, which no message is to blame for."""


@explains_keywords
class RetryingConsumer:
    """A member of a group that processes messages with a function and retries failed ones later.

    See `hermes.RetryingConsumer`: the topics, the delays and the promises are the same.

    Example:
        async with RetryingConsumer(config, ["orders"], delays=["5s", "1m"]) as consumer:
            await consumer.run(charge)

    Args:
        streams: how many messages are handled at a time, at most.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Sequence[str],
        *,
        delays: Sequence[str | float] = ("5s", "1m", "10m"),
        streams: int = 1,
    ) -> None:
        self._make = partial(BlockingConsumer, config, topics, delays=delays, streams=streams)
        self._consumer: BlockingConsumer | None = None

    async def run(self, handle: Callable[[RetryMessage], Coroutine[Any, Any, object]]) -> None:
        """Await a coroutine function for each message, until `stop`; one fails by an exception.

        A cancellation lets it finish with the messages that are being handled.

        Raises:
            ConsumerTimeoutError, HermesError: as the blocking consumer's `run`.
            ArgumentError: it is no coroutine function; its first message is handled again later.
        """
        consumer, loop = self._started(), asyncio.get_running_loop()

        def call(message: RetryMessage) -> None:
            handling = handle(message)
            if not asyncio.iscoroutine(handling):
                raise _NoCoroutineError
            try:
                asyncio.run_coroutine_threadsafe(handling, loop).result()
            except concurrent.futures.CancelledError:
                raise _CancelledError from None

        running = asyncio.ensure_future(asyncio.to_thread(consumer.run, call))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            consumer.stop()
            await asyncio.wait([running])
            raise
        except _CancelledError:
            raise asyncio.CancelledError from None
        except _NoCoroutineError:
            raise ArgumentError(
                f"handle: expected a coroutine function, got {handle!r:.100}; RetryingConsumer "
                "of hermes itself takes plain ones"
            ) from None

    def stop(self) -> None:
        """Have `run` return after the messages that are being handled now, for good."""
        self._started().stop()

    def metrics(self) -> RetryMetrics:
        """A snapshot of the counters."""
        return self._started().metrics()

    async def __aenter__(self) -> Self:
        if self._consumer is not None:
            raise ClientError("a consumer is started once; use another one")
        opening = Opening(self._make, BlockingConsumer.close)
        try:
            self._consumer = await asyncio.to_thread(opening.open)
        except BaseException:
            opening.give_up()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._started().close)

    def _started(self) -> BlockingConsumer:
        if self._consumer is None:
            raise ClientError("the consumer is not started: use it in `async with`")
        return self._consumer
