"""Delta tables: commits that count once, streams into them, and reading them without a jar."""

import dataclasses
import datetime
import json
import os
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import CommitProperties, Transaction
from flushed import Flushed
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

from hermes import Producer, ProducerConfig
from hermes.errors import ConfigError, LoadError, LoadTargetError
from hermes.spark.delta import read_delta, scan, write_stream_to_delta, writer
from hermes.spark.delta import table as tables
from hermes.spark.delta.table import add_files, commits
from hermes.spark.parquet import data_files, write_parquet
from hermes.spark.stores import LocalStore
from hermes.testing import running_broker

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.string())])


def written(path: Path, name: str, numbers: list[int], day: str = "2025-11-26"):
    folder = path / "data" / name
    (folder / f"day={day}").mkdir(parents=True)
    pq.write_table(pa.table({"number": numbers}), folder / f"day={day}" / "part-0.parquet")
    return data_files(LocalStore(path), f"data/{name}")


def numbers_in(path: Path) -> list[int]:
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["number"].to_pylist())


def test_a_version_is_committed_once(tmp_path) -> None:
    commit = (SCHEMA, ["day"], "app")
    assert add_files(
        LocalStore(tmp_path), written(tmp_path, "a", [1, 2]), *commit, 0, {"note": [1]}
    )
    assert not add_files(LocalStore(tmp_path), written(tmp_path, "b", [1, 2]), *commit, 0, {})
    assert add_files(LocalStore(tmp_path), written(tmp_path, "c", [3]), *commit, 1, {})
    assert not add_files(LocalStore(tmp_path), written(tmp_path, "d", [1, 2]), *commit, 0, {})
    assert add_files(LocalStore(tmp_path), written(tmp_path, "e", [4]), *commit[:2], "other", 0, {})
    assert numbers_in(tmp_path) == [1, 2, 3, 4]
    table = DeltaTable(str(tmp_path))
    assert (table.transaction_version("app"), table.count()) == (1, 4)
    assert list(commits(LocalStore(tmp_path), table))[-2]["note"] == [1]


def test_commits_are_found_in_a_path_of_odd_characters(tmp_path) -> None:
    """Where the package's own history is empty."""
    path = tmp_path / "a #1? é"
    for version in (0, 1):
        files = written(path, str(version), [version])
        assert add_files(
            LocalStore(path), files, SCHEMA, ["day"], "app", version, {"note": version}
        )
    table = DeltaTable(str(path))
    assert [each.get("note") for each in commits(LocalStore(path), table)] == [1, 0, None]


@pytest.mark.parametrize(("app", "version"), [("app", 1), ("other", 7)])
def test_a_commit_that_comes_in_between_is_seen(tmp_path, monkeypatch, app, version) -> None:
    """Another commits after this one has looked, and before it commits itself."""
    commit = (SCHEMA, ["day"])
    add_files(LocalStore(tmp_path), written(tmp_path, "a", [1]), *commit, "app", 0, {})
    late = DeltaTable(str(tmp_path))
    monkeypatch.setattr(
        tables,
        "open_table",
        lambda store, opened=[late]: opened.pop() if opened else DeltaTable(str(store.path)),
    )
    other = tables._action(written(tmp_path, "b", [2])[0])
    DeltaTable(str(tmp_path)).create_write_transaction(
        [other],
        "append",
        late.schema(),
        ["day"],
        commit_properties=CommitProperties(app_transactions=[Transaction(app, version)]),
    )
    ours = written(tmp_path, "c", [3])
    was_first = app != "app"
    assert add_files(LocalStore(tmp_path), ours, *commit, "app", 1, {}) == was_first
    assert numbers_in(tmp_path) == ([1, 2, 3] if was_first else [1, 2])


