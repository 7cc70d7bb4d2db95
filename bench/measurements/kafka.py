"""Kafka's protocol: confluent-kafka with its defaults on Hermes, beside other brokers.

Beside it, in turns: Kafka 4 with its defaults, librdkafka's own mock cluster (C, in memory, checks
nothing) and the disk alone. Producers ask for acks=all, as is their default: Hermes has flushed
when it answers, Kafka hasn't. 200-byte messages; each broker is a process of its own.
"""

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from struct import Struct
from typing import Any

from bench.peers.kafka import KafkaBroker, MockBroker
from bench.peers.system import NotInstalled
from bench.support.load import MESSAGE_BYTES, make_payloads
from bench.support.report import Row, bound_row, ratio_row, skipped_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, resident_bytes

__all__ = ["consume", "end_to_end", "measure", "produce", "quantile"]

_HERMES, _MOCK, _KAFKA = "Hermes", "mock cluster", "Kafka"
_UNIT = "messages/s"
_CONSUME = "consume"
_ENDLESS = "consume, the client's queue endless"
#: With its defaults librdkafka sleeps for a second whenever 100,000 messages wait in its queue: a
#: read takes a second, and two to four of these. One alone would measure how they fall.
_READS = 3
_PAUSES = f"{_READS} reads a round, of which the client sleeps the most: see the row below"
_PATIENCE_SECONDS = 120.0
_DISTINCT_PAYLOADS = 1_000
_CONSUME_AT_ONCE = 10_000
#: With these librdkafka never stops fetching for a second because its queue is full.
_UNPAUSED = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_097_151}
_LISTEN = "tcp:0:interface=127.0.0.1"

# What each message costs in a batch beside its payload, and how much is flushed at a time below.
_STORED_BYTES = MESSAGE_BYTES + 9
_WRITE_BYTES = 1 << 20

_TRANSACTION_MESSAGES = 100
_OF_TRANSACTIONS = 20  # of so many messages that are sent one is sent in a transaction, too

_RATE = 100
_WARM_UP_MESSAGES = 100
_LATENCY_MS = 5.0
_DUE = Struct(">q")  # when a message was due, in ns of `time.perf_counter_ns`

_SHARE_OF_MOCK = _SHARE_OF_DISK = 0.8
_LATER_SECONDS = 0.1


