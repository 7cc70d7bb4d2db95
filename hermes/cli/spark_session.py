"""A Spark session for a command, without the noise that Spark makes while it starts."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes.cli.exit_codes import debugging
from hermes.errors import HermesError
from hermes.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def require_spark() -> Iterator[None]:
    """Say, by a HermesError, what to install when a package that Spark needs is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "pandas", "numpy"):
            raise
        raise HermesError(
            f"this needs Spark, and {error.name} is missing: {install_command('spark')}"
        ) from error


@contextmanager
def spark_session(master: str, settings: Mapping[str, str]) -> Iterator["SparkSession"]:
    """Start Spark for the length of a command. Raises HermesError if it can't."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("hermes load")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    errors = _Stderr()
    try:
        session = errors.caught(builder)
    except Exception as error:
        raise HermesError(
            f"Spark can't be started: {errors.cause() or error} (it needs Java 17 or later; "
            "HERMES_DEBUG=1 shows more)"
        ) from error
    if not debugging():
        session.sparkContext.setLogLevel("OFF")  # what fails is raised, and reported once
    try:
        yield session
    finally:
        session.stop()
        _end_java(session.sparkContext._gateway)
        errors.join()


def _end_java(gateway: Any) -> None:
    gateway.shutdown()
    if getattr(gateway, "proc", None) is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()


class _Stderr:
    """The JVM's stderr: held back while it starts, passed on afterwards.

    Afterwards only warnings of tasks arrive here, such as those about lost messages.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._is_started = debugging()
        self._thread: threading.Thread | None = None

    def caught(self, builder: Any) -> "SparkSession":
        """Start Spark with its stderr read here; afterwards this process has its own again."""
        sys.stderr.flush()
        own = os.dup(2)
        receiver, sender = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, args=(receiver, own))
        self._thread.start()
        os.dup2(sender, 2)
        os.close(sender)
        try:
            session: SparkSession = builder.getOrCreate()
        finally:
            os.dup2(own, 2)
        self._is_started = True
        return session

    def cause(self) -> str:
        texts = (line.decode(errors="replace").strip() for line in self._lines)
        return next((line for line in texts if re.search("Exception|Error|error:", line)), "")

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _pass_on(self, receiver: int, own: int) -> None:
        with open(receiver, "rb") as lines:
            for line in lines:
                if self._is_started:
                    os.write(own, line)
                else:
                    self._lines.append(line)
        os.close(own)
