"""The file that says where a broker listens."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hermes.broker.service import _write_ready_file
from hermes.config import parse_broker_config


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
