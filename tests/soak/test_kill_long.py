"""The long form of the kill test."""

from collections.abc import Callable

import pytest
from hermes_testkit import BrokerProcess
from kill_rounds import kill_rounds


@pytest.mark.soak
def test_a_hundred_kills(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(num_partitions=3, segment_bytes="64KiB")
    assert kill_rounds(broker, rounds=100, seed=20110612) > 1000
