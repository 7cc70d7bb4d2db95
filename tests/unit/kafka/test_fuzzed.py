"""Requests of any kind that are almost right: an answer or a close, and never a fault of ours."""

from pathlib import Path

from kafka_bench import KafkaBench
from kafka_fuzz import fuzz


def test_no_request_finds_a_fault(tmp_path: Path) -> None:
    rules = [{"principal": "anonymous", "operations": ["all"]}]
    topics = {"new": {"format": "kafka"}, "old": {}}
    bench = KafkaBench(tmp_path, topics=topics, access=rules)
    for topic in ("new", "old"):
        bench.shared.topics.create_declared(topic)
    lines = fuzz(bench, seed=16, count=500)
    assert [line for line in lines if "Traceback" in line] == []
    assert lines, "something was refused"
    assert bench.settings.config.requested.acls, "ACLs were made"
    assert bench.server.groups.local.counts.rebalances, "groups were got to"
    assert len(bench.server.shared.waiting) == 0
    assert not bench.connections._unfinished
    bench.close()
