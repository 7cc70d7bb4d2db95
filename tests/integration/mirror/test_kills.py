"""Kills of all that is involved: everything arrives, in order and once."""

import pytest
from mirror_clusters import Clusters
from mirror_kills import MirrorKills


@pytest.mark.parametrize(
    "embedded",
    [
        pytest.param(False, id="by itself", marks=pytest.mark.nightly),
        pytest.param(True, id="in the broker"),
    ],
)
def test_everything_arrives_once_through_kills(clusters: Clusters, embedded: bool) -> None:
    run = MirrorKills(clusters, messages=60_000, kills=5, seed=1, embedded=embedded)
    run.run()
    assert set(run.deeds) == {"source", "target", "mirror"}
