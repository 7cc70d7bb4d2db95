"""Plans and manifests as JSON, and where ranges are cut."""

import datetime
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.client import AppendTime
from hermes.errors import ConfigError, DataLossError, LoadTargetError
from hermes.spark.broker_metadata import Bounds
from hermes.spark.file_system import local_path
from hermes.spark.load.increments import make_plan
from hermes.spark.load.job import parse_load_options
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.load.plans import LoadCheckpoint, LoadManifest, Piece, Plan, period_at
from hermes.spark.load.tasks import tasks
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import LocalStore

HOUR_MS = 3_600_000
NOW_MS = 1_764_118_800_000  # 2025-11-26T01:00 UTC
A, B = TopicPartition("clicks", 0, 0), TopicPartition("clicks", 1, 0)
ORDERS = TopicPartition("orders", 0, 0)
ADDRESS = {"hermes.bootstrap.servers": "h:1"}


class FakeCluster:
    """Partitions of messages of 10 bytes; times by (end offset, ms or None)."""

    def __init__(self, earliest, latest, times=(), hermes=True) -> None:
        self._earliest, self._latest, self._times = earliest, latest, times
        self._hermes = hermes
        self.questions = 0
        self.unregistered = set()

    def brokers(self):
        return {each.broker_id: ("h", 1) for each in self._latest}

    def partitions(self, topics, *, whole=False):
        return {
            topic: sorted(each for each in self._latest if each.topic == topic) for topic in topics
        }

    def bounds(self, partitions):
        known = {*self._latest, *self.unregistered}
        return {
            each: Bounds(self._earliest[each], self._latest[each]) if each in known else None
            for each in partitions
        }

    def boundary(self, partition, offset):
        return offset // 10 * 10

    def ask_leader(self, partition, question):
        return question(self)

    def leader(self, partition):
        return partition.broker_id

    def address(self, partition):
        return self.brokers().get(partition.broker_id, ("", 0))

    def supports(self, request_type):
        return self._hermes

    def append_times(self, topic, partition, start, end, interval_ms):
        self.questions += 1
        assert interval_ms in (HOUR_MS, 24 * HOUR_MS)
        found = []
        for stretch_end, time_ms in self._times:
            if start < stretch_end:
                time_ms = None if time_ms is None else time_ms // interval_ms * interval_ms
                found.append(AppendTime(start, min(stretch_end, end), time_ms))
                start = min(stretch_end, end)
        return found


def planned(cluster, loaded=None, by="day", **options) -> Plan | None:
    parsed = parse_load_options({**ADDRESS, "subscribe": "clicks", **options})
    return make_plan(cluster, LoadCheckpoint(2, loaded or {}), parsed, by, NOW_MS)


def test_ranges_are_cut_where_the_period_changes() -> None:
    times = [(30, NOW_MS - 2 * HOUR_MS), (50, NOW_MS - HOUR_MS), (60, None), (90, NOW_MS)]
    cluster = FakeCluster({A: 0}, {A: 90}, times)
    plan = planned(cluster, by="hour")
    assert [tuple(each)[1:] for each in plan.pieces] == [
        (0, 30, "2025-11-25T23"),
        (30, 50, "2025-11-26T00"),
        (50, 90, "2025-11-26T01"),  # what isn't known counts as planned now
    ]
    assert plan.pieces[0].day == datetime.date(2025, 11, 25)
    assert (plan.pieces[0].hour, plan.number, plan.offsets) == (23, 3, {A: 90})
    by_day = planned(cluster)
    assert [tuple(each)[1:] for each in by_day.pieces] == [
        (0, 30, "2025-11-25"),
        (30, 90, "2025-11-26"),
    ]
    assert by_day.pieces[0].hour is None


def test_a_load_goes_on_where_the_last_one_ended_and_takes_new_partitions_whole() -> None:
    plan = planned(FakeCluster({A: 0, B: 40}, {A: 90, B: 60}, [(99, 0)]), {A: 70})
    assert plan.ranges == {A: (70, 90), B: (40, 60)}
    assert plan.offsets == {A: 90, B: 60}
    assert planned(FakeCluster({A: 0}, {A: 90}), {A: 90}) is None


def test_a_partition_that_is_gone_would_come_again_as_another() -> None:
    gone = TopicPartition("clicks", A.broker_id, 7)
    cluster = FakeCluster({A: 0}, {A: 90}, [(90, NOW_MS)])
    with pytest.raises(DataLossError, match="0-7 was loaded up to offset 70, and is gone"):
        planned(cluster, {A: 0, gone: 70})
    plan = planned(cluster, {A: 0, gone: 70}, failOnDataLoss="false")
    assert plan.offsets == {A: 90, gone: 0}
    assert plan.ranges == {A: (0, 90)}


