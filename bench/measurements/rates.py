"""Small acknowledged requests at given rates: how long they take, beside Kafka, in turns.

A hundred connections send one message a request (200 bytes, acks=all, as with `linger.ms=0`) to ten
partitions: 1,000 a second, 2,000, 10,000, and as many as the server answers, a request of each
connection at a time. At a given rate the schedule is fixed beforehand: a request counts from when
it was due. Hermes flushes before it answers; Kafka does with `flush.messages=1` only. The same load
on a server that does nothing shows what part of it all is the driver's.
"""

import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass

from bench.peers.kafka import create_topics
from bench.support import kafka_frames
from bench.support.driver import Driven, Load, NullServer, build_driver, drive, merged
from bench.support.load import connect, make_payloads
from bench.support.report import Row
from bench.support.servers import Address
from bench.support.settings import Settings
from bench.support.sides import HERMES, KAFKA, Side, hermes_and_kafka

__all__ = ["CONNECTIONS", "IN_FLIGHT", "measure", "produce_frames"]

CONNECTIONS = 100
#: What Kafka's clients allow by default.
IN_FLIGHT = 5
_RATES = (1_000, 2_000, 10_000, 0)
_PARTITIONS = 10
_WARM_UP_SECONDS = 2.0
_SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
_FLUSHING, _NULL = "Kafka, flush.messages=1", "a server that does nothing"


@dataclass(slots=True)
class _Target:
    side: Side
    frames: list[bytes]
    error_at: int
    answers: int = 0


def measure(settings: Settings) -> list[Row]:
    """Send at each rate to each server in turns; the first round warms up."""
    with settings.workspace() as directory, ExitStack() as stack:
        driver = build_driver(directory)
        sides = stack.enter_context(hermes_and_kafka(directory))
        targets = {name: _target(side, "small") for name, side in sides.running.items()}
        if kafka := sides.running.get(KAFKA):
            targets[_FLUSHING] = _target(kafka, "flushing", flush_messages=1)
        hermes = targets[HERMES]
        answer = _exchange(hermes.side.address, hermes.frames[0])
        null = stack.enter_context(
            NullServer(driver, len(answer).to_bytes(4) + answer, directory / "null")
        )
        nothing = Side(null.pid, null.address)
        targets[_NULL] = _Target(nothing, hermes.frames, hermes.error_at)
        rows = []
        for rate in _RATES:
            runs: defaultdict[str, list[Driven]] = defaultdict(list)
            for number in range(settings.rounds + 1):
                for name, target in targets.items():
                    load = Load(
                        target.side.address,
                        target.frames,
                        target.error_at,
                        CONNECTIONS,
                        rate,
                        IN_FLIGHT if rate else 1,
                        settings.latency_seconds / 2,
                        _WARM_UP_SECONDS,
                    )
                    (result,) = drive(driver, [load], {name: target.side.pid})
                    target.answers += result.all_answers
                    if number:
                        runs[name].append(result)
            rows += _rows(rate, {name: merged(each) for name, each in runs.items()})
        for name, target in targets.items():
            if name != _NULL:
                _check(name, target)
    return [*rows, *sides.missing]


def produce_frames(topic: str, partitions: list[int], count: int) -> list[bytes]:
    """Requests with a message each, in turns to these partitions."""
    now_ms = time.time_ns() // 1_000_000
    return [
        kafka_frames.produce_frame(
            topic,
            [payload],
            acks=-1,
            partition=partitions[number % len(partitions)],
            timestamp_ms=now_ms,
        )
        for number, payload in enumerate(make_payloads(count))
    ]


def _target(side: Side, topic: str, **config: object) -> _Target:
    create_topics(side.address, [topic], _PARTITIONS, **config)
    frames = produce_frames(topic, list(range(_PARTITIONS)), CONNECTIONS)
    return _Target(side, frames, kafka_frames.produce_error_at(topic))


def _exchange(address: Address, frame: bytes) -> bytes:
    with connect(address) as connection:
        return kafka_frames.exchange(connection, frame)


def _check(name: str, target: _Target) -> None:
    """A server that lost something has measured nothing."""
    stored = 0
    for frame in target.frames[:_PARTITIONS]:
        answer = _exchange(target.side.address, frame)[target.error_at - 4 :]
        if answer[:2] != bytes(2):
            raise RuntimeError(f"{name} answered with error {answer[:2].hex()}")
        stored += int.from_bytes(answer[2:10])
    if stored < target.answers:
        raise RuntimeError(f"{name} acknowledged {target.answers} messages, and has {stored}")


def _rows(rate: int, results: dict[str, Driven]) -> list[Row]:
    what = f"{rate:,}/s" if rate else f"{CONNECTIONS} at a time"
    note = "; ".join(_described(name, result) for name, result in results.items())
    hermes, kafka = results[HERMES], results.get(KAFKA)
    values = [(label, "ms", lambda each, s=share: each.ms(s)) for label, share in _SHARES]
    values.append(("answers", "/s", lambda each: each.rate))
    return [
        Row(
            f"small requests, {what}: {label}",
            unit,
            value(hermes),
            value(kafka) if kafka else None,
            KAFKA,
            note=note if label == "answers" else "",
        )
        for label, unit, value in values
    ]


def _described(name: str, result: Driven) -> str:
    times = " / ".join(f"{result.ms(share):.2f}" for _, share in _SHARES)
    return (
        f"{name}: {times} ms, {result.rate:,.0f}/s, {result.cores(name):.2f} cores,"
        f" driver {result.driver_cores:.2f}, withheld {result.withheld_cores:.2f}"
    )
