"""The twins for asyncio, against a real broker and against brokers that misbehave."""

import asyncio
import os
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from hermes import (
    EARLIEST,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    DeliveryError,
    EncodingError,
    FetchRequest,
    InvalidMessageError,
    OffsetOutOfRangeBrokerError,
    ProducerConfig,
    RemoteProtocolError,
    UnsupportedRequestVersionError,
    WrongPartitionError,
)
from hermes.aio import Producer, SimpleConsumer
from hermes.errors import CoordinationUnavailableError, UnknownTopicError
from hermes.protocol import encode_message_set, fetch_response_header
from hermes.testing import RunningBroker, running_broker

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(converse: Converse) -> AsyncIterator[int]:
    """A server on loopback that holds this conversation with each client; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await converse(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def config_for(broker: RunningBroker, **settings) -> ProducerConfig:
    return ProducerConfig(broker_list=broker.broker_list, acks="flushed", **settings)


def test_a_round_trip() -> None:
    async def main(broker: RunningBroker) -> None:
        async with Producer(config_for(broker)) as producer:
            sends = [producer.send("clicks", b"%d" % number) for number in range(200)]
            results = await asyncio.gather(*sends)
            assert [each.offset for each in results] == sorted(each.offset for each in results)
            assert producer.metrics().batches < 200
            with pytest.raises(EncodingError):
                await producer.send("clicks", "text")
        async with SimpleConsumer(broker.host, broker.port) as consumer:
            assert await consumer.get_offsets_before("clicks", 0, EARLIEST) == [0]
            messages = await consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
            assert [each.payload for each, _ in messages] == [b"%d" % n for n in range(200)]
            assert await consumer.boundary_before("clicks", 0, 12) == 11
            assert await consumer.append_times("clicks", 0, 0, 11, 1 << 50) == [(0, 11, 0)]
            (topic,) = (await consumer.metadata()).topics
            assert topic.topic == "clicks"
            fetches = [FetchRequest("clicks", 0, 0, 30), FetchRequest("clicks", 1, 0, 30)]
            for results in (
                await consumer.multifetch(fetches),
                await consumer.fetch_waiting(fetches, 0),
            ):
                assert len(list(results[0])) == 2
                assert isinstance(results[1].error, WrongPartitionError)

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_a_cancelled_send_leaves_the_others_of_its_batch_alone() -> None:
    async def main(broker: RunningBroker) -> None:
        async with Producer(config_for(broker, queue_time="1h")) as producer:
            sends = [asyncio.create_task(producer.send("clicks", b"%d" % n)) for n in range(5)]
            handle = await producer.enqueue("clicks", b"enqueued")
            while producer.metrics().queued < 6:
                await asyncio.sleep(0)
            sends[2].cancel()
            await producer.flush()
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(results.pop(2), asyncio.CancelledError)
            assert [each.offset for each in results] == [18, 29, 51, 62]
            assert (await producer.outcome(handle)).topic == "clicks"
            assert producer.metrics().sent == 6

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_the_loop_runs_while_zookeeper_is_connected_to() -> None:
    """The server lives in the same loop: it could not take a connection if that were blocked."""

    async def main() -> None:
        asked = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read(1)
            asked.set()
            await reader.read()

        async with server(say_nothing) as port:
            producer = Producer(
                ProducerConfig(
                    zookeeper_connect=f"127.0.0.1:{port}", zookeeper_connection_timeout="500ms"
                )
            )
            assert producer.metrics().sent == 0
            sends = [asyncio.create_task(producer.send("clicks", b"x")) for _ in range(3)]
            await asyncio.wait_for(asked.wait(), 30)
            assert not any(each.done() for each in sends)
            for each in sends:
                with pytest.raises(CoordinationUnavailableError):
                    await each
            with pytest.raises(CoordinationUnavailableError):
                async with producer:
                    pass
            await producer.flush()
            await producer.close()
            with pytest.raises(ClientError, match="the producer is closed"):
                await producer.send("clicks", b"x")

    asyncio.run(main())


def test_brokers_are_found_in_zookeeper_with_the_first_message() -> None:
    async def main(connect: str) -> None:
        config = ProducerConfig(zookeeper_connect=connect)
        producer = Producer(config)
        cancelled = asyncio.create_task(producer.send("clicks", b"never"))
        await asyncio.sleep(0)
        cancelled.cancel()
        results = await asyncio.gather(*(producer.send("clicks", b"%d" % n) for n in range(10)))
        offsets = [each.offset for each in results]
        assert offsets == sorted(set(offsets))
        await producer.close()
        async with Producer(config) as producer:
            assert producer.metrics().sent == 0
            await producer.send("clicks", b"x")

    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(None, settings) as broker:
        assert broker.zookeeper_connect is not None
        asyncio.run(main(broker.zookeeper_connect))


def test_following_a_partition_sees_what_comes() -> None:
    async def main(broker: RunningBroker) -> None:
        seen: list[bytes] = []
        async with (
            Producer(config_for(broker)) as producer,
            SimpleConsumer(broker.host, broker.port) as consumer,
        ):
            await producer.send("clicks", b"0")
            async for message, _ in consumer.follow("clicks", 0, 0, max_wait_ms=20_000):
                seen.append(message.payload)
                if len(seen) == 5:
                    break
                await producer.send("clicks", b"%d" % len(seen))
        assert seen == [b"0", b"1", b"2", b"3", b"4"]

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_a_full_queue_makes_tasks_wait_and_not_the_loop() -> None:
    async def main(broker: RunningBroker) -> None:
        config = config_for(broker, queue_size=5, batch_size=1, queue_time=0)
        async with Producer(config) as producer:
            results = await asyncio.gather(*(producer.send("clicks", b"x") for _ in range(100)))
        assert [each.offset for each in results] == [11 * n for n in range(100)], "in their order"

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_a_list_waits_for_room_outside_the_loop() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client closes

    async def main() -> None:
        async with server(hold) as port:
            config = ProducerConfig(
                broker_list=f"0:127.0.0.1:{port}", queue_size=10, batch_size=1, num_retries=0
            )
            producer = Producer(config)
            await producer.enqueue("clicks", b"stuck")
            while producer.metrics().queued:
                await asyncio.sleep(0.001)
            await producer.enqueue("clicks", [b"x"] * 8)
            listed = asyncio.create_task(producer.enqueue("clicks", [b"x"] * 5))
            await asyncio.sleep(0.05)
            assert not listed.done()
            with pytest.raises(DeliveryError):
                await producer.close(0.01)
            with pytest.raises(ClientError):
                await listed

    asyncio.run(main())


def test_tasks_that_wait_for_room_leave_threads_to_others() -> None:
    """Closing the producer needs one, too; a task that gives up lets the next one in."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client closes

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        async with server(hold) as port:
            config = ProducerConfig(
                broker_list=f"0:127.0.0.1:{port}", queue_size=10, batch_size=1, num_retries=0
            )
            producer = Producer(config)
            await producer.enqueue("clicks", b"stuck")
            while producer.metrics().queued:
                await asyncio.sleep(0.001)
            tasks = [asyncio.create_task(producer.enqueue("clicks", b"x")) for _ in range(30)]
            await asyncio.sleep(0.05)
            assert [task.done() for task in tasks] == [True] * 10 + [False] * 20
            tasks[15].cancel()
            with pytest.raises(DeliveryError):
                await producer.close(0.01)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(end) for end in ends[10:]] == [
                asyncio.CancelledError if n == 15 else ClientError for n in range(10, 30)
            ]

    asyncio.run(main())


