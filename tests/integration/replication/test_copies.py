"""Three brokers keep copies: whoever dies, what was acknowledged is there, and clients go on."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Producer
from kafka_kills import read_all
from kafka_loads import PARTITIONS, TOPIC
from replicated_cluster import ReplicatedCluster
from replicated_log import judge
from replicated_rounds import ReplicatedLoad

from hermes.client.kafka_asking import KafkaAsker
from hermes.protocol.kafka_errors import Code

StartCluster = Callable[..., ReplicatedCluster]


@pytest.mark.parametrize("coordination", ["embedded", "zookeeper"])
def test_leaders_are_killed(
    start_cluster: StartCluster,
    start_load: Callable[[ReplicatedCluster], ReplicatedLoad],
    coordination: str,
) -> None:
    cluster = start_cluster(coordination)
    load = start_load(cluster)
    for number in range(PARTITIONS):
        load.go_on()
        leader = load.leader(number)
        cluster.kill(leader)
        assert load.leader(number, but=leader) != leader
        load.go_on()
        cluster.start(leader)
        load.wait_until_in_sync()
    assert load.finish() > 0


def test_brokers_are_restarted_in_turn(
    start_cluster: StartCluster, start_load: Callable[[ReplicatedCluster], ReplicatedLoad]
) -> None:
    cluster = start_cluster()
    load = start_load(cluster)
    for number in cluster.brokers:
        load.go_on()
        cluster.stop(number)
        load.go_on()
        cluster.start(number)
        load.wait_until_in_sync()
    load.finish()  # which says that no send failed


def test_a_wiped_copy_heals(
    start_cluster: StartCluster, start_load: Callable[[ReplicatedCluster], ReplicatedLoad]
) -> None:
    cluster = start_cluster()
    load = start_load(cluster)
    load.go_on()
    for number in (load.leader(0), next(iter(cluster.brokers.keys() - {load.leader(0)}))):
        cluster.kill(number)
        cluster.wipe(number)
        cluster.start(number)
        load.go_on()
        load.wait_until_in_sync()
    load.finish()


def test_all_are_killed_at_once(
    start_cluster: StartCluster, start_load: Callable[[ReplicatedCluster], ReplicatedLoad]
) -> None:
    cluster = start_cluster()
    load = start_load(cluster)
    for _ in range(2):
        load.go_on()
        for number in cluster.brokers:
            cluster.kill(number)
        cluster.start_together(cluster.brokers)
        load.go_on()
    load.finish()


def test_a_leader_sleeps(
    start_cluster: StartCluster, start_load: Callable[[ReplicatedCluster], ReplicatedLoad]
) -> None:
    cluster = start_cluster()
    load = start_load(cluster)
    load.go_on()
    leader = load.leader()
    cluster.pause(leader)
    load.leader(but=leader)
    load.go_on()
    cluster.resume(leader)
    load.wait_until_in_sync()
    load.finish()


@pytest.mark.parametrize(
    "ways",
    [("to it",), ("from it",), ("from coordination",), ("to it", "from coordination")],
    ids=" and ".join,
)
def test_a_leader_is_cut_off(
    start_cluster: StartCluster,
    start_load: Callable[[ReplicatedCluster], ReplicatedLoad],
    ways: tuple[str, ...],
) -> None:
    cluster = start_cluster(is_cuttable=True, replica_lag_time="2s")
    load = start_load(cluster)
    load.go_on()
    leader = load.leader()
    cluster.cut(leader, *ways)
    if len(ways) == 2:  # nothing holds it in its place
        load.leader(but=leader)
    elif ways != ("from coordination",):
        cluster.wait_until(
            lambda: cluster.copies(TOPIC)[0].in_sync == {leader}, "its followers stay in sync"
        )
    cluster.heal(leader)
    load.go_on()
    load.wait_until_in_sync()
    load.finish()


def test_too_few_copies_take_nothing_and_lose_nothing(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("few", config={"min.insync.replicas": "2"})
    told = {number: _told(cluster, number) for number in range(10)}
    assert set(told.values()) == {None}
    leader = cluster.leader("few")
    others = cluster.brokers.keys() - {leader}
    for number in others:
        cluster.kill(number)
    numbers = iter(range(10, 1000))
    cluster.wait_until(
        lambda: _told(cluster, next(numbers)) == KafkaError.NOT_ENOUGH_REPLICAS,
        "one copy alone takes messages, or nobody says why not",
    )
    read = read_all(cluster.bootstrap, 1, "few")
    assert [value for _, value in read[0]] == [b"%d" % number for number in range(10)]
    cluster.start(others.pop())
    cluster.wait_until(lambda: _told(cluster, next(numbers)) is None, "two copies take nothing")
    again = read_all(cluster.bootstrap, 1, "few")
    assert again[0][:10] == read[0]
    assert not judge({number: (0, number) for number in range(10)}, again)


def test_what_was_deleted_is_not_shown_again_whoever_leads(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("few")
    for number in range(10):
        assert _told(cluster, number) is None
    leader = cluster.leader("few")
    asleep, follower = sorted(cluster.brokers.keys() - {leader})

    cluster.pause(asleep)
    assert _delete_records(cluster, leader, 4, 0.3) == (Code.REQUEST_TIMED_OUT, -1)
    cluster.resume(asleep)
    assert _delete_records(cluster, leader, 4, 60) == (Code.NONE, 4)
    assert _delete_records(cluster, leader, -1, 60) == (Code.NONE, 10)
    cluster.kill(leader)
    cluster.leader("few", but=leader)

    assert _told(cluster, 10) is None
    assert read_all(cluster.bootstrap, 1, "few") == {0: [(10, b"10")]}
    cluster.kill(asleep)
    cluster.start(leader)
    assert cluster.leader("few", but=asleep) in (leader, follower)
    assert read_all(cluster.bootstrap, 1, "few") == {0: [(10, b"10")]}


def _delete_records(
    cluster: ReplicatedCluster, leader: int, offset: int, seconds: float
) -> tuple[Code, int]:
    host, _, port = cluster.addresses[leader].partition(":")
    partitions = [{"partition_index": 0, "offset": offset}]
    topics = [{"name": "few", "partitions": partitions}]
    with KafkaAsker(host, int(port)) as asker:
        answer = asker.ask("DeleteRecords", 2, topics=topics, timeout=int(seconds * 1000))
    (found,) = answer.topics[0].partitions
    return Code(found.error_code), found.low_watermark


def _told(cluster: ReplicatedCluster, number: int) -> int | None:
    """What a producer that tries once is told of a message; None: it is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "retries": 0,
            "request.timeout.ms": 1000,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    told: list[int | None] = []
    producer.produce(
        "few",
        b"%d" % number,
        on_delivery=lambda error, _: told.append(None if error is None else error.code()),
    )
    assert producer.flush(120) == 0
    return told[0]
