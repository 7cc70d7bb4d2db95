"""A hundred thousand frames that are almost right, over both ports, and as many over Kafka's."""

from collections.abc import Callable

import pytest
from fuzzed_broker import PORTS, fuzz_port
from hermes_testkit import BrokerProcess
from soak import report, seed, times


@pytest.mark.soak
@pytest.mark.parametrize("port_name", PORTS)
def test_fuzzed_frames(start_broker: Callable[..., BrokerProcess], port_name: str) -> None:
    figures = fuzz_port(
        start_broker, port_name, times(100_000 if port_name == "kafka" else 50_000), seed()
    )
    report(f"fuzz, {port_name} port", **figures)
