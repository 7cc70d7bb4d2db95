"""A directory in a file layer, for tests that hold of every layer."""

from collections.abc import Callable
from pathlib import Path

from memory_files import MemoryFiles
from storage_fakes import WatchedFiles

from hermes.storage.files import read_exactly, write_all


class Place:
    """A file layer, and a directory in it."""

    def __init__(self, files: MemoryFiles | WatchedFiles, root: str) -> None:
        self.files = files
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: bytes) -> None:
        descriptor = self.files.open_append(self.path(name), create=True)
        self.files.ftruncate(descriptor, 0)
        write_all(self.files, descriptor, [data], 0)
        self.files.close(descriptor)

    def read(self, name: str) -> bytes:
        descriptor = self.files.open_read(self.path(name))
        try:
            return read_exactly(self.files, descriptor, 1 << 20, 0)
        finally:
            self.files.close(descriptor)

    def names(self, name: str = ".") -> list[str]:
        return sorted(self.files.listdir(self.path(name)))

    def kill(self) -> None:
        """End the process that has files open here."""
        self.files.close_all()


#: Makes a place of each kind below a test's own directory.
PLACES: dict[str, Callable[[Path], Place]] = {
    "operating system": lambda path: Place(WatchedFiles(), str(path)),
    "memory": lambda path: Place(MemoryFiles(), "/data"),
}
