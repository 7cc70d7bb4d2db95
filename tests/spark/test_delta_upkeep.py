"""Delta tables as others look after them: new columns, skipping, compaction, vacuum."""

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from hermes import Producer, ProducerConfig
from hermes.errors import LoadError
from hermes.spark.delta import read_delta, write_stream_to_delta
from hermes.spark.delta.table import add_files
from hermes.spark.load import load
from hermes.spark.parquet import DataFile, data_files
from hermes.spark.stores import LocalStore
from hermes.testing import running_broker


def schema_of(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


ONE = schema_of(number=pa.int64())
TWO = schema_of(number=pa.int64(), text=pa.string())


def written(path: Path, name: str, columns: dict[str, object], schema: pa.Schema) -> list[DataFile]:
    (path / "data" / name).mkdir(parents=True)
    pq.write_table(pa.table(columns, schema), path / "data" / name / "part-0.parquet")
    return data_files(LocalStore(path), f"data/{name}")


def rows_in(path: Path) -> list[dict[str, object]]:
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["number"])


def test_a_table_gets_new_columns_and_keeps_those_that_are_missing(spark, tmp_path) -> None:
    store = LocalStore(tmp_path)
    files = written(tmp_path, "a", {"number": [1]}, ONE)
    add_files(store, files, ONE, [], "app", 0, {})
    more = written(tmp_path, "b", {"number": [2], "text": ["b"]}, TWO)
    with pytest.raises(LoadError, match=r"other columns, see text: .* \(merge_schema\)"):
        add_files(store, more, TWO, [], "app", 1, {})
    assert add_files(store, more, TWO, [], "app", 1, {}, merge_schema=True)
    fewer = written(tmp_path, "c", {"number": [3]}, ONE)
    assert add_files(store, fewer, ONE, [], "app", 2, {}, merge_schema=True)
    texts = [(1, None), (2, "b"), (3, None)]
    assert [tuple(row.values()) for row in rows_in(tmp_path)] == texts
    assert sorted(tuple(row) for row in read_delta(spark, tmp_path).collect()) == texts
    assert not add_files(store, more, TWO, [], "app", 1, {}, merge_schema=True)


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(number=pa.string()),
        schema_of(Number=pa.int64()),
        schema_of(text=pa.string()),
    ],
    ids=["another type", "another case", "without what can't be null"],
)
def test_columns_that_do_not_fit_are_refused_all_the_same(tmp_path, schema) -> None:
    store = LocalStore(tmp_path)
    required = pa.schema([pa.field("number", pa.int64(), nullable=False)])
    add_files(store, [], required, [], "app", 0, {})
    with pytest.raises(LoadError, match=r"has other columns, see .*umber: write to another one$"):
        add_files(store, [], schema, [], "app", 1, {}, merge_schema=True)
    assert DeltaTable(str(tmp_path)).version() == 1


def test_columns_that_another_adds_at_the_same_time_are_taken(tmp_path, monkeypatch) -> None:
    store = LocalStore(tmp_path)
    add_files(store, [], ONE, [], "app", 0, {})
    opened = LocalStore.delta_table
    late = []

    def after_another(self):
        if not late:
            late.append(opened(self))
            return late[0]
        if len(late) == 1:
            late.append(None)
            other = DeltaTable(str(tmp_path))
            other.alter.add_columns([Field("text", PrimitiveType("string"))])
        return opened(self)

    monkeypatch.setattr(LocalStore, "delta_table", after_another)
    files = written(tmp_path, "a", {"number": [1], "text": ["x"]}, TWO)
    assert add_files(store, files, TWO, [], "app", 1, {}, merge_schema=True)
    assert rows_in(tmp_path) == [{"number": 1, "text": "x"}]


def test_what_was_loaded_says_what_its_columns_hold(spark, tmp_path) -> None:
    with running_broker(settings={"num_partitions": 1}) as broker:
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            producer.send("clicks", [b"one", b"two"])
        options = {
            "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
            "subscribe": "clicks",
        }
        load(spark, tmp_path, options, sink="delta")
    (added,) = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True)).to_pylist()
    assert (added["num_records"], added["null_count.value"]) == (2, 0)
    assert (added["min.offset"], added["max.offset"], added["max.next_offset"]) == (0, 13, 26)
    found = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    assert found.count_rows(filter=pa.compute.field("offset") >= 13) == 1
    assert found.count_rows(filter=pa.compute.field("offset") > 13) == 0


@pytest.mark.nightly
def test_compaction_and_vacuum_go_on_beside_a_stream(spark, tmp_path) -> None:
    """Small batches, and one who compacts and vacuums all the while: each row is there once."""
    path, over, versions = tmp_path / "table", threading.Event(), []

    def compact() -> None:
        while not over.is_set():
            if (path / "_delta_log").exists():
                made = DeltaTable(str(path)).optimize.compact()
                if made["numFilesAdded"]:
                    versions.append(made)
                    DeltaTable(str(path)).vacuum(7 * 24, dry_run=False)
            over.wait(0.2)  # as often as a batch takes, or nearly

    sent = [b"%04d" % number for number in range(600)]
    with running_broker(settings={"num_partitions": 2}) as broker:
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            for first in range(0, 600, 10):
                producer.send("clicks", sent[first : first + 10])
        reader = spark.readStream.format("hermes").option("subscribe", "clicks")
        reader = reader.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
        stream = reader.options(startingOffsets="earliest", maxBytesPerTrigger="1kB").load()
        other = threading.Thread(target=compact)
        other.start()
        try:
            query = write_stream_to_delta(
                stream, path, tmp_path / "checkpoint", trigger={"availableNow": True}
            )
            query.awaitTermination()
        finally:
            over.set()
            other.join()
    table = DeltaTable(str(path))
    table.optimize.compact()
    removed = DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert versions
    assert removed
    assert sorted(bytes(row.value) for row in read_delta(spark, path).collect()) == sent
    assert sorted(DeltaTable(str(path)).to_pyarrow_table()["value"].to_pylist()) == sent


def test_a_load_goes_on_after_a_vacuum(spark, tmp_path) -> None:
    with running_broker(settings={"num_partitions": 1}) as broker:
        options = {
            "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
            "subscribe": "clicks",
        }
        for number in range(3):
            with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as to:
                to.send("clicks", b"%d" % number)
            assert load(spark, tmp_path, options, sink="delta").messages == 1
            DeltaTable(str(tmp_path)).optimize.compact()
            DeltaTable(str(tmp_path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert sorted(bytes(row.value) for row in read_delta(spark, tmp_path).collect()) == [
        b"0",
        b"1",
        b"2",
    ]
