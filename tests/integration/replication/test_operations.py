"""An operator's life: copies are moved, added and taken away while messages come; leaders elected.

By Kafka's own tools, and by `hermes replicas`, whose `verify` says in the end that all are equal.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from kafka_4 import run_tool
from replicated_cluster import ReplicatedCluster
from scraping import Scrape, get, until
from server_process import DEADLINE_SECONDS

_HERMES = str(Path(sys.executable).with_name("hermes"))

Start = Callable[..., ReplicatedCluster]


def replicas(
    cluster: ReplicatedCluster, name: str, *arguments: str, fails: bool = False
) -> list[dict[str, Any]]:
    """Run `hermes replicas`: what it said, as rows; with `fails` its only fault instead."""
    shows = () if name in ("wait", "throttle") else ("--json",)
    line = [_HERMES, "replicas", name, "-k", _reachable(cluster), *shows, *arguments]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert ran.returncode == int(fails), ran.stdout + ran.stderr
    if fails:
        return [{"fault": ran.stderr}]
    return [json.loads(each) for each in ran.stdout.splitlines()]


def _reachable(cluster: ReplicatedCluster) -> str:
    places = zip(cluster.brokers.values(), cluster.bootstrap.split(","), strict=True)
    return next(place for broker, place in places if broker.process.poll() is None)


def tool(cluster: ReplicatedCluster, name: str, *arguments: str) -> str:
    return run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)


def fill(cluster: ReplicatedCluster, topic: str, count: int = 500, size: int = 3) -> None:
    """Have so many messages acknowledged, each of `size` bytes or more."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%0*d" % (size, number), key=b"%d" % number)
    assert producer.flush(DEADLINE_SECONDS) == 0