def test_a_task_that_gives_up_waiting_for_room_leaves_its_thread_and_sends_nothing() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client closes

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        async with server(hold) as port:
            config = ProducerConfig(
                broker_list=f"0:127.0.0.1:{port}",
                queue_size=10,
                batch_size=1,
                num_retries=0,
                enqueue_timeout="1h",
            )
            producer = Producer(config)
            await producer.enqueue("clicks", b"stuck")
            while producer.metrics().queued:
                await asyncio.sleep(0.001)
            await producer.enqueue("clicks", [b"x"] * 10)
            for _ in range(3):  # more than there are threads
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.send("clicks", b"given up"), 0.05)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 10) == "free"
            with pytest.raises(DeliveryError):
                await producer.close(0.01)
            assert producer.metrics().failed == 11  # of those that gave up none

    asyncio.run(main())


def test_errors_of_the_broker() -> None:
    async def main(broker: RunningBroker) -> None:
        async with SimpleConsumer(broker.host, broker.port) as consumer:
            with pytest.raises(WrongPartitionError):
                await consumer.fetch(FetchRequest("clicks", 1, 0, 100))
            async with Producer(config_for(broker)) as producer:
                await producer.send("clicks", b"x")
            with pytest.raises(OffsetOutOfRangeBrokerError):
                await anext(consumer.follow("clicks", 0, 99))

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_silence_garbage_and_closing_are_errors_and_repaired() -> None:
    good = encode_message_set([b"good"])
    answers: list[bytes | None] = [
        None,  # silence
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x01\x00",
        fetch_response_header(len(good)) + good,
    ]

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = answers.pop(0)
        await read_request(reader)
        if answer is not None:
            writer.write(answer)
        await reader.read()

    async def main() -> None:
        request = FetchRequest("clicks", 0, 0, 100)
        async with (
            server(converse) as port,
            SimpleConsumer("127.0.0.1", port, timeout_seconds=0.05) as impatient,
        ):
            with pytest.raises(BrokerTimeoutError, match=r"0\.05 s"):
                await impatient.fetch(request)
            async with SimpleConsumer("127.0.0.1", port) as consumer:
                for _ in range(2):
                    with pytest.raises(RemoteProtocolError):
                        await consumer.fetch(request)
                ((message, _),) = await consumer.fetch(request)
                assert message.payload == b"good"

    asyncio.run(main())


