"""The interface of a store.

What loads rely on is `create`: of several writers of a name exactly one wins, and a name, once it
exists, always stands for the whole content. Knows nothing of Spark.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias

Place: TypeAlias = Path | str
"""Where something is: a path of this machine, or an address as it was given."""


class StoredFile(NamedTuple):
    name: str
    size_bytes: int
    modified_ms: int


class FileStore(Protocol):
    """Files below a root. Names are relative to it, with `/`; "" is the root itself."""

    @property
    def path(self) -> Path | None:
        """The root as a directory of this machine; None where it is none."""

    def place(self, name: str = "") -> Place:
        """Where something is, for results and messages: an address as it was given."""

    def url(self, name: str = "") -> str:
        """The address that Spark reads and writes. It holds no credentials."""

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None when there is none."""

    def spark_settings(self, spark: Any) -> Mapping[str, str]:
        """What a session must be set to before Spark uses `url`; it may hold secrets.

        LoadError, which says how to start it, if it lacks the file system.
        """

    def delta_table(self) -> tuple[str, dict[str, str] | None]:
        """What deltalake calls the root, and its `storage_options`, which may hold secrets.

        LoadTargetError if it can't commit to such a store.
        """

    def open(self, name: str, size_bytes: int | None = None) -> BinaryIO:
        """Open a file to read parts of, such as the end of a Parquet file; the caller closes it.

        Knowing its size saves a request. Raises FileNotFoundError.
        """

    def names(self, directory: str = "", after: str = "") -> list[str]:
        """The names of files and directories in a directory, sorted; none when it is missing.

        Only those behind `after`: object stores list no others then. Raises NotADirectoryError.
        """

    def walk(self, directory: str = "") -> list[StoredFile]:
        """All files in a directory and those below it, sorted by name; none when it is missing."""

    def prepare(self, *directories: str) -> None:
        """Make directories, durably. LoadTargetError if `create` can't be relied on."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a file, whole and durable, if its name is free. Its directory was prepared.

        False when the name stands for another content: that file is left as it is. LoadTargetError
        if the store can't do this, or doesn't permit it. After an OSError nothing remains, unless
        the name was given already.
        """

    def make_directory(self, directory: str) -> None:
        """Make a directory for data, and its missing parents, not yet durable."""

    def flush(self, names: Iterable[str]) -> None:
        """Make files, or the names in directories, durable; missing ones are skipped."""

    def flush_tree(self, directory: str) -> None:
        """Make all that is in a directory durable, and the names of it and its parents."""

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is not an error."""

    def delete_tree(self, directory: str) -> None:
        """Remove a directory and everything in it; a missing one is not an error."""

    def delete_empty(self, directory: str) -> None:
        """Remove a directory in which nothing is, and those above it that it leaves empty.

        The outermost one stays. What others move there meanwhile is safe: see `move`.
        """

    def move(self, source: str, target: str) -> None:
        """Give a file another name, which nothing has; its directory is made.

        Readers see it under one of the names at least; object stores copy it first. Durable once
        both directories, and those above them, are flushed. The directory is made again if
        somebody's `delete_empty` was faster. Raises FileNotFoundError.
        """


def innermost_first(directory: str) -> list[str]:
    """A directory and those above it, but for the outermost one: `a/b/c` and `a/b`."""
    above = (each.as_posix() for each in PurePosixPath(directory).parents)
    return [each for each in (directory, *above) if "/" in each]
