"""What expires, is compacted and verified in a Delta table, by its log."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake.exceptions import CommitFailedError
from flushed import Flushed
from loaded_topic import CLICKS, LoadedTopic

from hermes.errors import LoadError
from hermes.spark.delta.table import commits
from hermes.spark.load import clean_up, compact, delta_upkeep, expire, verify
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.stores import LocalStore


def clock() -> float:
    return 1_700_000_000.0


@pytest.fixture
def topic() -> LoadedTopic:
    return LoadedTopic()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "a table")


def load_all(store: LocalStore, topic: LoadedTopic, count: int, step: int) -> None:
    for end in range(topic.count + step, count + 1, step):
        topic.count = end
        topic.load(store, TargetSettings("delta"))


def messages_in(store: LocalStore) -> list[int]:
    rows = DeltaTable(str(store.path)).to_pyarrow_table(columns=["value"])["value"]
    return sorted(int(value) for value in rows.to_pylist())


def test_an_expiry_is_one_commit(store, topic) -> None:
    load_all(store, topic, 45, 9)
    version = DeltaTable(str(store.path)).version()
    would = expire(store.path, "2023-11-03", dry_run=True, clock=clock)
    assert DeltaTable(str(store.path)).version() == version
    done = expire(store.path, "2023-11-03", clock=clock)
    assert done == would
    assert (done.messages, done.folders[0]) == (20, ("clicks", "2023-11-01"))
    assert DeltaTable(str(store.path)).version() == version + 1
    assert messages_in(store) == list(range(20, 45))
    assert (verify(store.path).problems, verify(store.path).notes) == ([], [])
    assert expire(store.path, "2023-11-03", clock=clock).files == 0
    assert expire(store.path, "2023-11-04", topics=["o'clock"], clock=clock).files == 0
    load_all(store, topic, 54, 9)
    assert messages_in(store) == list(range(20, 54)), "nothing is loaded again"


def test_a_table_by_the_hour_expires_by_the_hour(store) -> None:
    class Hourly(LoadedTopic):
        def plan(self, last):
            plan = super().plan(last)
            if plan is None:
                return None
            pieces = tuple(
                each._replace(period=f"2023-11-01T{int(each.period[-2:]):02}")
                for each in plan.pieces
            )
            return type(plan)(plan.number, plan.planned_ms, "hour", pieces, plan.offsets)

        def write(self, store, plan, directory):
            count = super().write(store, plan, directory)
            for each in store.walk(directory):
                folder, _, name = each.name.rpartition("/")
                day, _, hour = folder.rpartition("T")
                store.move(each.name, f"{day}/hour={int(hour)}/{name}")
            return count

    topic = Hourly()
    topic.count = 30
    topic.load(store, TargetSettings("delta", "hour"))
    assert verify(store.path).problems == []
    assert expire(store.path, "2023-11-01T02", clock=clock).messages == 10
    assert messages_in(store) == list(range(10, 30))
    topic.count = 32
    topic.load(store)
    assert [each.period for each in compact(store.path).folders] == []
    assert verify(store.path).problems == []


def test_compaction_keeps_each_message_once(store, topic) -> None:
    load_all(store, topic, 40, 4)
    done = compact(store.path)
    assert [(each.period, each.files_before, each.files_after) for each in done.folders] == [
        (f"2023-11-{day:02}", 3, 1) for day in (1, 2, 3, 4)
    ]
    assert all(each.bytes_before > each.bytes_after > 0 for each in done.folders)
    assert messages_in(store) == list(range(40))
    assert (verify(store.path).problems, verify(store.path).notes) == ([], [])
    assert compact(store.path).folders == ()
    load_all(store, topic, 44, 4)
    assert clean_up(store.path).directories == ()
    assert messages_in(store) == list(range(44))


def test_a_compaction_loses_nothing_when_the_power_goes(store, topic, monkeypatch) -> None:
    flushed = Flushed(monkeypatch)
    load_all(store, topic, 40, 4)
    assert compact(store.path).folders
    flushed.lose_power(store.path)
    assert messages_in(store) == list(range(40))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_others_compacted_is_there_if_a_later_load_is(
    store, topic, monkeypatch, checkpoint
) -> None:
    """The package flushes nothing: files, nor its commit, which the load's flush makes durable."""
    flushed = Flushed(monkeypatch)
    load_all(store, topic, 40, 4)
    table = DeltaTable(str(store.path))
    assert table.optimize.compact()["numFilesRemoved"]
    if checkpoint:
        table.create_checkpoint()
    load_all(store, topic, 44, 4)
    flushed.lose_power(store.path)
    assert messages_in(store) == list(range(44))


