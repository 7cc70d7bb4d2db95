"""What stores of other machines share: addresses, and files that are read by ranges."""

import io
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, BinaryIO, cast


class RemoteStore:
    """Half of a `FileStore`. What is written there is durable, so nothing is flushed."""

    path = None

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def place(self, name: str = "") -> str:
        return f"{self.address}/{name}" if name else self.address

    def spark_settings(self, spark: Any) -> Mapping[str, str]:
        return {}

    def open(self, name: str, size_bytes: int | None = None) -> BinaryIO:
        size = self.size_bytes(name) if size_bytes is None else size_bytes
        return cast(BinaryIO, _RangeFile(size, partial(self.read_range, name)))

    def make_directory(self, directory: str) -> None: ...

    def flush(self, names: Iterable[str]) -> None: ...

    def flush_tree(self, directory: str) -> None: ...

    def delete_empty(self, directory: str) -> None: ...

    def size_bytes(self, name: str) -> int:
        raise NotImplementedError

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """The bytes from a position on, of a length of 1 or more within the file."""
        raise NotImplementedError


class _RangeFile(io.RawIOBase):
    def __init__(self, size_bytes: int, read_range: Callable[[int, int], bytes]) -> None:
        self._size_bytes = size_bytes
        self._read_range = read_range
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = max(0, start[whence] + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size_bytes - self._position)
        count = left if size is None or size < 0 else min(size, left)
        found = self._read_range(self._position, count) if count else b""
        self._position += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()
