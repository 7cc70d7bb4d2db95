"""Loads, compactions, expiries and clean-ups of one target, each of which may end at any step.

The store is in memory, and does no more than object stores do. One thread runs at a time, and a
random choice says which one takes the next step, and whether it is killed there, or told that the
step failed although it was done, or although it is done only later.
"""

import io
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pyarrow.parquet as pq
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from loaded_topic import CLICKS, SIZE, LoadedTopic
from memory_store import MemoryStore

import hermes.spark.load.journal
from hermes.errors import LoadError
from hermes.spark.load import (
    clean_up,
    cleaning,
    compact,
    compacting,
    expire,
    expiring,
    verify,
    verifying,
)
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_snapshot import JournalSnapshot
from hermes.spark.load.load_target import LoadTarget

Result = TypeVar("Result")

MESSAGES = 24
PER_DAY = 6


class Killed(BaseException):
    """The end of a program: no clean-up of the code under test may see it as an error."""


class Actor:
    """A program: a thread that takes a step when it is told to."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.fate = ""
        self.is_done = False
        self.error: BaseException | None = None
        self._run = run
        self._may_go = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._waits.acquire()

    def take_step(self, fate: str) -> None:
        """Let it go on until it wants to do the next step."""
        self.fate = fate
        self._may_go.release()
        self._waits.acquire()

    def wait(self) -> str:
        """Called in the thread: wait for the next turn."""
        self._waits.release()
        self._may_go.acquire()
        return self.fate

    def _main(self) -> None:
        _here.actor = self
        try:
            self._run()
        except (Killed, LoadError, OSError):
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self._waits.release()


_here = threading.local()


class SharedStore(MemoryStore):
    """Takes turns.

    Attributes:
        is_atomic: whether a move is one step, as on file systems; else it is a copy.
        late: changes that were reported as failed, and happen later.
    """

    def __init__(self, is_atomic: bool) -> None:
        super().__init__()
        self.is_atomic = is_atomic
        self.late: list[Callable[[], object]] = []

    def step(self, action: Callable[[], Result]) -> Result:
        actor = getattr(_here, "actor", None)
        if actor is None:
            return super().step(action)
        fate = actor.wait()
        if fate == "late":
            self.late.append(action)
            raise OSError("no answer")
        if fate == "killed":
            raise Killed
        result = super().step(action)
        if fate == "failed":
            raise OSError("no answer")
        return result

    def catch_up(self) -> None:
        """Let the oldest late change happen, if there is one."""
        if self.late:
            with suppress(FileNotFoundError):
                self.late.pop(0)()

    def move(self, source: str, target: str) -> None:
        if not self.is_atomic:
            super().move(source, target)
            return

        def rename() -> None:
            if source not in self.objects:
                raise FileNotFoundError(source)
            self.objects[target] = self.objects.pop(source)
            self.times_ms[target] = self.times_ms.pop(source)

        self.step(rename)


class World:
    """A target, and the programs that work on it."""

    def __init__(self, seed: int, is_atomic: bool) -> None:
        self.chance = random.Random(seed)
        self.store = SharedStore(is_atomic)
        self.topic = LoadedTopic(PER_DAY)
        self._first_kept = 1
        self._messages: dict[str, list[int]] = {}
        self._checked: list[str] = []

    def opened(self, *_: object) -> LoadTarget:
        """In place of `open_target`, which knows addresses."""
        found = LoadTarget.find(self.store)
        if found is None:
            raise LoadError("nothing yet")
        return found

    def program(self) -> Actor:
        kinds = [self.load, self.load, self.load, self.compact, self.expire, self.clean, self.read]
        return Actor(self.chance.choice(kinds))

    def load(self) -> None:
        self.topic.count = min(MESSAGES, self.topic.count + self.chance.randint(0, 4))
        self.topic.load(self.store)

    def compact(self) -> None:
        compact("memory")

    def expire(self) -> None:
        self._first_kept = max(self._first_kept, self.chance.randint(1, 3))
        expire("memory", f"2023-11-{self._first_kept:02}", clock=lambda: 1_700_000_000.0)

    def clean(self) -> None:
        clean_up("memory")

    def read(self) -> None:
        self._check_state(Journal(self.store).read())

    def check(self) -> None:
        """What holds at any moment."""
        names = [name for name in self.store.objects if not name.startswith("_hermes/attempts/")]
        if names == self._checked:
            return
        self._checked = names
        journal = Journal(self.store)
        state = journal.read()
        sources = {each.file.name: each.source for _, e in journal._entries for each in e.added}
        for name in state.files:
            if name not in self._messages:
                content = self.store.objects.get(name) or self.store.objects[sources[name]]
                table = pq.ParquetFile(io.BytesIO(content)).read(columns=["value"])
                self._messages[name] = [int(value) for value in table["value"].to_pylist()]
        self._check_state(state)
        in_glob = [name for name in names if name.startswith("data/")]
        assert set(in_glob) <= self._messages.keys(), "what isn't committed is where others look"
        if self.store.is_atomic:
            found = [n for name in in_glob for n in self._messages[name]]
            assert len(found) == len(set(found)), "a glob finds a message twice"

    def _check_state(self, state: JournalSnapshot) -> None:
        loaded = [n for name in state.files for n in self._messages[name]]
        assert len(loaded) == len(set(loaded)), "a message counts twice"
        missing = set(range(state.offsets.get(CLICKS, 0) // SIZE)) - set(loaded)
        kept = max((int(each.before[-2:]) for each in state.expiries), default=1)
        assert all(n // PER_DAY + 1 < kept for n in missing), "a message is missing"

    def end(self) -> None:
        """Afterwards the next programs put everything in order."""
        while self.store.late:
            self.store.catch_up()
        self.topic.count = MESSAGES
        for _ in range(2):
            self.topic.load(self.store)
        compact("memory")
        self._checked = []
        self.check()
        clean_up("memory")
        outcome = verify("memory")
        assert (outcome.problems, outcome.notes) == ([], [])
        state = Journal(self.store).read()
        assert state.offsets == {CLICKS: MESSAGES * SIZE}
        assert {n for n in self.store.objects if n.startswith("data/")} == state.files.keys()
        assert not [n for n in self.store.objects if n.startswith("_hermes/attempts/")]


@pytest.mark.parametrize("is_atomic", [True, False], ids=["moves", "copies"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_whatever_ends_wherever_each_message_counts_once(is_atomic: bool, seed: int) -> None:
    world = World(seed, is_atomic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hermes.spark.load.journal, "SUMMARY_INTERVAL", 3)
        for module in (cleaning, compacting, expiring, verifying):
            patch.setattr(module, "open_target", world.opened)
        programs: list[Actor] = []
        started = 0
        while started < 14 or programs:
            if started < 14 and len(programs) < 3:
                programs.append(world.program())
                programs[-1].start()
                started += 1
            program = world.chance.choice(programs)
            for _ in range(world.chance.choice([1, 3, 10, 40])):
                fate = world.chance.random()
                is_hit = world.chance.random() < 0.02
                fates = ["killed", "failed", "late"]
                program.take_step(fates[int(fate * 3)] if is_hit else "")
                if world.chance.random() < 0.05:
                    world.store.catch_up()
                world.check()
                if program.is_done:
                    programs.remove(program)
                    if program.error is not None:
                        raise program.error
                    break
        world.end()
