"""Twenty kills each of source, target and mirror, with a real Kafka on either side."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_mirror_kills import KafkaMirrorKills
from mirror_clusters import Clusters
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
    report("kafka mirror kills", **known, lost=0, repeated=run.repeated, **run.deeds)
