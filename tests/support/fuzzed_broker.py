"""One fuzzed broker from its start to its end: both ports, for the short test and the long one."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from fuzz_rounds import check_aftermath, connections_to, fuzz, log_bytes, open_sockets
from hermes_testkit import DEADLINE_SECONDS, BrokerProcess
from hostile_frames import BrokerFrames
from hostile_jute import JuteFrames
from hostile_kafka import KafkaFrames
from server_process import free_ports
from witness import Witness, broker_witness, coordination_witness, kafka_witness

__all__ = ["PORTS", "fuzz_port"]

#: The ports that are fuzzed.
PORTS = ("broker", "coordination", "kafka")


def fuzz_port(
    start_broker: Callable[..., BrokerProcess], port_name: str, count: int, seed: int
) -> dict[str, Any]:
    """Fuzz one port of a new broker with so many frames; what was measured."""
    coordination_port, kafka_port = free_ports(2)
    broker = start_broker(
        num_partitions=2,
        segment_bytes="1MiB",
        max_request_bytes="1MiB",
        max_message_bytes=100_000,
        coordination="embedded",
        coordination_listen=f"tcp:{coordination_port}:interface=127.0.0.1",
        kafka_listen=f"tcp:{kafka_port}:interface=127.0.0.1",
    )
    chance = random.Random(seed)
    witness: Witness
    frames: Any
    if port_name == "broker":
        witness, frames, port = broker_witness(broker.port), BrokerFrames(chance), broker.port
    elif port_name == "kafka":
        witness, frames, port = kafka_witness(kafka_port), KafkaFrames(chance), kafka_port
    else:
        witness, port = coordination_witness(coordination_port), coordination_port
        frames = JuteFrames(chance)
    with closing(witness):
        assert witness.is_served_again(DEADLINE_SECONDS)
        # For clients the broker begins sessions of its own when it first needs them (where a topic
        # is deleted, groups forget it); those don't count.
        count_sockets = (
            partial(open_sockets, broker)
            if port_name == "coordination"
            else partial(connections_to, port)
        )
        sockets, logged = count_sockets(), log_bytes(broker)
        ways = fuzz(port, frames, count, chance)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while count_sockets() > sockets:  # it learns of the last closes in its own time
            assert time.monotonic() < deadline, "sockets leak"
            time.sleep(0.05)
        rss_mib, grown = broker.memory_bytes() >> 20, log_bytes(broker) - logged
        check_aftermath(broker, witness)
    assert rss_mib < 200
    assert grown < 100 * count + 10_000, f"{grown / count:.0f} bytes of log for each frame"
    return {
        "seed": seed,
        "frames": ways.total(),
        "served_meanwhile": witness.served,
        "slowest_ms": round(witness.slowest_ms),
        "rss_mib": rss_mib,
        "log_bytes_per_frame": round(grown / count, 1),
    }
