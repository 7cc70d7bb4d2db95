"""The cluster of docs/security.md, made as a reader would make it.

What the page says is what runs: its commands in bash, its broker.yaml files in `twistd` processes.
Only hosts, ports and directories are others: brokers listen on free ports of 127.0.0.1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hermes_testkit import BrokerProcess

from hermes import SimpleConsumer

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
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
    # Quoted: the directory of a run may hold what means something in YAML.
    text = re.sub(r"/etc/hermes[^\s,}]*", lambda path: f'"{path[0]}"', broker_yaml)
    text = text.replace("/etc/hermes", str(etc)).replace("/var/lib/hermes", f'"{etc / "log"}"')
    text = re.sub(r"endpoint: tcp:\d+", "endpoint: tcp:0:interface=127.0.0.1", text)
    text = re.sub(r"advertised: \S+:\d+", "advertised: 127.0.0.1", text)
    for place, address in cluster.places.items():
        text = text.replace(place, address)
    settings: dict[str, Any] = yaml.safe_load(text)
    assert "example.org" not in text
    return {**settings, "ready_file": str(directory / "ready.json")}


def _loopback(port: int) -> str:
    return f"tcp:{port}:interface=127.0.0.1"


@contextmanager
def secured_cluster(directory: Path, ports: Sequence[int] = ()) -> Iterator[Cluster]:
    """Make it, and run its commands once.

    Args:
        directory: of its own.
        ports: of the first broker's coordination, and of the brokers; any unless given.
    """
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
            if ports:
                settings["listen"][0]["endpoint"] = _loopback(ports[number])
                if number == 1:
                    settings["coordination_listen"]["endpoint"] = _loopback(ports[0])
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
