"""A run of Spark's tests that is killed takes its JVM, and what that has started, with it."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DEADLINE_SECONDS = 300

#: A test that has a JVM, its daemon of Python workers and a worker, and waits.
TEST = """
import os
import subprocess
import sys
import time

from prompt_worker import spark_environment

def test_it():
    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    worker, = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getpid()).collect()
    daemon = int(open(f"/proc/{worker}/stat").read().rpartition(") ")[2].split()[1])
    print("started", spark.sparkContext._gateway.proc.pid, daemon, worker, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.soak
def test_no_jvm_is_left_behind(tmp_path: Path) -> None:
    conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    watched: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-s", "-n0", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS / "support")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            assert run.stdout is not None
            said = next(line for line in run.stdout if "started" in line)
            watched = [os.pidfd_open(int(each)) for each in said.split()[-3:]]
            run.send_signal(signal.SIGKILL)
            for each in watched:
                assert select.select([each], [], [], DEADLINE_SECONDS)[0]
        finally:
            run.kill()
            for each in watched:
                os.close(each)