def count(cluster: ReplicatedCluster, topic: str, expected: int) -> int:
    """Read a topic until as many messages have come."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "counting",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    came = 0
    try:
        while came < expected:
            came += sum(1 for each in consumer.consume(1000, 1.0) if not each.error())
    finally:
        consumer.close()
    return came


def targets(cluster: ReplicatedCluster, topic: str) -> dict[int, list[int]]:
    return {each["partition"]: each["replicas"] for each in replicas(cluster, "list", topic)}


def are_equal(cluster: ReplicatedCluster, copies: int) -> None:
    """There are so many copies beside those that lead, and all are equal to these."""
    rows = replicas(cluster, "verify")
    assert [each["result"] for each in rows] == copies * ["equal"]


def plan(directory: Path, topic: str, targets: Sequence[Sequence[int]]) -> tuple[str, str]:
    moves = [
        {"topic": topic, "partition": number, "replicas": target}
        for number, target in enumerate(targets)
    ]
    path = directory / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": moves}), encoding="utf-8")
    return "--reassignment-json-file", str(path)


def test_kafkas_tools_move_copies_and_elect_leaders(start_cluster: Start, tmp_path: Path) -> None:
    cluster = start_cluster()
    cluster.create_topic("clicks", 2, 2)
    fill(cluster, "clicks", 500, 40_000)
    moves = plan(tmp_path, "clicks", [[3, 2], [1, 2, 3]])

    said = tool(cluster, "kafka-reassign-partitions", *moves, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments for clicks-0,clicks-1" in said
    replicas(cluster, "wait", "--in-sync")
    said = tool(cluster, "kafka-reassign-partitions", *moves, "--verify")
    assert "Reassignment of partition clicks-0 is completed." in said
    assert "Reassignment of partition clicks-1 is completed." in said
    assert "Clearing broker-level throttles on brokers 1,2,3" in said
    described = tool(cluster, "kafka-topics", "--describe", "--topic", "clicks")
    assert "Partition: 0\tLeader: 3\tReplicas: 3,2\t" in described
    assert "Replicas: 1,2,3\t" in described

    cluster.stop(3)
    cluster.leader("clicks", 0, but=3)
    described = tool(cluster, "kafka-topics", "--describe", "--under-replicated-partitions")
    assert described.count("Topic: clicks") == 2
    cluster.start(3)
    replicas(cluster, "wait", "--in-sync")
    # So slowly that it goes on until it is undone.
    slow = (*plan(tmp_path, "clicks", [[1, 2]]), "--execute", "--throttle", "100")
    assert "Successfully started" in tool(cluster, "kafka-reassign-partitions", *slow)
    listed = tool(cluster, "kafka-reassign-partitions", "--list")
    assert "clicks-0: replicas: 1,2,3. adding: 1. removing: 3." in listed
    undone = (*plan(tmp_path, "clicks", [[1, 2]]), "--cancel")
    said = tool(cluster, "kafka-reassign-partitions", *undone)
    assert "Successfully cancelled partition reassignment for: clicks-0" in said
    replicas(cluster, "wait", "--in-sync")

    elected = ("--election-type", "preferred", "--all-topic-partitions")
    tool(cluster, "kafka-leader-election", *elected)
    one = ("--election-type", "preferred", "--topic", "clicks", "--partition", "1")
    said = tool(cluster, "kafka-leader-election", *one)
    assert "Valid replica already elected for partitions clicks-1" in said
    assert cluster.leader("clicks", 1) == 1
    assert count(cluster, "clicks", 500) == 500
    are_equal(cluster, copies=3)


def test_a_topic_with_one_copy_gets_three_and_has_one_again(start_cluster: Start) -> None:
    cluster = start_cluster()
    cluster.create_topic("single", 2, 1)
    fill(cluster, "single")

    for copies in (3, 1, 2):
        replicas(cluster, "move", "--topics", "single", "--replicas", str(copies))
        fill(cluster, "single")
        replicas(cluster, "wait", "--in-sync", "single")
        assert {len(each) for each in targets(cluster, "single").values()} == {copies}
        are_equal(cluster, copies=2 * (copies - 1))

    assert count(cluster, "single", 2000) == 2000


def test_a_broker_is_drained_and_another_gets_its_share(start_cluster: Start) -> None:
    cluster = start_cluster()
    cluster.create_topic("clicks", 3, 2)
    fill(cluster, "clicks")

    replicas(cluster, "drain", "3")
    assert all(sorted(each) == [1, 2] for each in targets(cluster, "clicks").values())
    cluster.stop(3)
    cluster.wait_until(lambda: cluster.live() == {1, 2}, "the broker isn't gone")
    (refused,) = replicas(cluster, "drain", "2", fails=True)
    fill(cluster, "clicks")
    cluster.wipe(3)
    cluster.start(3)
    cluster.wait_until(lambda: cluster.live() == {1, 2, 3}, "the broker isn't back")
    moved = replicas(cluster, "add-broker", "3")
    replicas(cluster, "wait", "--in-sync")

    assert "there are 1 other brokers" in refused["fault"]
    assert len(moved) == 2
    assert sum(3 in each for each in targets(cluster, "clicks").values()) == 2
    assert count(cluster, "clicks", 1000) == 1000
    are_equal(cluster, copies=3)


def metrics(
    cluster: ReplicatedCluster, number: int, condition: Callable[[Scrape], bool] = bool
) -> Scrape:
    """What a broker says of itself, once a condition holds."""
    return until(http(cluster, number), condition)


def http(cluster: ReplicatedCluster, number: int) -> str:
    ready = [each for each in cluster.brokers[number].lines if "is ready: Hermes" in each][-1]
    return f"http://{ready.partition('HTTP on ')[2].partition(',')[0]}"


def test_metrics_tell_of_copies(start_cluster: Start) -> None:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1", "metrics_per_partition": True}
    cluster = start_cluster(**settings)
    cluster.create_topic("seen", 1, 3)
    leader = cluster.leader("seen")
    first, second = sorted({1, 2, 3} - {leader})
    fill(cluster, "seen")
    before, following = metrics(cluster, leader), metrics(cluster, first)

    cluster.kill(second)
    cluster.wait_until(lambda: len(cluster.copies("seen")[0].in_sync) == 2, "it stays in sync")
    fill(cluster, "seen", 20)
    # The one is what the leader has written, the other is counted when that is read.
    alone = metrics(
        cluster,
        leader,
        lambda now: (
            now("hermes_replica_under_replicated") == 1
            and now("hermes_replica_isr_changes_total", kind="shrink") > 0
        ),
    )
    cluster.kill(leader)
    cluster.leader("seen", but=leader)
    status, text = get(f"{http(cluster, first)}/health/ready?in_sync=1")
    after = metrics(
        cluster,
        first,
        lambda now: (
            now("hermes_replica_led") == 1
            and now("hermes_replica_elections_total", clean="yes") > 0
        ),
    )

    assert status == 200, text
    assert json.loads(text)["checks"]["in_sync"] == {"ok": True, "detail": "all of 1 copies"}
    place = {"topic": "seen", "partition": "0"}
    names = ("s", "_led", "_under_replicated", "_not_in_sync", "_offline_partitions")
    assert [before(f"hermes_replica{each}") for each in names] == [1, 1, 0, 0, 0]
    assert [following(f"hermes_replica{each}") for each in names] == [1, 0, 0, 0, 0]
    assert following("hermes_replica_fetch_bytes_total") > 500
    assert before("hermes_replica_lag_offsets", broker=str(first)) == 0
    assert before("hermes_replica_lag_seconds", broker=str(first)) == 0
    assert before("hermes_replica_isr_size", **place) == 3
    assert (alone("hermes_replica_under_replicated"), alone("hermes_replica_under_min_isr")) == (
        1,
        0,
    )
    assert alone("hermes_replica_isr_changes_total", kind="shrink") == 1
    assert alone("hermes_replica_lag_seconds", broker=str(second)) > 0
    assert before("hermes_replica_commit_seconds_count") > 0
    assert following("hermes_replica_commit_seconds_count") == 0
    assert after("hermes_replica_elections_total", clean="yes") == 1
    assert after("hermes_replica_elections_total", clean="no") == 0
    behind = "hermes_replica_throttled_bytes_total"
    assert (before(behind, direction="sent"), following(behind, direction="fetched")) == (0, 0)
    cluster.start(second)  # it lacks messages
    metrics(cluster, first, lambda now: now(behind, direction="sent") > 0)
    metrics(cluster, second, lambda now: now(behind, direction="fetched") > 0)


def test_who_lacks_messages_leads_only_where_an_operator_says_so(start_cluster: Start) -> None:
    cluster = start_cluster()
    cluster.create_topic("lost", 1, 2)
    replicas(cluster, "move", "lost:0", "1,2")
    replicas(cluster, "wait", "--in-sync", "lost")
    fill(cluster, "lost", 10)
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.copies("lost")[0].in_sync == {1}, "it stays in sync")
    fill(cluster, "lost", 5)
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_until(lambda: cluster.copies("lost")[0].leader == -1, "it leads, unasked")

    (row,) = replicas(cluster, "list", "lost")
    (refused,) = replicas(cluster, "elect", "lost:0", fails=True)
    (elected,) = replicas(cluster, "elect", "--unclean", "--yes", "lost:0")

    assert row["why"] == ["1 is down", "2 has nobody to follow"]
    assert "its preferred leader is not in sync, or down" in refused["fault"]
    assert (elected["elected"], cluster.leader("lost")) == (True, 2)
    fill(cluster, "lost", 3)
    assert count(cluster, "lost", 13) == 13
    cluster.start(1)
    replicas(cluster, "wait", "--in-sync", "lost")
    are_equal(cluster, copies=1)
