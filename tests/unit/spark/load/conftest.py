"""A file system that ends the program at any step, and forgets what was not flushed."""

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hermes.spark.delta.table import open_table, table_files
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.commits import Commits, JournalCommits
from hermes.spark.load.delta_commits import DeltaCommits
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.load.loaded import published_state
from hermes.spark.load.plans import LoadCheckpoint, LoadManifest, Piece, Plan
from hermes.spark.offsets import TopicPartition
from hermes.spark.parquet import DataFile
from hermes.spark.stores import LocalStore

Result = TypeVar("Result")

CLICKS = TopicPartition("clicks", 0, 0)


class Killed(BaseException):
    """The end of the program: no clean-up of the code under test may see it as an error."""


class MortalFiles(LocalFileSystem):
    """Ends the program at a step, or fails it.

    Attributes:
        steps: how many steps were begun.
        last_step: the step to end at, counted from 1; 0 for none.
        is_after: whether to end behind that step, not before.
        failure: what to raise there.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.last_step = 0
        self.is_after = False
        self.failure: BaseException = Killed()
        self._unsynced_content: set[Path] = set()
        self._unsynced_names: set[Path] = set()
        self._unsynced_moves: dict[Path, Path] = {}
        self._unsynced_removals: dict[Path, bytes] = {}

    def lose_power(self) -> None:
        """Forget what was not flushed: half the content of files, and names in directories.

        Data files that were moved, or removed, are where they were.
        """
        for path, source in self._unsynced_moves.items():
            if path.exists():
                source.parent.mkdir(parents=True, exist_ok=True)
                path.rename(source)
        for path, content in self._unsynced_removals.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._unsynced_moves.clear()
        self._unsynced_removals.clear()
        for path in self._unsynced_content:
            if path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        for path in self._unsynced_names:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._unsynced_content.clear()
        self._unsynced_names.clear()

    def write(self, path: Path, content: bytes) -> None:
        self.note_unsynced(path)
        self.step(super().write, path, content)

    def sync(self, path: Path) -> None:
        self.step(super().sync, path)
        self._unsynced_content.discard(path)
        self._unsynced_names -= {each for each in self._unsynced_names if each.parent == path}
        for unsynced in (self._unsynced_moves, self._unsynced_removals):
            for each in [each for each in unsynced if each.parent == path]:
                del unsynced[each]

    def link(self, source: Path, target: Path) -> None:
        self.step(self._link, source, target)

    def unlink(self, path: Path) -> None:
        self.step(self._unlink, path)
        self._unsynced_content.discard(path)
        self._unsynced_names.discard(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step(self._rename, source, target)

    def make_directories(self, path: Path) -> None:
        missing = {each for each in (path, *path.parents) if not each.exists()}
        self.step(super().make_directories, path)
        self._unsynced_names |= missing

    def remove_empty(self, path: Path) -> bool:
        return self.step(super().remove_empty, path)

    def remove_tree(self, path: Path) -> None:
        self.step(super().remove_tree, path)

    def note_unsynced(self, path: Path) -> None:
        """A file that is new, and not flushed."""
        self._unsynced_content.add(path)
        self._unsynced_names.add(path)

    def step(self, action: Callable[..., Result], *arguments: Any) -> Result:
        """Do something that the program may end before, or after."""
        self.steps += 1
        is_last = self.steps == self.last_step
        if is_last and not self.is_after:
            raise self.failure
        result = action(*arguments)
        if is_last:
            raise self.failure
        return result

    def _unlink(self, path: Path) -> None:
        if path.suffix == ".parquet" and path.exists():
            self._unsynced_removals[path] = path.read_bytes()
        super().unlink(path)

    def _rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._unsynced_moves[target] = source

    def _link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._unsynced_names.add(target)
        if source in self._unsynced_content:
            self._unsynced_content.add(target)


class MortalDeltaCommits(DeltaCommits):
    """The commit, which the files know nothing of, is a step as well."""

    def __init__(self, target: LoadTarget) -> None:
        super().__init__(target)
        assert isinstance(target.store, LocalStore)
        self._files = target.store.files

    def commit(self, manifest: LoadManifest, files: Sequence[DataFile]) -> bool:
        if isinstance(self._files, MortalFiles):
            return self._files.step(super().commit, manifest, files)
        return super().commit(manifest, files)


class Topic:
    """A topic of one partition whose messages are numbers; each is 10 bytes of the log."""

    def __init__(self, root: Path, files: MortalFiles) -> None:
        self.root = root
        self.count = 0
        self.now_ms = 1_700_000_000_000
        self._files = files

    def plan(self, last: LoadCheckpoint) -> Plan | None:
        """As `make_plan`, with a folder for each message that is a multiple of 3."""
        start, end = last.offsets.get(CLICKS, 0) // 10, self.count
        if start == end:
            return None
        cuts = sorted({start, end, *(n for n in range(start, end) if n % 3 == 0)})
        pieces = tuple(
            Piece(CLICKS, a * 10, b * 10, f"2023-11-{self.now_ms % 20 + 1:02}")
            for a, b in pairwise(cuts)
        )
        return Plan(last.number + 1, self.now_ms, "day", pieces, {CLICKS: end * 10})

    def write(self, plan: Plan, directory: str) -> int:
        """As Spark's tasks: a file for each piece, none of them flushed."""
        count = 0
        for number, piece in enumerate(plan.pieces):
            folder = self.root / directory / f"topic=clicks/day={piece.period}"
            self._files.make_directories(folder)
            messages = list(range(piece.start // 10, piece.end // 10))
            path = folder / f"part-{number}.parquet"
            self._files.note_unsynced(path)
            pq.write_table(pa.table({"message": messages}), path)
            count += len(messages)
        return count


@pytest.fixture
def files() -> MortalFiles:
    return MortalFiles()


@pytest.fixture
def topic(tmp_path: Path, files: MortalFiles) -> Topic:
    return Topic(tmp_path / "target", files)


@pytest.fixture
def target(tmp_path: Path, files: MortalFiles) -> LoadTarget:
    return LoadTarget(LocalStore(tmp_path / "target", files), TargetSettings())


@pytest.fixture
def commits_of() -> Callable[[LoadTarget], Commits]:
    """Opens the commits of a target."""
    return lambda target: (
        JournalCommits(target) if target.settings.sink == "parquet" else MortalDeltaCommits(target)
    )


@pytest.fixture
def loaded() -> Callable[[LoadTarget], list[int]]:
    """Reads the messages that count, sorted; of Parquet, what a glob finds below `data`."""

    def read(target: LoadTarget) -> list[int]:
        root = target.store.path
        assert root is not None
        if target.settings.sink == "delta":
            table = open_table(target.store)
            names = [] if table is None else [name for name, _ in table_files(table)]
        else:
            names = sorted(p.relative_to(root).as_posix() for p in root.glob("data/**/*.parquet"))
            assert names == sorted(published_state(target).files)
        tables = (pq.ParquetFile(root / name).read()["message"] for name in names)
        return sorted(message for each in tables for message in each.to_pylist())

    return read


@pytest.fixture
def killed() -> type[Killed]:
    return Killed
