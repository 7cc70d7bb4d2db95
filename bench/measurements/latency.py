"""Latency: from the moment a message was due to be sent to its arrival at a waiting consumer.

One process sends 100 messages a second on one connection and holds a waiting fetch on another.
The schedule is fixed beforehand (open loop): a message that leaves late because something was
slow is counted from when it was due. Every message is flushed before it becomes visible.

Beside that, in turns: how long `Producer` takes from a call to its outcome, synchronous and
asynchronous with its defaults, which is what collecting costs when there is nothing to collect.
"""

import os
import select
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from bench.support.consumer import WaitingConsumer
from bench.support.load import STORED_BYTES, connect, make_payloads
from bench.support.report import Row, bound_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from hermes import Producer, ProducerConfig
from hermes.protocol import ProduceRequest, encode_message_set

__all__ = ["measure", "median", "message_latencies"]

_RATE = 100
_TARGET_MS = 5.0
_TOPIC = "latency"
_DUE = Struct(">q")  # when a message was due, in ns of `time.perf_counter_ns`
_SECOND_NS = 1_000_000_000
_WARM_UP_MESSAGES = 50
_TURNS = 5
_PATIENCE_SECONDS = 10.0
_SHARES = (("p50", 0.50), ("p99", 0.99))
_SLOWEST = 0.999  # of a few thousand messages, so to know and not to be held to
# How much longer than the synchronous producer's the asynchronous one's messages may take.
_MOST_MORE_MS = 1.0


def measure(settings: Settings) -> list[Row]:
    """Send at a steady pace and report the median, and what few messages take longer than.

    In turns with the disk alone, since both suffer when something else writes to it.
    """
    count = int(settings.latency_seconds * _RATE / _TURNS)
    latencies: list[float] = []
    disk: list[float] = []
    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        _latencies(broker, _WARM_UP_MESSAGES)
        for _ in range(_TURNS):
            latencies += _latencies(broker, count)
            disk += _flush_times(directory / "disk", count // 2)
        sync, asynchronous = _outcome_times(broker, count * _TURNS // 2)
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
    slowest = _percentile(latencies, _SLOWEST), _percentile(disk, _SLOWEST)
    name = "produce to waiting consumer, p99.9"
    rows.append(Row(name, "ms", *slowest, "append + fdatasync"))
    (_, half), (_, most) = _SHARES
    beside, name = "synchronous Producer", "asynchronous Producer, call to outcome"
    middle = _percentile(sync, half)
    rows.append(
        bound_row(
            f"{name}, p50",
            "ms",
            _percentile(asynchronous, half),
            below=round(middle + _MOST_MORE_MS, 2),
            beside=middle,
            beside_name=beside,
            note=f"{len(sync)} messages each, at {_RATE}/s",
        )
    )
    slow = _percentile(asynchronous, most), _percentile(sync, most)
    rows.append(Row(f"{name}, p99", "ms", *slow, beside))
    return rows


def _outcome_times(broker: HermesBroker, count: int) -> tuple[list[float], list[float]]:
    """How long messages take from the call to their outcome, in ms: synchronous, asynchronous."""
    host, port = broker.address
    listed, payload = f"0:{host}:{port}", make_payloads(1)[0]
    times: tuple[list[float], list[float]] = [], []
    with (
        Producer(ProducerConfig(broker_list=listed)) as one,
        Producer(ProducerConfig(broker_list=listed, producer_type="async")) as other,
    ):
        for producer in (one, other):
            producer.send(_TOPIC, payload).result()  # which connects
        for _ in range(count):
            for producer, taken in zip((one, other), times, strict=True):
                time.sleep(0.5 / _RATE)
                begin = time.perf_counter_ns()
                producer.send(_TOPIC, payload).result()
                taken.append((time.perf_counter_ns() - begin) / 1e6)
    return times


def _latencies(broker: HermesBroker, count: int) -> list[float]:
    return message_latencies(broker.address, broker.address, count)


def message_latencies(sent_to: Address, read_from: Address, count: int) -> list[float]:
    """Send `count` messages and return how long each was under way, in ms.

    Args:
        sent_to: the broker that they are sent to.
        read_from: the broker where they are awaited: the same, or a mirror's target.
        count: how many.
    """
    filler = make_payloads(1)[0][_DUE.size :]
    with connect(sent_to) as producer, connect(read_from) as waiting:
        consumer = WaitingConsumer(waiting, _TOPIC)
        consumer.seek_to_end()
        consumer.request()
        latencies: list[float] = []
        begin = time.perf_counter_ns()
        for number in range(count):
            due = begin + number * _SECOND_NS // _RATE
            _receive_until(due, consumer, waiting, latencies)
            payload = _DUE.pack(due) + filler
            producer.sendall(ProduceRequest(_TOPIC, 0, encode_message_set([payload])).encode())
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


def median(values: Sequence[float]) -> float:
    """The value that half of them are below."""
    return _percentile(values, 0.5)


def _percentile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
