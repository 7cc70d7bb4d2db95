"""Groups of Kafka's consumers through many kills: nothing is missed, no commit goes back."""

from collections.abc import Callable
from contextlib import closing
from random import Random

import pytest
from hermes_testkit import BrokerProcess
from kafka_group_kills import KilledGroup
from soak import report, seed, times


@pytest.mark.soak
@pytest.mark.parametrize("coordination", ["none", "embedded"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_kills(
    start_broker: Callable[..., BrokerProcess], assignor: str, coordination: str
) -> None:
    settings = {"coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    number = seed()
    random = Random(f"{number} {assignor} {coordination}")
    rounds = times(12)
    with closing(KilledGroup(start_broker, assignor, 2, **settings)) as group:
        for _ in range(rounds):
            group.produce(100)
            group.wait_for_progress(random)
            for place in random.sample(range(4), random.randrange(0, 3)):
                group.kill_member(place, kill=random.random() < 0.7)
            if random.random() < 0.6:
                group.kill_broker()
        group.finish()
    report("kafka groups", seed=number, rounds=rounds, messages=len(group.produced))
