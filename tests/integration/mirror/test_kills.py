"""Kills of all that is involved: everything arrives, in order and once."""

import pytest
from mirror_clusters import Clusters
from mirror_kills import MirrorKills


@pytest.mark.parametrize("seed", [1])
def test_everything_arrives_once_through_kills(clusters: Clusters, seed: int) -> None:
    run = MirrorKills(clusters, messages=60_000, kills=5, seed=seed)
    run.run()
    assert set(run.deeds) == {"source", "target", "mirror"}
