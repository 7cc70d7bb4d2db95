"""A load that ends at any step, on its own or with the power; and two loads at once."""

import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from hermes.errors import DataLossError, LoadConflictError, LoadError, LoadTargetError
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load import clean_up
from hermes.spark.load.attempts import LoadResult, run_load
from hermes.spark.load.commits import JournalCommits
from hermes.spark.load.load_target import MANIFESTS, LoadTarget, TargetSettings, plan_name
from hermes.spark.parquet import data_files
from hermes.spark.stores import LocalStore

SINKS = ["parquet", "delta"]


def run(target: LoadTarget, topic, writer=None, commits_of=JournalCommits, **how) -> LoadResult:
    """A load as a new program would do it."""
    there = LoadTarget.find(target.store)
    target = there or LoadTarget(target.store, target.settings)
    return run_load(target, commits_of(target), topic.plan, writer or topic.write, **how)


def committed(target: LoadTarget, commits_of=JournalCommits) -> list[str]:
    return list(commits_of(target).directories().values())


def uncommitted(target: LoadTarget, commits_of=JournalCommits) -> list[str]:
    """The directories of attempts that hold files which don't count."""
    counting = committed(target, commits_of)
    found = [each for _, each in target.attempts() if each not in counting]
    return [each for each in found if target.store.walk(each)]


def pending_folders(target: LoadTarget, commits_of=JournalCommits) -> list[str]:
    plan = target.plan(commits_of(target).last().number + 1)
    return [piece.period for piece in plan.pieces] if plan else []


def test_loads_copy_what_is_new_each_time(target, topic, loaded) -> None:
    assert run(target, topic) == LoadResult()
    assert not target.store.path.exists()
    topic.count = 5
    first = run(target, topic)
    assert (first.number, first.committed, first.repeated) == (1, True, False)
    assert (first.messages, first.files, first.log_bytes) == (5, 2, 50)
    assert run(target, topic).number is None
    topic.count = 6
    assert run(target, topic).messages == 1
    assert loaded(target) == list(range(6))


def test_a_dry_run_touches_nothing(target, topic) -> None:
    topic.count = 5
    result = run(target, topic, dry_run=True)
    assert (result.number, result.committed, result.log_bytes) == (1, False, 50)
    assert not target.store.path.exists()


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("is_after", "power"),
    [
        pytest.param(False, "goes", id="before-goes"),
        pytest.param(True, "stays", id="after-stays"),
        pytest.param(False, "stays", id="before-stays", marks=pytest.mark.nightly),
        pytest.param(True, "goes", id="after-goes", marks=pytest.mark.nightly),
    ],
)
def test_a_load_killed_at_any_step_is_done_once(
    tmp_path, files, topic, loaded, killed, commits_of, is_after, power, sink
) -> None:
    step, was_killed = 0, True
    while was_killed:
        step += 1
        settings = TargetSettings(sink)
        target = LoadTarget(LocalStore(tmp_path / f"{step}" / "new" / "too", files), settings)
        topic.root = target.store.path
        files.steps, files.last_step, files.is_after = 0, step, is_after
        was_killed = False
        for count in (4, 7):
            topic.count, topic.now_ms = count, topic.now_ms + 1
            try:
                run(target, topic, commits_of=commits_of)
            except killed:
                was_killed = True
                if power == "goes":
                    files.lose_power()
                folders = pending_folders(target, commits_of)
                topic.now_ms += 1  # so a plan made now would name other folders
                result = run(target, topic, commits_of=commits_of)
                assert result.repeated == bool(folders)
                if folders:
                    files_of = f"load-{result.number:020d}-*.parquet"
                    names = [p.parent.name for p in result.directory.rglob(files_of)]
                    if sink == "delta":
                        names = [p.name for p in result.directory.rglob("day=*")]
                    assert set(names) == {f"day={each}" for each in folders}
        if power == "goes":
            files.lose_power()
        assert loaded(target) == list(range(7)), f"step {step}"
        clean_up(target.store.path)
        assert uncommitted(target, commits_of) == []
        assert not list(target.store.path.rglob("*.tmp"))
    assert step > 35


@pytest.mark.parametrize("error", [FileExistsError(17, "File exists"), FileNotFoundError(2, "No")])
def test_a_link_whose_answer_was_lost_is_ours(target, topic, loaded, monkeypatch, error) -> None:
    """As over NFS: the server made the link, and when it was asked again the name was taken."""
    link = target.store.files.link

    def link_and_fail(source: Path, name: Path) -> None:
        link(source, name)
        raise error

    monkeypatch.setattr(target.store.files, "link", link_and_fail)
    topic.count = 5
    result = run(target, topic)
    assert (result.committed, result.repeated) == (True, False)
    target.store.files.lose_power()
    assert loaded(target) == list(range(5))


