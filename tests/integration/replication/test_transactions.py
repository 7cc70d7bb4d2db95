"""Transactions over brokers with copies: whoever dies, each is whole and once, or not at all."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from replicated_cluster import ReplicatedCluster
from transactional_clients import TransactedCluster

StartLoad = Callable[..., TransactedCluster]


@pytest.fixture
def start_load(start_cluster: Callable[..., ReplicatedCluster]) -> Iterator[StartLoad]:
    """Its clients end before the cluster does."""
    with ExitStack() as stack:

        def start(client: str) -> TransactedCluster:
            load = TransactedCluster(start_cluster(), 5, client)
            stack.callback(load.clients.abandon)
            return load

        yield start


@pytest.mark.parametrize("client", [pytest.param("java", marks=pytest.mark.nightly), "librdkafka"])
def test_any_broker_is_killed(start_load: StartLoad, client: str) -> None:
    load = start_load(client)
    load.go_on(30)
    for number in list(load.cluster.brokers):
        load.cluster.kill(number)
        load.go_on(30)
        load.cluster.start(number)
        load.wait_until_in_sync()
        load.clients.kill_one()
    load.go_on(30)
    load.clients.check()


@pytest.mark.nightly
def test_all_are_killed_at_once(start_load: StartLoad) -> None:
    load = start_load("librdkafka")
    for _ in range(2):
        load.go_on(30)
        for number in load.cluster.brokers:
            load.cluster.kill(number)
        load.cluster.start_together(load.cluster.brokers)
    load.go_on(30)
    load.clients.check()


def test_a_leader_sleeps(start_load: StartLoad) -> None:
    load = start_load("librdkafka")
    load.go_on(30)
    leader = load.leader()
    load.cluster.pause(leader)
    load.leader(but=leader)
    load.go_on(30)
    load.cluster.resume(leader)
    load.wait_until_in_sync()
    load.go_on(30)
    load.clients.check()
