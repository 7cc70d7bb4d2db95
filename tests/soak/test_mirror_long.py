"""A million messages over two clusters, and twenty kills of whatever is involved."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from mirror_clusters import Clusters
from mirror_kills import MirrorKills
from soak import report, seed, times

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("embedded", [False, True], ids=["by itself", "in the broker"])
def test_kills(tmp_path: Path, embedded: bool) -> None:
    chosen, kills, messages = seed(), times(20), times(1_000_000)
    report(
        "mirror kills", seed=chosen, kills=kills, messages=messages, embedded=embedded
    )  # should it hang
    with ExitStack() as stack:
        run = MirrorKills(Clusters(tmp_path, stack), messages, kills, chosen, embedded)
        run.run()
    report("mirror kills", seed=chosen, messages=messages, lost=0, twice=0, **run.deeds)
