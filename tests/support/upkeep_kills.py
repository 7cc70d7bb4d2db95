"""Kills programs that load, compact, let expire and clean up one target at once, and counts."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable
from upkeep_driver import PER_DAY

from hermes.spark.load import clean_up, verify

__all__ = ["check_upkeep"]

_DRIVER = Path(__file__).with_name("upkeep_driver.py")
_PROGRAMS = 3


class _Program:
    def __init__(
        self, target: str, folder: Path, sink: str, environment: Mapping[str, str], *more: str
    ) -> None:
        self._errors = folder / "driver.err"
        with open(self._errors, "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(_DRIVER), target, str(folder), sink, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": _python_path(), **environment},
                start_new_session=True,  # with its JVM, if it has one
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                return
        raise AssertionError(f"it ended by itself:\n{self.failure()}")

    def failure(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")[-3000:]

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)


def _python_path() -> str:
    return os.pathsep.join([str(_DRIVER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def check_upkeep(
    target: str,
    folder: Path,
    sink: str,
    kills: int,
    seed: int,
    *,
    directory: Callable[[], Path] | None = None,
    environment: Mapping[str, str] | None = None,
    spark: Any = None,
) -> int:
    """Kill one of three programs after the other; then each message must be there once.

    Args:
        target: of the loads.
        folder: for files of this run.
        sink: of the target.
        kills: how many.
        seed: of the choice of moments.
        directory: copies the target to a directory, if it is none.
        environment: what the programs need to know.
        spark: a session, if this process needs one for the target.

    Returns:
        How many messages there were.
    """
    chance = random.Random(seed)
    (folder / "count").write_text("100")
    given = (target, folder, sink, environment or {})
    programs: list[_Program] = []
    count = 100
    try:
        for _ in range(kills):
            while len(programs) < _PROGRAMS:
                programs.append(_Program(*given))
            program = programs.pop(0)
            program.wait_until_ready()
            threading.Event().wait(chance.random() * 0.5)  # any moment is as good
            program.end()
            count += chance.randint(1, 20)
            (folder / "next").write_text(str(count))
            (folder / "next").rename(folder / "count")
    finally:
        for each in programs:
            each.end()
    last = _Program(*given, "drain")
    out, _ = last.process.communicate(timeout=300)
    assert last.process.returncode == 0, last.failure()
    cleaned = clean_up(target, spark=spark)
    assert (cleaned.removed_bytes, cleaned.kept) == (0, ()), f"seed {seed}: {cleaned}"
    found = verify(target, spark=spark)
    said = "\n".join((*found.problems, *found.notes))
    assert not said, f"seed {seed}:\n{said}"
    root = Path(target) if directory is None else directory()
    expected = list(range(min(2 * PER_DAY, count), count))
    for name, messages in _counted(root, sink).items():
        assert messages == expected, f"seed {seed}, {name}: {out}"
    return count


def _counted(root: Path, sink: str) -> dict[str, list[int]]:
    """The messages by readers other than ours."""
    if sink == "delta":
        data = DeltaTable(str(root)).to_pyarrow_dataset()
        rows = duckdb.connect().execute("SELECT value FROM data").fetchall()
        values = {"duckdb": [row[0] for row in rows]}
        values["pyarrow"] = data.to_table(columns=["value"])["value"].to_pylist()
    else:
        question = "SELECT value FROM read_parquet($1, hive_partitioning = true)"
        pattern = f"{root}/data/**/*.parquet"
        rows = duckdb.connect().execute(question, [pattern]).fetchall()
        data = ds.dataset(root / "data", format="parquet", partitioning="hive")
        values = {"duckdb": [row[0] for row in rows]}
        values["pyarrow"] = data.to_table(columns=["value"])["value"].to_pylist()
    return {name: sorted(map(int, each)) for name, each in values.items()}
