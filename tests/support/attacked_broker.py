"""One broker through every kind of attack, for the short test and the long one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from attack_rounds import Outcome, attack
from fuzz_rounds import check_aftermath, log_bytes
from hermes_testkit import BrokerProcess
from measured_twistd import measured_program
from server_process import free_port
from witness import broker_witness, coordination_witness
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
    turns: Path,
    port_name: str,
    connections: int,
    seconds: float,
    only: str = "",
) -> Iterator[Outcome]:
    """Attack one port of a broker with each kind of request, one after the other.

    Args:
        start_broker: starts it.
        turns: a file for the reactor's turns.
        port_name: "broker" or "coordination".
        connections: how many at a time.
        seconds: how long a kind may take.
        only: kinds whose names don't have this are left out.
    """
    coordination_port = free_port()
    broker = start_broker(
        program=measured_program(),
        environment={"HERMES_TURNS": str(turns)},
        topics={WIDE_TOPIC: {"partitions": 100}},
        coordination="embedded",
        coordination_listen=f"tcp:{coordination_port}:interface=127.0.0.1",
    )
    kinds: list[Kind]
    if port_name == "broker":
        kinds, port = broker_kinds(), broker.port
        with broker.connect() as client:
            prepare_broker(client)
    else:
        kinds, port = coordination_kinds(), coordination_port
        prepare_coordination(port)
    with ExitStack() as stack:
        witness = stack.enter_context(closing(broker_witness(broker.port)))
        other = stack.enter_context(closing(coordination_witness(coordination_port)))
        logged, frames = log_bytes(broker), 0
        for kind in kinds:
            if only in kind.name:
                outcome = attack(broker, port, kind, connections, [witness, other], turns, seconds)
                frames += outcome.frames
                yield outcome
        other.end()
        check_aftermath(broker, witness, logged, frames)
