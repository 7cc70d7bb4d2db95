"""Clusters that keep copies, in daily use: rolling restarts, and clients with their defaults."""

from collections.abc import Callable
from pathlib import Path

import pytest
from coordination_servers import ServerProcess
from kafka_clients import CLIENTS
from kafka_clients_of_others import FranzGo
from paced_load import PacedLoad
from replicated_clients import go_through_kills
from replicated_cluster import ReplicatedCluster
from replicated_rounds import ReplicatedLoad
from soak import report, times

pytestmark = pytest.mark.soak


def test_rolling_restarts(
    coordination_server: Callable[[str], ServerProcess], tmp_path: Path
) -> None:
    """No send fails, and none waits for long."""
    rounds = times(50)
    tree = f"{coordination_server('zookeeper').address}/rolling"
    cluster = ReplicatedCluster(tmp_path / "cluster", tree)
    waits: list[float] = []
    paced: list[PacedLoad] = []

    def start(bootstrap: str) -> PacedLoad:
        paced.append(PacedLoad(bootstrap))
        return paced[0]

    try:
        load = ReplicatedLoad(cluster, seed=1, load=start)
        try:
            for _ in range(rounds):
                for number in cluster.brokers:
                    # For 3 s: librdkafka waits the longer before it connects again to a broker that
                    # was away, the more often that was so.
                    load.go_on(300)
                    cluster.stop(number)
                    cluster.start(number)
                    load.wait_until_in_sync()
                load.go_on(50)
                waits.append(paced[0].longest_seconds)
                paced[0].longest_seconds = 0.0
            messages = load.finish()
        finally:
            load.abandon()
    finally:
        cluster.close()
    waits.sort()
    report(
        "rolling restarts of three brokers",
        rounds=rounds,
        messages=messages,
        failed=0,
        longest_wait_of_a_round_median_seconds=f"{waits[rounds // 2]:.2f}",
        longest_wait_seconds=f"{waits[-1]:.2f}",
    )


def test_clients_with_their_defaults(
    coordination_server: Callable[[str], ServerProcess], tmp_path: Path
) -> None:
    """aiokafka with acks=all, as it promises less by default."""
    kills = times(20)
    tree = f"{coordination_server('zookeeper').address}/clients"
    cluster = ReplicatedCluster(tmp_path / "cluster", tree)
    try:
        counts = go_through_kills(cluster, (*CLIENTS, FranzGo), kills)
    finally:
        cluster.close()
    report("clients of replicated topics", kills=kills, lost=0, **counts)
