"""Every kind of attack, each on a new broker, for the short test and the long one."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from attack_rounds import Outcome, attack
from fuzz_rounds import check_aftermath
from hermes_testkit import BrokerProcess
from measured_twistd import measured_program
from server_process import free_ports
from witness import broker_witness, coordination_witness, kafka_witness
from worst_kafka_requests import kafka_kinds, prepare_kafka
from worst_requests import (
    WIDE_TOPIC,
    Kind,
    broker_kinds,
    coordination_kinds,
    prepare_broker,
    prepare_coordination,
)

__all__ = ["attack_everything"]


def attack_everything(
    start_broker: Callable[..., BrokerProcess],
    directory: Path,
    port_name: str,
    connections: int,
    seconds: float,
    *,
    only: str = "",
    together: bool = False,
    max_topics: int = 10_000,
) -> Iterator[Outcome]:
    """Attack one port with each kind of request.

    Args:
        start_broker: starts a broker.
        directory: for the brokers' logs and for what their reactors measure.
        port_name: one of `PORTS` of `fuzzed_broker`.
        connections: how many at a time.
        seconds: how long a kind may take.
        only: kinds whose names don't have this are left out.
        together: all kinds go to one broker, instead of each to its own.
        max_topics: how many the broker allows; a stop flushes them all.
    """
    makers = {
        "broker": broker_kinds,
        "coordination": coordination_kinds,
        "kafka": kafka_kinds,
    }
    kinds = [kind for kind in makers[port_name]() if only in kind.name]
    for number, each in enumerate([kinds] if together else [[kind] for kind in kinds]):
        place = directory / f"attack-{number}"
        place.mkdir()
        yield from _attack(start_broker, place, port_name, each, connections, seconds, max_topics)
        shutil.rmtree(place)


def _attack(
    start_broker: Callable[..., BrokerProcess],
    place: Path,
    port_name: str,
    kinds: list[Kind],
    connections: int,
    seconds: float,
    max_topics: int,
) -> Iterator[Outcome]:
    is_kafka = port_name == "kafka"
    coordination_port, kafka_port = free_ports(2)
    broker = start_broker(
        program=measured_program(),
        environment={"HERMES_TURNS": str(place / "turns")},
        log_dir=str(place / "logs"),
        topics={WIDE_TOPIC: {"partitions": 100}},
        max_topics=max_topics,
        stop_timeout="5s",
        access=[{"principal": "anonymous", "operations": ["all"]}],
        coordination="embedded",
        coordination_listen=f"tcp:{coordination_port}:interface=127.0.0.1",
        **({"kafka_listen": f"tcp:{kafka_port}:interface=127.0.0.1"} if is_kafka else {}),
    )
    ports = {"broker": broker.port, "coordination": coordination_port, "kafka": kafka_port}
    port = ports[port_name]
    with ExitStack() as stack:
        stack.callback(broker.kill)
        with broker.connect() as client:
            prepare_broker(client)
        prepare_coordination(coordination_port)
        if is_kafka:
            prepare_kafka(kafka_port)
        witness = stack.enter_context(closing(broker_witness(broker.port)))
        made = (
            kafka_witness(port, "kafka-witness")
            if is_kafka
            else coordination_witness(coordination_port)
        )
        other = stack.enter_context(closing(made))
        is_done = True
        for kind in kinds:
            witnesses = [witness, other]
            outcome = attack(broker, port, kind, connections, witnesses, place / "turns", seconds)
            is_done = outcome.finished
            yield outcome
        other.end()
        if is_done:
            check_aftermath(broker, witness)
        else:  # much was asked for, and it is still being done; a stop need not wait for that
            witness.end()