def test_brokers_of_kafka_are_loaded_by_the_time_of_planning() -> None:
    cluster = FakeCluster({A: 0}, {A: 90}, hermes=False)
    (piece,) = planned(cluster).pieces
    assert (piece.period, cluster.questions) == ("2025-11-26", 0)


def test_a_broker_that_has_yet_to_register_its_topics_has_lost_nothing() -> None:
    cluster = FakeCluster({A: 0, B: 0}, {A: 100, B: 100}, [(100, NOW_MS)])
    cluster.partitions = lambda topics, whole: {topic: [A] for topic in topics}
    cluster.unregistered = {B}
    options = parse_load_options({**ADDRESS, "subscribe": "clicks"})
    plan = make_plan(cluster, LoadCheckpoint(1, {A: 50, B: 70}), options, "day", NOW_MS)
    assert plan.ranges == {A: (50, 100), B: (70, 100)}


def test_a_broker_that_is_away_is_waited_for(caplog) -> None:
    plan = planned(FakeCluster({A: 0}, {A: 90}, [(99, 0)]), {A: 70, B: 10})
    assert plan.ranges == {A: (70, 90)}
    assert plan.offsets == {A: 90, B: 10}
    assert "its broker is unavailable" in caplog.text


@pytest.mark.parametrize(
    ("cluster", "loaded", "says", "ranges"),
    [
        (({A: 30}, {A: 90}), {A: 10}, "offset 10 was wanted, 30 to 90", {A: (30, 90)}),
        (({A: 0}, {A: 90}), {A: 100}, "was the topic re-created", {A: (0, 90)}),
        (
            ({A: 0}, {A: 90}),
            {A: 80, TopicPartition("clicks", 0, 1): 70},
            "was loaded up to offset 70, and is gone",
            {A: (80, 90)},
        ),
    ],
)
def test_lost_messages_are_an_error_unless_allowed(cluster, loaded, says, ranges, caplog) -> None:
    fake = FakeCluster(*cluster, [(1000, 0)])
    with pytest.raises(DataLossError, match=says):
        planned(fake, loaded)
    assert planned(fake, loaded, failOnDataLoss="false").ranges == ranges
    assert says in caplog.text


partitions = st.builds(
    TopicPartition, st.sampled_from(["clicks", "a-b", "ü"]), st.integers(0, 3), st.integers(0, 3)
)
offsets = st.integers(0, 2**62)


@given(
    st.dictionaries(partitions, st.lists(offsets, min_size=2, max_size=5, unique=True), max_size=4),
    st.dictionaries(partitions, offsets),
    st.sampled_from(["day", "hour"]),
)
def test_plans_and_manifests_survive_json(cuts, after, by) -> None:
    pieces = tuple(
        Piece(each, start, end, period_at(start % 10**12, by))
        for each in sorted(cuts)
        for start, end in zip(sorted(cuts[each]), sorted(cuts[each])[1:], strict=False)
    )
    counting = frozenset({each.partition.topic for each in pieces[1:]})
    plan = Plan(7, NOW_MS, by, pieces, after, counting)
    assert Plan.decode(plan.encode(), "", "") == plan
    counts = (plan.number, 5, 1, 2, 3, 4)
    manifest = LoadManifest(*counts, "data/x", plan.ranges, plan.offsets, may_lack=by == "day")
    assert LoadManifest.decode(json.dumps(manifest.document()).encode(), "", "") == manifest


@pytest.mark.parametrize(
    "pieces",
    [
        {"clicks": {"0-0": [[0, 10, "2025-11-26"], [20, 30, "2025-11-26"]]}},
        {"clicks": {"0-0": [[10, 10, "2025-11-26"]]}},
        {"clicks": {"0-0": [[0, 10, "yesterday"]]}},
        {"clicks": {"0-0": [[0, 10]]}},
        {"clicks": {"zero": [[0, 10, "2025-11-26"]]}},
        {"clicks": 3},
    ],
)
def test_plans_that_make_no_sense_are_refused(pieces) -> None:
    document = json.loads(Plan(1, 0, "day", (), {}).encode())
    content = json.dumps({**document, "pieces": pieces}).encode()
    with pytest.raises(LoadTargetError, match=r"plan.json is damaged .*; fix it"):
        Plan.decode(content, "plan.json", "fix it")


def test_offsets_that_count_messages_are_no_bytes() -> None:
    pieces = (Piece(A, 0, 100, "2025-11-25"), Piece(ORDERS, 7, 19, "2025-11-25"))
    plan = Plan(3, 0, "day", pieces, {}, frozenset({"orders"}))
    assert (plan.log_bytes, plan.log_messages) == (100, 12)
    without = Plan(3, 0, "day", pieces, {})
    assert b"counting" not in without.encode()
    assert Plan.decode(without.encode(), "", "").counting == frozenset()


