"""Latency: from the moment a message was due to be sent to its arrival at a waiting consumer.

One process sends 100 messages a second on one connection and holds a waiting fetch on another.
The schedule is fixed beforehand (open loop): a message that leaves late because something was
slow is counted from when it was due. Every message is flushed before it becomes visible.

Beside the bare requests the same is taken of `Producer` with its defaults, synchronous and
asynchronous: what collecting messages costs when there is nothing to collect.
"""

import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from struct import Struct

from bench.support.consumer import WaitingConsumer
from bench.support.load import STORED_BYTES, connect, make_payloads
from bench.support.report import Row, bound_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from hermes import Producer, ProducerConfig
from hermes.protocol import ProduceRequest, encode_message_set

__all__ = ["measure"]

_RATE = 100
_TARGET_MS = 5.0
_TOPIC = "latency"
_DUE = Struct(">q")  # when a message was due, in ns of `time.perf_counter_ns`
_SECOND_NS = 1_000_000_000
_WARM_UP_MESSAGES = 50
_TURNS = 5
_PATIENCE_SECONDS = 10.0
_SHARES = (("p50", 0.50), ("p99", 0.99))
# How much longer than the synchronous producer's the asynchronous one's messages may take.
_MOST_MORE_MS = 1.0


def measure(settings: Settings) -> list[Row]:
    """Send at a steady pace and report the median and the 99th percentile.

    In turns with the disk alone, since both suffer when something else writes to it.
    """
    count = int(settings.latency_seconds * _RATE / _TURNS)
    latencies: list[float] = []
    disk: list[float] = []
    sync: list[float] = []
    asynchronous: list[float] = []
    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        _of_requests(broker, _WARM_UP_MESSAGES)
        for _ in range(_TURNS):
            latencies += _of_requests(broker, count)
            disk += _flush_times(directory / "disk", count // 2)
            sync += _of_producer(broker, count // 2, "sync")
            asynchronous += _of_producer(broker, count // 2, "async")
    note = f"{len(latencies)} messages at {_RATE}/s, open loop, the broker's default settings"
    rows = [
        bound_row(
            f"produce to waiting consumer, {name}",
            "ms",
            _percentile(latencies, share),
            below=_TARGET_MS,
            beside=_percentile(disk, share),
            beside_name="append + fdatasync",
            note=note if name == "p50" else "",
        )
        for name, share in _SHARES
    ]
    for name, share in _SHARES:
        beside = _percentile(sync, share)
        rows.append(
            bound_row(
                f"asynchronous Producer to waiting consumer, {name}",
                "ms",
                _percentile(asynchronous, share),
                below=round(beside + _MOST_MORE_MS, 2),
                beside=beside,
                beside_name="synchronous Producer",
                note=f"{len(asynchronous)} messages each" if name == "p50" else "",
            )
        )
    return rows


def _of_requests(broker: HermesBroker, count: int) -> list[float]:
    """How long messages are under way that are sent as bare requests."""
    with connect(broker.address) as producer:
        return _latencies(
            broker,
            count,
            lambda payload: producer.sendall(
                ProduceRequest(_TOPIC, 0, encode_message_set([payload])).encode()
            ),
        )


def _of_producer(broker: HermesBroker, count: int, producer_type: str) -> list[float]:
    """How long messages are under way that a `Producer` sends."""
    host, port = broker.address
    config = ProducerConfig(broker_list=f"0:{host}:{port}", producer_type=producer_type)  # type: ignore[arg-type]
    with Producer(config) as producer:
        producer.send(_TOPIC, b"the first connects").result()
        return _latencies(broker, count, partial(producer.send, _TOPIC))


def _latencies(broker: HermesBroker, count: int, send: Callable[[bytes], object]) -> list[float]:
    """Send `count` messages and return how long each was under way, in ms."""
    filler = make_payloads(1)[0][_DUE.size :]
    with connect(broker.address) as waiting:
        consumer = WaitingConsumer(waiting, _TOPIC)
        consumer.seek_to_end()
        consumer.request()
        latencies: list[float] = []
        begin = time.perf_counter_ns()
        for number in range(count):
            due = begin + number * _SECOND_NS // _RATE
            _receive_until(due, consumer, waiting, latencies)
            send(_DUE.pack(due) + filler)
        deadline = time.perf_counter_ns() + int(_PATIENCE_SECONDS * _SECOND_NS)
        while len(latencies) < count and time.perf_counter_ns() < deadline:
            _receive_until(time.perf_counter_ns() + _SECOND_NS // 100, consumer, waiting, latencies)
    if len(latencies) != count:
        raise RuntimeError(f"{count} messages were sent and {len(latencies)} arrived")
    return latencies


def _receive_until(
    due: int, consumer: WaitingConsumer, connection: socket.socket, latencies: list[float]
) -> None:
    """Take what arrives until it is time to send the next message."""
    while (left := due - time.perf_counter_ns()) > 0:
        readable, _, _ = select.select([connection], [], [], left / _SECOND_NS)
        if readable:
            payloads = consumer.payloads()
            now = time.perf_counter_ns()
            consumer.request()
            latencies += [(now - _DUE.unpack_from(payload)[0]) / 1e6 for payload in payloads]


def _flush_times(path: Path, count: int) -> list[float]:
    """How long the disk alone takes for a message: what no broker that flushes can do without."""
    message = bytes(STORED_BYTES)
    times = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for _ in range(count):
            begin = time.perf_counter_ns()
            os.write(file, message)
            os.fdatasync(file)
            times.append((time.perf_counter_ns() - begin) / 1e6)
            time.sleep(0.5 / _RATE)
    finally:
        os.close(file)
    return times


def _percentile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
