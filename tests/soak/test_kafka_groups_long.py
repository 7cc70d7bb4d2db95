"""Groups of Kafka's consumers through many kills: nothing is missed, no commit goes back."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from coordination_servers import KINDS, ServerProcess
from hermes_testkit import BrokerProcess
from kafka_group_kills import KilledGroup
from soak import report, seed, times

#: Clients with an assignor, how many members of four are static, and where their broker keeps them.
GROUPS = [
    ("confluent-kafka", "range", 0, "none"),
    ("confluent-kafka", "cooperative-sticky", 0, "embedded"),
    ("confluent-kafka", "cooperative-sticky", 4, "none"),
    ("aiokafka", "range", 0, "none"),
    ("kafka-python", "range", 0, "embedded"),
    ("java", "range", 0, "none"),
    ("java", "cooperative-sticky", 2, "embedded"),
    ("confluent-kafka", "consumer", 0, "none"),
    ("confluent-kafka", "consumer", 2, "embedded"),
    ("java", "consumer", 0, "none"),
    ("java", "consumer", 2, "embedded"),
]


@pytest.mark.soak
@pytest.mark.parametrize(("client", "assignor", "static", "coordination"), GROUPS)
def test_kills(
    start_broker: Callable[..., BrokerProcess],
    client: str,
    assignor: str,
    static: int,
    coordination: str,
    tmp_path: Path,
) -> None:
    settings = {"coordination": coordination, "client": client}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    number = seed()
    random = Random(f"{number} {client} {assignor} {static}")
    rounds, members = times(50), 0
    with closing(KilledGroup(start_broker, assignor, static, tmp_path, **settings)) as group:
        for turn in range(rounds):
            group.produce(60)
            group.wait_for_progress(random)
            if turn % 3 == 2:
                members += 1
                group.kill_member(random.randrange(4), kill=random.random() < 0.7)
            group.kill_broker()
        group.finish()
    report(
        "kafka groups",
        client=client,
        assignor=assignor,
        static=static,
        coordination=coordination,
        seed=number,
        kills=rounds,
        ended_members=members,
        messages=len(group.produced),
        seen_again=group.seen_again,
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("client", "assignor"),
    [("confluent-kafka", "range"), ("confluent-kafka", "consumer"), ("java", "consumer")],
)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kills_in_a_cluster(
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    kind: str,
    client: str,
    assignor: str,
    tmp_path: Path,
) -> None:
    settings = {
        "client": client,
        "coordination": "zookeeper",
        "zookeeper_connect": f"{coordination_server(kind).address}/killed-long-{client}-{assignor}",
        "zookeeper_session_timeout": "2s",
    }
    number, rounds = seed(), times(12)
    random = Random(f"{number} {kind} {client} {assignor}")
    with closing(KilledGroup(start_broker, assignor, 2, tmp_path, 3, **settings)) as group:
        for _ in range(rounds):
            group.produce(100)
            group.wait_for_progress(random)
            for place in random.sample(range(4), random.randrange(0, 3)):
                group.kill_member(place, kill=random.random() < 0.7)
            broker = random.randrange(3)
            group.kill_broker(broker, pause=lambda: group.wait_until(group.is_led, "nobody leads"))
        group.finish()
    report(
        "kafka groups in a cluster",
        client=client,
        assignor=assignor,
        coordination=kind,
        seed=number,
        rounds=rounds,
        messages=len(group.produced),
        seen_again=group.seen_again,
    )
