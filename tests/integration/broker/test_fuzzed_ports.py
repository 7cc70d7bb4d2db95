"""Frames that are almost right, over all ports: the short form of tests/soak/test_fuzz.py."""

from collections.abc import Callable

import pytest
from fuzzed_broker import PORTS, fuzz_port
from hermes_testkit import BrokerProcess


@pytest.mark.parametrize("port_name", PORTS)
def test_fuzzed_frames_disturb_nobody(
    start_broker: Callable[..., BrokerProcess], port_name: str
) -> None:
    count = 1000 if port_name == "kafka" else 2000  # these take longer to make
    assert fuzz_port(start_broker, port_name, count, seed=20110611)["frames"] >= count
