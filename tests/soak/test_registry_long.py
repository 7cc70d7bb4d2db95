"""Three registries killed again and again while schemas are registered, on both servers."""

from pathlib import Path

import pytest
from coordination_servers import KINDS
from registry_cluster import RegistryCluster, kill_registries
from soak import report, seed, times

pytestmark = pytest.mark.soak

KILLS = times(30)


@pytest.mark.parametrize("kind", KINDS)
def test_no_kill_loses_an_id_or_gives_one_twice(tmp_path: Path, kind: str) -> None:
    chosen_seed = seed()
    server = KINDS[kind](tmp_path / "server")
    server.start()
    try:
        cluster = RegistryCluster(tmp_path, server.address)
        try:
            figures = kill_registries(cluster, KILLS, chosen_seed, writers=8)
        finally:
            cluster.stop()
    finally:
        server.kill()
    report(f"registry on {kind}", seed=chosen_seed, kills=KILLS, **figures, lost=0, twice=0)
