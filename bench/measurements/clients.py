"""The client library through its public names, broker included, beside the clients of Kafka.

Hermes' broker is a process of its own, a new one for each round, with its default settings. What
the clients of Kafka talk to is lighter: a mock cluster in C that keeps messages in memory and
checks nothing. All send 200-byte messages without acknowledgements, and the clock stops when all
have arrived; but for the sends that tasks await, which are acknowledged as written. Each round
takes every client, so that a busy moment meets all of them.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec

from bench.peers.kafka_clients import CLIENTS, AwaitingClient, KafkaClient, MockCluster
from bench.peers.system import NotInstalled
from bench.support.load import (
    STORED_BYTES,
    make_payloads,
    send_in_tasks,
    wait_until_visible,
)
from bench.support.report import Row, floor_row, ratio_row, skipped_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from hermes import (
    Consumer,
    ConsumerConfig,
    FetchRequest,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    aio,
)
from hermes.client.groups import StreamMessage
from hermes.protocol import core

__all__ = ["measure"]

_LISTS = "Producer, lists of 50"
_SINGLE = "Producer, async, 1 a call"
_CONSUMER = "SimpleConsumer, iterating"
_GROUP = "group consumer, 1 stream"
_FOLLOW = "aio.SimpleConsumer, follow"
_AWAITED = "aio.Producer, 1,000 tasks"
_TARGETS = {_LISTS: 700.0, _SINGLE: 350.0, _CONSUMER: 1_200.0, _AWAITED: 60.0}
# What these reach of the SimpleConsumer's throughput in the same rounds.
_SHARES = {_GROUP: 0.8, _FOLLOW: 0.8}
_THOUSAND, _MILLION = 1e3, 1e6
_UNIT = "k messages/s"

_LIST = 50
_DISTINCT_PAYLOADS = 1_000
_AWAITED_SHARE = 10  # of the messages, so that it takes about as long as the others
_FETCH_BYTES = 1 << 20
_MOST_ROUNDS = 3


def measure(settings: Settings) -> list[Row]:
    """Measure Hermes beside whichever clients of Kafka are installed."""
    rounds = min(settings.rounds, _MOST_ROUNDS)
    count = int(settings.messages * _MILLION) // _LIST * _LIST
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    runs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    costs: defaultdict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        rows = []
        clients: list[KafkaClient] = []
        try:
            cluster = stack.enter_context(MockCluster())
            clients = [each for each in CLIENTS if find_spec(each.module) is not None]
            rows = [
                skipped_row(each.name, f"pip install {each.name}")
                for each in CLIENTS
                if each not in clients
            ]
        except NotInstalled as missing:
            rows = [skipped_row("clients of Kafka", str(missing))]
        for number in range(rounds + 1):
            ours = _round(settings, payloads, count)
            theirs = {each.name: _of_client(each, cluster, payloads) for each in clients}
            if not number:
                continue  # the first one warms up
            for name, (rate, cpu) in ours.items():
                runs[name, ""].append(rate)
                costs[name].append(cpu)
            for client, rates in theirs.items():
                for name, rate in rates.items():
                    runs[name, client].append(rate)
    for name, target in _TARGETS.items():
        cost = statistics.median(costs[name]) * _MILLION
        note = f"{cost:.2f} us of the client's CPU per message (core: {core.KIND})"
        rows.append(floor_row(name, _UNIT, runs[name, ""], at_least=target, note=note))
        rows += [
            _beside(name, client, runs[name, ""], taken)
            for (of, client), taken in runs.items()
            if of == name and client
        ]
    for name, share in _SHARES.items():
        taken = (runs[name, ""], runs[_CONSUMER, ""])
        cpu = f"{statistics.median(costs[name]) * _MILLION:.2f} us of CPU per message"
        beside = "SimpleConsumer"
        rows.append(ratio_row(name, _UNIT, *taken, beside_name=beside, at_least=share, note=cpu))
    return rows


def _beside(name: str, client: str, ours: list[float], theirs: list[float]) -> Row:
    medians = statistics.median(ours), statistics.median(theirs)
    return Row(name, _UNIT, *medians, client, hermes_runs=(*ours,), beside_runs=(*theirs,))


# -- Hermes -------------------------------------------------------------------------------------


def _round(settings: Settings, payloads: list[bytes], count: int) -> dict[str, tuple[float, float]]:
    """Take each measurement once.

    Returns:
        Thousands of messages per second, and seconds of this process's processor time a message.
    """
    few = count // _AWAITED_SHARE // len(payloads) * len(payloads)
    coordinated = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with settings.workspace() as directory, HermesBroker(directory, **coordinated) as broker:
        return {
            _LISTS: _timed(count, lambda: _send_lists(broker.address, payloads, count)),
            _CONSUMER: _timed(count, lambda: _consume(broker.address, count)),
            _GROUP: _consume_in_group(broker.address, count),
            _FOLLOW: asyncio.run(_follow(broker.address, count)),
            _SINGLE: _timed(count, lambda: _send_singly(broker.address, payloads, count)),
            _AWAITED: _timed(few, lambda: _send_awaited(broker.address, payloads, few)),
        }


def _timed(count: int, run: Callable[[], None]) -> tuple[float, float]:
    started, cpu_started = time.perf_counter(), time.process_time()
    run()
    cpu = time.process_time() - cpu_started
    return count / (time.perf_counter() - started) / _THOUSAND, cpu / count


def _send_lists(address: Address, payloads: list[bytes], count: int) -> None:
    lists = [payloads[start : start + _LIST] for start in range(0, len(payloads), _LIST)]
    with Producer(_config(address)) as producer:
        for number in range(count // _LIST):
            producer.send("lists", lists[number % len(lists)])
        producer.flush()
    wait_until_visible(address, count * STORED_BYTES, topic="lists")


def _send_singly(address: Address, payloads: list[bytes], count: int) -> None:
    with Producer(_config(address, producer_type="async")) as producer:
        send = producer.send
        for _ in range(count // len(payloads)):
            for payload in payloads:
                send("single", payload)
        for payload in payloads[: count % len(payloads)]:
            send("single", payload)
        producer.flush()
    wait_until_visible(address, count * STORED_BYTES, topic="single")


def _send_awaited(address: Address, payloads: list[bytes], count: int) -> None:
    async def send() -> None:
        async with aio.Producer(_config(address, acks="written")) as producer:
            await send_in_tasks(partial(producer.send, "awaited"), payloads, count)

    asyncio.run(send())
    wait_until_visible(address, count * STORED_BYTES, topic="awaited")


def _consume(address: Address, count: int) -> None:
    offset = consumed = 0
    with SimpleConsumer(*address) as consumer:
        while consumed < count:
            for message, next_offset in consumer.fetch(
                FetchRequest("lists", 0, offset, _FETCH_BYTES)
            ):
                if message.payload:
                    consumed += 1
                offset = next_offset


def _consume_in_group(address: Address, count: int) -> tuple[float, float]:
    """As `_timed`; the clock starts with the first message, after joining."""
    with SimpleConsumer(*address) as consumer:
        connect = consumer.coordination()
    with Consumer.create(ConsumerConfig(group="bench", zookeeper_connect=connect)) as connector:
        (stream,) = connector.create_message_streams({"lists": 1})["lists"]
        next(stream)
        return _timed(count - 1, lambda: _iterate_over(stream, count - 1))


def _iterate_over(stream: Iterator[StreamMessage], count: int) -> None:
    for each in stream:
        if each.message:
            count -= 1
        if not count:
            break


async def _follow(address: Address, count: int) -> tuple[float, float]:
    """As `_timed`."""
    started, cpu_started = time.perf_counter(), time.process_time()
    left = count
    async with aio.SimpleConsumer(*address) as consumer:
        async for message, _next_offset in consumer.follow("lists", 0, 0):
            if message.payload:
                left -= 1
            if not left:
                break
    cpu = time.process_time() - cpu_started
    return count / (time.perf_counter() - started) / _THOUSAND, cpu / count


def _config(address: Address, acks: str = "none", **settings: str) -> ProducerConfig:
    host, port = address
    return ProducerConfig(broker_list=f"0:{host}:{port}", acks=acks, **settings)  # type: ignore[arg-type]


# -- the clients of Kafka -----------------------------------------------------------------------


def _of_client(
    client: KafkaClient, cluster: MockCluster, payloads: list[bytes]
) -> dict[str, float]:
    """Thousands of messages per second, for each thing that a client of Kafka can do."""
    rates = {_SINGLE: client.produce(cluster, payloads), _CONSUMER: client.consume(cluster)}
    if isinstance(client, AwaitingClient):
        rates[_AWAITED] = client.produce_awaited(cluster, payloads)
    return {name: rate / _THOUSAND for name, rate in rates.items()}
