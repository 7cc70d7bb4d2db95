"""Where a load is committed: the contract, and the one for plain Parquet.

A commit is one atomic act that says both which data count and where the next load starts.
"""

import re
from typing import NamedTuple, Protocol

from hermes.errors import LoadTargetError
from hermes.spark.load.files import publish
from hermes.spark.load.manifests import Manifest
from hermes.spark.load.target import LoadTarget, numbered
from hermes.spark.offsets import Offsets

__all__ = ["Committed", "ParquetSink", "Sink"]


class Committed(NamedTuple):
    """How far a target has come.

    Attributes:
        number: of the last load; 0 before the first.
        offsets: where the next one starts, for every partition that was ever loaded.
    """

    number: int
    offsets: Offsets


class Sink(Protocol):
    """The loads of a target that are committed."""

    def last(self) -> Committed:
        """How far the target has come. Raises LoadTargetError when its record is damaged."""

    def commit(self, manifest: Manifest) -> bool:
        """Commit a load whose data are on the disk.

        Returns:
            Whether it was committed; False when another attempt at the same load was first.
        """

    def directories(self) -> dict[int, str]:
        """The directories of the loads that are committed, by number, relative to the target.

        Loads about which nothing is known any more are left out.
        """


class ParquetSink:
    """Commits by manifests.

    Args:
        target: where they stand.
    """

    def __init__(self, target: LoadTarget) -> None:
        self._target = target

    def last(self) -> Committed:
        """As `Sink.last`."""
        number = len(self._numbers())
        if not number:
            return Committed(0, {})
        return Committed(number, self.manifest(number).offsets)

    def manifest(self, number: int) -> Manifest:
        """The manifest of a load that is committed. Raises LoadTargetError when it is damaged."""
        path = self._target.manifests / f"{number:020d}.json"
        advice = (
            "restore it from a copy: without it the data of this load can't be told from those of "
            "attempts that failed"
        )
        content = self._target.files.read(path)
        manifest = Manifest.decode(content or b"", str(path), advice)
        known = re.fullmatch(rf"data/load={number:020d}/attempt=[0-9a-f]{{8}}", manifest.directory)
        if manifest.number != number or not known:
            raise LoadTargetError(f"{path} is damaged (it is not of load {number}); {advice}")
        return manifest

    def manifests(self) -> list[Manifest]:
        """The manifests of all loads, in their order."""
        return [self.manifest(number) for number in self._numbers()]

    def commit(self, manifest: Manifest) -> bool:
        """As `Sink.commit`."""
        path = self._target.manifests / f"{manifest.number:020d}.json"
        return publish(self._target.files, path, manifest.encode())

    def directories(self) -> dict[int, str]:
        """As `Sink.directories`."""
        return {each.number: each.directory for each in self.manifests()}

    def _numbers(self) -> list[int]:
        """The numbers of the loads that are committed: 1, 2, 3 and so on."""
        names = self._target.files.names(self._target.manifests)
        numbers = [number for name in names if (number := numbered(name)) is not None]
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                path = self._target.manifests / f"{expected:020d}.json"
                raise LoadTargetError(f"{path} is missing: restore it from a copy")
        return numbers
