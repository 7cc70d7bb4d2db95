"""A real HDFS in a process of its own: a name node and a data node."""

import os
import re
import subprocess
from pathlib import Path

from fetched_tools import fetched
from short_lived_jvm import JAVA_OPTIONS

__all__ = ["Hdfs"]

_SOURCE = Path(__file__).parent / "java" / "Hdfs.java"


class Hdfs:
    """Runs until `stop`.

    Args:
        directory: for its files; made here.

    Attributes:
        address: `hdfs://127.0.0.1:PORT`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        jars = fetched("HERMES_HDFS_JARS", "hadoop-client-minicluster-[0-9.]*[0-9]", "ensure_hdfs")
        self._errors = directory / "errors"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                ["java", "-Xmx400m", *JAVA_OPTIONS, "-cp", f"{jars}/*", str(_SOURCE), "data"],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={key: text for key, text in os.environ.items() if key != "CLASSPATH"},
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if re.match("hdfs://", line):
                self.address = line.strip()
                return
        said = self._errors.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"HDFS does not start:\n{said[-3000:]}")

    def stop(self) -> None:
        """End it; it does so by itself if this process ends."""
        self._process.kill()
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
