"""A load that ends at any step, on its own or with the power; and two loads at once."""

import threading
from pathlib import Path

import pytest

from hermes.errors import DataLossError, LoadConflictError, LoadError, LoadTargetError
from hermes.spark.load.cleaning import clean_up
from hermes.spark.load.files import Files
from hermes.spark.load.run import LoadResult, run_load
from hermes.spark.load.sinks import ParquetSink
from hermes.spark.load.target import LoadTarget, TargetSettings


def run(target: LoadTarget, topic, writer=None, **how) -> LoadResult:
    """A load as a new program would do it."""
    there = LoadTarget.find(target.path, target.files)
    target = there or LoadTarget(target.path, TargetSettings(), target.files)
    return run_load(target, ParquetSink(target), topic.plan, writer or topic.write, **how)


def committed(target: LoadTarget) -> list[str]:
    return list(ParquetSink(target).directories().values())


def pending_folders(target: LoadTarget) -> list[str]:
    plan = target.plan(ParquetSink(target).last().number + 1)
    return [piece.period for piece in plan.pieces] if plan else []


def test_loads_copy_what_is_new_each_time(target, topic, loaded) -> None:
    assert run(target, topic) == LoadResult()
    assert not target.path.exists()
    topic.count = 5
    first = run(target, topic)
    assert (first.number, first.committed, first.repeated) == (1, True, False)
    assert (first.messages, first.files, first.log_bytes) == (5, 2, 50)
    assert run(target, topic).number is None
    topic.count = 6
    assert run(target, topic).messages == 1
    assert loaded(target, committed(target)) == list(range(6))


def test_a_dry_run_touches_nothing(target, topic) -> None:
    topic.count = 5
    result = run(target, topic, dry_run=True)
    assert (result.number, result.committed, result.log_bytes) == (1, False, 50)
    assert not target.path.exists()


@pytest.mark.parametrize("power", ["stays", "goes"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_load_killed_at_any_step_is_done_once(
    tmp_path, files, topic, loaded, killed, is_after, power
) -> None:
    step, was_killed = 0, True
    while was_killed:
        step += 1
        target = LoadTarget(tmp_path / f"{step}", TargetSettings(), files)
        files.steps, files.last_step, files.is_after = 0, step, is_after
        was_killed = False
        for count in (4, 7):
            topic.count, topic.now_ms = count, topic.now_ms + 1
            try:
                run(target, topic)
            except killed:
                was_killed = True
                if power == "goes":
                    files.lose_power()
                folders = pending_folders(target)
                topic.now_ms += 1  # so a plan made now would name other folders
                result = run(target, topic)
                assert result.repeated == bool(folders)
                if folders:
                    assert sorted(p.name for p in result.directory.rglob("day=*")) == sorted(
                        {f"day={each}" for each in folders}
                    )
        assert loaded(target, committed(target)) == list(range(7)), f"step {step}"
        clean_up(target.path)
        assert len(target.attempts()) == len(committed(target))
        assert not list(target.path.rglob("*.tmp"))
    assert step > 35


def test_of_two_loads_at_once_exactly_one_wins(target, topic, loaded) -> None:
    topic.count = 5
    both_wrote = threading.Barrier(2)

    def write(plan, directory: Path) -> None:
        topic.write(plan, directory)
        both_wrote.wait(60)

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
    assert loaded(target, committed(target)) == list(range(5))
    assert len(target.attempts()) == 1, "the loser's data were not removed"


def test_a_load_that_fails_leaves_its_plan_and_no_data(target, topic) -> None:
    topic.count = 5

    def write(plan, directory: Path) -> None:
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
        target = LoadTarget(tmp_path / f"{step}", TargetSettings(), files)
        topic.count = 5
        try:
            run(target, topic)
        except OSError:
            failed = True
        filled = [each for _, each in target.attempts() if any(each.iterdir())]
        assert len(filled) == len(committed(target)), f"step {step}"
        run(target, topic)
        assert loaded(target, committed(target)) == list(range(5)), f"step {step}"
    assert step > 20


def test_cleaning_up_leaves_what_may_be_running(target, topic, killed) -> None:
    def stop(plan, directory: Path) -> None:
        topic.write(plan, directory)
        raise killed

    topic.count = 5
    with pytest.raises(killed):
        run(target, topic, stop)
    target.files.write(target.manifests / f".{1:020d}.json.00.tmp", b"half")
    first = clean_up(target.path)
    assert (first.directories, first.temporary_files, len(first.kept)) == ((), (), 1)
    run(target, topic)
    second = clean_up(target.path)
    assert second.directories == first.kept
    assert [path.name for path in second.temporary_files] == [f".{1:020d}.json.00.tmp"]
    assert second.removed_bytes > 4
    assert len(target.attempts()) == len(committed(target)) == 1


def test_a_clean_up_under_a_slow_loser_does_not_hide_who_won(target, topic) -> None:
    topic.count = 5

    def write(plan, directory: Path) -> None:
        run(target, topic)
        clean_up(target.path)
        topic.write(plan, directory)
        raise LoadError("its directory went away")

    with pytest.raises(LoadConflictError):
        run(target, topic, write)
    assert len(target.attempts()) == 1


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
            "newer version of Hermes",
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
    path = target.path / "_hermes" / name
    path.write_bytes(content)
    with pytest.raises(LoadTargetError, match=advice) as caught:
        run(target, topic)
    assert str(path.parent) in str(caught.value)


def test_a_manifest_under_another_number_is_refused(target, topic) -> None:
    topic.count = 5
    run(target, topic)
    first = target.manifests / "00000000000000000001.json"
    (target.manifests / "00000000000000000002.json").write_bytes(first.read_bytes())
    with pytest.raises(LoadTargetError, match="it is not of load 2"):
        run(target, topic)


def test_a_damaged_plan_can_be_removed_as_the_error_says(target, topic, loaded) -> None:
    topic.count = 5
    target.make()
    target.plan_path(1).write_bytes(b"torn")
    with pytest.raises(LoadTargetError):
        run(target, topic)
    target.plan_path(1).unlink()
    run(target, topic)
    assert loaded(target, committed(target)) == list(range(5))


def test_foreign_directories_are_refused(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LoadTargetError, match=r"holds something else \(notes.txt\)"):
        LoadTarget.find(tmp_path, Files())
    with pytest.raises(LoadTargetError, match="is not a directory"):
        LoadTarget.find(tmp_path / "notes.txt", Files())


def test_a_file_system_without_links_is_refused(target, topic) -> None:
    class Fat(Files):
        def link(self, source: Path, target: Path) -> None:
            raise PermissionError(1, "Operation not permitted")

    topic.count = 5
    target.files = Fat()
    with pytest.raises(LoadTargetError, match="this file system has no hard links"):
        run(target, topic)
    assert not list(target.path.rglob("*.tmp"))