@pytest.mark.parametrize("error", [CommitFailedError("it is there"), DeltaError("who knows")])
def test_a_delta_commit_whose_answer_was_lost_is_ours(
    tmp_path, files, topic, loaded, commits_of, monkeypatch, error
) -> None:
    target = LoadTarget(LocalStore(tmp_path / "table", files), TargetSettings("delta"))
    topic.root = target.store.path
    commit = DeltaTable.create_write_transaction

    def commit_and_fail(*arguments, **more) -> None:
        commit(*arguments, **more)
        raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_fail)
    topic.count = 5
    if isinstance(error, CommitFailedError):
        assert run(target, topic, commits_of=commits_of).committed
    else:  # nothing tells whether it is on the disk
        with pytest.raises(LoadError, match="who knows"):
            run(target, topic, commits_of=commits_of)
    assert loaded(target) == list(range(5))
    assert run(target, topic, commits_of=commits_of) == LoadResult()


def test_data_of_which_nothing_is_known_are_left_alone(target, topic, loaded) -> None:
    """Another commit of the same load has expired from a table's log: it may have been ours."""

    class Forgetful(JournalCommits):
        def commit(self, manifest, files) -> bool:
            super().commit(manifest, files)
            return False

        def directories(self) -> dict[int, str]:
            return {}

    topic.count = 5
    with pytest.raises(LoadConflictError):
        run(target, topic, commits_of=Forgetful)
    assert loaded(target) == list(range(5))


def test_rows_that_the_driver_does_not_find_are_not_committed(target, topic, loaded) -> None:
    """Workers wrote them to disks of their own, all or some of them."""
    topic.count = 5

    def write(plan, directory: str) -> int:
        count = topic.write(plan, directory)
        next((topic.root / directory).rglob("*.parquet")).unlink()
        return count

    with pytest.raises(LoadError, match="must see the target under one path"):
        run(target, topic, write)
    with pytest.raises(LoadError, match="5 rows, but the driver finds 0"):
        run(target, topic, lambda plan, directory: 5)
    assert (committed(target), target.attempts()) == ([], [])
    run(target, topic)
    assert loaded(target) == list(range(5))


def test_files_that_spark_has_not_finished_do_not_count(tmp_path) -> None:
    directory = tmp_path / "_target" / "attempt=00"
    names = ["_temporary/0/_temporary/a/day=1/x.parquet", "day=1/.x.parquet", "day=1/x.parquet"]
    for name in (*names, "_x.parquet", ".day=1/x.parquet", "day=_1/x.parquet"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"number": [1]}), directory / name)
    counting = ["day=1/x.parquet", "day=_1/x.parquet"]
    found = data_files(LocalStore(tmp_path), "_target/attempt=00")
    assert [each.name.removeprefix("_target/attempt=00/") for each in found] == counting
    assert [each.partition_values for each in found] == [{"day": "1"}, {"day": "_1"}]


def test_of_two_loads_at_once_exactly_one_wins(target, topic, loaded) -> None:
    topic.count = 5
    both_wrote = threading.Barrier(2)

    def write(plan, directory: str) -> int:
        count = topic.write(plan, directory)
        both_wrote.wait(60)
        return count

    outcomes: list[object] = []

    def race() -> None:
        try:
            outcomes.append(run(target, topic, write).committed)
        except LoadConflictError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=race) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(type, outcomes), key=str) == [bool, LoadConflictError]
    assert loaded(target) == list(range(5))
    assert uncommitted(target) == [], "the loser's data were not removed"


def test_a_load_that_fails_leaves_its_plan_and_no_data(target, topic) -> None:
    topic.count = 5

    def write(plan, directory: str) -> None:
        topic.write(plan, directory)
        raise DataLossError("gone")

    with pytest.raises(DataLossError, match=r"^gone$"):
        run(target, topic, write)
    assert target.attempts() == []
    with pytest.raises(LoadError, match=r"00000000000000000001\.json, and can't be .*: gone"):
        run(target, topic, write)
    assert run(target, topic).repeated


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_full_disk_at_any_step_loses_nothing(tmp_path, files, topic, loaded, is_after) -> None:
    files.failure, files.is_after = OSError(28, "No space left on device"), is_after
    step, failed = 0, True
    while failed:
        step += 1
        files.steps, files.last_step, failed = 0, step, False
        target = LoadTarget(LocalStore(tmp_path / f"{step}", files), TargetSettings())
        topic.root = target.store.path
        topic.count = 5
        try:
            run(target, topic)
        except OSError:
            failed = True
        assert uncommitted(target) == [], f"step {step}"
        run(target, topic)
        assert loaded(target) == list(range(5)), f"step {step}"
    assert step > 20


