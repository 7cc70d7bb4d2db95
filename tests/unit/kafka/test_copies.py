"""All copies of a broker follow what coordination and settings say."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from broker_bench import log_lines
from replicated_bench import ReplicatedBench
from twisted.internet.defer import Deferred, succeed

from hermes.cluster.topic_cluster import ClusterState
from hermes.config.topic import TopicConfig
from hermes.errors import CoordinationUnavailableError
from hermes.kafka.replicas.copies import Copies
from hermes.kafka.replicas.copy import Copy
from hermes.replication.leading import Leading
from hermes.replication.state import PartitionState
from hermes.storage.kafka_format import KAFKA

LED = PartitionState((0, 1, 2), 0, 10, 5, frozenset({0}))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReplicatedBench]:
    bench = ReplicatedBench(tmp_path, topics={"t": {"format": "kafka", "min_insync_replicas": 2}})
    yield bench
    bench.close()


def copies_of(bench: ReplicatedBench) -> Copies:
    lease: Any = SimpleNamespace(session_id=10, is_held=lambda: True)
    return Copies(
        bench.shared,
        lambda: bench.tree.replicas,
        lambda life: lease,
        lambda: succeed(None),
        lambda listeners: None,
        lambda client: True,
        bench.cluster.topics.throttle_of,
    )


def led_by_too_few(bench: ReplicatedBench, topic: str) -> tuple[Copies, Leading]:
    """Have the broker lead a topic that asks for more in-sync replicas than there are."""
    bench.topic(topic, LED)
    copies = copies_of(bench)
    copies.use(ClusterState(bench.tree.read(), {}, lives=bench.lives))
    bench.clock.advance(1)
    (copy,) = copies._copies.values()
    leading = copy.replica.leading
    assert leading is not None
    assert not leading.has_enough
    return copies, leading


def test_a_copy_that_was_moved_away_while_its_broker_was_down_is_deleted(
    bench: ReplicatedBench,
) -> None:
    topic_id = bench.topic("t", PartitionState((1, 2), 1, 11, 5, frozenset({1, 2})))
    log = bench.directory.create("t", 0, KAFKA, topic_id, is_sole_copy=False)
    log.flush()
    bench.directory.watermarks.keep({("t", 0): 0})
    copies = copies_of(bench)
    for _ in range(10):
        copies.use(ClusterState(bench.tree.read(), {}, lives=bench.lives))
        bench.clock.advance(5)
    copies.stop()
    assert bench.directory.get("t", 0) is None


def test_a_copy_that_is_named_again_while_it_is_asked_whether_it_is_comes_back(
    bench: ReplicatedBench,
) -> None:
    """What a thread has read then is told once the broker knows more."""
    in_thread, late, is_late = bench.shared.in_thread, list[Any](), False

    def call(function: Any, *args: Any) -> "Deferred[Any]":
        called = in_thread(function, *args)
        if is_late:
            later: Deferred[Any] = Deferred()
            late.append(lambda: called.chainDeferred(later))
            return later
        return called

    bench.shared.in_thread = call
    named = PartitionState((0, 1, 2), 1, 11, 5, frozenset({1}))
    bench.topic("t", named)
    copies, contents = copies_of(bench), bench.tree.read()

    def use() -> None:
        nonlocal contents
        contents = bench.tree.read(contents)
        copies.use(ClusterState(contents, {}, lives=bench.lives))

    use()
    bench.clock.advance(1)
    assert copies._copies["t", 0].log is not None
    is_late = True
    bench.tree.replicas.change("t", 0, lambda _: replace(named, replicas=(1, 2), epoch=6))
    use()
    assert late, "it is asked for certain"
    is_late = False
    bench.tree.replicas.change("t", 0, lambda _: replace(named, epoch=6))
    use()
    while late:
        late.pop()()
    for _ in range(5):
        use()
        bench.clock.advance(5)
    copy = copies._copies.get(("t", 0))
    is_back = copy is not None and copy.log is not None and not copy.log.is_closed
    copies.stop()
    assert is_back, "nobody makes it before the topic changes once more"


def test_a_fault_in_one_copy_keeps_no_other_from_being_looked_after(
    bench: ReplicatedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails with it, for instance that no thread can be made for its flush."""
    names = ["t", "u", "v"]
    for name in names:
        bench.topic(name, LED)
    turned, turn = list[str](), Copy._turn

    def turn_or_fail(copy: Copy) -> None:
        turned.append(copy.topic)
        if copy.topic == names[0]:
            raise RuntimeError("can't start new thread")
        turn(copy)

    monkeypatch.setattr(Copy, "_turn", turn_or_fail)
    copies = copies_of(bench)
    with log_lines() as lines:
        copies.use(ClusterState(bench.tree.read(), {}, lives=bench.lives))
        learned = set(turned)
        bench.clock.advance(1)
        turned.clear()
        for copy in copies._copies.values():
            copies.press(copy)
        bench.clock.advance(0.1)
        pressed = set(turned)
        turned.clear()
        for _ in range(2):
            bench.clock.advance(4)
        swept = [each for each in turned if each == "v"]
    copies.stop()
    assert learned == pressed == set(names)
    assert len(swept) == 2
    assert any("can't start new thread" in each for each in lines)


