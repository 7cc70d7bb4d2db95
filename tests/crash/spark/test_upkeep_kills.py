"""Programs that load, compact, let expire and clean up a target at once, killed with -9."""

import random

import pytest
from upkeep_kills import check_upkeep


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_kills_under_loads_and_their_upkeep(tmp_path, sink) -> None:
    """The soak suite has fifty, and S3."""
    seed = random.getrandbits(32)  # pytest-randomly makes it the same for the same seed
    check_upkeep(str(tmp_path / "a target"), tmp_path, sink, 3, seed)
