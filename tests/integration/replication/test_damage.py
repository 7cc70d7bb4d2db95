"""A copy's disk loses a bit: that is found as it is copied, goes nowhere, and heals."""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from replicated_cluster import ReplicatedCluster
from replicated_log import differences

MESSAGES = 200


def test_a_leader_whose_disk_loses_a_bit_is_copied_again(
    start_cluster: Callable[..., ReplicatedCluster],
) -> None:
    cluster = start_cluster()
    cluster.create_topic("t")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(MESSAGES):
        producer.produce("t", b"%d" % number * 100, partition=0)
        assert producer.flush(60) == 0
    leader = cluster.leader("t")
    follower = min(cluster.brokers.keys() - {leader})
    cluster.stop(follower)
    cluster.wipe(follower)
    path = segment_of(cluster, leader)
    lose_a_bit(path)

    cluster.start(follower)

    said = cluster.brokers[leader]
    said.wait_for_line("is damaged here, and copied again from its leader: damaged at offsets")
    cluster.wait_until_in_sync("t")
    assert cluster.leader("t") != leader
    kept = path.parent.with_name(f"{path.parent.name}-{path.name}.damaged")
    assert kept.exists(), "nobody knows yet whether others have all of it"
    places = {number: Path(each.log_dir) for number, each in cluster.brokers.items()}
    for number in cluster.brokers:
        cluster.stop(number)
    assert differences(places, "t", 1) == {}


def segment_of(cluster: ReplicatedCluster, number: int) -> Path:
    (path,) = (Path(cluster.brokers[number].log_dir) / "t-0").glob("*.log")
    return path


def lose_a_bit(path: Path) -> None:
    middle = path.stat().st_size // 2
    with open(path, "r+b") as file:
        file.seek(middle)
        (value,) = file.read(1)
        file.seek(middle)
        file.write(bytes([value ^ 1]))
