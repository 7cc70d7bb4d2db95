"""The twins for Twisted, in processes of their own, since the global reactor runs only once."""

import subprocess
import sys
import textwrap
from pathlib import Path

from hermes.testing import running_broker

HEAD = """
import struct
import sys

from twisted.internet import defer, endpoints, protocol, task
from twisted.internet.defer import Deferred, ensureDeferred, gatherResults

from hermes import *
from hermes import errors
from hermes.aio.twisted import Producer, SimpleConsumer

async def fails(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind} was not raised")

def run():
    task.react(lambda reactor, *rest: ensureDeferred(main(reactor, *rest)), sys.argv[1:])
"""


def run(tmp_path: Path, program: str, *arguments: object) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + textwrap.dedent(program) + "\nrun()\n", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script), *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr


def test_a_round_trip(tmp_path) -> None:
    program = """
    async def main(reactor, port):
        config = ProducerConfig(broker_list=f"127.0.0.1:{port}", acks="flushed", queue_size=20)
        async with Producer(reactor, config) as producer:
            sends = [ensureDeferred(producer.send("clicks", b"%d" % n)) for n in range(200)]
            results = await gatherResults(sends, consumeErrors=True)
            assert len({each.offset for each in results}) == 200
            await producer.flush()
            assert producer.metrics().sent == 200
            await fails(errors.EncodingError, producer.send("clicks", "text"))
            sent = await producer.send("kept", b"x", b"k", headers={"a": b"1"}, partition=0)
            assert sent == ("kept", 0, 0)
            handle = await producer.enqueue("kept", b"y", headers=[("b", None)])
            assert (await producer.outcome(handle)).offset == 1
            await fails(errors.RoutingError, producer.send("kept", b"x", partition=1))
            await fails(errors.ArgumentError, producer.send("kept", b"x", header={}))
        async with SimpleConsumer(reactor, f"127.0.0.1:{port}") as consumer:
            kept = await consumer.fetch(FetchRequest("kept", 0, 0, 1000))
            assert [(each.key, each.payload, each.headers) for each, _ in kept] == [
                (b"k", b"x", (("a", b"1"),)),
                (None, b"y", (("b", None),)),
            ]
            seen = []
            async for message, offset in consumer.follow("clicks", 0, 0, max_size=100):
                seen.append(int(message.payload))
                if len(seen) == 200:
                    break
            assert seen == list(range(200)), "in the order of the calls"
            assert await consumer.get_offsets_before("clicks", 0, LATEST) == [offset]
            await fails(
                errors.WrongPartitionError, consumer.fetch(FetchRequest("clicks", 1, 0, 10))
            )
            (result,) = await consumer.fetch_waiting([FetchRequest("clicks", 0, offset, 10)], 10)
            assert list(result) == []
        await fails(errors.ClientError, consumer.fetch(FetchRequest("clicks", 0, 0, 10)))
    """
    with running_broker(settings={"topics": {"kept": {"format": "kafka"}}}) as broker:
        run(tmp_path, program, broker.port)


def test_a_group_is_found_by_the_address_of_a_broker(tmp_path: Path) -> None:
    program = """
    from hermes.aio.twisted import Consumer
    from hermes.client.groups import ConsumerConfig

    async def main(reactor, address):
        async with Producer(reactor, ProducerConfig(broker_list=address)) as producer:
            await producer.send("clicks", b"one")
        config = ConsumerConfig(group="g", brokers=address)
        async with Consumer(reactor, config) as connector:
            (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
            assert (await anext(stream)).message == b"one"
            await connector.commit_offsets()
        lost = ConsumerConfig(group="g", brokers=address.rpartition(":")[0] + ":1")
        assert ":1" in await fails(errors.BrokerUnavailableError, Consumer(reactor, lost).start())
    """
    with running_broker(settings={"coordination": "embedded"}) as broker:
        run(tmp_path, program, broker.address)


def test_silence_garbage_and_closing_are_errors_and_repaired(tmp_path) -> None:
    program = """
    ANSWERS = [
        None,
        b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n",
        b"\\0\\0\\0\\1\\0",
        "close",
        "close",
        b"\\0\\0\\0\\2\\0\\0",
    ]

    class Server(protocol.Protocol):
        def dataReceived(self, data):
            answer = ANSWERS.pop(0)
            if answer == "close":
                self.transport.loseConnection()
            elif answer is not None:
                self.transport.write(answer)

    async def main(reactor):
        server = endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        listening = await server.listen(protocol.Factory.forProtocol(Server))
        port = listening.getHost().port
        request = FetchRequest("clicks", 0, 0, 10)
        async with SimpleConsumer(reactor, "127.0.0.1", port, timeout_seconds=0.05) as impatient:
            assert "0.05 s" in await fails(errors.BrokerTimeoutError, impatient.fetch(request))
        plain = SimpleConsumer(reactor, "127.0.0.1", port, supports_hermes_requests=False)
        async with plain as consumer:
            await fails(errors.RemoteProtocolError, consumer.fetch(request))
            await fails(errors.RemoteProtocolError, consumer.fetch(request))
            await fails(errors.BrokerUnavailableError, consumer.fetch(request))
            assert len(await consumer.fetch(request)) == 0
        await listening.stopListening()
        async with SimpleConsumer(reactor, "127.0.0.1", port) as consumer:
            text = await fails(errors.BrokerUnavailableError, consumer.fetch(request))
            assert "running there" in text
        assert ANSWERS == []
    """
    run(tmp_path, program)


def test_the_reactor_runs_while_zookeeper_is_connected_to(tmp_path: Path) -> None:
    program = """
    import socket

    async def main(reactor, connect):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            config = ProducerConfig(
                zookeeper_connect=f"127.0.0.1:{silent.getsockname()[1]}",
                zookeeper_connection_timeout="500ms",
            )
            producer = Producer(reactor, config)
            sent = ensureDeferred(producer.send("clicks", b"x"))
            await task.deferLater(reactor, 0)
            assert not sent.called
            await fails(errors.CoordinationUnavailableError, sent)
            await producer.close()
        async with Producer(reactor, ProducerConfig(zookeeper_connect=connect)) as producer:
            sends = [ensureDeferred(producer.send("clicks", b"%d" % n)) for n in range(10)]
            assert len(await gatherResults(sends)) == 10
    """
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(tmp_path / "log", settings) as broker:
        run(tmp_path, program, broker.zookeeper_connect)
