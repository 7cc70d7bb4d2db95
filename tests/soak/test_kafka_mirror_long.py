"""Twenty kills each of source, target and mirror, with a real Kafka on either side.

And of who leads where the target's brokers keep copies, by itself and together with the mirror.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from coordination_servers import ServerProcess
from kafka_mirror_kills import KafkaMirrorKills
from mirror_clusters import Clusters
from replicated_cluster import ReplicatedCluster
from soak import report, seed, times

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(("source", "target"), [("kafka", "hermes"), ("hermes", "kafka")])
def test_kills(tmp_path: Path, source: str, target: str) -> None:
    chosen, kills, messages = seed(), times(60), times(600_000)
    known = {"seed": chosen, "source": source, "target": target, "messages": messages}
    report("kafka mirror kills", **known, kills=kills)  # should it hang
    with ExitStack() as stack:
        run = KafkaMirrorKills(Clusters(tmp_path, stack), source, target, messages, kills, chosen)
        run.run()
    report("kafka mirror kills", **known, lost=0, repeated=run.repeated, killed=dict(run.deeds))


def test_kills_of_leaders(
    tmp_path: Path, coordination_server: Callable[[str], ServerProcess]
) -> None:
    chosen, kills, messages = seed(), times(80), times(600_000)
    known = {"seed": chosen, "source": "kafka", "target": "copies", "messages": messages}
    report("kafka mirror kills", **known, kills=kills)  # should it hang
    tree = f"{coordination_server('zookeeper').address}/mirrored"
    copies = ReplicatedCluster(tmp_path / "copies", tree, default_replication_factor=3)
    with ExitStack() as stack:
        stack.callback(copies.close)
        clusters = Clusters(tmp_path, stack)
        run = KafkaMirrorKills(clusters, "kafka", "copies", messages, kills, chosen, copies)
        run.run()
    report("kafka mirror kills", **known, lost=0, repeated=run.repeated, killed=dict(run.deeds))
