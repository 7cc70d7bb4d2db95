"""Ranges cover everything once and are cut between messages, whatever sizes messages have."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import OffsetOutOfRangeBrokerError
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import Offsets, TopicPartition
from hermes.spark.options import SourceOptions
from hermes.spark.planning import capped, cuts, plan

LOGS = st.dictionaries(
    st.builds(TopicPartition, st.just("clicks"), st.integers(0, 2), st.integers(0, 3)),
    st.lists(st.integers(10, 5000), max_size=30).map(lambda sizes: [0, *accumulate(sizes)]),
    min_size=1,
    max_size=5,
)


class FakeCluster:
    """Knows where the messages of each partition start; a Kafka 0.7 does not tell."""

    def __init__(self, logs: Mapping[TopicPartition, list[int]], *, is_kafka: bool) -> None:
        self._logs = logs
        self._is_kafka = is_kafka

    def brokers(self) -> dict[int, tuple[str, int]]:
        return {each.broker_id: ("localhost", each.broker_id) for each in self._logs}

    def address(self, partition: TopicPartition) -> tuple[str, int]:
        return self.brokers()[partition.broker_id]

    def earliest(self, partition: TopicPartition) -> int:
        return self._logs[partition][0]

    def boundary(self, partition: TopicPartition, offset: int) -> int | None:
        starts = self._logs[partition]
        if not starts[0] <= offset <= starts[-1]:
            raise OffsetOutOfRangeBrokerError
        return None if self._is_kafka else starts[bisect_right(starts, offset) - 1]


def options(least: int | None = None, most: int | None = None) -> SourceOptions:
    given = {"hermes.bootstrap.servers": "localhost:1", "subscribe": "clicks"}
    counts = {"minPartitions": least, "maxPartitions": most}
    return SourceOptions.parse(
        {**given, **{name: str(count) for name, count in counts.items() if count is not None}},
        "batch",
    )


def fake(logs: Mapping[TopicPartition, list[int]], *, is_kafka: bool = False) -> ClusterReader:
    return cast(ClusterReader, FakeCluster(logs, is_kafka=is_kafka))


@given(LOGS, st.none() | st.integers(1, 40), st.booleans())
def test_ranges_cover_everything_once(
    logs: dict[TopicPartition, list[int]], least: int | None, is_kafka: bool
) -> None:
    start: Offsets = {each: starts[len(starts) // 3] for each, starts in logs.items()}
    end: Offsets = {each: starts[-1] for each, starts in logs.items()}
    tasks = plan(fake(logs, is_kafka=is_kafka), start, end, options(least))
    ranges = [each for task in tasks for each in task.ranges]
    assert all(task.ranges for task in tasks)
    for each in logs:
        own = [(one.start, one.end) for one in ranges if one.partition == each]
        assert all(a < b and a in logs[each] and b in logs[each] for a, b in own)
        assert all(b == a for (_, b), (a, _) in pairwise(own)), "no gap and no overlap"
        if start[each] < end[each]:
            assert own[0][0] == start[each]
            assert own[-1][1] == end[each]
        else:
            assert own == []
    assert all((one.host, one.port) == ("localhost", one.partition.broker_id) for one in ranges)


@given(LOGS, st.integers(1, 40))
def test_there_are_as_many_tasks_as_messages_allow(
    logs: dict[TopicPartition, list[int]], least: int
) -> None:
    start = dict.fromkeys(logs, 0)
    end = {each: starts[-1] for each, starts in logs.items()}
    tasks = plan(fake(logs), start, end, options(least))
    sized = [starts for starts in logs.values() if len(starts) > 1]
    assert len(tasks) <= least + len(sized)
    assert len(tasks) >= min(least, len(sized))


@given(LOGS, st.integers(1, 10), st.integers(0, 10))
def test_there_are_never_more_tasks_than_are_wanted(
    logs: dict[TopicPartition, list[int]], most: int, fewer: int
) -> None:
    start = dict.fromkeys(logs, 0)
    end = {each: starts[-1] for each, starts in logs.items()}
    tasks = plan(fake(logs), start, end, options(max(1, most - fewer), most))
    assert len(tasks) <= most
    assert sum(each.size_bytes for task in tasks for each in task.ranges) == sum(end.values())


def test_small_partitions_share_a_task_and_large_ones_do_not() -> None:
    small = {TopicPartition("clicks", 0, n): [0, 1000] for n in range(1000)}
    large = {TopicPartition("views", 0, n): [0, 8 << 20] for n in range(3)}
    logs = {**small, **large}
    end = {each: starts[-1] for each, starts in logs.items()}
    tasks = plan(fake(logs), dict.fromkeys(logs, 0), end, options())
    assert [len(task.ranges) for task in tasks] == [1000, 1, 1, 1]


@given(st.integers(1, 30), st.integers(1, 40))
def test_messages_of_one_size_give_every_task_that_was_wanted(count: int, least: int) -> None:
    partition = TopicPartition("clicks", 0, 0)
    logs = {partition: list(range(0, 100 * count + 1, 100))}
    tasks = plan(fake(logs), {partition: 0}, {partition: 100 * count}, options(least))
    assert len(tasks) == min(least, count)


@given(LOGS, st.integers(1, 100_000))
def test_a_cap_is_kept_but_for_one_message_each(
    logs: dict[TopicPartition, list[int]], most: int
) -> None:
    start = {each: starts[len(starts) // 4] for each, starts in logs.items()}
    end = {each: starts[-1] for each, starts in logs.items()}
    cut = capped(fake(logs), start, end, most)
    firsts = 0
    for each, starts in logs.items():
        assert start[each] <= cut[each] <= end[each]
        assert cut[each] in starts
        if start[each] < end[each]:
            assert cut[each] > start[each], "every partition moves on"
            firsts += 2 * max(b - a for a, b in pairwise(starts))
    assert sum(cut.values()) - sum(start.values()) <= most + firsts


def test_a_broker_of_kafka_is_read_whole() -> None:
    partition = TopicPartition("clicks", 0, 0)
    cluster = fake({partition: [0, 50, 100]}, is_kafka=True)
    assert capped(cluster, {partition: 0}, {partition: 100}, 10) == {partition: 100}
    (task,) = plan(cluster, {partition: 0}, {partition: 100}, options(4))
    (whole,) = task.ranges
    assert (whole.start, whole.end) == (0, 100)


def test_what_retention_takes_while_it_is_planned_is_not_cut() -> None:
    """Who reads it, or shares it out to tasks, tells what is gone."""
    partition = TopicPartition("clicks", 0, 0)
    cluster = fake({partition: [600, 700, 800]})
    assert cuts(cluster, partition, 0, 800, 2) == [0, 800]
    assert cuts(cluster, partition, 0, 800, 8) == [0, 800]
    assert cuts(cluster, partition, 600, 800, 2) == [600, 700, 800]
    assert capped(cluster, {partition: 0}, {partition: 800}, 100) == {partition: 700}
    assert capped(cluster, {partition: 0}, {partition: 600}, 100) == {partition: 600}
    # The topic was made anew, and isn't so long yet.
    assert capped(cluster, {partition: 700}, {partition: 2000}, 900) == {partition: 2000}


def test_an_empty_range_has_no_cuts() -> None:
    partition = TopicPartition("clicks", 0, 0)
    cluster = fake({partition: [0, 100]})
    assert cuts(cluster, partition, 100, 100, 3) == []
    assert cuts(cluster, partition, 100, 0, 3) == []
