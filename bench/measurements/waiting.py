"""Consumers that wait: what the polls of 2,000 of them cost the broker, beside Kafka.

Each has a connection and a topic of its own in which nothing happens, and asks again whenever its
fetch is answered, after half a second: `fetch.max.wait.ms` of Kafka's clients.
"""

from collections import defaultdict

from bench.peers.kafka import create_topics
from bench.support import kafka_frames
from bench.support.driver import Driven, Load, build_driver, drive, merged
from bench.support.report import Row, bound_row
from bench.support.settings import Settings
from bench.support.sides import KAFKA, hermes_and_kafka

__all__ = ["measure"]

_WAIT_MS = 500
_TARGET_PERCENT = 3.0
#: Long enough for all of them to have connected and waited once.
_WARM_UP_SECONDS = 3.0


def measure(settings: Settings) -> list[Row]:
    """Take the brokers' processor time in turns, with the consumers and without."""
    count = settings.consumers
    topics = [f"idle-{number:05d}" for number in range(count)]
    frames = [kafka_frames.fetch_frame(topic, 0, max_wait_ms=_WAIT_MS) for topic in topics]
    runs: defaultdict[str, list[Driven]] = defaultdict(list)
    idle: defaultdict[str, list[Driven]] = defaultdict(list)
    with settings.workspace() as directory, hermes_and_kafka(directory) as sides:
        driver = build_driver(directory)
        for side in sides.running.values():
            create_topics(side.address, topics)
        for _ in range(settings.rounds):
            for name, side in sides.running.items():
                for connections, results in ((1, idle), (count, runs)):
                    load = Load(
                        side.address,
                        frames[:connections],
                        kafka_frames.fetch_error_at(topics[0]),
                        connections,
                        seconds=settings.latency_seconds / 2,
                        warm_up_seconds=_WARM_UP_SECONDS,
                        ramp_seconds=_WAIT_MS / 1000,
                    )
                    results[name] += drive(driver, [load], {name: side.pid})
    hermes, *others = ((name, merged(results)) for name, results in runs.items())
    percents = [100 * result.cores(name) for name, result in (hermes, *others)]
    alone = {name: 100 * merged(results).cores(name) for name, results in idle.items()}
    described = [
        f"{name}: {result.rate:,.0f} polls/s, {alone[name]:.2f} % with a single consumer"
        for name, result in (hermes, *others)
    ]
    row = bound_row(
        f"{count:,} waiting consumers",
        "% of a core",
        percents[0],
        below=_TARGET_PERCENT,
        beside=percents[1] if others else None,
        beside_name=KAFKA if others else "",
        note="; ".join(described),
    )
    return [row, *sides.missing]
