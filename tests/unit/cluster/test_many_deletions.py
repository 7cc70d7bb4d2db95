"""Many topics that are deleted together, and what a cluster is told of them meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from broker_bench import BrokerBench
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred

from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.local_partitions import LocalPartitions
from hermes.config.kinds import FORMAT_KAFKA
from hermes.server.clients import UNKNOWN_CLIENT

NAMES = [f"topic-{number}" for number in range(20)]


class Threads:
    """Worker threads that may begin only when the test says so."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] | None = None

    def __call__(self, function: Any, *args: Any) -> "Deferred[Any]":
        if self.held is None:
            return maybeDeferred(function, *args)
        result: Deferred[Any] = Deferred()
        self.held.append(lambda: maybeDeferred(function, *args).chainDeferred(result))
        return result

    def run(self) -> None:
        while self.held:
            self.held.pop(0)()


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def bench(tmp_path: Path, threads: Threads) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path, threads)
    yield bench
    bench.close()


class Told:
    """Stands in for the cluster: what a broker says that it has."""

    def __init__(self) -> None:
        self.local: list[Mapping[str, LocalPartitions]] = []

    def publish_local(self, local: Mapping[str, LocalPartitions]) -> None:
        self.local.append(dict(local))


def test_a_topic_is_what_it_was_until_it_is_gone(bench: BrokerBench) -> None:
    told, cluster, shared = Told(), bench.cluster, bench.shared

    def follow(on_state: Any) -> Any:
        return told

    part = ClusterPart(
        shared, cluster.topics, cluster.changes, cluster.deletions, lambda values: None, follow
    )
    for name in NAMES:
        shared.topics.create_numbered(name, 0, uuid4())
        cluster.changes.use_settings(name, {"format": FORMAT_KAFKA})
    bench.turns()
    assert told.local[-1].keys() == set(NAMES)
    deleted: Deferred[Any] = gatherResults(
        [cluster.deletions.delete_topic(name, UNKNOWN_CLIENT) for name in NAMES]
    )
    bench.turns()
    assert deleted.called
    assert told.local[-1] == {}
    assert {each.format for local in told.local for each in local.values()} == {FORMAT_KAFKA}
    assert not any(shared.topics.exists(name) for name in NAMES)
    assert not bench.settings.entries
    part.stop()


def test_whoever_waits_hears_of_topics_that_are_gone_together(
    bench: BrokerBench, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = bench.shared
    for name in NAMES:
        shared.topics.create_numbered(name, 0, uuid4())
    left: list[int] = []
    heard = shared.waiting.changed

    def changed(topic: str, partition: int) -> None:
        left.append(len(shared.topics))
        heard(topic, partition)

    monkeypatch.setattr(shared.waiting, "changed", changed)
    threads.held = []
    for name in NAMES:
        bench.cluster.deletions.delete_topic(name, UNKNOWN_CLIENT)
    threads.run()
    threads.held = None
    assert left == [len(NAMES) - 1, *[0] * (len(NAMES) - 1)]  # the first one went alone
