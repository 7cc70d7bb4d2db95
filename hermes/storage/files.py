"""Where storage touches the operating system: one thin object, injected everywhere.

`FileLayer` owns no state. Everything above it takes one as an argument, so that a test can pass one
that fails its nth call, writes short, counts bytes, or forgets what was never synced. Nothing here
retries, buffers or decides.

What is opened is a regular file. Anything else in its place (a link, a pipe, a socket, a device, a
directory) is refused without being followed, waited for or written: whoever may put a name into a
data directory gains no other file by it.

Threads: every method may be called from any thread, as the calls beneath may.
"""

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from errno import (
    EDQUOT,
    EFBIG,
    EINVAL,
    EIO,
    EISDIR,
    ELOOP,
    EMFILE,
    ENFILE,
    ENOSPC,
    ENOTSUP,
    ENXIO,
    EOPNOTSUPP,
)
from functools import cached_property
from stat import S_ISDIR, S_ISREG
from typing import Final

from hermes.errors import DiskFullError, StorageError

#: What `pwritev` takes: anything that exposes contiguous bytes.
Buffer = bytes | bytearray | memoryview

#: How many buffers one `pwritev` may take. POSIX guarantees 16; Linux says 1024.
IOV_MAX: int = max(16, os.sysconf("SC_IOV_MAX"))

#: No more than this is copied into memory to be sent: of more, sending it by `sendfile` is cheaper
#: than copying it is.
FEW_BYTES: Final = 8 * 1024

#: What a file is, whatever its name: its device and inode.
Identity = tuple[int, int]

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# What a file system says that can't be asked.
_UNKNOWN_FLAG = frozenset({EINVAL, ENOTSUP, EOPNOTSUPP})

_CAN_ADVISE = hasattr(os, "posix_fadvise")

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

_NO_ROOM = frozenset({ENOSPC, EDQUOT, EFBIG})
_NO_DESCRIPTOR = frozenset({EMFILE, ENFILE})
# What opening something other than a regular file raises, without following or waiting for it.
_NOT_REGULAR = frozenset({ELOOP, ENXIO, EISDIR})
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class NotInMemoryError(Exception):
    """Something would have to be read from a disk: do it in a worker thread."""


