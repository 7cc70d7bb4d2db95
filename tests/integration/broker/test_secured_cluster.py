"""The cluster of docs/security.md, from an authority to what is refused, made as readers do."""

import json
import re
from collections.abc import Iterator

import pytest
from mirrored_pair import eventually
from secured_cluster import ABUSE, SECTION, START, Cluster, secured_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with secured_cluster(tmp_path_factory.mktemp("a cluster")) as cluster:
        yield cluster


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
    assert not whom or f"user {whom[0]!r}" in line


def test_doctor_finds_nothing_wrong(cluster: Cluster) -> None:
    (command,) = re.findall(r"`(hermes doctor [^`]*)`", SECTION.replace("\n", " "))
    path = cluster.brokers[0].config_file
    ran = cluster.run(command.replace("/etc/hermes/broker.yaml", f"'{path}'") + " --json")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert not [each for each in found if each["level"] == "problem"]
