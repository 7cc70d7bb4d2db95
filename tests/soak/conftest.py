"""What soaks of programs share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordination_servers import ServerProcess
from hermes_testkit import BrokerProcess
from killed_brokers import KilledBrokers, OneBroker, ThreeBrokers


@pytest.fixture(params=[1, 3])
def brokers(
    request: pytest.FixtureRequest,
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
) -> Iterator[KilledBrokers]:
    """One broker, and three with copies."""
    if request.param == 1:
        yield OneBroker(start_broker)
        return
    tree = f"{coordination_server('embedded').address}/{tmp_path.name}"
    cluster = ThreeBrokers(tmp_path / "cluster", tree)
    yield cluster
    cluster.close()
