"""The examples that run a broker as a service: systemd's unit, and what docker compose starts."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes.config.loading import load_broker_config, parse_broker_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text("utf-8"))
    return content


def test_systemd_accepts_the_unit_and_calls_it_hardened(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "hermes.service"
    text = (EXAMPLES / "hermes.service").read_text(encoding="utf-8")
    # The programs have to be there.
    programs = str(Path(sys.executable).parent).replace("%", "%%")
    unit.write_text(re.sub(r"/opt/hermes/bin/(\w+)", rf'"{programs}/\1"', text), "utf-8")
    verified = subprocess.run([program, "verify", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    # In tenths, of ten: 2 is what systemd-analyze calls OK; a service with nothing set has 9.6.
    command = [program, "security", "--offline=true", "--threshold=20", unit]
    rated = subprocess.run(command, capture_output=True, text=True)
    assert rated.returncode == 0, rated.stdout


def test_what_the_unit_says_can_be_written_is_where_it_writes() -> None:
    """Everything else is read-only to it, so these lines have to agree."""
    text = (EXAMPLES / "hermes.service").read_text(encoding="utf-8")
    unit = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert unit["ProtectSystem"] == "strict"
    assert f"--ready-file /run/{unit['RuntimeDirectory']}/" in unit["ExecStart"]
    assert "-n --pidfile= " in unit["ExecStart"]
    assert f"/var/lib/{unit['StateDirectory']}" == str(
        load_broker_config(EXAMPLES / "container" / "broker.yaml").log_dir
    )


def test_compose_mounts_what_exists_and_publishes_to_this_machine_only(
    compose: dict[str, Any],
) -> None:
    services = compose["services"]
    assert (EXAMPLES / services["hermes"]["build"] / "Dockerfile").is_file()
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            exists = (EXAMPLES / source).exists() if "/" in source else source in compose["volumes"]
            assert exists, volume
        for each in service.get("configs", ()):
            assert each["source"] in compose["configs"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")


def test_the_services_of_compose_find_each_other(compose: dict[str, Any]) -> None:
    """They share the broker's network, so that its HTTP port can stay on the loopback interface."""
    services, contents = compose["services"], compose["configs"]
    parsed = {name: yaml.safe_load(each["content"]) for name, each in contents.items()}
    broker = parse_broker_config(parsed["broker"], "compose.yaml")
    (http,) = broker.http_listen or ()
    (option,) = [each for each in services["prometheus"]["command"] if "config.file" in each]
    prometheus = EXAMPLES / "monitoring" / Path(option).name
    (job,) = yaml.safe_load(prometheus.read_text(encoding="utf-8"))["scrape_configs"]
    ((target,),) = [each["targets"] for each in job["static_configs"]]
    assert http.endpoint == f"tcp:{target.partition(':')[2]}:interface=127.0.0.1"
    assert {services[name]["network_mode"] for name in ("prometheus", "grafana")} == {
        "service:hermes"
    }
    published = {port.rpartition(":")[2] for port in services["hermes"]["ports"]}
    (source,) = parsed["datasource"]["datasources"]
    assert source["url"].rpartition(":")[2] in published
    endpoints = [*broker.listen, broker.coordination_listen]
    assert {each.endpoint.split(":")[1] for each in endpoints} <= published
