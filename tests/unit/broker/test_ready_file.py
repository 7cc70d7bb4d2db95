"""The file that says where a broker listens."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from hermes.broker.service import BrokerService, _write_ready_file
from hermes.config.loading import parse_broker_config
from hermes.errors import StorageError


def test_what_lies_at_its_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    """The directory may be everybody's, and the name can be guessed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    ready = tmp_path / "ready.json"
    (tmp_path / f"ready.json.{os.getpid()}.tmp").symlink_to(victim)
    ready.symlink_to(victim)
    run: Any = SimpleNamespace(
        addresses=[("127.0.0.1", 9092)],
        kafka_addresses=[],
        coordination=SimpleNamespace(connect_string=None),
        web=None,
    )

    _write_ready_file(ready, parse_broker_config({"broker_id": 7, "log_dir": str(tmp_path)}), run)

    assert victim.read_text() == "precious"
    assert not ready.is_symlink()
    assert json.loads(ready.read_text())["broker_id"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ready.json", "victim"]


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        ({"pid": 2**22 + 1}, False),  # above all that Linux gives
        ({"pid": os.getpid()}, False),  # in a container each process is the first one
        ({"pid": os.getppid()}, True),
        ({}, False),
        ("cut o", False),
    ],
)
def test_one_that_a_killed_broker_has_left_says_nothing_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object, stays: bool
) -> None:
    """Whoever waits for it would go on before the logs are recovered."""
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps(content))
    config = parse_broker_config(
        {"broker_id": 7, "log_dir": str(tmp_path / "logs"), "ready_file": str(ready)}
    )

    def recovering(*given: object, **options: object) -> None:
        assert ready.exists() is stays
        raise StorageError("that is all that is to be seen")

    monkeypatch.setattr("hermes.broker.service.ServingBroker", recovering)
    service = BrokerService(config, MemoryReactorClock())
    with pytest.raises(StorageError, match="that is all"):
        service.startService()
