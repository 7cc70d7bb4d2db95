"""Hermes and, if it is there, Kafka, running beside each other for measurements in turns."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.kafka import KafkaBroker
from bench.peers.system import NotInstalled
from bench.support.report import Row, skipped_row
from bench.support.servers import Address, HermesBroker

__all__ = ["HERMES", "KAFKA", "LISTEN", "Side", "Sides", "hermes_and_kafka"]

HERMES, KAFKA = "Hermes", "Kafka"
LISTEN = "tcp:0:interface=127.0.0.1"


@dataclass(frozen=True, slots=True)
class Side:
    """One that runs.

    Attributes:
        pid: its process.
        address: for Kafka's clients.
    """

    pid: int
    address: Address


@dataclass(slots=True)
class Sides:
    """What runs.

    Attributes:
        running: by name, Hermes first.
        missing: rows that say what doesn't run, and why.
    """

    running: dict[str, Side]
    missing: list[Row] = field(default_factory=list)


@contextmanager
def hermes_and_kafka(directory: Path, **settings: Any) -> Iterator[Sides]:
    """Start both, with their default settings but for what is given.

    Args:
        directory: where their data goes.
        settings: keys of Hermes' broker.yaml.
    """
    with ExitStack() as stack:
        place = directory / "hermes"
        hermes = stack.enter_context(HermesBroker(place, kafka_listen=LISTEN, **settings))
        sides = Sides({HERMES: Side(hermes.pid, hermes.kafka_address)})  # type: ignore[arg-type]
        try:
            kafka = stack.enter_context(KafkaBroker(directory / "kafka"))
            sides.running[KAFKA] = Side(kafka.pid, kafka.address)
        except NotInstalled as missing:
            sides.missing.append(skipped_row(KAFKA, str(missing)))
        yield sides
