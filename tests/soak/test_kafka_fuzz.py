"""100,000 requests of Kafka's clients that are almost right."""

import resource
from pathlib import Path

import pytest
import soak
from kafka_bench import KafkaBench
from kafka_fuzz import fuzz

COUNT = soak.times(100_000)
SEED = soak.seed()


@pytest.mark.soak
def test_no_request_finds_a_fault(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}, "old": {}})
    for topic in ("new", "old"):
        bench.shared.topics.create_declared(topic)
    fuzz(bench, SEED, 1000)  # all schemas are loaded then
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = fuzz(bench, SEED + 1, COUNT)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    found = {"lines": len(lines), "rebalances": bench.server.groups.local.counts.rebalances}
    soak.report("kafka-fuzz", requests=COUNT, seed=SEED, **found, grown_mib=grown)
    assert [line for line in lines if "Traceback" in line] == []
    assert grown < 100
    assert bench.server.groups.local.counts.rebalances > COUNT // 500, "groups were got to"
    bench.close()
