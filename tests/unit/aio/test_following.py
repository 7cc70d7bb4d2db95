"""Following a partition over a connection that only counts."""

import asyncio

import pytest

from hermes.aio.simple_consumer import ConsumerOptions, ConsumerTwin


class EnoughError(Exception):
    pass


class Silent:
    """A connection to a broker that answers every waiting fetch at once, with nothing."""

    timeout_seconds = 30.0
    address = "nowhere:1"

    def __init__(self) -> None:
        self.calls = 0
        self.slept: list[float] = []

    async def call(self, request: bytes, timeout_seconds: float) -> bytes:
        self.calls += 1
        return bytes.fromhex("0000 0001 0000 0000000000000007 00000000")

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 20:
            raise EnoughError

    def disconnect(self) -> None:
        pass

    async def close(self) -> None:
        pass


def test_a_broker_that_answers_nothing_at_once_is_asked_as_often_as_one_that_waits() -> None:
    connection = Silent()
    consumer = ConsumerTwin(connection, ConsumerOptions(supports_hermes_requests=True))

    async def read() -> None:
        async for _ in consumer.follow("t", 0, 7, max_wait_ms=60_000):
            pass

    with pytest.raises(EnoughError):
        asyncio.run(asyncio.wait_for(read(), 60))
    assert connection.calls == 20
    assert min(connection.slept) > 30
