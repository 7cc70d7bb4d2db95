"""Members of groups whose start is cancelled: nothing stays in the group, however late it joins."""

import asyncio
import threading
from typing import Any

import pytest

from hermes import aio
from hermes.aio import groups, retrying
from hermes.client.groups.config import ConsumerConfig

_CONFIG = ConsumerConfig(group="g", zookeeper_connect="any")


class Member:
    """A blocking consumer, or connector, that takes its time to join."""

    may_join: threading.Event
    joining: threading.Event
    left: threading.Event

    def __init__(self, *_: Any, **__: Any) -> None:
        self.joining.set()
        assert self.may_join.wait(10)

    def close(self) -> None:
        self.left.set()

    shutdown = close


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> type[Member]:
    class Made(Member):
        may_join, joining, left = (threading.Event() for _ in range(3))

    monkeypatch.setattr(retrying, "BlockingConsumer", Made)
    monkeypatch.setattr(groups, "BlockingConnector", Made)
    return Made


def consumers() -> list[Any]:
    return [aio.RetryingConsumer(_CONFIG, ["t"]), aio.Consumer(_CONFIG)]


@pytest.mark.parametrize("which", [0, 1])
def test_what_joins_after_a_cancellation_leaves_again(member: type[Member], which: int) -> None:
    async def run() -> None:
        starting = asyncio.ensure_future(consumers()[which].__aenter__())
        await asyncio.to_thread(member.joining.wait, 10)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        member.may_join.set()

    asyncio.run(run())
    assert member.left.wait(10)


@pytest.mark.parametrize("which", [0, 1])
def test_what_has_joined_just_before_a_cancellation_leaves_again(
    member: type[Member], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_and_be_cancelled(function: Any, *arguments: Any) -> None:
        function(*arguments)
        raise asyncio.CancelledError

    async def run() -> None:
        consumer = consumers()[which]
        member.may_join.set()
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "to_thread", run_and_be_cancelled)
            with pytest.raises(asyncio.CancelledError):
                await consumer.__aenter__()

    asyncio.run(run())
    assert member.left.wait(10)
