"""Where a target's loads are committed: the contract, and the one for plain Parquet.

A commit is one atomic act that says both which data count and where the next load starts.
"""

from typing import Protocol

from hermes.errors import LoadTargetError
from hermes.spark.load.records import Committed, Manifest
from hermes.spark.load.target import ATTEMPT, MANIFESTS, LoadTarget, manifest_name, numbered


class Commits(Protocol):
    """The committed loads of a target."""

    def last(self) -> Committed:
        """How far the target has come. Raises LoadTargetError when its record is damaged."""

    def commit(self, manifest: Manifest) -> bool:
        """Commit a load whose data are on the disk; False when another attempt at it was first."""

    def directories(self) -> dict[int, str]:
        """The directories of the committed loads, by number, relative to the target.

        Loads whose record has expired are left out.
        """


def open_commits(target: LoadTarget) -> Commits:
    """Find where a target's loads are committed.

    Raises:
        LoadError: a Delta table needs a package that isn't installed.
    """
    if target.settings.sink == "parquet":
        return ManifestCommits(target)
    from hermes.spark.load.delta_commits import DeltaCommits  # needs the extra `delta`

    return DeltaCommits(target)


class ManifestCommits:
    """Commits by manifests; as `Commits`."""

    def __init__(self, target: LoadTarget) -> None:
        self._target = target

    def last(self) -> Committed:
        """As `Commits.last`."""
        number = len(self._numbers())
        if not number:
            return Committed(0, {})
        return Committed(number, self._manifest(number).offsets)

    def commit(self, manifest: Manifest) -> bool:
        """As `Commits.commit`."""
        return self._target.store.create(manifest_name(manifest.number), manifest.encode())

    def directories(self) -> dict[int, str]:
        """As `Commits.directories`."""
        return {number: self._manifest(number).directory for number in self._numbers()}

    def _numbers(self) -> list[int]:
        """The numbers of the committed loads: 1, 2, 3 and so on."""
        names = self._target.store.names(MANIFESTS)
        numbers = [number for name in names if (number := numbered(name)) is not None]
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                path = self._target.place(manifest_name(expected))
                raise LoadTargetError(f"{path} is missing: restore it from a copy")
        return numbers

    def _manifest(self, number: int) -> Manifest:
        path = self._target.place(manifest_name(number))
        advice = (
            "restore it from a copy: without it the data of this load can't be told from those of "
            "attempts that failed"
        )
        content = self._target.store.read(manifest_name(number)) or b""
        manifest = Manifest.decode(content, str(path), advice)
        directory = ATTEMPT.fullmatch(manifest.directory)
        if manifest.number != number or directory is None or int(directory[1]) != number:
            raise LoadTargetError(f"{path} is damaged (it is not of load {number}); {advice}")
        return manifest