def test_a_0_7_broker_is_polled() -> None:
    empty = struct.pack(">ih", 8, 0) + fetch_response_header(0)
    types: list[int] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                (request_type,) = struct.unpack_from(">h", await read_request(reader))
            except asyncio.IncompleteReadError:
                return
            types.append(request_type)
            if request_type >= 64:
                return
            offsets = struct.pack(">ihi", 6, 0, 0)
            writer.write(offsets if request_type == 4 else empty)

    async def main() -> None:
        async with (
            server(converse) as port,
            SimpleConsumer("127.0.0.1", port, poll_interval_ms=1) as consumer,
        ):
            (result,) = await consumer.fetch_waiting([FetchRequest("t", 0, 0, 100)], 2)
            assert list(result) == []
            with pytest.raises(UnsupportedRequestVersionError):
                await consumer.metadata()

    asyncio.run(main())
    assert types == [66, 4, 66, 2, 2, 2]


def test_nobody_there_and_a_closed_consumer() -> None:
    async def main() -> None:
        async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            return None

        async with server(nothing) as port:
            pass
        consumer = SimpleConsumer("127.0.0.1", port)
        with pytest.raises(BrokerUnavailableError, match="running there"):
            await consumer.fetch(FetchRequest("clicks", 0, 0, 100))
        await consumer.close()
        with pytest.raises(ClientError, match="closed"):
            await consumer.fetch(FetchRequest("clicks", 0, 0, 100))

    asyncio.run(main())


def test_a_cancelled_fetch_does_not_answer_the_next_one() -> None:
    async def main(broker: RunningBroker) -> None:
        async with SimpleConsumer(broker.host, broker.port) as consumer:
            request = FetchRequest("clicks", 0, 0, 100)
            await consumer.fetch_waiting([request], 0)
            waiting = asyncio.create_task(consumer.fetch_waiting([request], 20_000))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await consumer.metadata()).broker_id == 0

    with running_broker() as broker:
        asyncio.run(main(broker))


def test_damage_is_skipped_and_counted_when_asked(tmp_path) -> None:
    with running_broker(tmp_path) as broker:
        asyncio.run(_send_two(broker))
    (segment,) = (tmp_path / "clicks-0").glob("*.kafka")
    data = bytearray(segment.read_bytes())
    data[10] ^= 1
    segment.write_bytes(data)

    async def main(broker: RunningBroker) -> None:
        request = FetchRequest("clicks", 0, 0, 100)
        async with SimpleConsumer(broker.host, broker.port) as strict:
            with pytest.raises(InvalidMessageError):
                list(await strict.fetch(request))
        async with SimpleConsumer(broker.host, broker.port, on_corrupt="skip") as consumer:
            assert [each.payload for each, _ in await consumer.fetch(request)] == [b"second"]
            assert consumer.skipped_count == 1

    with running_broker(tmp_path) as broker:
        asyncio.run(main(broker))


async def _send_two(broker: RunningBroker) -> None:
    async with Producer(config_for(broker)) as producer:
        await producer.send("clicks", [b"first", b"second"])


def test_nothing_is_left_behind() -> None:
    with running_broker() as broker:
        asyncio.run(_send_two(broker))
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with running_broker() as broker:
        asyncio.run(_send_two(broker))
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)


def test_a_topic_that_is_not_there_is_an_error() -> None:
    async def main(address: str) -> None:
        request = FetchRequest("clikcs", 0, 0, 1000)
        async with SimpleConsumer(address) as consumer:
            for _ in range(2):
                with pytest.raises(UnknownTopicError, match=r"'clikcs' on .*not exist"):
                    await consumer.fetch(request)
            (result,) = await consumer.fetch_waiting([request], 10)
            assert isinstance(result.error, UnknownTopicError)
            with pytest.raises(UnknownTopicError):
                await anext(consumer.follow("clikcs", 0, 0, max_wait_ms=10))
            await consumer.create_topic("clikcs")
            assert len(await consumer.fetch(request)) == 0

    with running_broker() as broker:
        asyncio.run(main(broker.address))
