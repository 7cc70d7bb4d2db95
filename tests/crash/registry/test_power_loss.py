"""Ids that were given out are there after a power loss, whatever the disk holds then."""

import random
from pathlib import Path

import pytest
from lost_power import MODES
from registry_power_loss import RegistryLife, record_registry


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> RegistryLife:
    return record_registry(tmp_path_factory.mktemp("life") / "life", 130)


@pytest.mark.parametrize("mode", ["all lost", "any lost", "bytes torn", "few kept"])
def test_no_id_is_lost_or_given_out_again(tmp_path: Path, life: RegistryLife, mode: str) -> None:
    assert mode in MODES
    begin, end = life.given[60].moment, life.trace.moments
    moment = random.Random(mode).randrange(begin, end)
    assert life.check(tmp_path / "state", moment, mode, 1) > 50
