"""A directory of this machine, or one that it mounts; a hard link creates if absent."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from hermes.spark.file_system import LocalFileSystem, ancestors, create_durably
from hermes.spark.stores.store import StoredFile, innermost_first


class LocalStore:
    """A directory, by its absolute path; it may not exist yet."""

    def __init__(self, path: Path, files: LocalFileSystem | None = None) -> None:
        self.path = path
        self.files = files or LocalFileSystem()

    def place(self, name: str = "") -> Path:
        return self.path / name

    def url(self, name: str = "") -> str:
        return f"file://{self.path / name}"

    def read(self, name: str) -> bytes | None:
        return self.files.read(self.path / name)

    def spark_settings(self, spark: Any) -> Mapping[str, str]:
        return {}

    def delta_table(self) -> tuple[str, None]:
        return str(self.path), None

    def open(self, name: str, size_bytes: int | None = None) -> BinaryIO:
        return open(self.path / name, "rb")

    def names(self, directory: str = "", after: str = "") -> list[str]:
        return [each for each in self.files.names(self.path / directory) if each > after]

    def walk(self, directory: str = "") -> list[StoredFile]:
        found = []
        for folder, _, names in os.walk(self.path / directory):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # its owner may have removed it meanwhile
                    status = path.stat()
                    relative = path.relative_to(self.path).as_posix()
                    found.append(StoredFile(relative, status.st_size, int(status.st_mtime * 1000)))
        return sorted(found)

    def prepare(self, *directories: str) -> None:
        for each in directories:
            self.files.make_directories(self.path / each)
        for folder in _parents(directories):
            self.files.sync(self.path / folder)
        for path in ancestors(self.path):
            self.files.sync(path)

    def create(self, name: str, content: bytes) -> bool:
        return create_durably(self.files, self.path / name, content)

    def make_directory(self, directory: str) -> None:
        self.files.make_directories(self.path / directory)

    def flush(self, names: Iterable[str]) -> None:
        for each in names:
            with suppress(FileNotFoundError):
                self.files.sync(self.path / each)

    def flush_tree(self, directory: str) -> None:
        for folder, _, names in os.walk(self.path / directory, topdown=False):
            for name in names:
                self.files.sync(Path(folder, name))
            self.files.sync(Path(folder))
        for parent in _parents([directory]):
            self.files.sync(self.path / parent)

    def delete(self, name: str) -> None:
        self.files.unlink(self.path / name)

    def delete_tree(self, directory: str) -> None:
        self.files.remove_tree(self.path / directory)

    def delete_empty(self, directory: str) -> None:
        for each in innermost_first(directory):
            if not self.files.remove_empty(self.path / each):
                return

    def move(self, source: str, target: str) -> None:
        name, new_name = self.path / source, self.path / target
        while True:
            self.files.make_directories(new_name.parent)
            try:
                self.files.rename(name, new_name)
            except FileNotFoundError:
                if not name.exists():
                    raise
                continue  # the directory was empty, and somebody else has removed it
            return


def _parents(names: Iterable[str]) -> list[str]:
    """The directories above some others within a store, the deepest first; the root is last."""
    found = {each.as_posix() for name in names for each in PurePosixPath(name).parents}
    return sorted(found, key=lambda each: (-each.count("/"), each == ".", each))
