"""What each reader sees of a target of Parquet: before, during and after loads and upkeep.

The loads are real but for their tasks, which need neither Spark nor a broker here.
"""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from loaded_topic import LoadedTopic
from py4j.protocol import Py4JJavaError

from hermes.errors import LoadTargetError
from hermes.spark.load import compact, expire, loaded_files, read_loaded
from hermes.spark.load.journal import Journal
from hermes.spark.stores import LocalStore


class Killed(BaseException):
    """The end of a load."""


Reader = Callable[[object, Path], list[int]]


def numbers(values: list[bytes]) -> list[int]:
    return sorted(int(bytes(value)) for value in values)


def by_read_loaded(spark, path: Path) -> list[int]:
    return numbers([row.value for row in read_loaded(spark, path).select("value").collect()])


def by_spark(spark, path: Path) -> list[int]:
    if not any((path / "data").rglob("*.parquet")):
        return []  # Spark refuses to infer columns from nothing
    rows = spark.read.parquet(f"file://{path}/data").where("topic = 'clicks'")
    return numbers([row.value for row in rows.select("value").collect()])


def by_spark_at_the_target(spark, path: Path) -> list[int]:
    """Spark skips names that begin with `_`, so it may as well be pointed at the target itself."""
    if not any((path / "data").rglob("*.parquet")):
        return []
    rows = spark.read.parquet(f"file://{path}").where("topic = 'clicks'")
    return numbers([row.value for row in rows.select("value").collect()])


def by_hive_partitions(spark, path: Path) -> list[int]:
    """A table of the catalog whose partitions are found by their folders' names, as in Hive."""
    spark.sql("DROP TABLE IF EXISTS clicks_by_day")
    spark.sql(
        "CREATE TABLE clicks_by_day (load BIGINT, value BINARY, topic STRING, day DATE) "
        f"USING PARQUET PARTITIONED BY (topic, day) LOCATION 'file://{path}/data'"
    )
    try:
        spark.sql("MSCK REPAIR TABLE clicks_by_day")
        rows = spark.sql("SELECT value FROM clicks_by_day WHERE day >= '2023-11-01'").collect()
        return numbers([row.value for row in rows])
    finally:
        spark.sql("DROP TABLE clicks_by_day")


def by_duckdb(spark, path: Path) -> list[int]:
    pattern = f"{path}/data/**/*.parquet"
    with duckdb.connect() as connection:
        if not connection.execute("SELECT count(*) FROM glob($1)", [pattern]).fetchall()[0][0]:
            return []
        question = (
            "SELECT value FROM read_parquet($1, hive_partitioning = true) "
            "WHERE topic = 'clicks' AND day >= DATE '2023-11-01'"
        )
        return numbers([row[0] for row in connection.execute(question, [pattern]).fetchall()])


def by_duckdb_from_a_list(spark, path: Path) -> list[int]:
    files = loaded_files(path)
    if not files:
        return []
    question = "SELECT value FROM read_parquet($1, hive_partitioning = true)"
    with duckdb.connect() as connection:
        return numbers([row[0] for row in connection.execute(question, [files]).fetchall()])


def by_pyarrow(spark, path: Path) -> list[int]:
    if not (path / "data").exists():
        return []
    table = ds.dataset(path / "data", format="parquet", partitioning="hive").to_table()
    return numbers(table["value"].to_pylist() if "value" in table.column_names else [])


READERS = {
    reader.__name__: reader
    for reader in (
        by_read_loaded,
        by_spark,
        by_spark_at_the_target,
        by_hive_partitions,
        by_duckdb,
        by_duckdb_from_a_list,
        by_pyarrow,
    )
}


