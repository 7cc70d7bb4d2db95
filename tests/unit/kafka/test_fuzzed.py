"""Requests of any kind that are almost right: an answer or a close, and never a fault of ours."""

from pathlib import Path

from kafka_bench import KafkaBench
from kafka_fuzz import fuzz


def test_no_request_finds_a_fault(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}, "old": {}})
    for topic in ("new", "old"):
        bench.shared.topics.create_declared(topic)
    lines = fuzz(bench, seed=16, count=500)
    assert [line for line in lines if "Traceback" in line] == []
    assert lines, "something was refused"
    assert bench.server.groups.local.counts.rebalances, "groups were got to"
    assert len(bench.server.shared.waiting) == 0
    assert not bench.connections._unfinished
    bench.close()


def test_no_request_about_acls_quotas_and_users_finds_one(tmp_path: Path) -> None:
    rules = [{"principal": "anonymous", "operations": ["all"]}]
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}}, access=rules)
    bench.shared.topics.create_declared("new")
    kinds = (29, 30, 30, 30, 30, 31, 48, 49, 49, 50, 51, 61, 65, 66)
    lines = fuzz(bench, seed=17, count=900, only=kinds)
    assert [line for line in lines if "Traceback" in line] == []
    for done in (" ACLs: ", "changed the quotas"):
        assert any(done in line for line in lines), done
    bench.close()
