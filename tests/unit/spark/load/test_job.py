"""Spark's errors in one line."""

import pytest

from hermes.spark.load.job import failure_text

PYTHON = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "hermes/spark/source.py", line 75, in partitions
    raise DataLossError(text)
hermes.errors.DataLossError: topic 'clicks' partition 0-0: offset 5 was wanted
 SQLSTATE: 38000"""
HIDDEN = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times:
org.apache.spark.api.python.PythonException: hermes.errors.DataLossError: offset 5 was wanted

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:645)
Caused by: java.io.IOException: it goes on"""
JAVA = """An error occurred while calling o247.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 27.0 failed
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4568)
Caused by: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
\t... 1 more"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON, "topic 'clicks' partition 0-0: offset 5 was wanted"),
        (HIDDEN, "offset 5 was wanted"),
        (JAVA, "No space left on device"),
        (
            "[PATH_NOT_FOUND] Path does not exist: /x.\nmore",
            "[PATH_NOT_FOUND] Path does not exist: /x.",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_is_told(text: str, expected: str) -> None:
    assert failure_text(RuntimeError(text)) == expected


def test_a_cause_that_names_no_place_gets_one() -> None:
    full = "x\nCaused by: java.io.IOException: No space left on device\n\tat a.b(c.java:1)"
    assert failure_text(RuntimeError(full), "/data/x") == "/data/x: No space left on device"
    ours = "hermes.errors.DataLossError: topic 'a' is gone\n"
    assert failure_text(RuntimeError(ours), "/data/x") == "topic 'a' is gone"