def measure(settings: Settings) -> list[Row]:
    """Produce, consume, and time single messages; then memory and start-up."""
    if find_spec("confluent_kafka") is None:
        return [skipped_row("confluent-kafka", "pip install confluent-kafka")]
    count = int(settings.messages * 1e6)
    rows: list[Row] = []
    with settings.workspace() as directory, ExitStack() as stack:
        hermes = stack.enter_context(HermesBroker(directory / "hermes", kafka_listen=_LISTEN))
        brokers: dict[str, Any] = {_HERMES: hermes}
        for name, kind in ((_MOCK, MockBroker), (_KAFKA, KafkaBroker)):
            try:
                brokers[name] = stack.enter_context(kind(directory / kind.__name__))
            except NotInstalled as missing:
                rows.append(skipped_row(name, str(missing)))
        rows += _throughput(brokers, settings.rounds, count, directory)
        rows += _transactions(brokers, settings.rounds, count // _OF_TRANSACTIONS)
        rows += _latencies(brokers, int(settings.latency_seconds * _RATE))
        rows.append(_memory(brokers))
    return [*rows, _start(settings)]


# -- throughput ---------------------------------------------------------------------------------


def _throughput(brokers: dict[str, Any], rounds: int, count: int, directory: Path) -> list[Row]:
    produced: defaultdict[str, list[float]] = defaultdict(list)
    consumed: defaultdict[str, list[float]] = defaultdict(list)
    unpaused: defaultdict[str, list[float]] = defaultdict(list)
    disk: list[float] = []
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    for number in range(rounds + 1):
        for name, broker in brokers.items():
            topic = f"bench-{number}"
            into = produce(_kafka_address(broker), topic, payloads, count)
            out = statistics.harmonic_mean(
                [consume(_kafka_address(broker), topic) for _ in range(_READS)]
            )
            at_once = consume(_kafka_address(broker), topic, _UNPAUSED)
            if number:  # the first one warms up
                produced[name].append(into)
                consumed[name].append(out)
                unpaused[name].append(at_once)
        if number:
            disk.append(count / _append_and_flush(directory / "disk", count * _STORED_BYTES))
    rows = []
    best = min(
        _SHARE_OF_MOCK * statistics.median(produced.get(_MOCK, [float("inf")])),
        _SHARE_OF_DISK * statistics.median(disk),
    )
    rates = {"produce, acks=all": produced, _CONSUME: consumed, _ENDLESS: unpaused}
    for what, runs in rates.items():
        for name in brokers:
            if name != _HERMES:
                rows.append(
                    ratio_row(
                        what,
                        _UNIT,
                        runs[_HERMES],
                        runs[name],
                        beside_name=name,
                        at_least=1.0 if name == _KAFKA else None,
                        note=_PAUSES if what == _CONSUME else "",
                    )
                )
    reached = statistics.median(produced[_HERMES])
    rows.append(
        Row(
            "produce, acks=all",
            _UNIT,
            reached,
            statistics.median(disk),
            "append + fdatasync",
            target=f">= {best:,.0f}",
            met=reached >= best,
            note=f"the target is {_SHARE_OF_MOCK:.0%} of the mock cluster, or of the disk if less",
        )
    )
    return rows


def _kafka_address(broker: Any) -> str:
    host, port = broker.kafka_address if isinstance(broker, HermesBroker) else broker.address
    return f"{host}:{port}"


def produce(address: str, topic: str, payloads: list[bytes], count: int) -> float:
    """Send messages one a call until all are acknowledged; messages per second."""
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": address, "on_delivery": _noting(failures)})
    producer.produce(topic, payloads[0], partition=0)  # which connects, and creates the topic
    producer.flush(_PATIENCE_SECONDS)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, payloads[number % len(payloads)], partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if not number & 0xFFF:
            producer.poll(0)
    left = producer.flush(_PATIENCE_SECONDS)
    taken = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{address}: {left} messages are left, {len(failures)} failed")
    return count / taken


def _noting(failures: list[Any]) -> Any:
    def note(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    return note


def consume(address: str, topic: str, settings: Mapping[str, Any] | None = None) -> float:
    """Read what the topic has kept; messages per second, from the first fetch on."""
    from confluent_kafka import Consumer, TopicPartition

    own = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**own, **(settings or {})})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, first)])
        offset, started = first, time.perf_counter()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while offset < end:
            messages = consumer.consume(_CONSUME_AT_ONCE, timeout=0.2)
            if messages:
                if messages[-1].error() is not None:
                    raise RuntimeError(str(messages[-1].error()))
                offset = messages[-1].offset() + 1
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{address}: {end - offset} messages did not come")
        return (end - first) / (time.perf_counter() - started)
    finally:
        consumer.close()


