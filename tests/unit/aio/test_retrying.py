"""What the coroutine function of a retrying consumer may be."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hermes import aio
from hermes.aio import retrying
from hermes.client.groups.config import ConsumerConfig
from hermes.errors import ArgumentError


class OneMessage:
    """A blocking consumer that has one message, and counts its failures."""

    failed = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """There is nobody to connect to."""

    def run(self, handle: Callable[[Any], object]) -> None:
        try:
            handle(b"message")
        except Exception:
            type(self).failed += 1

    def close(self) -> None:
        """There is nothing to close."""


def test_a_plain_function_is_refused_and_fails_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BlockingConsumer", OneMessage)
    monkeypatch.setattr(OneMessage, "failed", 0)

    async def run() -> None:
        config = ConsumerConfig(group="g", zookeeper_connect="any")
        async with aio.RetryingConsumer(config, ["t"]) as consumer:
            plain: Any = len
            with pytest.raises(ArgumentError, match="coroutine function"):
                await consumer.run(plain)

    asyncio.run(run())
    assert OneMessage.failed == 0
