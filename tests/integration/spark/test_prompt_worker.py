"""The tests' own stand-in for Python under Spark: see tests/support/prompt_worker.py."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from prompt_worker import spark_environment

DEADLINE_SECONDS = 60
MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
PROGRAM = "import sys; print(sys.executable, sys.argv[1])"


def test_a_streams_worker_connects_before_it_imports(tmp_path: Path) -> None:
    """With a pyspark whose import waits for a line."""
    package = tmp_path / "pyspark" / "sql" / "streaming"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (tmp_path / "pyspark" / "__init__.py").write_text("input()\n")
    (tmp_path / "pyspark" / "worker_util.py").touch()
    (package / "python_streaming_source_runner.py").write_text(
        "from pyspark import worker_util\n"
        "assert __name__ == '__main__'\n"
        "file, connection = worker_util.local_connect_and_auth('port', 'secret')\n"
        "file.write(b'imported')\n"
        "file.flush()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        environment = spark_environment()
        worker = subprocess.Popen(
            [environment["PYSPARK_PYTHON"], "-m", MODULE],
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": str(tmp_path),
                "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
                "PYTHON_WORKER_FACTORY_SECRET": "hush",
            },
        )
        jvm, _ = listener.accept()
    with worker, jvm, jvm.makefile("rwb") as file:
        jvm.settimeout(DEADLINE_SECONDS)
        assert file.read(8) == struct.pack(">i", 4) + b"hush"
        file.write(struct.pack(">i", 2) + b"ok")
        file.flush()
        assert worker.stdin is not None
        worker.stdin.write(b"go on\n")
        worker.stdin.flush()
        assert file.read(8) == b"imported"
    assert worker.returncode == 0


def test_everything_else_is_plain_python() -> None:
    environment = spark_environment()
    ran = subprocess.run(
        [
            environment["PYSPARK_PYTHON"],
            "-c",
            PROGRAM,
            "x",
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ran.stdout == f"{sys.executable} x\n", ran.stderr