def test_other_columns_are_refused(tmp_path) -> None:
    add_files(LocalStore(tmp_path), written(tmp_path, "a", [1]), SCHEMA, ["day"], "app", 0, {})
    more = SCHEMA.append(pa.field("hour", pa.int32()))
    with pytest.raises(LoadError, match="the table has other columns, see hour"):
        add_files(LocalStore(tmp_path), [], more, ["day"], "app", 1, {})
    with pytest.raises(LoadError, match="is partitioned by day"):
        add_files(LocalStore(tmp_path), [], SCHEMA, [], "app", 1, {})


def test_nulls_are_kept_out_of_columns_that_take_none(tmp_path) -> None:
    required = pa.schema([pa.field("number", pa.int64(), nullable=False), ("day", pa.string())])
    add_files(LocalStore(tmp_path), written(tmp_path, "a", [1]), required, ["day"], "app", 0, {})
    with pytest.raises(LoadError, match="the table allows no null in number: "):
        add_files(LocalStore(tmp_path), written(tmp_path, "b", [2]), SCHEMA, ["day"], "app", 1, {})
    assert numbers_in(tmp_path) == [1]
    required = pa.schema([("number", pa.int64()), pa.field("day", pa.string(), nullable=False)])
    path = tmp_path / "by day"
    files = written(path, "a", [1], "__HIVE_DEFAULT_PARTITION__")  # an empty string, to Spark
    with pytest.raises(LoadError, match="the commit failed: "):
        add_files(LocalStore(path), files, required, ["day"], "app", 0, {})


def test_names_with_signs(spark, tmp_path) -> None:
    with pytest.raises(LoadTargetError, match="a%20b: deltalake takes a % with two digits"):
        read_delta(spark, tmp_path / "a%20b")
    rows = spark.newSession().createDataFrame([(1, "x")], "number long, `a:b` string")
    write_parquet(rows, f"file://{tmp_path}/data", ["a:b"])
    files = data_files(LocalStore(tmp_path), "data")
    schema = pa.schema([("number", pa.int64()), ("a:b", pa.string())])
    add_files(LocalStore(tmp_path), files, schema, ["a:b"], "app", 0, {})
    assert [tuple(row) for row in read_delta(spark, tmp_path).collect()] == [(1, "x")]


def test_a_damaged_log_is_named(tmp_path, spark) -> None:
    with pytest.raises(LoadTargetError, match="there is no Delta table"):
        read_delta(spark, tmp_path)
    add_files(LocalStore(tmp_path), written(tmp_path, "a", [1]), SCHEMA, ["day"], "app", 0, {})
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text("{")
    with pytest.raises(LoadTargetError, match=r"log can't be read \(.*\): restore"):
        read_delta(spark, tmp_path)


def test_reading_knows_what_others_did_to_a_table(spark, tmp_path) -> None:
    for version, day in enumerate(["2025-11-26", "a:b %", "2025-11-26"]):
        files = written(tmp_path, f"{version}", [version], day)
        add_files(LocalStore(tmp_path), files, SCHEMA, ["day"], "app", version, {})
    before = read_delta(spark, tmp_path)
    DeltaTable(str(tmp_path)).optimize.compact()
    DeltaTable(str(tmp_path)).delete("number = 0")
    expected = {(1, "a:b %"), (2, "2025-11-26")}
    assert {tuple(row) for row in read_delta(spark, tmp_path).collect()} == expected
    assert before.count() == 3, "a DataFrame stays at its version"


@pytest.mark.parametrize("jvm", [True, False])
def test_partitions_that_a_filter_leaves_out_are_not_opened(
    spark, tmp_path, monkeypatch, jvm
) -> None:
    """By Spark's own list of files, and without it, as with Spark Connect."""
    monkeypatch.setattr(scan, "has_jvm", lambda spark: jvm)
    path, store = tmp_path / "[a] *#1? é", LocalStore(tmp_path / "[a] *#1? é")
    for version, day in enumerate(["2025-11-26", "a:b %", "__HIVE_DEFAULT_PARTITION__", "a:b %"]):
        add_files(
            store, written(path, f"{version}", [version], day), SCHEMA, ["day"], "a", version, {}
        )
    rows = read_delta(spark, path)
    everything = {(0, "2025-11-26"), (1, "a:b %"), (2, None), (3, "a:b %")}
    assert {tuple(row) for row in rows.collect()} == everything
    assert rows.columns == ["number", "day"]
    for version in (0, 2):
        next((path / "data" / f"{version}").rglob("*.parquet")).unlink()
    assert {row.number for row in rows.where("day = 'a:b %'").collect()} == {1, 3}
    with pytest.raises(Py4JJavaError, match="does not exist"):
        rows.where("day IS NULL").collect()