def test_loads_go_on_beside_compactions_and_expiries(store) -> None:
    topic = LoadedTopic(per_day=30)
    load_all(store, topic, 10, 5)
    errors: list[BaseException] = []

    def keep_up() -> None:
        try:
            while not is_done.is_set():
                compact(store.path)
                expire(store.path, "2023-11-02", clock=clock)
        except BaseException as error:
            errors.append(error)

    is_done = threading.Event()
    thread = threading.Thread(target=keep_up)
    thread.start()
    try:
        load_all(store, topic, 90, 5)
    finally:
        is_done.set()
        thread.join(120)
    assert errors == []
    expire(store.path, "2023-11-02", clock=clock)
    compact(store.path)
    assert messages_in(store) == list(range(30, 90))
    assert verify(store.path).problems == []


def meanwhile(monkeypatch, act: Callable[[], object]) -> None:
    """Let something happen while the next compaction has read a folder, and not committed."""
    rewritten = delta_upkeep.rewritten

    def slowly(*args):
        monkeypatch.setattr(delta_upkeep, "rewritten", rewritten)
        contents = list(rewritten(*args))
        act()
        return contents

    monkeypatch.setattr(delta_upkeep, "rewritten", slowly)


def folders_of_compactions(store: LocalStore) -> int:
    return sum(each.startswith("compact=") for each in store.names("data"))


def test_of_two_compactions_one_counts(store, topic, monkeypatch) -> None:
    load_all(store, topic, 20, 4)
    others = []
    meanwhile(monkeypatch, lambda: others.append(compact(store.path)))
    mine = compact(store.path)
    assert [each.period for each in others[0].folders] == ["2023-11-01", "2023-11-02"]
    assert (mine.folders, mine.conflicts) == (
        (),
        (("clicks", "2023-11-01"), ("clicks", "2023-11-02")),
    )
    assert messages_in(store) == list(range(20))
    assert (verify(store.path).problems, folders_of_compactions(store)) == ([], 2)


def test_a_folder_that_expires_meanwhile_is_gone(store, topic, monkeypatch) -> None:
    load_all(store, topic, 20, 4)
    meanwhile(monkeypatch, lambda: expire(store.path, "2023-11-02", clock=clock))
    mine = compact(store.path)
    assert mine.conflicts == (("clicks", "2023-11-01"),)
    assert messages_in(store) == list(range(10, 20))
    assert (verify(store.path).problems, folders_of_compactions(store)) == ([], 1)


def test_a_compaction_goes_on_beside_a_load(store, topic, monkeypatch) -> None:
    load_all(store, topic, 8, 4)
    read = []
    meanwhile(monkeypatch, lambda: read.append(load_all(store, topic, 12, 4)))
    assert [(each.files_before, each.files_after) for each in compact(store.path).folders] == [
        (2, 1)
    ]
    assert (messages_in(store), len(read)) == (list(range(12)), 1)
    assert verify(store.path).problems == []


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_commit_that_is_reported_to_have_failed_is_found(
    store, topic, monkeypatch, is_replaced
) -> None:
    load_all(store, topic, 8, 4)
    write = DeltaTable.create_write_transaction

    def fail(self, *args, **kwargs):
        write(self, *args, **kwargs)
        monkeypatch.setattr(DeltaTable, "create_write_transaction", write)
        if is_replaced:
            load_all(store, topic, 10, 2)
            compact(store.path)
        raise CommitFailedError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    done = compact(store.path)
    assert (len(done.folders), len(done.conflicts)) == ((0, 1) if is_replaced else (1, 0))
    assert messages_in(store) == list(range(topic.count))
    assert verify(store.path).problems == []
    # Readers of the version between the two need the files of the first.
    assert folders_of_compactions(store) == 1 + is_replaced


