"""How a task's producer finds the brokers."""

import pytest

from hermes.spark.sink import producer_config
from hermes.spark.sink_options import SinkOptions


@pytest.mark.parametrize("host", ["broker", "10.0.0.7", "::1"])
def test_brokers_are_listed_by_any_kind_of_address(host: str) -> None:
    options = SinkOptions.parse({"hermes.bootstrap.servers": "a:9092"}, stream=False)
    (found,) = producer_config(options, {3: (host, 9093)}).brokers()
    assert (found.broker_id, *found.address) == (3, host, 9093)
