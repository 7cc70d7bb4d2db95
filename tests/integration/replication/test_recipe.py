"""The three machines of docs/replication.md, on loopback: any one of them dies, and all goes on."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS
from zookeeper_process import ZooKeeperEnsemble

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "replication.md"
FILES = {"properties zookeeper": "zoo.cfg", "yaml test": "broker.yaml"}

#: What differs from one machine to the next, and is another on loopback.
_PLACES = {"broker_id", "log_dir", "listen", "kafka_listen", "zookeeper_connect", "allow_insecure"}
_PLACES |= {"coordination"}


def block(words: str) -> str:
    """A file of the example, which the page shows as well."""
    (found,) = re.findall(rf"```{words}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = ROOT / "examples" / "three-machines" / FILES[words]
    assert file.read_text(encoding="utf-8") == found
    return str(found)


def of_zookeeper() -> dict[str, str]:
    """The recipe's settings, but for where things are."""
    given = dict(line.split("=", 1) for line in block("properties zookeeper").splitlines())
    peers = [key for key in given if key.startswith("server.")]
    assert len(peers) == 3
    for key in (*peers, "dataDir", "clientPort"):
        del given[key]
    # What ZooKeeper itself makes of the tick.
    return {**given, "minSessionTimeout": str(2 * int(given["tickTime"]))}


def of_brokers() -> dict[str, Any]:
    given = yaml.safe_load(block("yaml test"))
    assert len(given["zookeeper_connect"].split(",")) == 3
    assert given["coordination"] == "zookeeper"
    return {key: value for key, value in given.items() if key not in _PLACES}


@pytest.fixture
def zookeepers(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    ensemble = ZooKeeperEnsemble(tmp_path / "zookeepers", given=of_zookeeper())
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.kill()


def test_any_of_three_machines_may_die(zookeepers: ZooKeeperEnsemble, tmp_path: Path) -> None:
    settings = {"zookeeper_session_timeout": "6s", **of_brokers()}
    cluster = ReplicatedCluster(tmp_path / "brokers", zookeepers.address, **settings)
    try:
        cluster.create_topic("clicks", 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for dying in (1, 2, 3):
            zookeeper = zookeepers.servers[dying - 1]
            zookeeper.kill()
            cluster.kill(dying)
            for number in range(300):
                producer.produce("clicks", b"%d of %d" % (number, dying))
            assert producer.flush(DEADLINE_SECONDS) == 0, cluster.said()
            zookeeper.start()
            cluster.start(dying)
            cluster.wait_until_in_sync("clicks", 3)
    finally:
        cluster.close()
