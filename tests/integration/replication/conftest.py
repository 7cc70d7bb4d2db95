"""Clusters of brokers that keep copies, each with a tree of its own in one real ZooKeeper."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordination_servers import ServerProcess
from replicated_cluster import ReplicatedCluster
from replicated_rounds import ReplicatedLoad

_numbers = itertools.count()


@pytest.fixture
def start_cluster(
    tmp_path: Path, coordination_server: Callable[[str], ServerProcess]
) -> Iterator[Callable[..., ReplicatedCluster]]:
    """Starts brokers with what `ReplicatedCluster` takes; `coordination` is the server's kind."""
    with ExitStack() as stack:

        def start(coordination: str = "zookeeper", **settings: Any) -> ReplicatedCluster:
            number = next(_numbers)
            tree = f"{coordination_server(coordination).address}/replication-{number}"
            cluster = ReplicatedCluster(tmp_path / f"cluster {number}", tree, **settings)
            stack.callback(cluster.close)
            return cluster

        yield start


@pytest.fixture
def start_load(
    start_cluster: Callable[..., ReplicatedCluster],
) -> Iterator[Callable[[ReplicatedCluster], ReplicatedLoad]]:
    """Loads a topic of a cluster; its clients end before the cluster does."""
    with ExitStack() as stack:

        def start(cluster: ReplicatedCluster) -> ReplicatedLoad:
            load = ReplicatedLoad(cluster, seed=7)
            stack.callback(load.abandon)
            return load

        yield start