def test_what_a_failed_compaction_wrote_is_removed(store, topic, monkeypatch) -> None:
    load_all(store, topic, 8, 4)
    first, _ = sorted((store.path / "data").rglob("*.parquet"))
    content = first.read_bytes()
    pq.write_table(pq.ParquetFile(pa_file(content)).read().slice(1), first)
    with pytest.raises(LoadError, match="holds 3 rows, and 4 were committed"):
        compact(store.path)
    assert folders_of_compactions(store) == 0
    first.unlink()
    with pytest.raises(FileNotFoundError):
        compact(store.path)
    assert folders_of_compactions(store) == 0


def test_a_file_that_is_gone_with_its_place_in_the_table_is_a_conflict(
    store, topic, monkeypatch
) -> None:
    load_all(store, topic, 8, 4)
    first, _ = sorted((store.path / "data").rglob("*.parquet"))
    rewritten = delta_upkeep.rewritten

    def vacuumed(*args):
        monkeypatch.setattr(delta_upkeep, "rewritten", rewritten)
        compact(store.path)
        first.unlink()
        return rewritten(*args)

    monkeypatch.setattr(delta_upkeep, "rewritten", vacuumed)
    assert compact(store.path).conflicts == (("clicks", "2023-11-01"),)
    assert messages_in(store) == list(range(8))
    assert folders_of_compactions(store) == 1


def test_columns_that_an_older_file_lacks_are_null(store, topic) -> None:
    load_all(store, topic, 8, 4)
    new = Field("note", "string", nullable=True)
    DeltaTable(str(store.path)).alter.add_columns([new])
    assert len(compact(store.path).folders) == 1
    rows = DeltaTable(str(store.path)).to_pyarrow_table(columns=["note", "topic", "value"])
    assert rows["note"].to_pylist() == [None] * 8
    assert set(rows["topic"].to_pylist()) == {"clicks"}
    assert messages_in(store) == list(range(8))


def test_a_table_whose_files_do_not_say_all_is_left_alone(store, topic) -> None:
    load_all(store, topic, 8, 4)
    DeltaTable(str(store.path)).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(LoadError, match="needs deletionVectors: use Delta's own OPTIMIZE"):
        compact(store.path)


def test_verification_finds_what_is_wrong(store, topic) -> None:
    load_all(store, topic, 10, 5)
    first, _ = sorted((store.path / "data").rglob("*.parquet"))
    content = first.read_bytes()
    first.unlink()
    assert verify(store.path).problems[0].startswith("a file that counts is missing")
    pq.write_table(pq.ParquetFile(pa_file(content)).read().slice(1), first)
    problems = "\n".join(verify(store.path).problems)
    assert "was committed with" in problems
    assert f"{CLICKS}, 2023-11-01, load 1: nothing is there of the offsets 0 to 10" in problems


def pa_file(content: bytes):
    import io

    return io.BytesIO(content)


def test_a_table_without_loads_has_nothing_to_do(store) -> None:
    LoadTarget(store, TargetSettings("delta")).create()
    assert (verify(store.path).files, compact(store.path).folders) == (0, ())
    with pytest.raises(LoadError, match="nothing was loaded into this table yet"):
        expire(store.path, "1d", clock=clock)


def test_a_commit_says_what_expired(store, topic) -> None:
    load_all(store, topic, 20, 10)
    expire(store.path, "2023-11-02", clock=clock)
    said = next(commits(store, DeltaTable(str(store.path))))["hermes.expire"]
    assert said == {"before": "2023-11-02", "topics": [], "load": 2}