def _append_and_flush(path: Path, size_bytes: int) -> float:
    """Append and flush a megabyte at a time, the disk alone; the seconds that it takes."""
    data = os.urandom(_WRITE_BYTES)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        started = time.perf_counter()
        for _ in range(-(-size_bytes // _WRITE_BYTES)):
            os.write(file, data)
            os.fdatasync(file)
        return time.perf_counter() - started
    finally:
        os.close(file)
        path.unlink()


# -- transactions -------------------------------------------------------------------------------


def _transactions(brokers: dict[str, Any], rounds: int, count: int) -> list[Row]:
    if _KAFKA not in brokers:
        return []
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for name in (_HERMES, _KAFKA):
            rate = transact(_kafka_address(brokers[name]), "transacted", count)
            if number:  # the first one warms up
                rates[name].append(rate)
    what = f"transactions of {_TRANSACTION_MESSAGES} messages"
    beside = {"beside_name": _KAFKA, "at_least": 1.0}
    return [ratio_row(what, _UNIT, rates[_HERMES], rates[_KAFKA], **beside)]


def transact(address: str, topic: str, count: int) -> float:
    """Send messages in transactions, one after the other; messages per second."""
    from confluent_kafka import Producer

    payloads = make_payloads(_TRANSACTION_MESSAGES)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "bench"})
    producer.init_transactions(_PATIENCE_SECONDS)
    transactions = max(2, count // _TRANSACTION_MESSAGES)
    started = 0.0
    for number in range(transactions + 1):
        producer.begin_transaction()
        for each in payloads:
            producer.produce(topic, each, partition=0)
        producer.commit_transaction(_PATIENCE_SECONDS)
        if not number:  # which has created the topic
            started = time.perf_counter()
    return transactions * _TRANSACTION_MESSAGES / (time.perf_counter() - started)


# -- latency ------------------------------------------------------------------------------------


def _latencies(brokers: dict[str, Any], count: int) -> list[Row]:
    os.sync()  # what the others have left to the kernel to write would delay who flushes
    taken = {}
    for name, broker in brokers.items():
        end_to_end(_kafka_address(broker), "latency-warm", _WARM_UP_MESSAGES)
        taken[name] = end_to_end(_kafka_address(broker), "latency", count)
    beside = _KAFKA if _KAFKA in taken else _MOCK
    rows = []
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        value = quantile(taken[_HERMES], share)
        other = quantile(taken[beside], share) if beside in taken else None
        what = f"end to end at {_RATE}/s, linger.ms=0, {label}"
        if label == "p99":
            rows.append(
                bound_row(
                    what,
                    "ms",
                    value,
                    below=_LATENCY_MS,
                    beside=other,
                    beside_name=beside,
                    note=f"{count} messages; Hermes flushes before they are visible, Kafka doesn't",
                )
            )
        else:
            rows.append(Row(what, "ms", value, other, beside))
    return rows


def end_to_end(address: str, topic: str, count: int) -> list[float]:
    """Send at a steady pace; how long each message took from when it was due, in ms."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    producer.produce(topic, b"first", partition=0)
    producer.flush(_PATIENCE_SECONDS)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    latencies: list[float] = []
    is_reading = threading.Event()

    def read() -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(latencies) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            now = time.perf_counter_ns()
            if message is None or message.error() is not None:
                continue
            is_reading.set()
            if len(message.value()) == MESSAGE_BYTES:
                latencies.append((now - _DUE.unpack_from(message.value())[0]) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        if not is_reading.wait(_PATIENCE_SECONDS):
            raise TimeoutError(f"{address}: the first message did not come")
        filler = bytes(MESSAGE_BYTES - _DUE.size)
        begin = time.perf_counter_ns()
        for number in range(count):
            due = begin + number * 1_000_000_000 // _RATE
            producer.poll(0)
            time.sleep(max(0.0, (due - time.perf_counter_ns()) / 1e9))
            producer.produce(topic, _DUE.pack(due) + filler, partition=0)
        producer.flush(_PATIENCE_SECONDS)
    finally:
        reader.join()
        consumer.close()
    if len(latencies) < count:
        raise RuntimeError(f"{address}: {count} messages were sent and {len(latencies)} arrived")
    return latencies


def quantile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


# -- memory and start-up ------------------------------------------------------------------------


def _memory(brokers: dict[str, Any]) -> Row:
    used = {name: resident_bytes(broker.pid) / MEGABYTE for name, broker in brokers.items()}
    return Row("resident memory after all that", "MB", used[_HERMES], used.get(_KAFKA), _KAFKA)


def _start(settings: Settings) -> Row:
    """How long a broker takes to start, with Kafka's protocol and without, in turns."""
    times: defaultdict[bool, list[float]] = defaultdict(list)
    with settings.workspace() as directory:
        for number in range(2 * settings.rounds):
            for has_kafka in (True, False):
                more = {"kafka_listen": _LISTEN} if has_kafka else {}
                place = directory / f"{number}-{has_kafka}"
                with HermesBroker(place, **more) as broker:
                    times[has_kafka].append(broker.start_seconds)
    with_it, without = statistics.median(times[True]), statistics.median(times[False])
    return bound_row(
        "start with kafka_listen",
        "s",
        with_it,
        below=round(without + _LATER_SECONDS, 3),
        beside=without,
        beside_name="without",
    )