@pytest.fixture
def topic() -> LoadedTopic:
    return LoadedTopic()


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_not_committed_is_seen_by_nobody(spark, tmp_path, topic, reader: Reader) -> None:
    store = LocalStore(tmp_path)
    topic.count = 15
    topic.load(store)

    def during(plan, directory: str) -> int:
        count = topic.write(store, plan, directory)
        torn = tmp_path / directory / "_temporary/0/_temporary/a/topic=clicks/day=2023-11-01"
        torn.mkdir(parents=True)
        (torn / "part-9.parquet").write_bytes(b"PAR1 torn")
        assert reader(spark, tmp_path) == list(range(15)), "during the load"
        if topic.count == 20:
            raise Killed
        return count

    topic.count = 20
    with pytest.raises(Killed):
        topic.load(store, writer=during)
    assert reader(spark, tmp_path) == list(range(15)), "after its end"
    topic.count = 21
    topic.load(store, writer=during)
    topic.load(store)
    assert reader(spark, tmp_path) == list(range(21)), "after the next load"


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_all_see_the_same_after_upkeep(spark, tmp_path, topic, reader: Reader) -> None:
    store = LocalStore(tmp_path)
    for topic.count in range(5, 41, 5):
        topic.load(store)
    assert len(compact(tmp_path).folders) == 4
    assert reader(spark, tmp_path) == list(range(40))
    assert expire(tmp_path, "2023-11-03").messages == 20
    assert reader(spark, tmp_path) == list(range(20, 40))


def test_duckdb_finds_attempts_where_it_is_told_to_look(spark, tmp_path, topic) -> None:
    """Unlike the others it skips no names, so it must be told `data`."""
    store = LocalStore(tmp_path)

    def during(plan, directory: str) -> int:
        topic.write(store, plan, directory)
        question = "SELECT count(*) FROM glob($1)"
        with duckdb.connect() as connection:
            for pattern, count in (("**/*.parquet", 1), ("data/**/*.parquet", 0)):
                found = connection.execute(question, [f"{tmp_path}/{pattern}"]).fetchall()
                assert found == [(count,)], pattern
        raise Killed

    topic.count = 5
    with pytest.raises(Killed):
        topic.load(store, writer=during)
    assert by_pyarrow(spark, tmp_path) == []
    assert ds.dataset(tmp_path, format="parquet", partitioning="hive").files == []


def test_a_reader_finishes_what_a_run_has_committed(spark, tmp_path, topic) -> None:
    """A run that ends after its commit: a glob sees it once the next one, or a reader, came by."""
    store = LocalStore(tmp_path)
    topic.count = 5
    topic.load(store)

    class Ending(LocalStore):
        def move(self, source: str, target: str) -> None:
            raise Killed

    topic.count = 10
    with pytest.raises(Killed):
        topic.load(Ending(tmp_path))
    assert by_duckdb(spark, tmp_path) == list(range(5))
    assert by_read_loaded(spark, tmp_path) == list(range(10))
    assert by_duckdb(spark, tmp_path) == list(range(10))


def test_a_list_of_files_is_of_one_moment(spark, tmp_path, topic) -> None:
    """Between the steps of a compaction a glob may miss messages, and never finds one twice."""
    seen: list[tuple[list[int], list[int]]] = []
    store = LocalStore(tmp_path)
    for topic.count in range(2, 11, 2):
        topic.load(store)
    publish = Journal._publish

    class Watched(LocalStore):
        def delete(self, name: str) -> None:
            super().delete(name)
            if name.endswith(".parquet"):
                seen.append((by_duckdb(spark, tmp_path), by_pyarrow(spark, tmp_path)))

    def watched(self: Journal, entry) -> None:
        self._store = Watched(tmp_path)
        publish(self, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_publish", watched)
        compact(tmp_path)
    assert len(seen) == 5
    for by_one, by_other in seen:
        assert len(by_one) == len(set(by_one)) < 10
        assert by_other == by_one
    assert by_duckdb_from_a_list(spark, tmp_path) == list(range(10))


def test_a_query_over_files_that_were_compacted_fails(spark, tmp_path, topic) -> None:
    """It never reads less, or something twice."""
    store = LocalStore(tmp_path)
    for topic.count in (2, 4):
        topic.load(store)
    before = read_loaded(spark, tmp_path)
    compact(tmp_path)
    with pytest.raises(Py4JJavaError, match=r"FILE_NOT_EXIST|FileNotFound|does not exist"):
        before.select("value").collect()
    assert by_read_loaded(spark, tmp_path) == list(range(4))


def test_a_delta_table_has_no_list_of_files(tmp_path, topic) -> None:
    from hermes.spark.load.load_target import TargetSettings

    topic.count = 5
    topic.load(LocalStore(tmp_path), TargetSettings("delta"))
    with pytest.raises(LoadTargetError, match="is a Delta table, whose log lists its files"):
        loaded_files(tmp_path)
