"""A disk of whose files nothing is in memory, and who waits for it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred

from hermes.storage import FileLayer, NotInMemoryError


class ColdDisk:
    """Notes what the reactor's thread waits for: reads and opens that no thread has done before.

    Args:
        monkeypatch: puts `FileLayer` back.

    Attributes:
        waited: what it has waited for.
        opened: the files that threads have opened meanwhile.
        read_count: how often they have read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited: list[str] = []
        self.opened: list[str] = []
        self.read_count = 0
        self._in_memory: set[tuple[int, int]] = set()  # (file, position)
        self._is_thread = self._is_watching = False
        monkeypatch.setattr(FileLayer, "pread", staticmethod(self._pread))
        # As functions, so that a file layer is their first argument.
        monkeypatch.setattr(
            FileLayer, "read_resident", lambda _, *place: self._read_resident(*place)
        )
        for name in ("open_read", "open_append"):
            monkeypatch.setattr(FileLayer, name, self._opening(getattr(FileLayer, name)))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what happens within, with nothing in memory at first."""
        self._in_memory.clear()
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching = False

    def in_thread(self, function: Any, *args: Any) -> Any:
        """Call a function as if in a worker thread."""
        before, self._is_thread = self._is_thread, True
        try:
            return maybeDeferred(function, *args)
        finally:
            self._is_thread = before

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        place = os.fstat(descriptor).st_ino, position
        if self._is_watching and self._is_thread:
            self._in_memory.add(place)
            self.read_count += 1
        elif self._is_watching and place not in self._in_memory:
            self.waited.append(f"a read at {position}")
        return os.pread(descriptor, length, position)

    def _read_resident(self, descriptor: int, length: int, position: int) -> bytes:
        if self._is_watching and (os.fstat(descriptor).st_ino, position) not in self._in_memory:
            raise NotInMemoryError
        return os.pread(descriptor, length, position)

    def _opening(self, method: Callable[..., int]) -> Callable[..., int]:
        def opened(files: FileLayer, path: str, **options: Any) -> int:
            if self._is_watching:
                if self._is_thread:
                    self.opened.append(path)
                elif path not in self.opened:
                    self.waited.append(path)
            return method(files, path, **options)

        return opened
