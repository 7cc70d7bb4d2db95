"""kill -9 of a loaded broker: nothing acknowledged as flushed is lost, no hole, order kept."""

from collections.abc import Callable

from hermes_testkit import BrokerProcess
from kill_rounds import kill_rounds


def test_ten_kills(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(num_partitions=3, segment_bytes="64KiB")
    assert kill_rounds(broker, rounds=10, seed=7) > 100