def test_tasks_cover_a_plan_once_and_each_writes_to_one_folder() -> None:
    pieces = (
        Piece(A, 0, 100, "2025-11-25"),
        Piece(A, 100, 700, "2025-11-26"),
        Piece(B, 50, 80, "2025-11-25"),
        Piece(B, 80, 90, "2025-11-26"),
    )
    plan = Plan(3, 0, "day", pieces, {})
    cluster = FakeCluster({}, {A: 700, B: 90})
    made = list(tasks(cluster, plan, {A: 0, B: 60}, 200))
    assert [(e.day.day, [(r.partition, r.start, r.end) for r in e.ranges]) for e in made] == [
        (25, [(A, 0, 100), (B, 60, 80)]),
        (26, [(A, 100, 300)]),
        (26, [(A, 300, 500)]),
        (26, [(A, 500, 700)]),
        (26, [(B, 80, 90)]),
    ]


def test_a_thousand_partitions_of_many_hours_become_a_task_an_hour() -> None:
    hours = range(24)
    pieces = tuple(
        Piece(TopicPartition("clicks", 0, n), h * 10, h * 10 + 10, f"2025-11-26T{h:02}")
        for n in range(1000)
        for h in hours
    )
    plan = Plan(3, 0, "hour", pieces, {})
    starts = {each.partition: 0 for each in pieces}
    made = list(tasks(FakeCluster({}, starts), plan, starts, 16_000_000))
    assert [each.hour for each in made] == list(hours)
    assert all(len(each.ranges) == 1000 for each in made)


def test_options_that_mean_nothing_here_are_refused() -> None:
    with pytest.raises(ConfigError, match="resumes where the last one into its target ended"):
        parse_load_options({**ADDRESS, "subscribe": "clicks", "startingOffsets": "latest"})
    with pytest.raises(ConfigError, match="there is no such option"):
        parse_load_options({**ADDRESS, "subscribe": "clicks", "speed": "high"})


def test_targets_are_directories() -> None:
    assert local_path("file:///a/b") == local_path("file:/a/b") == Path("/a/b")
    assert local_path("file://localhost/a/b") == Path("/a/b")
    assert local_path(Path("a:b/c")) == Path("a:b/c").absolute()
    for each in ("s3://bucket/clicks", Path("s3://bucket/clicks"), "hdfs:/clicks", "file://nas/a"):
        with pytest.raises(LoadTargetError, match="expected a directory with hard links"):
            local_path(each)


def plan_document(**changes: object) -> bytes:
    document = {
        "format": "hermes load plan",
        "version": 1,
        "number": 1,
        "planned_ms": 1,
        "partition_by": "day",
        "pieces": {"t": {"0-0": [[0, 10, "2024-01-01"]]}},
        "offsets": {"t": {"0-0": 10}},
    }
    return json.dumps(document | changes).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b"{" * 200_000,
        plan_document(number=1e400),
        plan_document(number=10**400),
        plan_document(planned_ms=10**30),
        plan_document(planned_ms="1"),
        plan_document(partition_by=["day"]),
        plan_document(partition_by="x" * 1_000_000),
        plan_document(pieces={"t": {"0-0": []}}),
        plan_document(pieces={"t": {"0-0": [[]]}}),
        plan_document(pieces={"t": {"0-0": [[0, 10**400, "2024-01-01"]]}}),
        plan_document(pieces={"t": {"0-0": [[0, 10, "2024-01-01/../x"]]}}),
        plan_document(pieces={"t": {"0-0": [[0, 10, "2024-01-01T+7"]]}}),
        plan_document(offsets={"t": {"0-0": "y" * 1_000_000}}),
        plan_document(offsets={"t": {"z" * 1_000_000: 1}}),
        plan_document(version="v" * 1_000_000),
    ],
    ids=lambda content: content[:200].decode(),
)
def test_a_damaged_plan_is_one_short_line(content: bytes) -> None:
    with pytest.raises(LoadTargetError) as raised:
        Plan.decode(content, "plan.json", "run the load again")
    assert len(str(raised.value)) < 600
    with pytest.raises(LoadTargetError):
        LoadManifest.decode(content.replace(b"load plan", b"load manifest"), "m.json", "restore it")


def test_a_plan_in_good_order_is_read() -> None:
    assert Plan.decode(plan_document(), "plan.json", "").log_bytes == 10


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "_hermes").mkdir()
    os.mkfifo(tmp_path / "_hermes" / "target.json")
    with pytest.raises(LoadTargetError, match=r"target\.json is not a regular file"):
        LoadTarget.find(LocalStore(tmp_path))
