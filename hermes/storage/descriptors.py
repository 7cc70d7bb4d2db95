"""Which files of segments are open: a bound on descriptors, and slices that outlive a deletion.

A data directory may hold thousands of partitions with many segments each; few are in use at a time.
`DescriptorCache` opens a file when it is first needed and closes the one that has been idle longest
when more than `max_open` are open. A file in use is never closed: while a slice of it is being
sent, or while it has unflushed bytes (an error that the kernel keeps for the descriptor must reach
the flush). So what is in use at once may exceed the bound.

A file that was opened once is the same when it is opened again: another in its place is refused.

What is written beside a file as often as the file itself (a segment's index) is open as long as it.

The file of a segment that retention deletes is *retired*: it has no name any more, but its
descriptor lives until the last `LogSlice` of it is released.

Any thread may call all methods. The one lock is held for a few instructions, never over an `open`.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from errno import ESTALE
from functools import partial
from typing import TypeVar

from hermes.errors import StorageError
from hermes.storage.files import (
    FileLayer,
    Identity,
    NotInMemoryError,
    identity,
    is_no_descriptor,
)

_Result = TypeVar("_Result")


class SegmentRetiredError(StorageError):
    """The segment was deleted since it was looked up; look up again."""


class CachedFile:
    """A file that a `DescriptorCache` opens when it is needed.

    Attributes:
        path: where the file is. Whoever renames it changes this afterwards.
        identity: what file it is; None before it was opened for the first time.
        beside: the descriptor of the file beside it; -1 while that isn't open.
        beside_ms: when that was opened, by the appends' clock.
    """

    __slots__ = ("beside", "beside_ms", "descriptor", "identity", "is_retired", "path", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity: Identity | None = None
        # These are the cache's, under its lock.
        self.descriptor = self.beside = -1
        self.beside_ms = 0
        self.users = 0
        self.is_retired = False


class DescriptorCache:
    """Opens files on demand and keeps at most `max_open` idle and busy ones together."""

    def __init__(self, files: FileLayer, max_open: int = 1024) -> None:
        self._files = files
        self.max_open = max_open
        self._lock = threading.Lock()
        # Open files without a user, the one idle longest first.
        self._idle: dict[CachedFile, None] = {}
        # How many are open, and how many beside them: both count.
        self.open_count = self._beside_count = 0

    def acquire(self, file: CachedFile, *, writable: bool = False, resident: bool = False) -> int:
        """Get a file's descriptor, which the cache keeps open until the matching `release`.

        Args:
            writable: open it for writing too. A log passes this for every use of its active
                segment, so that one descriptor serves both.
            resident: open nothing, so that it waits for no disk.

        Raises:
            NotInMemoryError: it is to be `resident` and isn't open.
            SegmentRetiredError: it was deleted meanwhile.
            OSError: it can't be opened.
        """
        lock = self._lock
        lock.acquire()  # by `with` it would take as long as all the rest
        try:
            if file.descriptor >= 0 and not file.is_retired:
                if not file.users:
                    del self._idle[file]
                file.users += 1
                return file.descriptor
        finally:
            lock.release()
        if resident:
            raise NotInMemoryError
        opener = self._files.open_append if writable else self._files.open_read
        try:
            descriptor = self.opening(opener, file.path)
        except FileNotFoundError:
            if file.is_retired:
                raise SegmentRetiredError(f"{file.path} was deleted") from None
            raise
        return self._adopt(file, descriptor)

    def create(self, file: CachedFile) -> int:
        """Create a file (FileExistsError if there is one), open for writing, and acquire it."""
        descriptor = self.opening(self._files.open_new, file.path)
        return self._adopt(file, descriptor)

    def _adopt(self, file: CachedFile, descriptor: int) -> int:
        """Take over a descriptor that was just opened; another thread may have been faster."""
        try:
            opened = identity(self._files.fstat(descriptor))
            if file.identity not in (None, opened):
                raise OSError(ESTALE, f"{file.path} was replaced by another file", file.path)
        except BaseException:
            self._close([descriptor])
            raise
        with self._lock:
            file.identity = opened
            if file.is_retired:
                adopted, surplus = -1, [descriptor]
            else:
                surplus = self._install(file, descriptor)
                adopted = file.descriptor
        self._close(surplus)
        if adopted < 0:
            raise SegmentRetiredError(f"{file.path} was deleted")
        return adopted

    def release(self, file: CachedFile) -> None:
        """Give back one `acquire`. The last one of a retired file closes it."""
        lock = self._lock
        lock.acquire()  # as above
        try:
            file.users -= 1
            if file.users:
                return
            if file.is_retired:
                surplus = self._detach(file)
            else:
                self._idle[file] = None
                if self.open_count + self._beside_count <= self.max_open:
                    return
                surplus = self._evict()
        finally:
            lock.release()
        self._close(surplus)

    def open_beside(self, file: CachedFile, path: str, now_ms: int) -> int:
        """Open, or create, the file beside one that the caller uses, by its name, also again."""
        self.close_beside(file)
        descriptor = self.opening(partial(self._files.open_append, create=True), path)
        with self._lock:
            file.beside, file.beside_ms = descriptor, now_ms
            self._beside_count += 1
            surplus = self._evict()
        self._close(surplus)
        return descriptor

    def close_beside(self, file: CachedFile) -> None:
        if file.beside >= 0:
            with self._lock:
                surplus, file.beside = [file.beside], -1
                self._beside_count -= 1
            self._close(surplus)

    def retire(self, file: CachedFile) -> None:
        """Let nobody acquire a file again: close it now, or at its last release. Idempotent."""
        with self._lock:
            file.is_retired = True
            if file not in self._idle:
                return
            del self._idle[file]
            surplus = self._detach(file)
        self._close(surplus)

    def opening(self, call: Callable[[str], _Result], path: str) -> _Result:
        """Make a call that opens a file; out of descriptors, close the idle ones and call again."""
        try:
            return call(path)
        except OSError as error:
            if not is_no_descriptor(error):
                raise
        self.close_idle()
        return call(path)

    def close_idle(self) -> None:
        with self._lock:
            surplus = [each for file in self._idle for each in self._detach(file)]
            self._idle.clear()
        self._close(surplus)

    def _install(self, file: CachedFile, descriptor: int) -> list[int]:
        """Under the lock: make a descriptor the file's, count a user, say what to close."""
        if file.descriptor < 0:
            file.descriptor = descriptor
            self.open_count += 1
            file.users += 1
            return self._evict()
        if not file.users:
            del self._idle[file]
        file.users += 1
        return [descriptor]

    def _evict(self) -> list[int]:
        """Under the lock: take idle files away until the bound holds or none is idle."""
        surplus = []
        while self.open_count + self._beside_count > self.max_open and self._idle:
            file = next(iter(self._idle))
            del self._idle[file]
            surplus += self._detach(file)
        return surplus

    def _detach(self, file: CachedFile) -> list[int]:
        """Under the lock: forget the descriptors of a file, which the caller closes."""
        found, file.descriptor = [file.descriptor], -1
        self.open_count -= 1
        if file.beside >= 0:
            found.append(file.beside)
            file.beside = -1
            self._beside_count -= 1
        return found

    def _close(self, descriptors: list[int]) -> None:
        # A close that fails has closed nevertheless, and nothing depends on what it says: what
        # matters was synced through this descriptor while somebody used it.
        for descriptor in descriptors:
            with suppress(OSError):
                self._files.close(descriptor)


class LogSlice:
    """A range of visible bytes of one segment, as (descriptor, position, length): for `sendfile`.

    The bytes stay readable until `release`, also when the segment is deleted meanwhile. Its one
    owner releases it once it needs the bytes no more; again does nothing. A context manager.

    Attributes:
        position: where the range starts in the file.
        length: how many bytes; 0 at the visible end; a slice of 0 has no descriptor.
    """

    __slots__ = ("_cache", "_descriptor", "_file", "length", "position")

    def __init__(
        self,
        cache: DescriptorCache | None,
        file: CachedFile | None,
        descriptor: int,
        position: int,
        length: int,
    ) -> None:
        self._cache = cache
        self._file = file
        self._descriptor = descriptor
        self.position = position
        self.length = length

    def fileno(self) -> int:
        """Open until `release`; ValueError without one. Never close it, never move its position."""
        if self._file is None:
            raise ValueError("an empty or released slice has no descriptor")
        return self._descriptor

    def is_of(self, file: CachedFile) -> bool:
        return self._file is file

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._cache is not None:
            self._cache.release(file)

    def __enter__(self) -> "LogSlice":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
