"""From files to files: copies with checksums, durable, and links where a copy exists already.

A copy is of the first so many bytes of a file, which don't change any more: what is flushed of a
segment never does, whatever is appended meanwhile.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from stat import S_IMODE, S_ISREG
from types import MappingProxyType
from typing import Final

from hermes.backup.manifest import FileIdentity, StoredFile
from hermes.errors import StorageError
from hermes.storage.files import FileLayer, read_exactly, write_all

_COPY_BYTES: Final = 1024 * 1024


def identify(status: os.stat_result) -> FileIdentity:
    """Which state of which file a status is about."""
    return FileIdentity(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Copier:
    """Copies files into one directory.

    Args:
        root: the directory.
        files: the file layer.
        advance: called with the number of bytes dealt with since the last call.
        older: an older backup's files, by path: what hasn't changed since is linked.
        older_root: that backup's directory.

    Attributes:
        copied_bytes, linked_bytes: of files that were copied, and of those that were linked.
    """

    def __init__(
        self,
        root: str,
        files: FileLayer,
        advance: Callable[[int], None],
        older: Mapping[str, StoredFile] = MappingProxyType({}),
        older_root: str = "",
    ) -> None:
        self._root = root
        self._files = files
        self._advance = advance
        self._older = older
        self._older_root = older_root
        self.copied_bytes = 0
        self.linked_bytes = 0

    def path(self, relative: str) -> str:
        """Where a file of the directory is."""
        return os.path.join(self._root, *relative.split("/"))

    def copy(self, descriptor: int, length: int, relative: str) -> StoredFile:
        """Copy the beginning of an open file, and put it on disk; its name is for the caller.

        Args:
            descriptor: open for reading.
            length: how many bytes; the file must have them.
            relative: where to, relative to the directory; nothing has that name.

        Returns:
            What was written. Its identity is that of the source, as it was before.

        Raises:
            StorageError: the file is shorter.
            OSError: the disk failed.
        """
        status = self._files.fstat(descriptor)
        path = self.path(relative)
        target = self._files.open_new(path)
        try:
            digest = hashlib.sha256()
            position = 0
            while position < length:
                wanted = min(_COPY_BYTES, length - position)
                data = read_exactly(self._files, descriptor, wanted, position)
                if len(data) < wanted:
                    raise StorageError(f"{relative} was cut at {position + len(data)} bytes")
                write_all(self._files, target, [data], position)
                digest.update(data)
                position += wanted
                self._advance(wanted)
            mode = S_IMODE(status.st_mode)
            self._files.fchmod(target, mode)
            # Where there is no time index, retention goes by this.
            self._files.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
            self._files.fdatasync(target)
        finally:
            self._files.close(target)
        self.copied_bytes += length
        return StoredFile(
            relative, length, digest.hexdigest(), status.st_mtime_ns, mode, identify(status)
        )

    def link_or_copy(self, descriptor: int, length: int, relative: str) -> StoredFile:
        """Link what the older backup has of a file in just this state, or else copy it.

        Raises:
            StorageError, OSError: as for `copy`.
        """
        older = self._older.get(relative)
        if (
            older is not None
            and older.size_bytes == length
            and older.identity == identify(self._files.fstat(descriptor))
            and self._link(older)
        ):
            return older
        return self.copy(descriptor, length, relative)

    def _link(self, older: StoredFile) -> bool:
        """Whether it is there with its size, and the file system could link it."""
        source = os.path.join(self._older_root, *older.path.split("/"))
        with suppress(OSError):
            status = self._files.lstat(source)
            if S_ISREG(status.st_mode) and status.st_size == older.size_bytes:
                self._files.link(source, self.path(older.path))
                self.linked_bytes += older.size_bytes
                self._advance(older.size_bytes)
                return True
        return False

    def checksum(self, relative: str) -> tuple[int, str]:
        """Read a file of the directory again: (its size, its checksum). Raises OSError."""
        descriptor = self._files.open_read(self.path(relative))
        try:
            digest = hashlib.sha256()
            position = 0
            while data := self._files.pread(descriptor, _COPY_BYTES, position):
                digest.update(data)
                position += len(data)
                self._advance(len(data))
        finally:
            self._files.close(descriptor)
        return position, digest.hexdigest()