def test_cleaning_up_leaves_what_may_be_running(target, topic, killed) -> None:
    def stop(plan, directory: str) -> None:
        topic.write(plan, directory)
        raise killed

    topic.count = 5
    with pytest.raises(killed):
        run(target, topic, stop)
    target.store.files.write(target.store.path / MANIFESTS / f".{1:020d}.json.00.tmp", b"half")
    first = clean_up(target.store.path)
    assert (first.directories, first.temporary_files, len(first.kept)) == ((), (), 1)
    run(target, topic)
    second = clean_up(target.store.path)
    assert second.directories == first.kept
    assert [path.name for path in second.temporary_files] == [f".{1:020d}.json.00.tmp"]
    assert second.removed_bytes > 4
    assert (target.attempts(), len(committed(target))) == ([], 1)


def test_a_clean_up_under_a_slow_loser_does_not_hide_who_won(target, topic, loaded) -> None:
    topic.count = 5

    def write(plan, directory: str) -> None:
        run(target, topic)
        clean_up(target.store.path)
        topic.write(plan, directory)
        raise LoadError("its directory went away")

    with pytest.raises(LoadConflictError):
        run(target, topic, write)
    assert (target.attempts(), loaded(target)) == ([], list(range(5)))


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("plans/00000000000000000002.json", b"{", "remove the file and run the load again"),
        ("plans/00000000000000000002.json", b"{}", "remove the file"),
        ("manifests/00000000000000000001.json", b'{"format": 1}', "restore it from a copy"),
        ("manifests/00000000000000000001.json", b"", "restore it from a copy"),
        ("manifests/00000000000000000003.json", b"", "2.json is missing: restore it from a copy"),
        ("target.json", b"[]", "restore it from a copy"),
        (
            "target.json",
            b'{"format": "hermes load target", "version": 2}',
            "another version of Hermes",
        ),
        (
            "target.json",
            b'{"format": "hermes load target", "version": 1, "sink": "tape"}',
            "expected parquet or delta, got 'tape'",
        ),
    ],
)
def test_damaged_files_are_named_with_what_to_do(target, topic, name, content, advice) -> None:
    topic.count = 5
    run(target, topic)
    path = target.store.path / "_hermes" / name
    path.write_bytes(content)
    with pytest.raises(LoadTargetError, match=advice) as caught:
        run(target, topic)
    assert str(path.parent) in str(caught.value)


def test_a_manifest_under_another_number_is_refused(target, topic) -> None:
    topic.count = 5
    run(target, topic)
    first = target.store.path / MANIFESTS / "00000000000000000001.json"
    (target.store.path / MANIFESTS / "00000000000000000002.json").write_bytes(first.read_bytes())
    with pytest.raises(LoadTargetError, match="it is of load 1, and load 2 is next"):
        run(target, topic)


def test_a_damaged_plan_can_be_removed_as_the_error_says(target, topic, loaded) -> None:
    topic.count = 5
    target.create()
    (target.store.path / plan_name(1)).write_bytes(b"torn")
    with pytest.raises(LoadTargetError):
        run(target, topic)
    (target.store.path / plan_name(1)).unlink()
    run(target, topic)
    assert loaded(target) == list(range(5))


def test_foreign_directories_are_refused(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LoadTargetError, match=r"holds something else \(notes.txt\)"):
        LoadTarget.find(LocalStore(tmp_path))
    with pytest.raises(LoadTargetError, match="is not a directory"):
        LoadTarget.find(LocalStore(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EPERM, "this file system has no hard links"),
        (errno.EOPNOTSUPP, "this file system has no hard links"),
        (errno.ENOSYS, "this file system has no hard links"),
        (errno.EXDEV, "this file system has no hard links"),
        (errno.EACCES, "Permission denied: a load writes to its target"),
    ],
)
def test_a_file_system_without_links_is_refused(target, topic, number, says) -> None:
    class Fat(LocalFileSystem):
        def link(self, source: Path, target: Path) -> None:
            raise OSError(number, os.strerror(number))

    topic.count = 5
    target.store.files = Fat()
    with pytest.raises(LoadTargetError, match=says):
        run(target, topic)
    assert not list(target.store.path.rglob("*.tmp"))
