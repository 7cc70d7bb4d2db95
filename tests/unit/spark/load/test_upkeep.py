"""What expires, is compacted and verified in a target of Parquet."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from loaded_topic import SIZE, LoadedTopic, rows_of

from hermes.errors import ConfigError, LoadTargetError
from hermes.spark.load import clean_up, compact, expire, loaded_files, verify
from hermes.spark.load import journal as journal_module
from hermes.spark.load.attempts import run_load
from hermes.spark.load.commits import JournalCommits
from hermes.spark.load.expiring import first_kept
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_entries import JournalEntry
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.stores import LocalStore

NOW_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def clock() -> float:
    return NOW_MS / 1000


@pytest.fixture
def topic() -> LoadedTopic:
    return LoadedTopic()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "a target [1] 100% #")


def load_all(store: LocalStore, topic: LoadedTopic, count: int, step: int) -> None:
    for end in range(topic.count + step, count + 1, step):
        topic.count = end
        topic.load(store)


def in_a_glob(store: LocalStore) -> list[Path]:
    return sorted((store.path / "data").rglob("*.parquet"))


def test_compaction_keeps_each_message_once(store, topic) -> None:
    load_all(store, topic, 40, 4)
    assert len(in_a_glob(store)) == 10 + 2  # two loads are of two days
    done = compact(store.path)
    assert [(each.period, each.files_after) for each in done.folders] == [
        (f"2023-11-{day:02}", 1) for day in (1, 2, 3, 4)
    ]
    assert [str(path) for path in in_a_glob(store)] == loaded_files(store.path)
    assert rows_of(in_a_glob(store)) == list(range(40))
    assert (verify(store.path).problems, verify(store.path).notes) == ([], [])
    table = pq.ParquetFile(in_a_glob(store)[0]).read()
    assert table["load"].to_pylist() == [1] * 4 + [2] * 4 + [3] * 2
    assert compact(store.path).folders == ()
    load_all(store, topic, 44, 4)
    assert [each.period for each in compact(store.path).folders] == []
    assert rows_of(in_a_glob(store)) == list(range(44))


def test_new_files_have_the_size_that_was_asked_for(store) -> None:
    topic = LoadedTopic(per_day=1_000_000)
    load_all(store, topic, 200_000, 20_000)
    (done,) = compact(store.path, target_bytes=512 * 1024).folders
    sizes = [path.stat().st_size for path in in_a_glob(store)]
    assert done.files_after == len(sizes) > 2
    assert all(size >= 512 * 1024 for size in sizes[:-1])
    assert rows_of(in_a_glob(store)) == list(range(200_000))
    assert compact(store.path, target_bytes=512 * 1024).folders == ()
    with pytest.raises(ConfigError, match="expected 64KiB or more, got 1KiB"):
        compact(store.path, target_bytes=1024)


def test_expiry_removes_whole_days_and_their_records(store, topic) -> None:
    load_all(store, topic, 45, 9)
    would = expire(store.path, "2023-11-03", dry_run=True, clock=clock)
    assert (would.messages, len(in_a_glob(store))) == (20, 9)
    done = expire(store.path, "2023-11-03", clock=clock)
    assert done == would
    assert done.folders == (("clicks", "2023-11-01"), ("clicks", "2023-11-02"))
    assert store.names("data/topic=clicks") == [f"day=2023-11-{day:02}" for day in (3, 4, 5)]
    assert rows_of(in_a_glob(store)) == list(range(20, 45))
    state = Journal(store).read()
    assert sorted(state.loads) == [3, 4, 5]
    assert store.names("_hermes/plans") == [f"{number:020d}.json" for number in (3, 4, 5)]
    assert verify(store.path).problems == []
    assert expire(store.path, "2023-11-03", clock=clock).files == 0
    load_all(store, topic, 54, 9)
    assert rows_of(in_a_glob(store)) == list(range(20, 54)), "nothing is loaded again"


def test_expiry_of_one_topic_leaves_the_others(store, topic) -> None:
    load_all(store, topic, 20, 10)
    assert expire(store.path, "2023-11-14", topics=["views"], clock=clock).files == 0
    assert expire(store.path, "2023-11-14", topics=["clicks"], clock=clock).messages == 20
    assert (store.names("data"), verify(store.path).problems) == ([], [])


@pytest.mark.parametrize(
    ("older_than", "by_day", "by_hour"),
    [
        ("3d", "2023-11-11", "2023-11-11T22"),
        ("23h", "2023-11-13", "2023-11-13T23"),
        ("2023-11-02", "2023-11-02", "2023-11-02T00"),
        ("2023-11-02T05", "2023-11-02", "2023-11-02T05"),
        ("0", "2023-11-14", "2023-11-14T22"),
    ],
)
def test_what_is_older_is_decided_by_whole_days_and_hours(older_than, by_day, by_hour) -> None:
    given = 0 if older_than == "0" else older_than
    if given:
        assert first_kept(older_than, "day", NOW_MS) == by_day
        assert first_kept(older_than, "hour", NOW_MS) == by_hour


@pytest.mark.parametrize("older_than", ["", "30", "yesterday", "2023-11-15", "2023-13-01", "-1d"])
def test_other_ages_are_refused(older_than) -> None:
    with pytest.raises(ConfigError, match="expected an age such as 30d"):
        first_kept(older_than, "day", NOW_MS)


def test_an_entry_of_another_version_is_refused(store, topic) -> None:
    load_all(store, topic, 1, 1)
    entry = b'{"format": "hermes load manifest", "version": 1}'
    assert store.create(f"_hermes/manifests/{2:020d}.json", entry)
    with pytest.raises(LoadTargetError, match=r"another version of Hermes .* \(version 1\)"):
        Journal(store).read()


def test_a_read_opens_a_bounded_number_of_records(store, topic, monkeypatch) -> None:
    monkeypatch.setattr(journal_module, "SUMMARY_INTERVAL", 5)

    class Counting(LocalStore):
        opened = 0

        def read(self, name: str) -> bytes | None:
            self.opened += 1
            return super().read(name)

    load_all(store, topic, 40, 1)
    counting = Counting(store.path)
    state = Journal(counting).read()
    assert (state.load, len(state.files)) == (40, 40)
    assert counting.opened <= 5 + 2
    assert len(store.names("_hermes/manifests")) <= 2 * 5
    assert len(store.names("_hermes/summaries")) == 2
    assert len(store.names("_hermes/published")) == 2
    assert verify(store.path).problems == []


def test_a_compaction_yields_to_an_expiry(store, topic, monkeypatch) -> None:
    load_all(store, topic, 20, 5)
    commit = Journal.commit

    def late(self: Journal, make, *, attempt: str = ""):
        if attempt:
            monkeypatch.setattr(Journal, "commit", commit)
            assert expire(store.path, "2023-11-02", clock=clock).files == 2
        return commit(self, make, attempt=attempt)

    monkeypatch.setattr(Journal, "commit", late)
    done = compact(store.path)
    assert done.conflicts == (("clicks", "2023-11-01"),)
    assert [each.period for each in done.folders] == ["2023-11-02"]
    assert rows_of(in_a_glob(store)) == list(range(10, 20))
    assert store.names("_hermes/attempts") == []


def test_a_compaction_that_was_cleaned_up_is_never_committed(store, topic, monkeypatch) -> None:
    load_all(store, topic, 10, 5)
    commit = Journal.commit

    def late(self: Journal, make, *, attempt: str = ""):
        if attempt:
            monkeypatch.setattr(Journal, "commit", commit)
            assert len(clean_up(store.path).directories) == 1
        return commit(self, make, attempt=attempt)

    monkeypatch.setattr(Journal, "commit", late)
    assert compact(store.path).conflicts == (("clicks", "2023-11-01"),)
    assert rows_of(in_a_glob(store)) == list(range(10))
    assert (store.names("_hermes/attempts"), verify(store.path).problems) == ([], [])


def test_verification_finds_what_is_wrong(store, topic) -> None:
    load_all(store, topic, 20, 5)
    assert verify(store.path).messages == 20
    first, second, third, fourth = in_a_glob(store)
    content = third.read_bytes()
    third.unlink()
    assert verify(store.path).problems[0].startswith("a file that counts is missing")
    third.write_bytes(second.read_bytes())
    problems = "\n".join(verify(store.path).problems)
    assert "there are messages that were not planned" in problems
    assert f"nothing is there of the offsets {10 * SIZE} to {15 * SIZE}" in problems
    third.write_bytes(content)
    (first.parent / "copy.parquet").write_bytes(first.read_bytes())
    (problem,) = verify(store.path).problems
    assert "copy.parquet is not of a load" in problem
    cleaned = clean_up(store.path)
    assert [Path(path).name for path in cleaned.temporary_files] == ["copy.parquet"]
    assert verify(store.path).problems == []
    fourth.write_bytes(content + b"x")
    problems = verify(store.path).problems
    assert f"{fourth} can't be read: " in problems[0]


def test_gaps_are_problems_unless_they_were_allowed(store, topic) -> None:
    topic.count = 5
    target = LoadTarget.find(store)
    topic.load(store)
    target = LoadTarget.find(store)
    plan = topic.plan(JournalCommits(target).last())
    assert plan is None
    topic.count = 10
    assert target is not None
    for may_lack in (False, True):
        topic.count += 5

        def lossy(plan, directory: str) -> int:
            cut = plan.pieces[0]._replace(start=plan.pieces[0].start + SIZE)
            pieces = (cut, *plan.pieces[1:])
            shorter = type(plan)(
                plan.number, plan.planned_ms, plan.partition_by, pieces, plan.offsets
            )
            return topic.write(store, shorter, directory)

        run_load(target, JournalCommits(target), topic.plan, lossy, may_lack=may_lack)
    found = verify(store.path)
    assert len(found.problems) == 1, found
    assert "load 2: nothing is there of the offsets 50 to 60" in found.problems[0]
    assert len(found.notes) == 1
    assert "load 3: nothing is there" in found.notes[0]


def test_a_missing_entry_is_named(store, topic) -> None:
    load_all(store, topic, 4, 1)
    (store.path / f"_hermes/manifests/{2:020d}.json").unlink()
    with pytest.raises(LoadTargetError, match=r"0002\.json is missing: restore it from a copy"):
        Journal(store).read()


def test_an_entry_that_does_not_follow_is_refused(store, topic) -> None:
    load_all(store, topic, 2, 1)
    wrong = JournalEntry(
        "expire", removed=("data/topic=a/day=2023-11-01/none.parquet",), before="2023-11-02"
    )
    assert store.create(f"_hermes/manifests/{3:020d}.json", wrong.encode())
    with pytest.raises(LoadTargetError, match="is to be removed, and doesn't count"):
        Journal(store).read()


def test_who_was_away_for_long_commits_nothing_by_mistake(store, topic, monkeypatch) -> None:
    """The name of its entry is free again: a summary has replaced the one that had it."""
    monkeypatch.setattr(journal_module, "SUMMARY_INTERVAL", 2)
    load_all(store, topic, 2, 2)
    slow = Journal(store)
    slow.read()
    load_all(store, topic, 20, 2)
    assert f"{2:020d}.json" not in store.names("_hermes/manifests")
    fence = JournalEntry("fence", fenced=("_hermes/attempts/none",))
    assert slow.commit(lambda state: fence if state.load == 1 else None) is None
    assert rows_of(loaded_files(store.path)) == list(range(20))
    load_all(store, topic, 24, 2)
    assert rows_of(in_a_glob(store)) == list(range(24))
    assert verify(store.path).problems == []
