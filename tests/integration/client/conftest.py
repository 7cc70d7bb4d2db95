"""A real broker for the tests of the client library."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hermes_testkit import BrokerProcess


class RestartableBroker(BrokerProcess):
    """A broker that listens on the same port after every start."""

    def kill_and_restart(self) -> None:
        self.kill()
        settings = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
        settings["listen"] = f"tcp:{self.port}:interface=127.0.0.1"
        self.config_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.start()


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
