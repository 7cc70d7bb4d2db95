"""Following a partition over a connection that only counts."""

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from hermes.aio.simple_consumer import BaseConsumer, ConsumerOptions
from hermes.errors import InvalidMessageError
from hermes.protocol import (
    ContentFormat,
    RecordFetchedEntry,
    encode_message_set,
    encode_record_fetch_response,
)
from hermes.security import PLAIN

UNIT = Path(__file__).parents[1]


class EnoughError(Exception):
    pass


class Silent:
    """A connection to a broker that answers every waiting fetch at once, with nothing."""

    security = PLAIN
    timeout_seconds = 30.0
    address = "nowhere:1"

    def __init__(self) -> None:
        self.calls = 0
        self.slept: list[float] = []

    async def call(self, request: bytes, timeout_seconds: float) -> bytes:
        self.calls += 1
        return bytes.fromhex("0000 0001 0000 0000000000000007 00 00000000")

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 20:
            raise EnoughError

    def disconnect(self) -> None:
        self.disconnected = True

    async def close(self) -> None:
        pass


def test_a_broker_that_answers_nothing_at_once_is_asked_as_often_as_one_that_waits() -> None:
    connection = Silent()
    consumer = BaseConsumer(connection, ConsumerOptions(supports_hermes_requests=True))

    async def read() -> None:
        async for _ in consumer.follow("t", 0, 7, max_wait_ms=60_000):
            pass

    with pytest.raises(EnoughError):
        asyncio.run(asyncio.wait_for(read(), 60))
    assert connection.calls == 20
    assert min(connection.slept) > 30


class Sets(Silent):
    """Answers with one set after the other."""

    def __init__(self, *sets: bytes) -> None:
        super().__init__()
        self.sets = list(sets)

    async def call(self, request: bytes, timeout_seconds: float) -> bytes:
        self.calls += 1
        if not self.sets:
            raise EnoughError
        await asyncio.sleep(0)
        data = self.sets.pop(0)
        entry = RecordFetchedEntry(0, 1 << 40, ContentFormat.MESSAGES, data)
        return encode_record_fetch_response([entry])[4:]  # the body


def following(connection: Sets) -> BaseConsumer:
    return BaseConsumer(connection, ConsumerOptions(supports_hermes_requests=True))


def test_sets_follow_one_another_with_the_offsets_behind_each_message() -> None:
    sets = [encode_message_set([b"a", b"b"]), encode_message_set([b"c"]) + b"\0\0"]
    seen = []

    async def read() -> None:
        async for message, next_offset in following(Sets(*sets)).follow("t", 0, 7):
            seen.append((message.payload, next_offset))

    with pytest.raises(EnoughError):
        asyncio.run(read())
    assert seen == [(b"a", 18), (b"b", 29), (b"c", 40)]


def test_damage_comes_behind_what_is_good_and_ends_the_iteration() -> None:
    data = bytearray(encode_message_set([b"good", b"bad", b"good again"]))
    data[20] ^= 1
    connection = Sets(bytes(data), encode_message_set([b"never"]))

    async def read() -> None:
        messages = following(connection).follow("t", 0, 0)
        assert (await anext(messages))[0].payload == b"good"
        with pytest.raises(InvalidMessageError):
            await anext(messages)
        assert [each async for each in messages] == []

    asyncio.run(read())
    assert connection.calls == 1


def test_it_may_be_left_entered_again_and_closed() -> None:
    connection = Sets(encode_message_set([b"a", b"b", b"c"]))

    async def read() -> list[bytes]:
        seen = []
        async with aclosing(following(connection).follow("t", 0, 0)) as messages:  # type: ignore[type-var]
            for _ in range(2):
                async for message, _ in messages:
                    seen.append(message.payload)
                    break
        return seen + [each[0].payload async for each in messages]

    assert asyncio.run(read()) == [b"a", b"b"]
    assert connection.calls == 1


def test_streams_do_the_same_without_the_compiled_core() -> None:
    files = ["aio/test_following.py", "client/groups/test_claims_and_streams.py"]
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-k", "not without_the_compiled_core", *(str(UNIT / each) for each in files)),
        ],
        env=os.environ | {"HERMES_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
