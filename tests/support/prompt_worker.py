"""Python as Spark's JVM starts it, but with a stream's worker that connects before it imports.

Spark gives the worker of a stream's source ten seconds to connect back, a number that no setting
changes, and the worker imports pyspark, pyarrow and numpy before it does: about a second of
computing, which takes longer than that on a machine with much else to do. Here it connects first
and then imports; what Spark asks for later has no such limit. Everything else runs as it would.

`PYSPARK_PYTHON` is `spark_python` beside this, which needs `HERMES_TESTS_PYTHON`. It is named
without its path: where there is a space in that, Spark looks for no data sources in Python.
"""

import os
import socket
import struct
import sys
from pathlib import Path

from short_lived_jvm import SPARK_OPTIONS

__all__ = ["spark_environment"]

_STREAM_WORKER = ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]


def spark_environment() -> dict[str, str]:
    """What a driver's environment must hold before its first session."""
    here, path = Path(__file__).parent, os.environ["PATH"]
    return {
        "PATH": path if path.startswith(f"{here}:") else f"{here}:{path}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HERMES_TESTS_PYTHON": sys.executable,
        "PYSPARK_PYTHON": "spark_python",
        "PYSPARK_DRIVER_PYTHON": "spark_python",
        **SPARK_OPTIONS,
    }


def _run_stream_worker(module: str, port: int, secret: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", port))
    file = connection.makefile("rwb", 65536)
    file.write(struct.pack(">i", len(secret)) + secret)
    file.flush()
    answer = file.read(struct.unpack(">i", file.read(4))[0])
    if answer != b"ok":
        sys.exit(f"Spark does not take its own secret: {answer!r}")

    import runpy

    import pyspark.worker_util

    pyspark.worker_util.local_connect_and_auth = lambda *_: (file, connection)
    sys.path[0] = os.getcwd()  # as with -m
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    arguments, port = sys.argv[1:], os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if arguments != _STREAM_WORKER or port is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    _run_stream_worker(arguments[1], int(port), os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
