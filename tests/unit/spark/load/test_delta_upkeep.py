"""What expires, is compacted and verified in a Delta table, by its log."""

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from flushed import Flushed
from loaded_topic import CLICKS, LoadedTopic

from hermes.errors import LoadError
from hermes.spark.delta.table import commits
from hermes.spark.load import clean_up, compact, expire, verify
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

        def write(self, store, plan, directory, *, with_load=True):
            count = super().write(store, plan, directory, with_load=with_load)
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
