"""The page about copies: three brokers whose copies are looked at, moved, and lost."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS

from hermes.client import Producer, ProducerConfig
from hermes.console import Access, ClusterClient, Console
from hermes.security import Operation

from .test_pages import Pages, body, text

_HERMES = str(Path(sys.executable).with_name("hermes"))
EACH = 10


class ClusterPages(Pages):
    """A console that finds the brokers by coordination."""

    def __init__(self, coordination: str) -> None:
        self.may_act = True
        self.access = Access(None)
        client = ClusterClient(None, coordination)
        self.console = Console(client, self.access, lambda: self.may_act)


@pytest.fixture(scope="module")
def pages(cluster: ReplicatedCluster) -> Iterator[ClusterPages]:
    made = ClusterPages(cluster.coordination)
    yield made
    made.console.close()


def hermes(*arguments: str) -> list[dict[str, Any]]:
    """Run a command: what it said, as rows."""
    line = [_HERMES, *arguments, "--json"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(each) for each in ran.stdout.splitlines()]


def placed(cluster: ReplicatedCluster, topic: str, *brokers: int) -> None:
    """A topic with one partition, which these brokers have; the first leads."""
    cluster.create_topic(topic, 1, len(brokers))
    kafka = cluster.bootstrap.split(",")[0]
    hermes("replicas", "move", "-k", kafka, f"{topic}:0", ",".join(map(str, brokers)))

    def is_there() -> bool:
        known = cluster.copies(topic)[0]
        return known.in_sync == known.replicas == set(brokers)

    cluster.wait_until(is_there, f"{topic} isn't where it is to be")
    if cluster.leader(topic) != brokers[0]:
        hermes("replicas", "elect", "-k", kafka, f"{topic}:0")
        cluster.wait_until(lambda: cluster.leader(topic) == brokers[0], f"{topic} is led elsewhere")


def everybody_answers(cluster: ReplicatedCluster, pages: ClusterPages) -> None:
    """Wait: who was down a moment ago isn't asked at once."""
    cluster.wait_until(
        lambda: text(pages("brokers")).count(" answers 127.0.0.1:") == 3, "a broker is missing"
    )


def digest(page: str) -> str:
    (found,) = re.findall(r'name="plan" value="([0-9a-f]{64})"', page)
    return str(found)


def shown(pages: ClusterPages, topic: str) -> str:
    return text(pages("replicas", q=topic)).partition("In sync Change ")[2]


def test_copies_show_who_leads_and_who_is_in_sync(
    cluster: ReplicatedCluster, pages: ClusterPages
) -> None:
    placed(cluster, "shown", 2, 3, 1)
    row = shown(pages, "shown")
    assert re.match(r"shown:0 2 2 \d+ 2 , 3 , 1 1, 2, 3 acks=all needs 2 Move shown:0", row), row
    assert "shown:0" not in text(pages("replicas", q="shown", show="problems"))
    page = text(pages("topics", "shown"))
    assert "Partition Leader Copies" in page
    assert re.search(r"\b0 2 2 , 3 , 1 ", page), page
    everybody_answers(cluster, pages)
    brokers = text(pages("brokers"))
    assert "Leads Copies" in brokers
    assert re.search(r"answers 127\.0\.0\.1:\d+ \S+ \d+ [\d.]+ \w+ \d+ \d+ on broker 1", brokers)
    assert "The partitions that it has copies of" in text(pages("brokers", "1"))
    assert "hermes replicas list -b 127.0.0.1:" in text(pages("replicas"))


def test_a_partition_is_moved_after_a_preview_and_exactly_as_it_said(
    cluster: ReplicatedCluster, pages: ClusterPages
) -> None:
    placed(cluster, "carried", 1, 2)
    order = {"do": "move", "partition": "carried:0", "to": "3,2"}
    page = pages("replicas", "change", **order)
    assert "carried:0 1,2 3,2" in text(page)
    assert re.search(r"hermes replicas move -b \S+ carried:0 3,2", text(page))
    assert cluster.copies("carried")[0].replicas == {1, 2}

    other = pages.post("replicas", "change", **order, plan="0" * 64)
    assert (other.status, "nothing was done" in body(other)) == (400, True)
    assert cluster.copies("carried")[0].replicas == {1, 2}

    done = pages.post("replicas", "change", **order, plan=digest(page))
    assert done.headers["Location"] == "/replicas?done=replicas"
    cluster.wait_until(lambda: cluster.copies("carried")[0].replicas == {3, 2}, "it isn't moved")
    late = pages.post("replicas", "change", **order, plan=digest(page))
    assert (late.status, "nothing was done" in body(late)) == (400, True)
    assert "it is so already" in text(pages("replicas", "change", **order))


