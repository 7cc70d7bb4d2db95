"""A real broker for the tests of the client library."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kills_under_a_producer import RestartableBroker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., RestartableBroker]]:
    """Start brokers; they are stopped after the test, and must stop in good order."""
    started: list[RestartableBroker] = []

    def start(**settings: object) -> RestartableBroker:
        name = f"broker-{len(started)}"
        log_dir = str(tmp_path / f"{name}-log")
        started.append(
            RestartableBroker(
                tmp_path / name, {"log_dir": log_dir, "broker_id": len(started), **settings}
            )
        )
        return started[-1]

    yield start
    for broker in started:
        assert broker.stop() == 0
