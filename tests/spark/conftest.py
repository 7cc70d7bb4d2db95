"""One Spark session for the whole run, on two cores of this machine, and the mark of its tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from planted_secrets import leaks
from prompt_worker import spark_environment
from s3_server import S3Server, s3a_class_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The session; tasks are tried again up to three times, which plain `local[2]` never does."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())  # before the first session of the run
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]").appName("hermes tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraClassPath", s3a_class_path())
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    builder = builder.config("spark.local.dir", str(folder / "local"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    # The JVM is a child of this process and ends with it; here it has to end before.
    gateway = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def event_log(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Spark's event log of a module's queries, in which there may be no secrets."""
    folder, jvm, context = tmp_path_factory.mktemp("events"), spark._jvm, spark.sparkContext._jsc
    listener: Any = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "events",
        jvm.scala.Option.empty(),
        jvm.java.net.URI(folder.as_uri()),
        context.sc().conf().clone().set("spark.eventLog.compress", "false"),
        context.hadoopConfiguration(),
    )
    listener.start()
    context.sc().addSparkListener(listener)
    yield folder
    context.sc().listenerBus().waitUntilEmpty()
    context.sc().removeSparkListener(listener)
    listener.stop()
    logged = b"".join(each.read_bytes() for each in folder.rglob("events*") if each.is_file())
    assert b"SparkListenerSQLExecutionStart" in logged
    assert b"SparkListenerTaskEnd" in logged
    assert not leaks(logged)


@pytest.fixture(autouse=True)
def _session_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Others share the session: no test changes its settings or leaves a query in it."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    before = dict(session.conf.getAll)
    yield
    assert dict(session.conf.getAll) == before
    assert not session.streams.active
