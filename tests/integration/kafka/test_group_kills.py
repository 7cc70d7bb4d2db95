"""Members and their broker are killed: every message is delivered, and no commit is lost."""

from collections.abc import Callable
from contextlib import closing
from random import Random

import pytest
from hermes_testkit import BrokerProcess
from kafka_group_kills import KilledGroup


@pytest.mark.parametrize(
    ("assignor", "static", "coordination"),
    [("range", 0, "none"), ("cooperative-sticky", 2, "embedded")],
)
def test_kills(
    start_broker: Callable[..., BrokerProcess], assignor: str, static: int, coordination: str
) -> None:
    settings = {"coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    random = Random(assignor)
    with closing(KilledGroup(start_broker, assignor, static, **settings)) as group:
        group.produce(300)
        group.wait_for_progress(random)
        group.kill_member(0)
        group.wait_for_progress(random)
        group.kill_broker()
        group.produce(200)
        group.wait_for_progress(random)
        group.kill_member(3, kill=False)
        group.kill_member(1, replace=False)
        group.kill_broker()
        group.finish()