def test_partitions_of_every_type_are_read(spark, tmp_path) -> None:
    """As another has written them, with values that folders' names can't say in one way."""
    one = {
        "number": pa.array([1], pa.int64()),
        "day": pa.array([datetime.date(2025, 11, 26)]),
        "at": pa.array([datetime.datetime(2025, 11, 26, 1, 2, 3, 456789, datetime.UTC)]),
        "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "sold": [True],
        "short": pa.array([7], pa.int16()),
    }
    by = ["day", "at", "price", "sold", "short"]
    write_deltalake(str(tmp_path), pa.table(one), partition_by=by)
    none = {name: pa.nulls(1, pa.array(values).type) for name, values in one.items()}
    write_deltalake(str(tmp_path), pa.table(none), mode="append")
    rows = read_delta(spark, tmp_path)
    found = rows.selectExpr("number", "string(at)", "day", "price", "sold", "short").collect()
    at = "2025-11-26 01:02:03.456789"
    assert [tuple(each) for each in found if each.number] == [
        (1, at, datetime.date(2025, 11, 26), Decimal("1.50"), True, 7)
    ]
    assert rows.where("day IS NULL AND at IS NULL AND sold IS NULL").count() == 1


def test_files_of_several_partitions_in_one_folder_are_read(spark, tmp_path) -> None:
    """As other writers may have them."""
    store = LocalStore(tmp_path)
    files = []
    for number, day in enumerate(["x", "y"]):
        pq.write_table(pa.table({"number": [number]}), tmp_path / f"{number}.parquet")
        (one,) = [each for each in data_files(store, "") if each.name == f"{number}.parquet"]
        files.append(dataclasses.replace(one, partition_values={"day": day}))
    add_files(store, files, SCHEMA, ["day"], "app", 0, {})
    assert {tuple(row) for row in read_delta(spark, tmp_path).collect()} == {(0, "x"), (1, "y")}


def test_tables_that_need_more_of_a_reader_are_refused(spark, tmp_path) -> None:
    store = LocalStore(tmp_path)
    add_files(store, written(tmp_path, "a", [1]), SCHEMA, ["day"], "app", 0, {})
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors", "timestampNtz"],
                "writerFeatures": ["deletionVectors", "timestampNtz"],
            }
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(LoadTargetError, match="reading this table needs deletionVectors: use"):
        read_delta(spark, tmp_path)


def test_a_table_without_files_has_its_columns(spark, tmp_path) -> None:
    DeltaTable.create(str(tmp_path), Schema.from_arrow(SCHEMA), partition_by=["day"])
    rows = read_delta(spark, tmp_path)
    assert (rows.count(), rows.columns) == (0, ["number", "day"])


