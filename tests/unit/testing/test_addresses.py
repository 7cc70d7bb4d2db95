"""What a running broker's addresses are, for whatever takes them."""

from pathlib import Path

import pytest

from hermes.client import ProducerConfig, SimpleConsumer
from hermes.testing import RunningBroker


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_clients_take_them(host: str) -> None:
    broker = RunningBroker(host, 9093, Path("log"), 2, None)
    (listed,) = ProducerConfig(broker_list=broker.broker_list).brokers()
    assert (listed.broker_id, *listed.address) == (2, host, 9093)
    with SimpleConsumer(broker.address) as consumer:
        assert consumer.address == broker.address
