"""Three registries killed again and again while schemas are registered, on both servers."""

import random
from pathlib import Path

import pytest
from coordination_servers import KINDS
from lost_power import MODES
from registry_cluster import RegistryCluster, kill_registries
from registry_power_loss import record_registry
from soak import report, seed, times

pytestmark = pytest.mark.soak

KILLS = times(30)
STATES = times(40)


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


def test_no_power_loss_loses_an_id_or_gives_one_twice(tmp_path: Path) -> None:
    chosen_seed, checked = seed(), 0
    chance = random.Random(chosen_seed)
    life = record_registry(tmp_path / "life", 200)
    for number in range(STATES):
        mode = list(MODES)[number % len(MODES)]
        moment = chance.randrange(life.given[0].moment, life.trace.moments + 1)
        try:
            checked += life.check(tmp_path / f"state-{number}", moment, mode, chosen_seed + number)
        except AssertionError as error:
            error.add_note(f"moment {moment}, {mode}, HERMES_SOAK_SEED={chosen_seed}")
            raise
    report("registry and power", seed=chosen_seed, states=STATES, ids=checked, lost=0, twice=0)
