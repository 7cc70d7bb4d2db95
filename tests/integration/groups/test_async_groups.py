"""Consumers in groups for asyncio and Twisted, on both coordination servers and a real broker."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from group_cluster import Cluster

from hermes.aio import Connector, Consumer, MessageStream
from hermes.client.groups import BrokerPartition, ConsumerConfig, Whitelist
from hermes.coordination.sessions import Session
from hermes.errors import (
    ClientError,
    ConsumerTimeoutError,
    CoordinationUnavailableError,
    EncodingError,
)

COUNT = 40


@pytest.fixture
def config(cluster: Cluster, connect: str) -> Callable[..., ConsumerConfig]:
    """Settings of a member; the topic clicks has 40 messages."""
    cluster.broker()
    cluster.send("clicks", range(COUNT))

    def make(**settings: Any) -> ConsumerConfig:
        given = {"group": "g", "decoder": "json", "fetch_wait": "50ms", "consumer_timeout": "60s"}
        return ConsumerConfig(zookeeper_connect=connect, **(given | settings))

    return make


async def join(connector: Connector) -> MessageStream:
    (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
    return stream


async def take(stream: MessageStream, count: int) -> list[Any]:
    return [(await anext(stream)).message for _ in range(count)]


def stored(session: Session) -> int:
    parent = "/consumers/g/offsets/clicks"
    nodes = [session.get(f"{parent}/{name}") for name in session.children(parent)]
    return sum(int(node.value) for node in nodes if node)


def test_a_member_gets_everything_in_order_and_the_next_goes_on(config: Any) -> None:
    async def main() -> None:
        async with Consumer.create(config()) as connector:
            stream = await join(connector)
            seen: dict[int, list[int]] = {}
            for _ in range(COUNT - 1):
                message, topic, partition, *_rest = await anext(stream)
                assert topic == "clicks"
                seen.setdefault(partition, []).append(message)
            assert all(each == sorted(each) for each in seen.values())
        async with Consumer.create(config()) as connector:
            again = await take(await join(connector), 2)
            assert len(again) == 2  # the one in hand at the end, and the one not read

    asyncio.run(main())


def test_the_caller_s_word_counts_and_no_other_task_s(
    config: Any, connect: str, make_session: Any
) -> None:
    session = make_session(connect)

    async def main() -> None:
        async with Consumer.create(config(auto_commit=False)) as connector:
            (stream,) = await connector.create_message_streams_by_filter(Whitelist("click.*"))
            await take(stream, 1)
            await asyncio.create_task(connector.commit_offsets())
            assert stored(session) == 0
            await connector.commit_offsets()
            assert stored(session) > 0

    asyncio.run(main())


def test_other_tasks_have_their_turns_while_there_are_messages(config: Any) -> None:
    async def main() -> None:
        async with Consumer.create(config(decoder="bytes")) as connector:
            stream = await join(connector)
            await anext(stream)
            stream._stream.poll = lambda _: message  # type: ignore[method-assign,assignment]
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(6400):
                await anext(stream)
            task.cancel()
            assert turns >= 90

    message: Any = object()
    asyncio.run(main())


def test_streams_wait_seek_pause_and_end(config: Any) -> None:
    async def main() -> None:
        connector = Consumer.create(config(consumer_timeout="50ms"))
        await connector.start()
        stream = await join(connector)
        seen: list[Any] = []
        while len(seen) < COUNT:
            try:
                seen += await take(stream, 1)
            except ConsumerTimeoutError:
                continue
        with pytest.raises(ConsumerTimeoutError, match="no message for"):
            await anext(stream)
        topic, partition = stream.partitions()[0]
        stream.seek(topic, partition, 0)
        stream.pause()
        with pytest.raises(ConsumerTimeoutError):
            await anext(stream)
        stream.resume()
        stream.seek(topic, partition, 0)
        waiting = asyncio.create_task(_all(stream))
        await asyncio.sleep(0)
        await connector.shutdown()
        await waiting
        with pytest.raises(ClientError, match="shut down"):
            await connector.commit_offsets()
        await connector.shutdown()

    asyncio.run(main())


async def _all(stream: MessageStream) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found += [each.message async for each in stream]
            return found
        except ConsumerTimeoutError:
            continue


def test_a_listener_is_called_in_the_loop_and_waited_for(config: Any) -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[tuple[str, int]] = []
            self.released = asyncio.Event()

        def after_take(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
            asyncio.get_running_loop()
            self.heard.append(("took", len(partitions)))

        async def before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
            await asyncio.sleep(0)
            self.heard.append(("released", len(partitions)))
            self.released.set()

    async def main() -> None:
        listener = Listener()
        async with Consumer.create(config(), listener) as first:
            reading = asyncio.create_task(_all(await join(first)))
            async with Consumer.create(config()) as second:
                other = asyncio.create_task(_all(await join(second)))
                await asyncio.wait_for(listener.released.wait(), 60)
            await other
        await reading
        assert listener.heard[0] == ("took", 4)
        assert ("released", 2) in listener.heard

    asyncio.run(main())


def test_errors_are_those_of_the_blocking_consumer(config: Any, cluster: Cluster) -> None:
    async def main() -> None:
        async with Consumer.create(config(decoder="msgpack")) as connector:
            stream = await join(connector)
            with pytest.raises(EncodingError):
                await _all(stream)
        idle = Consumer.create(config())
        with pytest.raises(ClientError, match="not started"):
            await idle.commit_offsets()
        away = ConsumerConfig(
            group="g", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout="200ms"
        )
        with pytest.raises(CoordinationUnavailableError):
            await Consumer.create(away).start()

    asyncio.run(main())


def test_twisted_has_the_same(config: Any, connect: str, tmp_path: Path) -> None:
    config()
    program = f"""
    import sys
    from twisted.internet import task
    from twisted.internet.defer import ensureDeferred
    from hermes.aio.twisted import Consumer
    from hermes.client.groups import ConsumerConfig
    from hermes.errors import ConsumerTimeoutError

    class Listener:
        heard = []
        def after_take(self, partitions):
            self.heard.append(len(partitions))
        async def before_release(self, partitions):
            await task.deferLater(reactor_, 0)
            self.heard.append(-len(partitions))

    async def main(reactor):
        global reactor_
        reactor_ = reactor
        config = ConsumerConfig(
            group="t", zookeeper_connect={connect!r}, decoder="json", consumer_timeout="2s",
            fetch_wait="50ms",
        )
        listener = Listener()
        async with Consumer.create(reactor, config, listener) as connector:
            (stream,) = (await connector.create_message_streams({{"clicks": 1}}))["clicks"]
            seen = []
            while len(seen) < {COUNT}:
                try:
                    async for each in stream:
                        seen.append(each.message)
                        if len(seen) == {COUNT}:
                            break
                except ConsumerTimeoutError:
                    pass
            await connector.commit_offsets()
            assert sorted(seen) == list(range({COUNT})), seen
            try:
                await anext(stream)
            except ConsumerTimeoutError:
                pass
            else:
                raise AssertionError("one too many")
        assert listener.heard == [4, -4], listener.heard

    task.react(lambda reactor: ensureDeferred(main(reactor)))
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
