"""Very many schedules of the simulator, and each rule of the design broken."""

import pytest
from schedule import MUTATIONS, load
from simulations import simulate
from soak import report, seed, times

pytestmark = pytest.mark.soak

load()


def test_nothing_breaks() -> None:
    first = 1_000_000 * (1 + seed())
    counts, text = simulate(times(100_000), first, "--keep-going")
    report("simulation", first_seed=first, **counts._asdict())

    assert not counts.broken, text


@pytest.mark.parametrize("name", sorted(MUTATIONS, key=lambda name: MUTATIONS[name].seeds))
def test_a_broken_rule_is_found(name: str) -> None:
    counts, _ = simulate(MUTATIONS[name].seeds, 0, "--mutation", name, "--no-trace")
    report("simulation", mutation=name, found_within=counts.schedules)

    assert counts.broken