class FileLayer:
    """The calls of the operating system that storage makes, by their POSIX names.

    The hot ones are the functions of `os` themselves, so that a call costs what it costs there.
    Every method raises `OSError`; the callers map it with `storage_error`. `stat` follows links,
    for directories; a file is looked at with `lstat`.
    """

    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    # Where there is no fdatasync (macOS) the stronger call stands in.
    fdatasync = staticmethod(getattr(os, "fdatasync", os.fsync))
    ftruncate = staticmethod(os.ftruncate)
    close = staticmethod(os.close)
    listdir = staticmethod(os.listdir)
    stat = staticmethod(os.stat)
    lstat = staticmethod(os.lstat)
    fstat = staticmethod(os.fstat)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    mkdir = staticmethod(os.mkdir)
    link = staticmethod(os.link)
    fchmod = staticmethod(os.fchmod)
    utime = staticmethod(os.utime)

    @cached_property
    def resident(self) -> "ResidentFiles":
        """The same files, of which only what is in memory is read: one for all logs."""
        return ResidentFiles(self)

    def boot_id(self) -> str:
        """Name this start of the machine; empty where that can't be found out.

        The page cache holds nothing from before another one.
        """
        try:
            with open(_BOOT_ID_PATH, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return ""

    def read_resident(self, descriptor: int, length: int, position: int) -> bytes:
        """Read as `pread` does, but only what is in memory.

        Where that can't be told (the file system, or the operating system) it may wait for a disk.
        Raises NotInMemoryError: the first byte isn't.
        """
        if _NOWAIT:
            data = bytearray(length)
            try:
                read = os.preadv(descriptor, [data], position, _NOWAIT)
                return bytes(data) if read == length else bytes(data[:read])
            except BlockingIOError:
                raise NotInMemoryError from None
            except OSError as error:
                if error.errno not in _UNKNOWN_FLAG:
                    raise
        return self.pread(descriptor, length, position)

    def open_new(self, path: str, mode: int = 0o644) -> int:
        """Create a file (FileExistsError if there is one), open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def open_append(self, path: str, *, create: bool = False) -> int:
        """Open a file, or create it, for reading and writing at positions that the caller knows."""
        return _open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def open_read(self, path: str) -> int:
        return _open_regular(path, os.O_RDONLY)

    def lock(self, descriptor: int) -> None:
        """Lock a file until its descriptor is closed, or the process that has it ends.

        Raises:
            BlockingIOError: somebody else has, here or in another process.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def fsync_directory(self, path: str) -> None:
        """Put on disk which names a directory holds: after create, rename, unlink, mkdir, rmdir."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ResidentFiles(FileLayer):
    """The same files for somebody who must not wait: reads of what isn't in memory are refused."""

    def __init__(self, files: FileLayer) -> None:
        self.pread = files.read_resident
        self.fstat = files.fstat
        self.open_read = files.open_read  # type: ignore[method-assign]
        self.close = files.close


class AsideFiles(FileLayer):
    """The same files for somebody who reads what nobody else does: memory stays as it was.

    As far as can be told, and only what was opened here.
    """

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self.fstat = files.fstat
        self.close = files.close
        self.pread = self._pread

    def open_read(self, path: str) -> int:
        descriptor = self._files.open_read(path)
        if _CAN_ADVISE:  # else what follows would be read ahead, and stay
            with suppress(OSError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return descriptor

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        try:
            data = self._files.read_resident(descriptor, length, position)
        except NotInMemoryError:
            data = b""
        if len(data) == length:
            return data
        start = position + len(data)
        cold = self._files.pread(descriptor, length - len(data), start)
        if _CAN_ADVISE:
            with suppress(OSError):
                os.posix_fadvise(descriptor, start, len(cold), os.POSIX_FADV_DONTNEED)
        return data + cold


def _open_regular(path: str, flags: int) -> int:
    try:
        # Without O_NONBLOCK a pipe would be waited for; it means nothing to a regular file.
        descriptor = os.open(path, flags | _FLAGS, 0o644)
    except OSError as error:
        if error.errno not in _NOT_REGULAR:
            raise
        raise _not_regular(path) from error
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _not_regular(path: str) -> OSError:
    text = f"{path} is not a regular file (links are not followed); remove it"
    return OSError(EINVAL, text, path)


def exists(path: str, files: FileLayer) -> bool:
    try:
        files.lstat(path)
    except FileNotFoundError:
        return False
    return True


def is_directory(path: str, files: FileLayer) -> bool:
    """Whether there is a directory, or a link to one."""
    try:
        return S_ISDIR(files.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def identity(status: os.stat_result) -> Identity:
    """What stays of a file when it is renamed, and no other file has."""
    return status.st_dev, status.st_ino


def write_all(files: FileLayer, descriptor: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write every byte of the buffers, in order, starting at a position.

    A short write is continued where it stopped, never repeated from the start; no call gets more
    than `IOV_MAX` buffers. Raises OSError: what the operating system said; some of the bytes may
    have been written.
    """
    pending = [view for buffer in buffers if (view := memoryview(buffer).cast("B"))]
    first = 0
    while first < len(pending):
        written = files.pwritev(descriptor, pending[first : first + IOV_MAX], position)
        if written <= 0:
            raise OSError(EIO, "a write of at least one byte wrote none")
        position += written
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def read_exactly(files: FileLayer, descriptor: int, length: int, position: int) -> bytes:
    """Read a range of a file, continuing after short reads; shorter only where the file ends."""
    data = files.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing:
        data = files.pread(descriptor, missing, position + length - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def is_no_room(error: OSError) -> bool:
    """Whether an error means that there is no room: the same call may succeed once there is."""
    return error.errno in _NO_ROOM


def is_no_descriptor(error: OSError) -> bool:
    """Whether an error means that there is no file descriptor left.

    Nothing was done then, and the same call may succeed once a file was closed.
    """
    return error.errno in _NO_DESCRIPTOR


def storage_error(what: str, error: OSError) -> StorageError:
    """Turn an error of the operating system into one of ours, for `raise ... from`.

    `what` was attempted, for instance `create partition clicks-0`.
    """
    text = f"{what}: {error.strerror or error}"
    return DiskFullError(text) if is_no_room(error) else StorageError(text)
