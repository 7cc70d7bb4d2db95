"""A file read by ranges, for libraries that want a seekable file."""

import io
from collections.abc import Callable
from typing import BinaryIO, cast


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


def range_file(size_bytes: int, read_range: Callable[[int, int], bytes]) -> BinaryIO:
    """Make a file of a function.

    Args:
        size_bytes: how large it is.
        read_range: returns the bytes from a position on, of a length of 1 or more within the file.
    """
    return cast(BinaryIO, _RangeFile(size_bytes, read_range))
