"""A copy is backed up where it is led or followed; restored, it joins the others as a new one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS

from hermes.coordination.cluster_view import read_brokers
from hermes.coordination.sessions import Session

_HERMES = str(Path(sys.executable).with_name("hermes"))
TOPIC = "kept"


def hermes(*arguments: str | Path) -> str:
    line = [_HERMES, *map(str, arguments)]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def address(cluster: ReplicatedCluster, number: int) -> str:
    """Where Hermes' own clients reach a broker."""
    session = Session(cluster.coordination)
    session.start()
    try:
        node = read_brokers(session, print)[number]
    finally:
        session.stop()
    return f"{node.host}:{node.port}"


def fill(cluster: ReplicatedCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("leads", [True, False], ids=["of the leader", "of a follower"])
def test_a_broker_is_restored(
    start_cluster: Callable[..., ReplicatedCluster], tmp_path: Path, leads: bool
) -> None:
    cluster = start_cluster(segment_bytes="4KiB")
    cluster.create_topic(TOPIC)
    fill(cluster, 0, 300)
    leader = cluster.leader(TOPIC)
    number = leader if leads else min({1, 2, 3} - {leader})
    broker = cluster.brokers[number]
    log_dir, backups = Path(broker.log_dir), tmp_path / "backups"

    def has_kept() -> bool:
        """Whether what is committed stands in the directory, which takes a while."""
        kept = (log_dir / ".hermes_watermarks").read_text().splitlines()[0]
        return json.loads(kept).get(TOPIC) == {"0": 300}

    cluster.wait_until(has_kept, "nothing is kept")
    hermes("backup", "create", log_dir, backups, "-b", address(cluster, number))
    fill(cluster, 300, 100)
    cluster.kill(number)
    cluster.wipe(number)
    cluster.leader(TOPIC, but=number)
    fill(cluster, 400, 100)
    restored = json.loads(hermes("restore", "--json", backups, log_dir))
    ends = {(each["topic"], each["partition"]): each["end"] for each in restored["partitions"]}
    assert ends[TOPIC, 0] == 300

    cluster.start(number)
    cluster.wait_until_in_sync(TOPIC)

    assert any("isn't the one that broker" in line for line in broker.lines)
    equal = hermes("replicas", "verify", "-k", cluster.bootstrap.split(",")[0], "--json")
    assert [each for each in map(json.loads, equal.splitlines()) if each.get("fault")] == []
