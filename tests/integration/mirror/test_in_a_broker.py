"""The mirror of broker.yaml: a process beside the broker, which ends with it and heeds a reload."""

import os
import signal
from typing import Any

import pytest
from hermes_testkit import BrokerProcess
from mirror_clusters import ClusterProcess, Clusters, eventually, mirror_settings, mirror_status


@pytest.fixture
def source(clusters: Clusters) -> ClusterProcess:
    source = clusters.cluster("source")
    source.send("clicks", [b"1", b"2"])
    source.send("views", [b"3"])
    return source


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def mirror_pid(broker: BrokerProcess) -> int:
    return int(broker.wait_for_line("the mirror runs as process").rpartition(" ")[2])


def test_it_writes_to_the_broker_that_runs_it(source: ClusterProcess, clusters: Clusters) -> None:
    target = clusters.cluster("target", mirror=mirror_settings(source))
    eventually(lambda: target.count("clicks") == 2 and target.count("views") == 1)
    assert target.payloads("clicks") == [b"1", b"2"]
    assert "mirror: mirror m begins" in target.wait_for_line("mirror m begins")
    (told,) = eventually(lambda: [each for each in mirror_status(target) if each["count"] == 4])
    assert told["pid"] == mirror_pid(target)
    assert target.stop() == 0
    assert target.wait_for_line("mirror m has stopped")
    assert not runs(told["pid"])
    assert not [line for line in target.lines if "has ended" in line]


def test_it_writes_to_a_broker_without_coordination(
    source: ClusterProcess, clusters: Clusters
) -> None:
    target = clusters.cluster("target", mirror=mirror_settings(source), coordination="none")
    eventually(lambda: target.count("clicks") == 2)


def test_it_is_started_again(source: ClusterProcess, clusters: Clusters) -> None:
    target = clusters.cluster("target", mirror=mirror_settings(source))
    eventually(lambda: target.count("clicks") == 2)
    os.kill(mirror_pid(target), signal.SIGKILL)
    target.wait_for_line("the mirror has ended, by signal 9; it starts again in 1 s")
    source.send("clicks", [b"more"])
    eventually(lambda: target.count("clicks") == 3)


def test_it_ends_when_the_broker_is_killed(source: ClusterProcess, clusters: Clusters) -> None:
    target = clusters.cluster("target", mirror=mirror_settings(source))
    pid = mirror_pid(target)
    target.kill()
    eventually(lambda: not runs(pid), "the mirror outlives its broker")
    source.send("clicks", [b"more"])
    target.start()
    eventually(lambda: target.count("clicks") == 3)


def test_a_reload_changes_it(source: ClusterProcess, clusters: Clusters) -> None:
    target = clusters.cluster("target")
    target.change(mirror=mirror_settings(source) | {"whitelist": "clicks"})
    target.process.send_signal(signal.SIGHUP)
    eventually(lambda: target.count("clicks") == 2)
    first = mirror_pid(target)
    assert target.count("views") == 0
    target.change(mirror=mirror_settings(source) | {"whitelist": "clicks,views"})
    target.process.send_signal(signal.SIGHUP)
    eventually(lambda: target.count("views") == 1)
    assert not runs(first)
    target.change(mirror=mirror_settings(source) | {"whitelist": "("})
    target.process.send_signal(signal.SIGHUP)
    target.wait_for_line("broker.yaml: mirror: topic filter: ")
    target.change(mirror=None)
    target.process.send_signal(signal.SIGHUP)
    eventually(lambda: mirror_status(target) == [])


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        ({"name": "m"}, "mirror: sources: missing"),
        ({"name": "m", "sources": [], "x": 1}, "mirror: sources: expected a list"),
        ({"name": "m", "sources": [{"name": "a", "brokers": "h:1"}], "topic": {}}, "did you mean"),
        (
            {"name": "m", "sources": [{"name": "a", "brokers": "h:1"}], "topics": {"prefix": "/"}},
            "mirror: topics",
        ),
    ],
)
def test_a_broker_with_a_wrong_mirror_does_not_start(
    clusters: Clusters, mirror: dict[str, Any], said: str
) -> None:
    broker = ClusterProcess.__new__(ClusterProcess)
    with pytest.raises(AssertionError, match="did not say"):
        broker.__init__(clusters.directory / "wrong", mirror=mirror)  # type: ignore[misc]
    (line,) = [line for line in broker.lines if line.startswith("hermes: ")]
    assert said in line
    assert "broker.yaml" in line
