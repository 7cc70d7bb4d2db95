"""Clusters of brokers that keep copies, each with a tree of its own in one real ZooKeeper."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordination_servers import ServerProcess
from replicated_cluster import ReplicatedCluster

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
