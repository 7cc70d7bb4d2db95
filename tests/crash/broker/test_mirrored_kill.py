"""kill -9 of a broker under mirrors: each range is there once, in order, and none is lost."""

from collections.abc import Callable

from hermes_testkit import BrokerProcess
from mirrored_kills import mirrored_kill_rounds


def test_five_kills(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(num_partitions=3, segment_bytes="64KiB")
    copied = mirrored_kill_rounds(broker, rounds=5, seed=7)
    assert min(copied.values()) > 50
