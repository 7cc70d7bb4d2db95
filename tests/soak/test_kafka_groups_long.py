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


@pytest.mark.soak
@pytest.mark.parametrize("coordination", ["none", "embedded"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_kills(
    start_broker: Callable[..., BrokerProcess], assignor: str, coordination: str, tmp_path: Path
) -> None:
    settings = {"coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    number = seed()
    random = Random(f"{number} {assignor} {coordination}")
    rounds = times(12)
    with closing(KilledGroup(start_broker, assignor, 2, tmp_path, **settings)) as group:
        for _ in range(rounds):
            group.produce(100)
            group.wait_for_progress(random)
            for place in random.sample(range(4), random.randrange(0, 3)):
                group.kill_member(place, kill=random.random() < 0.7)
            if random.random() < 0.6:
                group.kill_broker()
        group.finish()
    report("kafka groups", seed=number, rounds=rounds, messages=len(group.produced))


@pytest.mark.soak
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kills_in_a_cluster(
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    kind: str,
    tmp_path: Path,
) -> None:
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": f"{coordination_server(kind).address}/killed-long",
        "zookeeper_session_timeout": "2s",
    }
    number, rounds = seed(), times(12)
    random = Random(f"{number} {kind}")
    with closing(KilledGroup(start_broker, "range", 2, tmp_path, 3, **settings)) as group:
        for _ in range(rounds):
            group.produce(100)
            group.wait_for_progress(random)
            for place in random.sample(range(4), random.randrange(0, 3)):
                group.kill_member(place, kill=random.random() < 0.7)
            broker = random.randrange(3)
            group.kill_broker(broker, pause=lambda: group.wait_until(group.is_led, "nobody leads"))
        group.finish()
    report("kafka groups in a cluster", seed=number, rounds=rounds, messages=len(group.produced))
