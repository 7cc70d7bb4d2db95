"""Both coordination servers for the tests of this folder, a tree of its own for each test."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordination_servers import KINDS, ServerProcess
from registry_cluster import RegistryCluster

_numbers = itertools.count()


@pytest.fixture(params=sorted(KINDS))
def connect(
    request: pytest.FixtureRequest, coordination_server: Callable[[str], ServerProcess]
) -> str:
    """`host:port/chroot` of a tree that is empty."""
    return f"{coordination_server(request.param).address}/registry-{next(_numbers)}"


@pytest.fixture
def cluster(tmp_path: Path, connect: str) -> Iterator[RegistryCluster]:
    """Three brokers with their registries."""
    made = RegistryCluster(tmp_path, connect)
    yield made
    made.stop()
