"""Loads and streams to a real S3 server; what is there is counted from the files by others."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from careless_s3 import careless_s3
from click.testing import CliRunner
from deltalake import DeltaTable
from planted_secrets import leaks
from s3_server import S3Server

from hermes import Producer, ProducerConfig
from hermes.cli import program
from hermes.errors import LoadConflictError, LoadTargetError
from hermes.spark.auditing import audit_loads
from hermes.spark.delta import write_stream_to_delta
from hermes.spark.load import clean_up, job, load, read_loaded
from hermes.testing import RunningBroker, running_broker

pytestmark = pytest.mark.usefixtures("event_log")

SINKS = ["parquet", "delta"]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"num_partitions": 2}) as running:
        yield running


def options_of(broker: RunningBroker, topic: str) -> dict[str, str]:
    return {"hermes.bootstrap.servers": f"{broker.host}:{broker.port}", "subscribe": topic}


def send(broker: RunningBroker, topic: str, start: int, end: int) -> None:
    config = ProducerConfig(
        broker_list=broker.broker_list, acks="flushed", partitioner="round-robin"
    )
    with Producer(config) as producer:
        for number in range(start, end):
            producer.send(topic, [b"%d" % number])


def counted(s3: S3Server, name: str, sink: str, folder: Path) -> Counter[bytes]:
    """The values that others find: DuckDB and pyarrow, from copies of the objects."""
    copied = s3.copy_out(name, folder)
    if sink == "delta":
        table = DeltaTable(str(copied))
        files = [str(copied / each) for each in table.get_add_actions().column("path").to_pylist()]
    else:
        files = [str(each) for each in (copied / "data").rglob("*.parquet")]
    rows = duckdb.connect().execute("SELECT value FROM read_parquet(?)", [files]).fetchall()
    found = Counter(value for (value,) in rows)
    arrow = ds.dataset(files, format="parquet").to_table(columns=["value"])["value"].to_pylist()
    assert Counter(arrow) == found
    return found


def check_no_secrets(s3: S3Server) -> None:
    """What is in the bucket holds none, and neither do the names."""
    for path in (s3.directory / "objects").rglob("*"):
        assert not leaks(str(path))
        if path.is_file():
            assert not leaks(path.read_bytes()), path


@pytest.mark.parametrize("sink", SINKS)
def test_loads_go_to_s3_once_each(spark, broker, s3, tmp_path, capfd, sink) -> None:
    topic, target = f"to-{sink}", s3.address_of(f"some dir/{sink}")
    options = options_of(broker, topic)
    send(broker, topic, 0, 60)
    first = load(spark, target, options, sink=sink, partition_by="hour", storage=s3.storage)
    send(broker, topic, 60, 100)
    second = load(spark, target, options, sink=sink, partition_by="hour", storage=s3.storage)
    nothing = load(spark, target, options, sink=sink, partition_by="hour", storage=s3.storage)
    assert (first.messages, second.messages, nothing.number) == (60, 40, None)
    assert str(first.directory).startswith(f"{target}/data"), "printed as it was given"
    sent = Counter(b"%d" % number for number in range(100))
    assert counted(s3, f"some dir/{sink}", sink, tmp_path) == sent
    if sink == "parquet":
        rows = read_loaded(spark, target, storage=s3.storage)
        assert Counter(bytes(row.value) for row in rows.collect()) == sent
        rows.explain(True)
    to = ProducerConfig(broker_list=broker.broker_list)
    assert audit_loads(spark, target, sink, to, storage=s3.storage) == 100
    cleaned = clean_up(target, storage=s3.storage)
    assert (cleaned.directories, cleaned.temporary_files, cleaned.kept) == ((), (), ())
    check_no_secrets(s3)
    shown = capfd.readouterr()
    assert not leaks(shown.out + shown.err + repr((first, second, cleaned)))


@pytest.mark.parametrize(("sink", "racing"), [("parquet", 3), ("delta", 2)])
def test_of_racing_loads_exactly_one_wins(
    spark, broker, s3, tmp_path, monkeypatch, sink, racing
) -> None:
    topic, name = f"race-{sink}", f"race/{sink}"
    target, options = s3.address_of(name), options_of(broker, topic)
    send(broker, topic, 0, 50)
    all_wrote, write = threading.Barrier(racing), job.write_parquet

    def write_and_meet(*arguments) -> int:
        written = write(*arguments)
        all_wrote.wait(200)
        return written

    monkeypatch.setattr(job, "write_parquet", write_and_meet)
    outcomes: list[object] = []

    def race() -> None:
        try:
            result = load(spark, target, options, sink=sink, storage=s3.storage)
            outcomes.append(result.committed)
        except LoadConflictError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=race) for _ in range(racing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    names = sorted(type(each).__name__ for each in outcomes)
    assert names == ["LoadConflictError"] * (racing - 1) + ["bool"]
    sent = Counter(b"%d" % number for number in range(50))
    assert counted(s3, name, sink, tmp_path) == sent


@pytest.mark.nightly
def test_streams_go_to_tables_on_s3(spark, broker, s3, tmp_path) -> None:
    send(broker, "stream", 0, 60)
    reader = spark.readStream.format("hermes").options(**options_of(broker, "stream"))
    stream = reader.options(startingOffsets="earliest", maxBytesPerTrigger="300").load()
    table, checkpoint = s3.address_of("stream table"), tmp_path / "checkpoint"
    arguments = {"partition_by": ["topic"], "trigger": {"availableNow": True}}

    def run() -> None:
        query = write_stream_to_delta(stream, table, checkpoint, storage=s3.storage, **arguments)
        query.awaitTermination()

    run()
    # As after a crash between the table's commit and the checkpoint's.
    commits = checkpoint / "commits"
    newest = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    for each in (f"{newest}", f".{newest}.crc"):
        (commits / each).unlink(missing_ok=True)
    send(broker, "stream", 60, 80)
    run()
    sent = Counter(b"%d" % number for number in range(80))
    assert counted(s3, "stream table", "delta", tmp_path / "copy") == sent
    check_no_secrets(s3)


def test_the_command_has_the_address_as_given_and_credentials_by_the_environment(
    spark, broker, s3, monkeypatch
) -> None:
    from contextlib import contextmanager

    from hermes.cli import load as module

    @contextmanager
    def session_of_the_tests(master, settings):
        yield spark

    monkeypatch.setattr(module, "spark_session", session_of_the_tests)
    send(broker, "command", 0, 10)
    target = s3.address_of("by command", "s3")
    servers = f"{broker.host}:{broker.port}"
    arguments = ["load", "--to", target, "-b", servers, "--sink", "parquet", "--json", "command"]
    ran = CliRunner().invoke(program, arguments, env=s3.environment)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["messages"], told["directory"]) == (10, f"{target}/data")
    cleaned = CliRunner().invoke(
        program, ["load", "--to", target, "--clean-up"], env=s3.environment
    )
    assert cleaned.stdout == "removed 0 B in all\n"
    assert not leaks(ran.output + cleaned.output)


def test_stores_that_honour_no_conditions_are_refused_before_anything_is_written(
    spark, broker, tmp_path
) -> None:
    send(broker, "careless", 0, 1)
    options = options_of(broker, "careless")
    with careless_s3() as (url, objects):
        storage = {"fs.s3a.endpoint": url, "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
        for sink in SINKS:
            with pytest.raises(LoadTargetError, match="doesn't honour conditional puts"):
                load(spark, "s3a://careless/t", options, sink=sink, storage=storage)
        stream = spark.readStream.format("hermes").options(**options).load()
        with pytest.raises(LoadTargetError, match="doesn't honour conditional puts"):
            write_stream_to_delta(stream, "s3a://careless/t", tmp_path / "c", storage=storage)
        assert objects == {}
    assert not (tmp_path / "c").exists()
