"""The cluster of docs/security.md, from an authority to what is refused, as a reader would make it.

What the page says is what runs: its commands in bash, its broker.yaml files in `twistd` processes.
Only hosts, ports and directories are others: brokers listen on free ports of 127.0.0.1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hermes_testkit import BrokerProcess
from mirrored_pair import eventually

from hermes import SimpleConsumer

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("\n## A cluster, step by step\n")[2]
BLOCKS = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", SECTION.partition("\n## ")[0], re.M | re.S)
AUTHORITY, CERTIFICATES, USERS, START, USE, ABUSE = [text for kind, text in BLOCKS if kind == "sh"]
FIRST, SECOND = [text for kind, text in BLOCKS if kind == "yaml"]

ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


@dataclass
class Cluster:
    """Three brokers, and the directory in which everything was made."""

    made: Path
    places: dict[str, str] = field(default_factory=dict)
    brokers: list[BrokerProcess] = field(default_factory=list)
    used: str = ""

    def run(self, commands: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run commands of the page, at the addresses that the brokers have."""
        for name, address in self.places.items():
            commands = commands.replace(name, address)
        assert "example.org:" not in commands
        ran = subprocess.run(
            ["bash", "-ec", f"umask 077\n{commands}"],
            cwd=self.made,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        assert ran.returncode == status, f"{commands}\n{ran.stdout}{ran.stderr}"
        return ran

    def client(self, user: str, broker: int) -> SimpleConsumer:
        """A consumer as one of the users."""
        return SimpleConsumer(
            "127.0.0.1",
            self.brokers[broker].port,
            tls_ca=str(self.made / "ca.pem"),
            user=user,
            password=(self.made / f"{user}.password").read_text().strip(),
        )


def installed(cluster: Cluster, name: str, broker_yaml: str, directory: Path) -> dict[str, Any]:
    """Put what belongs there into a broker's directories; its settings with these."""
    etc = directory / "etc"
    etc.mkdir(parents=True)
    for each in (f"{name}.pem", f"{name}.key", "ca.pem", "users", "brokers.password"):
        shutil.copy(cluster.made / each, etc)
    text = broker_yaml.replace("/etc/hermes", str(etc)).replace("/var/lib/hermes", str(etc / "log"))
    text = re.sub(r"endpoint: tcp:\d+", "endpoint: tcp:0:interface=127.0.0.1", text)
    text = re.sub(r"advertised: \S+:\d+", "advertised: 127.0.0.1", text)
    for place, address in cluster.places.items():
        text = text.replace(place, address)
    settings: dict[str, Any] = yaml.safe_load(text)
    assert "example.org" not in text
    return {**settings, "ready_file": str(directory / "ready.json")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("a cluster")
    made = directory / "made"
    made.mkdir()
    cluster = Cluster(made)
    cluster.run(AUTHORITY)
    cluster.run(CERTIFICATES.replace("DNS:$broker.example.org", "IP:127.0.0.1"))
    cluster.run(USERS)
    third = SECOND.replace("kafka2", "kafka3").replace("broker_id: 2", "broker_id: 3")
    try:
        for number, text in enumerate((FIRST, SECOND, third), 1):
            name = f"kafka{number}"
            settings = installed(cluster, name, text, directory / name)
            broker = BrokerProcess(directory / name / "run", settings)
            cluster.brokers.append(broker)
            cluster.places[f"{name}.example.org:9094"] = f"127.0.0.1:{broker.port}"
            if number == 1:
                ready = json.loads(Path(settings["ready_file"]).read_text())
                cluster.places[f"{name}.example.org:2182"] = ready["zookeeper_connect"]
        cluster.used = cluster.run(USE).stdout
        yield cluster
    finally:
        for broker in reversed(cluster.brokers):
            assert broker.stop() == 0


def test_what_is_made_is_nobody_elses_to_read(cluster: Cluster) -> None:
    for path in cluster.made.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_its_files_are_found_good(cluster: Cluster) -> None:
    for number, broker in enumerate(cluster.brokers, 1):
        check = START.splitlines()[0].replace("/etc/hermes/broker.yaml", "FILE")
        ran = cluster.run(check.replace("FILE", f"'{broker.config_file}'"))
        assert f"good: broker {number} listens on" in ran.stdout
        assert ran.stderr == ""
        assert not [line for line in broker.lines if "NOT SECURED" in line]


def test_applications_write_and_read(cluster: Cluster) -> None:
    """Whatever order tests run in: the fixture has done it, so that there is something to take."""
    assert cluster.used == "hello, cluster\n"


def test_brokers_know_each_other(cluster: Cluster) -> None:
    wanted = [(n, "127.0.0.1", broker.port) for n, broker in enumerate(cluster.brokers, 1)]
    for number in range(3):
        with cluster.client("report", number) as consumer:
            eventually(lambda asked=consumer: asked.brokers() == wanted)


@pytest.mark.parametrize("command", ABUSE.splitlines())
def test_what_should_not_work(cluster: Cluster, command: str) -> None:
    ran = cluster.run(f"export HERMES_TLS_CA=ca.pem\n{command}", status=5)
    assert ran.stdout == ""
    *_, line = ran.stderr.splitlines()
    assert line.startswith("hermes: ")
    whom = re.findall(r"--user (\w+)", command)
    assert not whom or f"user {whom[0]!r}" in line or "the broker's access rules" in line


def test_doctor_finds_nothing_wrong(cluster: Cluster) -> None:
    (command,) = re.findall(r"`(hermes doctor [^`]*)`", SECTION.replace("\n", " "))
    path = cluster.brokers[0].config_file
    ran = cluster.run(command.replace("/etc/hermes/broker.yaml", f"'{path}'") + " --json")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert not [each for each in found if each["level"] == "problem"]