def test_a_move_shows_how_far_it_is_and_is_undone(
    cluster: ReplicatedCluster, pages: ClusterPages
) -> None:
    placed(cluster, "slow", 1, 2)
    config = ProducerConfig(zookeeper_connect=cluster.coordination, acks="flushed")
    with Producer(config) as producer:
        for _ in range(EACH):  # a batch each, of which four fit into one fetch
            producer.send("slow", b"m" * 900_000, partition=0)
            producer.flush()
    throttle(cluster, "1KB")  # so that it goes on until it is undone
    try:
        order = {"do": "move", "partition": "slow:0", "to": "3,2"}
        page = pages("replicas", "change", **order)
        assert pages.post("replicas", "change", **order, plan=digest(page)).status == 303
        size = r"\(\d\.\d MiB of 8\.6 MiB\)"
        progress = rf"slow:0 1 3 ([1-9]) of 10 messages {size}.* Undo the move of slow:0"
        cluster.wait_until(
            lambda: bool(re.search(progress, text(pages("replicas", q="slow", show="moving")))),
            "it doesn't show how far it is",
        )
        listed = run(cluster, "list", "slow")
        assert re.search(r"3 gets a copy: \d\.\d MiB of 8\.6 MiB\n", listed), listed
        page = pages("replicas", q="slow")
        assert "slow:0 moves 1 2" not in text(page)
        assert re.search(r"3 gets a copy lacks \d messages", text(page)), text(page)
        assert re.search(r'<progress max="10" value="[1-9]" aria-label="Broker 3">', page)
        order = {"do": "cancel", "partition": "slow:0"}
        page = pages("replicas", "change", **order)
        assert re.search(r"slow:0 3,2 (1,2|2,1)", text(page)), text(page)
        assert re.search(r"hermes replicas move -b \S+ --cancel slow:0", text(page))
        assert pages.post("replicas", "change", **order, plan=digest(page)).status == 303
    finally:
        throttle(cluster, "unlimited")
    cluster.wait_until(lambda: cluster.copies("slow")[0].replicas == {1, 2}, "it isn't undone")
    again = pages.answer("replicas", "change", **order)
    assert (again.status, "nothing to undo" in body(again)) == (400, True)


def throttle(cluster: ReplicatedCluster, rate: str) -> None:
    run(cluster, "throttle", rate)


def run(cluster: ReplicatedCluster, name: str, *arguments: str) -> str:
    kafka = cluster.bootstrap.split(",")[0]
    line = [_HERMES, "replicas", name, "-k", kafka, *arguments]
    ran = subprocess.run(line, check=True, timeout=DEADLINE_SECONDS, capture_output=True, text=True)
    return ran.stdout


def test_a_topic_gets_more_copies_and_a_broker_is_drained(
    cluster: ReplicatedCluster, pages: ClusterPages
) -> None:
    placed(cluster, "grows", 1)
    assert "grows" not in text(pages("replicas", q="grows"))
    order = {"do": "copies", "topics": "grows", "copies": "3"}
    page = pages("replicas", "change", **order)
    assert re.search(r"grows:0 1 1,(2,3|3,2)", text(page)), text(page)
    assert re.search(r"move -b \S+ --topics grows --replicas 3", text(page))
    assert pages.post("replicas", "change", **order, plan=digest(page)).status == 303
    cluster.wait_until_in_sync("grows", 1)

    refused = pages.answer("replicas", "change", do="drain", broker="3")
    assert (refused.status, "there are 2 other brokers" in body(refused)) == (400, True)


def test_preferred_leaders_are_elected(cluster: ReplicatedCluster, pages: ClusterPages) -> None:
    placed(cluster, "led", 1, 2)
    assert "it is so already" in text(pages("replicas", "change", do="elect", partition="led:0"))
    cluster.kill(1)
    cluster.leader("led", but=1)
    cluster.wait_until(lambda: cluster.copies("led")[0].in_sync == {2}, "it stays in sync")
    cluster.wait_until(lambda: "1 is down" in shown(pages, "led"), "it isn't shown")
    row = shown(pages, "led")
    assert re.match(
        r"led:0 under-replicated 2 1 \d+ 1 is down , 2 2 acks=all needs 1 Move led:0", row
    ), row
    overview = text(pages())
    assert re.search(r"Copies of \d+ partitions? are not in sync: ", overview), overview
    page = text(pages("replicas", "change", do="elect", partition="led:0"))
    assert "led:0 2 1 stays as it is: broker 1 is down" in page
    cluster.start(1)
    cluster.wait_until_in_sync("led", 1, 2)
    page = pages("replicas", "change", do="elect", partition="led:0")
    if "it is so already" not in text(page):  # else brokers have done it by themselves
        order = {"do": "elect", "partition": "led:0"}
        done = pages.post("replicas", "change", **order, plan=digest(page))
        assert done.headers["Location"] == "/replicas?done=elected"
    cluster.wait_until(lambda: cluster.leader("led") == 1, "it doesn't lead again")


