"""What a broker tells of where coordination is."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.broker.coordinating import Coordination
from hermes.config import BrokerConfig


def coordination(**settings: Any) -> Coordination:
    config = BrokerConfig(broker_id=0, log_dir=Path("x"), **settings)
    unused: Any = None
    return Coordination(config, unused, unused, unused)


def test_an_ensemble_is_told_as_it_is_configured() -> None:
    told = coordination(
        coordination="zookeeper", zookeeper_connect="zk1:2181/h"
    ).address_for_clients()
    assert told == "zk1:2181/h"
    assert coordination(coordination="none").address_for_clients() == ""


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "127.0.0.1:7"), ("10.0.0.7", "10.0.0.7:7"), ("0.0.0.0", ":7"), ("::", ":7")],
)
def test_an_embedded_server_on_every_address_leaves_the_host_to_the_client(
    host: str, told: str
) -> None:
    made = coordination(coordination="none")
    server: Any = SimpleNamespace(running=True, addresses=[(host, 7)], connect_string=f"{host}:7")
    made._server = server
    assert made.address_for_clients() == told