def test_a_stream_that_is_started_again_writes_each_batch_once(spark, tmp_path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with running_broker(settings={"num_partitions": 2}) as broker:
        sent = [b"%d" % n for n in range(300)]
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            for value in sent[:200]:
                producer.send("clicks", [value])
        reader = spark.readStream.format("hermes").option("subscribe", "clicks")
        reader = reader.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
        stream = reader.options(startingOffsets="earliest", maxBytesPerTrigger="1kB").load()

        def run() -> int:
            query = write_stream_to_delta(
                stream, path, checkpoint, partition_by=["topic"], trigger={"availableNow": True}
            )
            query.awaitTermination()
            return len(query.recentProgress)

        assert run() > 1
        # As after a crash between the table's commit and the checkpoint's.
        commits = checkpoint / "commits"
        newest = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        for name in (f"{newest}", f".{newest}.crc"):
            (commits / name).unlink(missing_ok=True)
        (batch,) = (path / "data").glob(f"query=*/batch={newest}")
        (batch / "attempt=00000000").mkdir()
        run()
        assert len(list(batch.iterdir())) == 1, "what a crash left behind was not removed"
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            producer.send("clicks", sent[200:])
        run()
    found = Counter(bytes(row.value) for row in read_delta(spark, path).collect())
    assert found == Counter(sent)
    table = DeltaTable(str(path))
    assert table.count() == 300
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    assert table.transaction_version(f"hermes stream {query_id}") > newest


def test_a_table_that_is_a_file_is_refused_before_the_query_starts(spark, tmp_path) -> None:
    (tmp_path / "table").write_text("notes")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(LoadTargetError, match="table is not a directory"):
        write_stream_to_delta(stream, tmp_path / "table", tmp_path / "checkpoint")
    with pytest.raises(LoadTargetError, match="table is not a directory"):
        read_delta(spark, tmp_path / "table")


def test_directories_above_a_table_need_not_be_readable(tmp_path, monkeypatch) -> None:
    closed, access, opened = tmp_path / "closed", os.access, os.open

    def refuse(path, *arguments) -> int:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    monkeypatch.setattr(os, "open", refuse)
    path = closed / "table"
    files = written(path, "a", [1])
    tables.sync_files(LocalStore(path), files)
    assert add_files(LocalStore(path), files, SCHEMA, ["day"], "app", 0, {})
    assert numbers_in(path) == [1]


def test_a_stream_whose_power_goes_loses_no_batch(spark, tmp_path, monkeypatch) -> None:
    """The table has flushed a batch; what Spark has in its checkpoint may be gone."""
    path, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    flushed = Flushed(monkeypatch)

    def committed_last(*arguments, **options) -> bool:
        add_files(*arguments, **options)
        raise RuntimeError("the power goes")

    with running_broker(settings={"num_partitions": 1}) as broker:
        sent = [b"%d" % n for n in range(90)]
        reader = spark.readStream.format("hermes").option("subscribe", "clicks")
        reader = reader.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
        stream = reader.options(startingOffsets="earliest").load()
        for part, commit in ((0, committed_last), (30, committed_last), (60, add_files)):
            with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as to:
                to.send("clicks", sent[part : part + 30])
            monkeypatch.setattr(writer, "add_files", commit)
            query = write_stream_to_delta(stream, path, checkpoint, trigger={"availableNow": True})
            if commit is add_files:
                query.awaitTermination()
            else:
                with pytest.raises(StreamingQueryException, match="the power goes"):
                    query.awaitTermination()
                flushed.lose_power(tmp_path)
    found = Counter(DeltaTable(str(path)).to_pyarrow_table()["value"].to_pylist())
    assert found == Counter(sent)


@pytest.mark.parametrize("batches", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_an_older_copy_of_a_checkpoint_is_refused(spark, tmp_path, batches) -> None:
    """Spark gives the numbers of batches that the table has to other offsets."""
    path, checkpoint, copy = tmp_path / "table", tmp_path / "checkpoint", tmp_path / "copy"
    with running_broker(settings={"num_partitions": 1}) as broker:
        reader = spark.readStream.format("hermes").option("subscribe", "clicks")
        reader = reader.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
        stream = reader.options(startingOffsets="earliest").load()

        def send_and_run(value: bytes) -> None:
            with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as to:
                to.send("clicks", value)
            query = write_stream_to_delta(stream, path, checkpoint, trigger={"availableNow": True})
            query.awaitTermination()

        send_and_run(b"one")
        shutil.copytree(checkpoint, copy)
        for number in range(batches):
            send_and_run(b"%d" % number)
        shutil.rmtree(checkpoint)
        copy.rename(checkpoint)
        with pytest.raises(StreamingQueryException, match="is the checkpoint an older copy"):
            send_and_run(b"last")
    assert DeltaTable(str(path)).count() == 1 + batches


def test_rows_that_the_driver_does_not_find_are_not_committed(spark, tmp_path, monkeypatch) -> None:
    def write_elsewhere(rows, url: str, *more) -> int:
        written = write_parquet(rows, url, *more)
        next(
            Path(url.removeprefix("file://")).rglob("*.parquet")
        ).unlink()  # it is on a worker's own disk
        return written

    path, source = tmp_path / "table", tmp_path / "source"
    spark.range(10).repartition(2).write.parquet(f"{source}")
    stream = spark.readStream.schema("id long").parquet(f"{source}")
    arguments = (stream, path, tmp_path / "checkpoint")
    monkeypatch.setattr(writer, "write_parquet", write_elsewhere)
    query = write_stream_to_delta(*arguments, trigger={"availableNow": True})
    with pytest.raises(StreamingQueryException, match="must see the target under one path"):
        query.awaitTermination()
    assert not (path / "_delta_log").exists()
    monkeypatch.setattr(writer, "write_parquet", write_parquet)
    write_stream_to_delta(*arguments, trigger={"availableNow": True}).awaitTermination()
    assert DeltaTable(str(path)).count() == 10


def test_rows_of_tasks_that_were_repeated_are_counted_once(spark, tmp_path) -> None:
    failed = tmp_path / "failed"

    def fail_once(batches):
        yield from batches
        try:
            failed.touch(exist_ok=False)
        except FileExistsError:
            return
        raise RuntimeError("once")

    rows = spark.newSession().range(0, 5000, 1, 3).mapInArrow(fail_once, "id long")
    assert (
        write_parquet(rows.selectExpr("id", "id % 2 AS half"), f"file://{tmp_path}/t", ["half"])
        == 5000
    )
    assert failed.exists()
    assert sum(each.rows for each in data_files(LocalStore(tmp_path), "t")) == 5000
    assert write_parquet(spark.newSession().range(0), f"file://{tmp_path}/none", []) == 0


def test_times_of_all_years_are_kept(spark, tmp_path) -> None:
    source = tmp_path / "source"
    times = ["0001-01-02 00:00:00", "2300-01-01 00:00:00.000001", "9999-12-30 23:59:59.999999"]
    texts = spark.createDataFrame([(each,) for each in times], "time string")
    texts.write.parquet(f"{source}")
    stream = spark.readStream.schema("time string").parquet(f"{source}")
    rows = stream.selectExpr("CAST(time AS timestamp) AS time")
    arguments = (rows, f"file://{tmp_path}/table", f"file://{tmp_path}/checkpoint")
    write_stream_to_delta(*arguments, trigger={"availableNow": True}).awaitTermination()
    read = read_delta(spark, f"file://{tmp_path}/table").selectExpr("CAST(time AS string) AS time")
    assert sorted(row.time for row in read.collect()) == times
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_addresses_of_other_stores_are_refused_by_name(spark, tmp_path) -> None:
    stream = spark.readStream.format("rate").load()
    for address in ("gs://b/t", "abfss://c@b/t"):
        shown = address.replace("c@", "")
        with pytest.raises(LoadTargetError, match=f"{shown}: expected a directory, s3://"):
            write_stream_to_delta(stream, address, tmp_path / "checkpoint")
        with pytest.raises(LoadTargetError, match=f"{shown}: expected a directory, s3://"):
            read_delta(spark, address)
    assert not (tmp_path / "checkpoint").exists()


def test_what_is_no_stream_is_refused(spark, tmp_path) -> None:
    with pytest.raises(ConfigError, match="expected a stream"):
        write_stream_to_delta(spark.range(3), tmp_path, tmp_path / "c")
    stream = spark.readStream.format("rate").load()
    for columns, text in (["nope"], "no column 'nope'"), (["timestamp"], "'timestamp' is time"):
        with pytest.raises(ConfigError, match=text):
            write_stream_to_delta(stream, tmp_path, tmp_path / "c", partition_by=columns)
