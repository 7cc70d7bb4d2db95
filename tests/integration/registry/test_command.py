"""`hermes registry` as a process, of a broker with coordination and of one without."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from registry_cluster import schema

from hermes.registry.wiring import SNAPSHOT_NAME
from hermes.testing import RunningBroker, running_broker


class Asking:
    """One connection to a registry."""

    def __init__(self, port: int) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self.connection.request(method, path, None if body is None else json.dumps(body))
        response = self.connection.getresponse()
        text = response.read().decode()
        is_json = "json" in response.headers["Content-Type"]
        return response.status, json.loads(text) if is_json else text

    def register(self, name: str) -> int:
        body = {"schema": schema(name)}
        status, value = self.ask("POST", f"/subjects/{name}/versions", body)
        assert status == 200, value
        schema_id = value["id"]
        assert isinstance(schema_id, int)
        return schema_id


@contextmanager
def registry(*arguments: str) -> Iterator[Asking]:
    program = str(Path(sys.executable).with_name("hermes"))
    process = subprocess.Popen(
        [program, "registry", "--listen", "tcp:0:interface=127.0.0.1", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as lines:
        try:
            line = next(line for line in lines if "the schema registry of" in line)
            asking = Asking(int(re.findall(r":(\d+)", line)[-1]))
            yield asking
            asking.connection.close()
            process.send_signal(signal.SIGINT)
            rest = lines.read()
            assert process.wait(60) == 0, rest
            assert "Traceback" not in rest
        finally:
            process.kill()
            process.wait(60)


@pytest.fixture(params=["none", "embedded"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    settings = {"coordination": request.param, "registry": False}
    with running_broker(tmp_path / "log", settings) as running:
        yield running


def test_a_process_of_its_own_gives_out_ids(broker: RunningBroker, tmp_path: Path) -> None:
    address = f"{broker.host}:{broker.port}"
    state = tmp_path / "state"
    state.mkdir()
    with registry("-b", address, "--state-dir", str(state)) as asking:
        assert asking.ask("GET", "/subjects") == (200, [])
        assert [asking.register(name) for name in ("A", "B", "A")] == [1, 2, 1]
        assert asking.ask("GET", "/registry/subjects") == (200, ["A", "B"])
        assert asking.ask("GET", "/health/live") == (200, {"live": True})
        status, ready = asking.ask("GET", "/health/ready")
        assert (status, ready["ready"], ready["role"], ready["events"]) == (200, True, "leader", 2)
        status, text = asking.ask("GET", "/metrics")
        assert status == 200
        assert "\nhermes_registry_schemas 2.0\n" in text
        assert 'hermes_registry_requests_total{call="register",status="200"} 3.0' in text
    assert (state / SNAPSHOT_NAME).is_file()
    with registry("-b", address) as asking:
        assert asking.register("C") == 3


def test_of_several_one_leads(tmp_path: Path) -> None:
    with running_broker(
        tmp_path / "log",
        {"coordination": "embedded", "http_listen": "tcp:0:interface=127.0.0.1"},
    ) as broker:
        assert broker.zookeeper_connect is not None
        assert broker.http is not None
        beside = Asking(int(broker.http.rpartition(":")[2]))
        with registry("-Z", broker.zookeeper_connect) as asking:
            assert asking.register("A") == 1
            _, value = beside.ask(
                "POST", "/registry/subjects/other/versions", {"schema": schema("B")}
            )
            assert value["id"] == 2
            assert asking.register("B") == 2
        assert beside.ask("GET", "/registry/subjects")[1] == ["A", "B", "other"]
        beside.connection.close()
