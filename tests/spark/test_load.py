"""Loads with a real Spark and a real broker: what was produced is there once, in its folder."""

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from embedded_coordination_process import EmbeddedCoordinationProcess
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from stalling_proxy import StallingProxy

from hermes import Producer, ProducerConfig, SimpleConsumer
from hermes.cli import program
from hermes.client import EARLIEST, LATEST
from hermes.coordination.group_state import read_group
from hermes.coordination.sessions import Session
from hermes.errors import DataLossError, LoadConflictError, LoadError
from hermes.spark.delta.table import commits
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load import clean_up, load, read_loaded
from hermes.spark.stores import LocalStore
from hermes.testing import RunningBroker, running_broker

SINKS = ["parquet", "delta"]


class Topics:
    """A broker, and a record of what was sent to it."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.options = {"hermes.bootstrap.servers": f"{broker.host}:{broker.port}"}
        self.sent: Counter[tuple[str, bytes]] = Counter()

    def send(self, topic: str, count: int, size: int = 20, **config: str) -> None:
        total = sum(self.sent.values())
        values = [b"%d " % (total + n) + b"x" * size for n in range(count)]
        config = {"partitioner": "round-robin", **config}
        settings = ProducerConfig(broker_list=self.broker.broker_list, acks="flushed", **config)
        with Producer(settings) as producer:
            for start in range(0, count, 50):
                producer.send(topic, values[start : start + 50])
        self.sent.update((topic, value) for value in values)


@pytest.fixture
def topics() -> Iterator[Topics]:
    with running_broker(settings={"num_partitions": 2}) as broker:
        yield Topics(broker)


def rows_of(df) -> Counter[tuple[str, bytes]]:
    return Counter((row.topic, bytes(row.value)) for row in df.select("topic", "value").collect())


@pytest.mark.parametrize("sink", SINKS)
def test_each_load_copies_what_is_new_once(spark, topics, tmp_path, sink) -> None:
    target = tmp_path / "a target [1] {2} 100%"
    options = {**topics.options, "subscribePattern": r"clicks|a\.b_c"}
    topics.send("clicks", 400)
    first = load(spark, target, options, partition_by="hour", sink=sink)
    topics.send("clicks", 100, compression="gzip")
    topics.send("a.b_c", 100)
    states = []
    second = load(spark, target, options, partition_by="hour", sink=sink, progress=states.append)
    assert load(spark, target, options, partition_by="hour", sink=sink).number is None
    assert (first.messages, second.messages, second.number) == (400, 200, 2)
    assert states[-1].done == states[-1].total > 0
    loaded = read_loaded(spark, target).cache()
    assert rows_of(loaded) == topics.sent
    place = ["topic", "broker", "partition", "offset", "index"]
    assert loaded.select(place).distinct().count() == 600
    assert loaded.where("load = 1").count() == 400
    # The folders are those of the times that the broker's index has.
    by_time = (F.to_date("timestamp") == F.col("day")) & (F.hour("timestamp") == F.col("hour"))
    assert loaded.where(by_time).count() == 600
    loaded.unpersist()


def test_parquet_needs_no_spark_to_be_read(spark, topics, tmp_path) -> None:
    topics.send("clicks", 300)
    options = {**topics.options, "subscribe": "clicks", "minPartitions": "4"}
    result = load(spark, tmp_path, options, sink="parquet")
    files = list(result.directory.rglob("*.parquet"))
    assert len(files) == result.files >= 4
    values = [v for each in files for v in pq.ParquetFile(each).read()["value"].to_pylist()]
    assert Counter(("clicks", value) for value in values) == topics.sent
    manifest = json.loads((tmp_path / f"_hermes/manifests/{1:020d}.json").read_text())["load"]
    ends = {each.name: end for each, (_, end) in result.ranges.items()}
    assert manifest["offsets"] == {"clicks": ends}
    assert manifest["file_bytes"] == result.file_bytes == sum(f.stat().st_size for f in files)


@pytest.mark.parametrize("sink", SINKS)
def test_settings_of_the_session_hold(spark, topics, tmp_path, sink) -> None:
    topics.send("clicks", 1)
    options = {**topics.options, "subscribe": "clicks"}
    load(spark, tmp_path / "before", options, sink=sink)
    assert read_loaded(spark, tmp_path / "before").count() == 1
    session, tmp_path = spark.newSession(), tmp_path / "now"
    session.conf.set("spark.sql.parquet.compression.codec", "gzip")
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    topics.send("clicks", 20)
    load(session, tmp_path, options, sink=sink)
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "GZIP"
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Kathmandu"
    assert rows_of(read_loaded(session, tmp_path)) == topics.sent


def test_delta_needs_no_spark_to_be_read(spark, topics, tmp_path) -> None:
    from deltalake import DeltaTable

    topics.send("clicks", 300)
    result = load(spark, tmp_path, {**topics.options, "subscribe": "clicks"}, sink="delta")
    table = DeltaTable(str(tmp_path))
    rows = table.to_pyarrow_table()
    pairs = zip(rows["topic"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert Counter(pairs) == topics.sent
    assert table.count() == 300
    assert table.metadata().partition_columns == ["topic", "day"]
    manifest = next(commits(LocalStore(tmp_path), table))["hermes.load"]
    ends = {each.name: end for each, (_, end) in result.ranges.items()}
    assert (manifest["number"], manifest["offsets"]) == (1, {"clicks": ends})
    # What others do to the table changes nothing for the next load.
    table.optimize.compact()
    topics.send("clicks", 50)
    assert (
        load(spark, tmp_path, {**topics.options, "subscribe": "clicks"}, sink="delta").messages
        == 50
    )
    assert rows_of(read_loaded(spark, tmp_path)) == topics.sent


def test_a_target_without_loads_has_no_rows(spark, topics, tmp_path) -> None:
    topics.send("clicks", 1)
    options = {**topics.options, "subscribe": "clicks"}

    class Full(LocalFileSystem):
        def sync(self, path: Path) -> None:
            if path.suffix == ".parquet":
                raise OSError(28, "No space left on device")
            super().sync(path)

    with pytest.raises(OSError, match="No space left"):
        load(spark, tmp_path, options, sink="parquet", files=Full())
    empty = read_loaded(spark, tmp_path)
    assert (empty.count(), empty.columns[0]) == (0, "load")
    assert load(spark, tmp_path, options).repeated
    assert empty.schema == read_loaded(spark, tmp_path).schema


@pytest.mark.parametrize("sink", SINKS)
def test_of_two_racing_loads_exactly_one_wins(spark, topics, tmp_path, sink) -> None:
    topics.send("clicks", 200)
    options = {**topics.options, "subscribe": "clicks"}
    both_wrote = threading.Barrier(2)

    class Meeting(LocalFileSystem):
        def __init__(self) -> None:
            self._has_met = False

        def sync(self, path: Path) -> None:
            if path.suffix == ".parquet" and not self._has_met:
                self._has_met = True
                both_wrote.wait(120)
            super().sync(path)

    outcomes: list[object] = []

    def race() -> None:
        try:
            outcomes.append(load(spark, tmp_path, options, sink=sink, files=Meeting()).committed)
        except LoadConflictError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=race) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sorted(type(each).__name__ for each in outcomes) == ["LoadConflictError", "bool"]
    assert rows_of(read_loaded(spark, tmp_path)) == topics.sent
    assert len(list((tmp_path / "data").glob("*/*"))) == 1
    assert clean_up(tmp_path).directories == ()


@pytest.mark.parametrize("sink", SINKS)
def test_workers_killed_in_the_middle_of_their_tasks_change_nothing(
    spark, topics, tmp_path, sink
) -> None:
    topics.send("clicks", 4000, size=2000)
    with StallingProxy(topics.broker.port, 2_000_000) as proxy:
        options = {"hermes.bootstrap.servers": f"127.0.0.1:{proxy.port}", "subscribe": "clicks"}

        def kill_workers() -> None:
            assert proxy.has_stalled.wait(120)
            daemons = children_of(spark.sparkContext._gateway.proc.pid, "pyspark.daemon")
            workers = [pid for each in daemons for pid in children_of(each, "")]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            killed.extend(workers)
            proxy.resume()

        killed: list[int] = []
        killer = threading.Thread(target=kill_workers)
        killer.start()
        result = load(spark, tmp_path, options, sink=sink)
        killer.join(120)
    assert killed
    assert result.messages == 4000
    assert rows_of(read_loaded(spark, tmp_path)) == topics.sent


def children_of(pid: int, command: str) -> list[int]:
    """The processes below one, at any depth, whose command line has a word."""
    table = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [(int(a), int(b), c) for a, b, c in (line.split(None, 2) for line in table.splitlines())]
    below, found = {pid}, []
    for _ in range(10):
        below |= {child for child, parent, _ in rows if parent in below}
    for child, parent, words in rows:
        is_child = parent == pid if not command else child in below
        if is_child and child != pid and command in words:
            found.append(child)
    return found


def end_before_the_commit(spark, path: Path, options: dict[str, str]) -> None:
    """Run a load that ends when it has written; its plan stays."""

    class Ended(LocalFileSystem):
        def sync(self, path: Path) -> None:
            if path.suffix == ".parquet":
                raise KeyboardInterrupt
            super().sync(path)

    with pytest.raises(KeyboardInterrupt):
        load(spark, path, options, files=Ended())


def test_what_is_gone_stops_a_load_unless_allowed(spark, tmp_path) -> None:
    """Retention passes the plan of a load that crashed, and then the place where the last ended."""
    settings = {"num_partitions": 1, "segment_bytes": 4096, "retention_bytes": 8192}
    settings |= {"retention_check_interval": "50ms", "retention_policy": "size"}
    with running_broker(settings=settings) as broker:
        topics = Topics(broker)
        options = {**topics.options, "subscribe": "clicks"}
        topics.send("clicks", 50)
        end_before_the_commit(spark, tmp_path, options)
        wait_until_gone(topics)
        with pytest.raises(LoadError, match=r"can't be carried out: .*offset 0 was wanted") as told:
            load(spark, tmp_path, options)
        assert "failOnDataLoss" in str(told.value)
        allowed = {**options, "failOnDataLoss": "false"}
        assert load(spark, tmp_path, allowed).repeated
        assert load(spark, tmp_path, allowed).messages > 0
        wait_until_gone(topics)
        with pytest.raises(DataLossError, match="was wanted"):
            load(spark, tmp_path, options)
        assert load(spark, tmp_path, allowed).messages > 0
    loaded = rows_of(read_loaded(spark, tmp_path))
    assert set(loaded.values()) == {1}
    assert loaded.keys() < topics.sent.keys()


@pytest.mark.parametrize("count", [0, 20])
def test_a_topic_made_anew_under_a_plan_is_loaded_once(spark, tmp_path, count) -> None:
    """The plan was of a topic that is no more; what there is now belongs to the next load."""
    with running_broker(settings={"num_partitions": 1}) as broker:
        options = {**Topics(broker).options, "subscribePattern": "clicks.*"}
        Topics(broker).send("clicks", 50)
        Topics(broker).send("clicks.other", 1)
        end_before_the_commit(spark, tmp_path, options)
        with SimpleConsumer(broker.host, broker.port) as consumer:
            consumer.delete_topic("clicks")
        if count:
            Topics(broker).send("clicks", count)
        there = "it ends at" if count else "the partition is gone"
        with pytest.raises(LoadError, match=f"can't be carried out: .*was planned, but {there}"):
            load(spark, tmp_path, options)
        allowed = {**options, "failOnDataLoss": "false"}
        assert load(spark, tmp_path, allowed).messages == 1
        assert load(spark, tmp_path, allowed).messages == count
    assert set(rows_of(read_loaded(spark, tmp_path)).values()) == {1}


def wait_until_gone(topics: Topics) -> None:
    """Send until the broker has removed all that there was before."""
    with SimpleConsumer(topics.broker.host, topics.broker.port) as consumer:
        (end,) = consumer.get_offsets_before("clicks", 0, LATEST)
        while consumer.get_offsets_before("clicks", 0, EARLIEST)[-1] <= end:
            topics.send("clicks", 50)


def test_a_group_is_told_how_far_loads_have_come(spark, tmp_path) -> None:
    server = EmbeddedCoordinationProcess(tmp_path / "coordination")
    server.start()
    try:
        settings = {"coordination": "zookeeper", "zookeeper_connect": server.address}
        with running_broker(settings=settings) as broker:
            topics = Topics(broker)
            topics.send("clicks", 100)
            options = {"hermes.zookeeper": server.address, "subscribe": "clicks", "groupId": "g"}
            result = load(spark, tmp_path / "target", options)
            session = Session(server.address)
            session.start()
            stored = read_group(session, "g").offsets
            session.stop()
    finally:
        server.stop()
    assert list(stored.values()) == [end for _, end in result.ranges.values()]
    assert rows_of(read_loaded(spark, tmp_path / "target")) == topics.sent


def test_the_command_loads_and_cleans_up(spark, topics, tmp_path, monkeypatch) -> None:
    """In this process, with the session that is here; starting another takes its time."""
    from contextlib import contextmanager

    from hermes.cli import load as module

    @contextmanager
    def session_of_the_tests(master, settings):
        yield spark

    monkeypatch.setattr(module, "spark_session", session_of_the_tests)
    topics.send("clicks", 100)
    servers = topics.options["hermes.bootstrap.servers"]
    arguments = ["load", "--to", str(tmp_path / "t"), "-b", servers, "--sink", "parquet", "clicks"]
    ran = CliRunner().invoke(program, arguments)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("load 1: 100 messages, ")
    assert ran.stdout.count("clicks  0-") == 2
    assert CliRunner().invoke(program, arguments).stdout == "nothing new\n"
    orphan = tmp_path / "t" / "_hermes" / "attempts" / f"load-{1:020d}-00000000"
    orphan.mkdir()
    cleaned = CliRunner().invoke(program, [*arguments[:3], "--clean-up"])
    assert cleaned.stdout.startswith(f"removed {orphan}\n")
    assert not orphan.exists()
