"""Kills drivers of loads and streams, many of them in the life of one JVM, and counts messages.

Most kills end a driver alone: all that Hermes commits is committed by it. The others end the JVM,
too, and are the only ones for Spark's own sink, which commits there. Each kind of sink gets equally
many kills, here and on S3: half of them at a call that changes something, chosen by its number, and
half at any moment. Loads race, and the broker is killed as well.
"""

import multiprocessing
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from driver_kills import Load, check_values, stored_values
from prompt_worker import spark_environment
from s3_server import S3Server
from session_drivers import Run, drain, drive, hold_session

from hermes.spark.load import clean_up

__all__ = ["Kills", "check_sessions"]

#: What Hermes commits, and what Spark does.
_OURS: Final = ("load-parquet", "load-delta", "stream-delta")
_SPARKS: Final = "stream-parquet"
#: How many kills of each kind a JVM lives through, where it lives through any.
_LIVES: Final = 5
#: A call of this number, at most, is the last one; a load has fewer.
_LAST_CALL: Final = 12
_BROKER_KILLS: Final = 0.15
_DEADLINE_SECONDS: Final = 600


@dataclass
class Kills:
    """What was done to one sink.

    Attributes:
        drivers: how often its driver was killed, alone or with everything else.
        sessions: how often the JVM was killed with it.
        at_calls: of its drivers, those that ended at a call, by the call.
        racing: how many drivers there were, if several loads raced.
        lost: races that were lost.
        done: loads and micro-batches that were committed before a kill.
        failed: those that failed with the broker.
    """

    drivers: int = 0
    sessions: int = 0
    at_calls: Counter[str] = field(default_factory=Counter)
    racing: int = 0
    lost: int = 0
    done: int = 0
    failed: int = 0

    def figures(self) -> dict[str, Any]:
        """All of it, for a report."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return found | {"at_calls": dict(sorted(self.at_calls.items()))}


class _Session:
    """A JVM and its session."""

    def __init__(self, context: Any, run: Run) -> None:
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=hold_session, args=(run, there))
        self._process.start()
        there.close()
        errors = run.folder / "session.err"
        assert self._pipe.poll(_DEADLINE_SECONDS), errors.read_text(encoding="utf-8")[-3000:]
        self.reached: tuple[int, str] = self._pipe.recv()

    def kill(self) -> None:
        """End all of it without warning; does nothing if it has ended."""
        if self._process.is_alive():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join(60)
        self._pipe.close()


class _Drivers:
    """Drivers of the same sinks at once."""

    def __init__(self, context: Any, chance: random.Random, run: Run) -> None:
        self._context = context
        self._chance = chance
        self._run = run
        self._processes: list[Any] = []
        self._names: dict[Connection, tuple[str, ...]] = {}
        self._ends_at_call = False

    def start(self, session: _Session, names: tuple[str, ...], last_call: int = 0) -> None:
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=drive, args=(self._run, session.reached, names, last_call, there), daemon=True
        )
        process.start()
        there.close()
        self._processes.append(process)
        self._names[here] = names
        self._ends_at_call |= last_call > 0

    def run_until_one_ends(self, kills: Mapping[str, Kills]) -> None:
        """Wait until one ends at its call, or a few things got done and some time is over."""
        left = self._chance.randint(0, 4)
        while left > 0 or self._ends_at_call:
            ready = wait(list(self._names), _DEADLINE_SECONDS)
            assert ready, "nothing gets done"
            for pipe in ready:
                assert isinstance(pipe, Connection)
                word, of = pipe.recv(), kills[self._names[pipe][0]]  # EOFError: it ended by itself
                left -= 1
                if word in ("done", "lost", "failed"):
                    setattr(of, word, getattr(of, word) + 1)
                elif word != "none":
                    of.at_calls[word] += 1
                    return
        threading.Event().wait(self._chance.random() * 0.7)  # any moment is as good

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(60)
        for pipe in self._names:
            pipe.close()
        self._processes.clear()
        self._names.clear()


class _Check:
    def __init__(self, run: Run, chance: random.Random, kill_broker: Callable[[], None]) -> None:
        self.kills = {name: Kills() for name in run.sinks}
        self.broker_kills = 0
        self._run = run
        self._chance = chance
        self._kill_broker = kill_broker
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["session_drivers"])
        self._ours = [name for name in run.sinks if not name.startswith(_SPARKS)]
        self._sparks = tuple(name for name in run.sinks if name.startswith(_SPARKS))

    def run(self, kills: int) -> None:
        """Kill the driver of each sink that often; and sessions, in the end of their lives."""
        for life in range(kills):
            session = _Session(self._context, self._run)
            try:
                if life % _LIVES == 0:
                    for _ in range(min(_LIVES, kills - life)):
                        for name in self._chance.sample(self._ours, len(self._ours)):
                            self._kill_drivers(session, name)
                self._kill_session(session, self._ours[life % len(self._ours)])
            finally:
                session.kill()

    def drain(self) -> None:
        """Bring each sink to the end of the topic."""
        session = _Session(self._context, self._run)
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=drain, args=(self._run, session.reached, there), daemon=True
        )
        process.start()
        there.close()
        try:
            for name in self._run.sinks:
                assert here.poll(_DEADLINE_SECONDS)
                assert here.recv() == name, "it ended by itself"
        finally:
            process.kill()
            process.join(60)
            here.close()
            session.kill()

    def stop(self) -> None:
        """End what would live as long as this process."""
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]

    def _kill_drivers(self, session: _Session, name: str) -> None:
        """Kill drivers of one sink, which is one driver unless it is a load."""
        of, drivers = self.kills[name], _Drivers(self._context, self._chance, self._run)
        racing = self._chance.choice((1, 2, 3)) if name.startswith("load") else 1
        of.drivers += 1
        of.racing += racing if racing > 1 else 0
        try:
            for _ in range(racing):
                is_chosen = self._chance.random() < 0.5
                drivers.start(
                    session, (name,), self._chance.randint(1, 2 * _LAST_CALL) if is_chosen else 0
                )
            if self._chance.random() < _BROKER_KILLS:
                self._kill_broker()
                self.broker_kills += 1
            drivers.run_until_one_ends(self.kills)
        finally:
            drivers.kill()

    def _kill_session(self, session: _Session, with_this: str) -> None:
        """Kill a JVM in the midst of its own commits, and those of a driver beside it."""
        for name in (*self._sparks, with_this):
            self.kills[name].drivers += 1
            self.kills[name].sessions += 1
        drivers = _Drivers(self._context, self._chance, self._run)
        try:
            drivers.start(session, self._sparks)
            drivers.start(session, (with_this,))
            drivers.run_until_one_ends(self.kills)
        finally:
            session.kill()
            drivers.kill()


def check_sessions(
    port: int,
    folder: Path,
    seed: int,
    kills: int,
    s3: S3Server,
    kill_broker: Callable[[], None],
) -> tuple[dict[str, Kills], dict[str, int]]:
    """Kill drivers, sessions and the broker; then each message must be in each sink exactly once.

    Args:
        port: of the broker, which keeps it.
        folder: for whatever is written.
        seed: of the moments.
        kills: how many of each sink's drivers.
        s3: a server for the sinks that aren't on this disk.
        kill_broker: kills the broker and starts it again.

    Returns:
        What was done to each sink, and what was counted.
    """
    folder.mkdir()
    kinds = (*_OURS, _SPARKS)
    sinks = {name: str(folder / name) for name in kinds}
    sinks |= {f"{name}-s3": s3.address_of(f"{folder.name}/{name}") for name in kinds}
    environment = {**spark_environment(), **s3.environment}
    run = Run(folder, f"127.0.0.1:{port}", sinks, s3.storage, environment)
    check = _Check(run, random.Random(seed), kill_broker)
    produced = Load(port, pause_seconds=0.25)
    try:
        try:
            check.run(kills)
        finally:
            produced.stop()
        check.drain()
    finally:
        check.stop()
    stored = Counter(stored_values(port))
    assert produced.values
    assert set(produced.values) <= stored.keys()
    for name, address in sinks.items():
        there = Path(address)
        if name.endswith("-s3"):
            there = s3.copy_out(f"{folder.name}/{name.removesuffix('-s3')}", folder / "copies")
        check_values(there, stored, f"seed {seed}, {name}")
        shutil.rmtree(folder / "copies", ignore_errors=True)
        if name.startswith("load"):
            storage = run.storage_of(name)
            clean_up(address, storage=storage)
            assert clean_up(address, storage=storage).removed_bytes == 0
    return check.kills, {"messages": stored.total(), "broker_kills": check.broker_kills}