def test_who_may_lack_messages_leads_only_where_the_name_is_typed(
    cluster: ReplicatedCluster, pages: ClusterPages
) -> None:
    placed(cluster, "lost", 1, 2)
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.copies("lost")[0].in_sync == {1}, "it stays in sync")
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_until(lambda: cluster.live() == {2, 3}, "a broker is missing, or too many")
    cluster.wait_until(lambda: "no leader" in shown(pages, "lost"), "it isn't shown")
    assert "There is no leader of" in text(pages())
    assert "nobody" in text(pages("topics", "lost"))
    order = {"do": "unclean", "partition": "lost:0"}
    page = pages("replicas", "change", **order)
    assert "lost:0 nobody one that is there broker 1 is down; broker 2 has offsets 0 to 0" in text(
        page
    )
    assert "are lost for good" in text(page)
    wrong = pages.post("replicas", "change", **order, plan=digest(page), confirm="lost")
    assert (wrong.status, "not the partition" in body(wrong)) == (400, True)
    right = {**order, "plan": digest(page), "confirm": "lost:0"}
    assert pages.post("replicas", "change", **right).status == 303
    assert cluster.leader("lost") == 2
    cluster.start(1)
    cluster.wait_until_in_sync("lost", 1, 2)
    cluster.wait_until(lambda: "unclean in epoch" in shown(pages, "lost"), "it isn't kept")


def test_only_who_administers_the_cluster_changes_copies(cluster: ReplicatedCluster) -> None:
    sees = ClusterPages(cluster.coordination)
    allowed = (Operation.DESCRIBE,)
    rights = lambda principal, operation, resource: operation in allowed  # noqa: E731
    sees.console._access = sees.access = Access(None, rights=rights)
    try:
        assert "/replicas/change" not in sees("replicas")
        asked = {"do": "elect"}
        assert sees.answer("replicas", "change", **asked).status == 403
        assert sees.post("replicas", "change", **asked, plan="0").status == 403
        allowed = ()
        assert sees.answer("replicas").status == 403
    finally:
        sees.console.close()


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"do": "<b>"}, ""),
        ({"do": "move", "partition": "<i>", "to": "1"}, "partition"),
        ({"do": "move", "partition": "nothing:0", "to": "1"}, "partition"),
        ({"do": "move", "partition": "a:0", "to": "<u>"}, "to"),
        ({"do": "copies", "topics": "", "copies": "3"}, "topics"),
        ({"do": "copies", "topics": "<u>", "copies": "3"}, "topics"),
        ({"do": "copies", "topics": "a", "copies": "99"}, "copies"),
        ({"do": "drain", "broker": "-1"}, "broker"),
        ({"do": "add-broker", "broker": "9"}, "broker"),
    ],
)
def test_what_is_wrong_is_said_beside_the_field(
    pages: ClusterPages, asked: dict[str, str], field: str
) -> None:
    answer = pages.answer("replicas", "change", **asked)
    page = body(answer)
    assert answer.status == 400
    assert not re.search("<[biu]>", page)
    assert (f'id="{field}-error"' in page) if field else "expected one of" in page


def test_a_topic_is_created_with_copies(cluster: ReplicatedCluster, pages: ClusterPages) -> None:
    everybody_answers(cluster, pages)
    assert 'name="replicas"' in pages("create-topic")
    new = {"name": "made", "format": "kafka", "partitions": "2", "replicas": "3"}
    for wrong, field in (
        ({"replicas": "8"}, "replicas"),
        ({"replicas": "4"}, "replicas"),  # there are three brokers
        ({"min_insync_replicas": "4"}, "min_insync_replicas"),
        ({"format": "0.7", "broker-1": "on"}, "replicas"),
    ):
        refused = pages.post("create-topic", **{**new, **wrong})
        assert (refused.status, f'{field}-error"' in body(refused)) == (400, True), body(refused)
    made = pages.post("create-topic", **new, min_insync_replicas="3")
    assert made.status == 303, body(made)
    cluster.wait_until_in_sync("made", 2)
    cluster.wait_until(
        lambda: "1, 2, 3 acks=all needs 3" in shown(pages, "made"), "it isn't shown so"
    )
    assert "Now 3." in text(pages("topics", "made", "settings"))