def test_a_leader_goes_by_what_is_set_for_its_topic_from_then_on(bench: ReplicatedBench) -> None:
    copies, leading = led_by_too_few(bench, "t")
    config = bench.settings.config
    bench.settings.config = replace(config, altered={"t": TopicConfig(min_insync_replicas=1)})
    bench.settings.notify_topic("t")
    bench.clock.advance(60)
    has_enough = leading.has_enough
    copies.stop()
    assert has_enough


def test_who_registers_again_asks_whether_its_directory_is_still_the_brokers(
    bench: ReplicatedBench,
) -> None:
    """It slept for so long that it was replaced, by one with another disk, which is down now."""
    bench.topic("t", PartitionState((0, 1, 2), 1, 11, 5, frozenset({0, 1})))
    copies = copies_of(bench)
    copies.use(ClusterState(bench.tree.read(), {}, lives=bench.lives))
    bench.clock.advance(1)
    (copy,) = copies._copies.values()
    assert copy.replica.is_whole
    assert bench.tree.replicas.directory(0) == bench.directory.own_id()

    bench.tree.replicas.keep_directory(0, UUID(int=77))  # and then it got messages
    copies._lease_of = lambda life: SimpleNamespace(session_id=20, is_held=lambda: True)  # type: ignore[assignment,return-value]
    for _ in range(20):
        copies.use(ClusterState(bench.tree.read(), {}, lives={0: 20}))  # the leader has died
        bench.clock.advance(0.1)
    state = bench.state("t")
    copies.stop()
    assert state is not None
    assert state.leader != 0, "it leads without what its successor has acknowledged"


def test_who_registers_again_lacks_something_also_where_the_first_answer_is_lost(
    bench: ReplicatedBench,
) -> None:
    bench.topic("t", PartitionState((0, 1, 2), 1, 11, 5, frozenset({0, 1})))
    copies = copies_of(bench)
    copies.use(ClusterState(bench.tree.read(), {}, lives=bench.lives))
    bench.clock.advance(1)
    (copy,) = copies._copies.values()
    assert copy.replica.is_whole

    replicas = bench.tree.replicas
    replicas.keep_directory(0, UUID(int=77))
    keep = replicas.keep_directory

    def lose(*args: Any) -> None:
        keep(*args)
        replicas.keep_directory = keep  # type: ignore[method-assign]
        raise CoordinationUnavailableError("no answer came")

    replicas.keep_directory = lose  # type: ignore[method-assign]
    copies._lease_of = lambda life: SimpleNamespace(session_id=20, is_held=lambda: True)  # type: ignore[assignment,return-value]
    for _ in range(20):
        copies.use(ClusterState(bench.tree.read(), {}, lives={0: 20}))
        bench.clock.advance(0.1)
    state = bench.state("t")
    copies.stop()
    assert replicas.directory(0) == bench.directory.own_id()
    assert state is not None
    assert state.leader != 0, "it leads without what its successor has acknowledged"


def test_another_default_counts_for_topics_that_go_by_it(bench: ReplicatedBench) -> None:
    copies, leading = led_by_too_few(bench, "u")
    bench.settings.use(replace(bench.settings.config, default_min_insync_replicas=1))
    bench.clock.advance(1)
    has_enough = leading.has_enough
    copies.stop()
    assert has_enough
