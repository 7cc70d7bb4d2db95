"""Small requests on one connection while another one sends or fetches a megabyte at a time.

The small ones are produces of a message each (acks=all, 200 a second); the other connection sends
100 MB a second, or fetches 1 GB, a request at a time. Both go through the same disk: with large
produces the small ones wait for flushes of megabytes, on Kafka only if they fill its memory. The
large load is the same on both brokers; one that is as fast as it can be would favour the slower.
"""

import time
from collections import defaultdict

from bench.measurements.rates import IN_FLIGHT, produce_frames
from bench.peers.kafka import create_topics
from bench.support import kafka_frames
from bench.support.driver import Driven, Load, build_driver, drive, merged
from bench.support.load import connect
from bench.support.report import Row
from bench.support.settings import Settings
from bench.support.sides import HERMES, KAFKA, Side, hermes_and_kafka

__all__ = ["measure"]

_RATE = 200
_LARGE_VALUE_BYTES = 1_000_000
_SENDS, _READS = 100, 1_000  # a second
#: Enough that a fetch finds its megabyte.
_LARGE_BATCHES = 4
_SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
_ALONE, _PRODUCES, _FETCHES = "alone", "beside 1 MB produces", "beside 1 MB fetches"


def measure(settings: Settings) -> list[Row]:
    """The small requests alone, beside produces and beside fetches, in turns."""
    runs: defaultdict[tuple[str, str], list[Driven]] = defaultdict(list)
    large: defaultdict[tuple[str, str], list[Driven]] = defaultdict(list)
    with settings.workspace() as directory, hermes_and_kafka(directory) as sides:
        driver = build_driver(directory)
        loads = {name: _loads(side, settings) for name, side in sides.running.items()}
        for number in range(settings.rounds + 1):
            for name, (small, others) in loads.items():
                for what, other in others.items():
                    both = [small, *([other] if other else [])]
                    result, *beside = drive(driver, both, {name: sides.running[name].pid})
                    if number:  # the first one warms up
                        runs[name, what].append(result)
                        large[name, what] += beside
    rows = []
    for what in (_ALONE, _PRODUCES, _FETCHES):
        results = {name: merged(runs[name, what]) for name in sides.running}
        kafka = results.get(KAFKA)
        described = []
        for name, result in results.items():
            rate = f", {merged(beside).rate:,.0f} MB/s" if (beside := large[name, what]) else ""
            described.append(f"{name}: {result.cores(name):.2f} cores{rate}")
        rows += [
            Row(
                f"small requests {what}: {label}",
                "ms",
                results[HERMES].ms(share),
                kafka.ms(share) if kafka else None,
                KAFKA,
                note="; ".join(described) if label == "p99" else "",
            )
            for label, share in _SHARES
        ]
    return [*rows, *sides.missing]


def _loads(side: Side, settings: Settings) -> tuple[Load, dict[str, Load | None]]:
    """The small requests, and what is beside them."""
    create_topics(side.address, ["small", "large", "read"])
    value, now_ms = bytes(_LARGE_VALUE_BYTES), time.time_ns() // 1_000_000
    produces, fills = (
        kafka_frames.produce_frame(topic, [value], acks=-1, timestamp_ms=now_ms)
        for topic in ("large", "read")
    )
    with connect(side.address) as connection:
        for _ in range(_LARGE_BATCHES):
            kafka_frames.exchange(connection, fills)
    seconds = settings.latency_seconds / 2
    fetch = kafka_frames.fetch_frame("read", 0, max_wait_ms=0)
    errors = kafka_frames.produce_error_at("large"), kafka_frames.fetch_error_at("read")
    sends, reads = (
        Load(side.address, [frame], error_at, rate=rate, seconds=seconds)
        for frame, error_at, rate in zip((produces, fetch), errors, (_SENDS, _READS), strict=True)
    )
    small = Load(
        side.address,
        produce_frames("small", [0], 1),
        kafka_frames.produce_error_at("small"),
        rate=_RATE,
        in_flight=IN_FLIGHT,
        seconds=seconds,
    )
    return small, {_ALONE: None, _PRODUCES: sends, _FETCHES: reads}
