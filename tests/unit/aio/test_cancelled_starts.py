"""What is cancelled while it starts: nothing stays behind, however late a thread has made it."""

import asyncio
import threading
from typing import Any

import pytest

from hermes import aio
from hermes.aio import groups, producer, retrying
from hermes.client.groups.config import ConsumerConfig
from hermes.client.producer_config import ProducerConfig
from hermes.errors import ClientError

_CONFIG = ConsumerConfig(group="g", zookeeper_connect="any")


class Member:
    """A blocking consumer, connector or producer that takes its time to join."""

    may_join: threading.Event
    joining: threading.Event
    left: threading.Event

    def __init__(self, *_: Any, **__: Any) -> None:
        self.joining.set()
        assert self.may_join.wait(10)

    def close(self, *_: Any) -> None:
        self.left.set()

    shutdown = close


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> type[Member]:
    class Made(Member):
        may_join, joining, left = (threading.Event() for _ in range(3))

    monkeypatch.setattr(retrying, "BlockingConsumer", Made)
    monkeypatch.setattr(groups, "BlockingConnector", Made)
    monkeypatch.setattr(producer, "BlockingProducer", Made)
    return Made


def clients() -> list[Any]:
    return [
        aio.RetryingConsumer(_CONFIG, ["t"]),
        aio.Consumer(_CONFIG),
        aio.Producer(ProducerConfig(zookeeper_connect="any")),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_joins_after_a_cancellation_leaves_again(member: type[Member], which: int) -> None:
    async def run() -> None:
        starting = asyncio.ensure_future(clients()[which].__aenter__())
        await asyncio.to_thread(member.joining.wait, 10)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        member.may_join.set()

    asyncio.run(run())
    assert member.left.wait(10)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_has_joined_just_before_a_cancellation_leaves_again(
    member: type[Member], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_and_be_cancelled(function: Any, *arguments: Any) -> None:
        function(*arguments)
        raise asyncio.CancelledError

    async def run() -> None:
        client = clients()[which]
        member.may_join.set()
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "to_thread", run_and_be_cancelled)
            with pytest.raises(asyncio.CancelledError):
                await client.__aenter__()

    asyncio.run(run())
    assert member.left.wait(10)


def test_a_second_start_in_the_middle_of_the_first_makes_no_second_member(
    member: type[Member],
) -> None:
    async def run() -> None:
        consumer = aio.Consumer(_CONFIG)
        starting = asyncio.ensure_future(consumer.start())
        await asyncio.to_thread(member.joining.wait, 10)
        again = asyncio.ensure_future(consumer.start())
        member.may_join.set()
        with pytest.raises(ClientError, match="started once"):
            await again
        await starting
        await consumer.shutdown()

    asyncio.run(run())
    assert member.left.is_set()
