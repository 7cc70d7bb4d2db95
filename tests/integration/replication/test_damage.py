"""Copies' disks lose bits: that is found as they are copied or led, goes nowhere, and heals."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from replicated_cluster import ReplicatedCluster
from replicated_log import differences
from server_process import DEADLINE_SECONDS

from hermes.storage.layout import WATERMARKS_NAME

MESSAGES = 200
VALUES = [b"%d" % number * 100 for number in range(MESSAGES)]

StartCluster = Callable[..., ReplicatedCluster]


def test_a_leader_whose_disk_loses_a_bit_is_mended(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("t")
    produce(cluster, VALUES)
    leader = cluster.leader("t")
    follower = min(cluster.brokers.keys() - {leader})
    cluster.stop(follower)
    cluster.wipe(follower)
    size = segment_of(cluster, leader).stat().st_size
    lose_a_bit(cluster, leader, size // 2)

    cluster.start(follower)

    said = cluster.brokers[leader]
    said.wait_for_line("is damaged here, and mended from its leader: damaged at offsets")
    said.wait_for_line("t-0 is whole again")
    cluster.wait_until_in_sync("t")
    assert cluster.leader("t") != leader
    check_equal(cluster)


def test_copies_that_are_damaged_in_different_places(start_cluster: StartCluster) -> None:
    """Each gets from the other what it lacks, and a third one gets all."""
    cluster = start_cluster()
    cluster.create_topic("t")
    produce(cluster, VALUES)
    leader = cluster.leader("t")
    wiped, other = sorted(cluster.brokers.keys() - {leader})
    cluster.stop(wiped)
    cluster.wipe(wiped)
    size = segment_of(cluster, leader).stat().st_size
    for number, place in ((leader, size // 4), (other, size * 3 // 4)):
        lose_a_bit(cluster, number, place)

    cluster.start(wiped)

    for number in (leader, other):
        cluster.brokers[number].wait_for_line("t-0 is whole again")
    cluster.wait_until_in_sync("t")
    assert read_all(cluster) == VALUES
    check_equal(cluster)


def test_damage_above_what_is_committed_is_found_before_leading(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(count=4)
    # Nothing is committed while one is away: what the others have then stays above that.
    topic = NewTopic("t", 1, replica_assignment=[[1, 2, 3, 4]], config={"min.insync.replicas": "4"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([topic])["t"].result(DEADLINE_SECONDS)
    cluster.wait_until_in_sync("t", copies=4)
    half = MESSAGES // 2
    produce(cluster, VALUES[:half])
    cluster.stop(4)
    cluster.wait_until(lambda: 4 not in cluster.copies("t")[0].in_sync, "it stays in sync")
    assert cluster.leader("t") == 1
    produce(cluster, VALUES[half:], acks="1")
    size = segment_of(cluster, 1).stat().st_size
    cluster.wait_until(
        lambda: all(segment_of(cluster, each).stat().st_size == size for each in (2, 3)),
        "the followers don't get all",
    )
    lose_a_bit(cluster, 2, size * 3 // 4)

    cluster.kill(1)

    cluster.brokers[2].wait_for_line("t-0 is damaged at offsets")
    assert cluster.leader("t", but=1) == 3
    cluster.start_together([1, 4])
    cluster.wait_until_in_sync("t", copies=4)
    assert read_all(cluster) == VALUES
    check_equal(cluster)


def test_damage_that_looks_like_a_torn_tail_costs_no_acknowledged_message(
    start_cluster: StartCluster,
) -> None:
    """The power goes before it is noted what was flushed, and a disk has lost some of that."""
    cluster = start_cluster()
    cluster.create_topic("t")
    produce(cluster, VALUES[:1])
    marks = {number: watermarks_of(cluster, number).read_bytes() for number in cluster.brokers}
    produce(cluster, VALUES[1:])
    for number in cluster.brokers:
        cluster.kill(number)
    for number, mark in marks.items():
        watermarks_of(cluster, number).write_bytes(mark)
        segment_of(cluster, number).with_suffix(".appends").unlink()
    lose_a_bit(cluster, 2, segment_of(cluster, 2).stat().st_size // 2)

    cluster.start(2)
    cluster.start_together([1, 3])

    cluster.wait_until_in_sync("t")
    assert read_all(cluster) == VALUES
    check_equal(cluster)


def test_a_copy_that_cannot_be_opened_is_made_anew(start_cluster: StartCluster) -> None:
    """What there was of it stays, beside its directory."""
    cluster = start_cluster()
    cluster.create_topic("t", config={"segment.bytes": "16384"})
    produce(cluster, VALUES)
    broker = cluster.brokers[min(cluster.brokers.keys() - {cluster.leader("t")})]
    number = next(each for each, known in cluster.brokers.items() if known is broker)
    cluster.stop(number)
    directory = Path(broker.log_dir) / "t-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    segments[1].unlink()

    cluster.start(number)

    cluster.brokers[number].wait_for_line("t-0 is made anew, and its segments are kept beside")
    cluster.wait_until_in_sync("t")
    kept = {each.name for each in directory.parent.glob("t-0-*.damaged")}
    assert kept == {f"t-0-{each.name}.damaged" for each in segments if each is not segments[1]}
    assert read_all(cluster) == VALUES
    check_equal(cluster)


@pytest.mark.parametrize("who", ["leader", pytest.param("follower", marks=pytest.mark.nightly)])
def test_a_copy_in_service_that_cannot_be_opened_again_is_made_anew(
    start_cluster: StartCluster, who: str
) -> None:
    cluster = start_cluster()
    cluster.create_topic("t", config={"segment.bytes": "16384"})
    produce(cluster, VALUES[:-1])
    leader = cluster.leader("t")
    number = leader if who == "leader" else min(cluster.brokers.keys() - {leader})
    directory = Path(cluster.brokers[number].log_dir) / "t-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    segments[1].unlink()
    segments[-1].unlink()  # which a flush notices

    produce(cluster, VALUES[-1:])

    cluster.brokers[number].wait_for_line("t-0 is made anew, and its segments are kept beside")
    cluster.wait_until_in_sync("t")
    kept = {each.name for each in directory.parent.glob("t-0-*.damaged")}
    assert kept == {f"t-0-{each.name}.damaged" for each in (segments[0], *segments[2:-1])}
    assert read_all(cluster) == VALUES
    check_equal(cluster)


def produce(cluster: ReplicatedCluster, values: list[bytes], acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks})
    for value in values:
        producer.produce("t", value, partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0


def read_all(cluster: ReplicatedCluster) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    try:
        return [each.value() for each in consumer.consume(MESSAGES, DEADLINE_SECONDS)]
    finally:
        consumer.close()


def check_equal(cluster: ReplicatedCluster) -> None:
    places = {number: Path(each.log_dir) for number, each in cluster.brokers.items()}
    for number in cluster.brokers:
        cluster.stop(number)
    assert differences(places, "t", 1) == {}


def segment_of(cluster: ReplicatedCluster, number: int) -> Path:
    (path,) = (Path(cluster.brokers[number].log_dir) / "t-0").glob("*.log")
    return path


def watermarks_of(cluster: ReplicatedCluster, number: int) -> Path:
    return Path(cluster.brokers[number].log_dir) / WATERMARKS_NAME


def lose_a_bit(cluster: ReplicatedCluster, number: int, place: int) -> None:
    with open(segment_of(cluster, number), "r+b") as file:
        file.seek(place)
        (value,) = file.read(1)
        file.seek(place)
        file.write(bytes([value ^ 1]))
