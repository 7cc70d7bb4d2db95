"""Many processors: small acknowledged requests to one broker and to several on one machine.

A broker's Python runs on one core at a time. A cluster of 1, 2 and 4 brokers gets the load of
`rates` (a hundred connections in all, a request each at a time), each broker for partitions of its
own; the drivers take cores, too. Then a single broker by itself: with the compiled core, without
it, and on Pythons without a global lock (`--twistd`), in which that lock is off, or on again.
"""

import os
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measurements.rates import CONNECTIONS, produce_frames
from bench.peers.kafka import create_topics, partitions_by_broker
from bench.support import kafka_frames
from bench.support.driver import Driven, Load, build_driver, drive, merged
from bench.support.report import Row
from bench.support.servers import Address, HermesBroker, free_port
from bench.support.settings import Settings
from bench.support.sides import LISTEN

__all__ = ["measure"]

_BROKERS = (1, 2, 4)
_PARTITIONS = 10
_TOPIC = "small"
_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Broker:
    """A broker, and the numbers of its partitions in its cluster."""

    broker: HermesBroker
    partitions: list[int]


def measure(settings: Settings) -> list[Row]:
    """As many as they answer, in turns; the first round warms up."""
    runs: defaultdict[str, list[Driven]] = defaultdict(list)
    with settings.workspace() as directory, ExitStack() as stack:
        driver = build_driver(directory)
        clusters = {
            f"brokers: {count}": _cluster(directory / f"cluster-{count}", count, stack)
            for count in _BROKERS
        }
        clusters |= _alone(directory, settings.twistd, stack)
        for number in range(settings.rounds + 1):
            for name, brokers in clusters.items():
                if number:
                    runs[name].append(_run(driver, brokers, settings))
                else:
                    _run(driver, brokers, settings)
    results = {name: merged(each) for name, each in runs.items()}
    beside = next(iter(results))
    return [
        Row(
            name,
            "requests/s",
            result.rate,
            results[beside].rate,
            beside,
            note=f"{sum(result.server_seconds.values()) / result.seconds:.2f} cores, drivers"
            f" {result.driver_cores:.2f}, of {os.cpu_count()};"
            f" p50 {result.ms(0.5):.2f}, p99 {result.ms(0.99):.2f} ms",
        )
        for name, result in results.items()
    ]


def _cluster(directory: Path, count: int, stack: ExitStack) -> list[_Broker]:
    """Brokers that know each other; the first one has the coordination."""
    coordination = f"tcp:{(port := free_port())}:interface=127.0.0.1"
    first = {"coordination": "embedded", "coordination_listen": coordination}
    others = {"coordination": "zookeeper", "zookeeper_connect": f"127.0.0.1:{port}"}
    brokers = [
        _start(directory / str(number), stack, broker_id=number, **(others if number else first))
        for number in range(count)
    ]
    address = _kafka_address(brokers[0])
    create_topics(address, [_TOPIC], count * _PARTITIONS)
    partitions = partitions_by_broker(address, _TOPIC)
    return [_Broker(broker, partitions[number]) for number, broker in enumerate(brokers)]


def _alone(directory: Path, twistds: str, stack: ExitStack) -> dict[str, list[_Broker]]:
    """Single brokers of other kinds, which need no request but Produce."""
    kinds: dict[str, dict[str, Any]] = {"HERMES_PURE=1": {"environment": {"HERMES_PURE": "1"}}}
    for twistd in filter(None, twistds.split(",")):
        for lock in ("0", "1"):
            environment = {"PYTHON_GIL": lock}
            kinds[f"{twistd}, PYTHON_GIL={lock}"] = {
                "program": (twistd,),
                "environment": environment,
            }
    topics = {_TOPIC: {"format": "kafka", "partitions": _PARTITIONS}}
    partitions = list(range(_PARTITIONS))
    return {
        name: [_Broker(_start(directory / f"{place}", stack, topics=topics, **kind), partitions)]
        for place, (name, kind) in enumerate(kinds.items())
    }


def _start(directory: Path, stack: ExitStack, **settings: Any) -> HermesBroker:
    return stack.enter_context(HermesBroker(directory, kafka_listen=LISTEN, **settings))


def _run(driver: Path, brokers: list[_Broker], settings: Settings) -> Driven:
    """All brokers at once, as one result."""
    connections = CONNECTIONS // len(brokers)
    loads = [
        Load(
            _kafka_address(each.broker),
            produce_frames(_TOPIC, each.partitions, connections),
            kafka_frames.produce_error_at(_TOPIC),
            connections,
            seconds=settings.latency_seconds / 2,
            warm_up_seconds=_WARM_UP_SECONDS,
        )
        for each in brokers
    ]
    pids = {str(number): each.broker.pid for number, each in enumerate(brokers)}
    results = drive(driver, loads, pids)
    whole = merged(results)
    whole.seconds = results[0].seconds  # they ran at the same time
    return whole


def _kafka_address(broker: HermesBroker) -> Address:
    if broker.kafka_address is None:
        raise RuntimeError("the broker does not listen for Kafka's clients")
    return broker.kafka_address
