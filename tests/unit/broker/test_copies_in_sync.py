"""A broker says whether its copies are in sync, to whoever restarts one after the other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from replicated_bench import ReplicatedBench

from hermes.broker.health import Check, copies_in_sync
from hermes.replication.state import PartitionState


def of(*replicas: int, isr: tuple[int, ...], **more: Any) -> PartitionState:
    return PartitionState(replicas, 1, 11, 5, frozenset(isr), **more)


def test_copies_count_that_it_has_and_keeps(tmp_path: Path) -> None:
    bench = ReplicatedBench(tmp_path)

    def check() -> Check:
        run: Any = SimpleNamespace(cluster=bench.cluster, config=bench.settings.config)
        return copies_in_sync(run)

    bench.topic("well", of(1, 0, isr=(1, 0)), of(1, 2, isr=(1,)), 0)
    given = of(1, 0, isr=(1,), adding=frozenset({0}))
    taken = of(1, 0, isr=(1,), removing=frozenset({0}))
    bench.topic("moving", given, taken)
    assert check() == Check("in_sync", True, "all of 1 copies")
    bench.topic("behind", *[of(1, 0, isr=(1,))] * 12)
    found = check()
    assert not found.is_ok
    assert found.detail.startswith("not in sync: behind-0; behind-1; ")
    assert found.detail.endswith(" and 2 more")
    bench.close()
