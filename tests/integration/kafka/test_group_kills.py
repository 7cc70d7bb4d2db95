"""Members and their broker are killed: every message is delivered, and no commit is lost."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from coordination_servers import ServerProcess
from hermes_testkit import BrokerProcess
from kafka_group_kills import KilledGroup


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "consumer"])
def test_kills_of_a_broker_and_of_members(
    assignor: str, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    random = Random(1)
    with closing(KilledGroup(start_broker, assignor, 2, tmp_path)) as group:
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


@pytest.mark.parametrize(
    ("client", "assignor"),
    [("confluent-kafka", "range"), ("confluent-kafka", "consumer"), ("java", "consumer")],
)
def test_another_broker_goes_on_where_the_killed_one_was(
    client: str,
    assignor: str,
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
) -> None:
    server = coordination_server("embedded")
    settings = {
        "client": client,
        "coordination": "zookeeper",
        "zookeeper_connect": f"{server.address}/killed-{client}-{assignor}",
        "zookeeper_session_timeout": "2s",
    }
    random = Random(2)
    with closing(KilledGroup(start_broker, assignor, 0, tmp_path, 2, **settings)) as group:
        group.produce(200)
        group.wait_for_progress(random)
        # Its partitions wait for it; the group must not.
        leads = lambda: group.wait_until(group.is_led, "nobody coordinates it")  # noqa: E731
        group.kill_broker(group.home(), pause=leads)
        group.produce(50)
        group.finish()
