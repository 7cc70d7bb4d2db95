"""Three brokers that keep copies: what is by a partition's name is asked of who leads it.

By the console's pages, `hermes groups` and `hermes top`. A partition keeps the name of the broker
that made it, whoever leads it.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS

from hermes.client import Producer, ProducerConfig
from hermes.coordination.cluster_view import leaders_of
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session

from .test_pages import text
from .test_replicas import EACH, ClusterPages, hermes

_HERMES = str(Path(sys.executable).with_name("hermes"))
PARTITIONS = 3


@pytest.fixture(scope="module")
def pages(cluster: ReplicatedCluster) -> Iterator[ClusterPages]:
    made = ClusterPages(cluster.coordination)
    yield made
    made.console.close()


@pytest.fixture(scope="module")
def session(cluster: ReplicatedCluster) -> Iterator[Session]:
    made = Session(cluster.coordination)
    made.start()
    yield made
    made.stop()


def fill(cluster: ReplicatedCluster, topic: str) -> None:
    config = ProducerConfig(zookeeper_connect=cluster.coordination, acks="flushed")
    with Producer(config) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, [b"m"] * EACH, partition=number)


def names(session: Session, topic: str) -> dict[int, BrokerPartition]:
    return {each.partition: each for each in leaders_of(session, topic, print)}


@pytest.fixture(scope="module")
def moved(cluster: ReplicatedCluster, session: Session) -> Iterator[str]:
    """A topic of which two groups have read a part, and whose first partition's broker is down."""
    topic = "moved"
    for each in (topic, "written"):
        cluster.create_topic(each, PARTITIONS)
    fill(cluster, topic)
    for group in ("own", "moves"):
        read = {(topic, each): 4 for each in names(session, topic).values()}
        store_offsets(session, group, read)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "kafkas"})
    places = [TopicPartition(topic, number, 4) for number in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    home = names(session, topic)[0].broker_id
    cluster.stop(home)
    for number in range(PARTITIONS):
        for each in (topic, "written"):
            cluster.leader(each, number, but=home)
    cluster.wait_until(lambda: home not in cluster.live(), "it stays registered")
    yield topic
    cluster.start(home)
    for each in (topic, "written"):
        cluster.wait_until_in_sync(each, PARTITIONS)


def test_the_lag_of_groups_is_asked_of_who_leads(
    cluster: ReplicatedCluster, session: Session, moved: str
) -> None:
    known = names(session, moved)
    (described,) = hermes("groups", "describe", "-Z", cluster.coordination, "own")
    rows = {row["partition"]: row for row in described["partitions"]}
    assert {name: (row["end"], row["lag"], row["messages"]) for name, row in rows.items()} == {
        str(each): (EACH, EACH - 4, EACH - 4) for each in known.values()
    }
    assert {name: row["leader"] for name, row in rows.items()} == {
        str(each): cluster.leader(moved, number) for number, each in known.items()
    }
    assert rows[str(known[0])]["leader"] != known[0].broker_id

    (described,) = hermes("groups", "describe", "-Z", cluster.coordination, "kafkas")
    lags = {row["partition"]: row["lag"] for row in described["partitions"]}
    assert lags == dict.fromkeys(range(PARTITIONS), EACH - 4)

    looked = hermes("top", "-Z", cluster.coordination, "--once", "-i", "0.1", "-g", "own")
    (lag,) = looked[-1]["groups"]
    assert (lag["topic"], lag["lag_messages"]) == (moved, PARTITIONS * (EACH - 4))


def test_a_table_says_where_a_partition_is_led_that_has_another_brokers_name(
    cluster: ReplicatedCluster, session: Session, moved: str
) -> None:
    line = [_HERMES, "groups", "describe", "-Z", cluster.coordination, "own"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    heading, *rows = ran.stdout.splitlines()
    assert heading.split()[:3] == ["TOPIC", "PARTITION", "LEADER"]
    name, leader = str(names(session, moved)[0]), str(cluster.leader(moved, 0))
    assert [name, leader] in [row.split()[1:3] for row in rows]


def test_offsets_are_reset_where_a_partition_is_led(
    cluster: ReplicatedCluster, session: Session, moved: str, pages: ClusterPages
) -> None:
    shown = text(pages("groups", "moves", "reset", kind="hermes", to="shift", value="-1"))
    for number in range(PARTITIONS):
        assert f"{moved} {number} 4 3 -1 7 messages" in shown
    asked = ("groups", "reset", "-Z", cluster.coordination, "moves", "--to", "latest")
    assert {row["partition"]: row["now"] for row in hermes(*asked)} == {
        str(each): EACH for each in names(session, moved).values()
    }


def test_pages_know_partitions_by_their_names_wherever_they_are_led(
    session: Session, moved: str, pages: ClusterPages
) -> None:
    known = names(session, moved)
    page = pages("topics", moved)
    for number, each in known.items():
        assert f'partition={each}">{number}</a>' in page
    assert (
        f"the broker that made it, whoever leads it now, and its number there: {known[0]} is 0."
        in text(page)
    )
    group = text(pages("groups", "own"))
    assert group.count(f"4 {EACH} {EACH - 4} messages") == PARTITIONS, group
    group = text(pages("groups", "kafkas"))
    assert group.count(f"4 {EACH} {EACH - 4} messages") == PARTITIONS, group
    for name in (str(known[0]), "0"):
        found = text(pages("topics", moved, "messages", partition=name))
        assert f"0:{EACH - 1}" in found


def test_a_message_is_sent_to_who_leads(session: Session, moved: str, pages: ClusterPages) -> None:
    for number, name in names(session, "written").items():
        form = {"value": "text", "payload": "x", "partition": str(number)}
        sent = pages.post("topics", "written", "produce", **form)
        assert f"sent={name}" in sent.headers["Location"]
        assert f"{number}:0" in text(pages("topics", "written", "messages", partition=str(number)))
