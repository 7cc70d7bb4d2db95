"""From files to files: copies with checksums, durable, and links where a copy exists already.

A copy is of a file's beginning, which doesn't change any more: what is flushed of a segment never
does, whatever is appended meanwhile.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EIO
from stat import S_IMODE, S_ISREG
from typing import Any, Final, Protocol

from hermes.errors import StorageError
from hermes.offline.backup.manifest import BackupManifest, DamagedRange, FileIdentity, ManifestFile
from hermes.storage.damage import BlockReads, read_or_zeros
from hermes.storage.files import FileLayer, read_exactly, write_all

_COPY_BYTES: Final = 1024 * 1024
# The same of what is looked at meanwhile.
_BLOCK_BYTES: Final = 256 * 1024
# What a copy is until it is whole, and gets its source's mode.
_OWNERS_ONLY: Final = 0o600


class UnreadableError(Exception):
    """The disk doesn't give back something of the source."""


@contextmanager
def reading_source() -> Iterator[None]:
    """Tell a disk that fails under the source from one that fails under the backup."""
    try:
        yield
    except OSError as error:
        if error.errno != EIO:
            raise
        raise UnreadableError(error.strerror) from error


class FileInspection(Protocol):
    """Looks at a file while it is copied, through a file layer that reads what is copied."""

    def __call__(self, files: FileLayer) -> Any: ...


def identify(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Copier:
    """Copies files into one directory.

    Args:
        advance: called with the number of bytes dealt with since the last call.
        older: an older backup: what hasn't changed since is linked.
        older_root: that backup's directory.

    Attributes:
        copied_bytes, linked_bytes: of files that were copied, and of those that were linked.
    """

    def __init__(
        self,
        root: str,
        files: FileLayer,
        advance: Callable[[int], None],
        older: BackupManifest | None = None,
        older_root: str = "",
    ) -> None:
        self._root = root
        self._files = files
        self._advance = advance
        self._older = {} if older is None else {each.path: each for each in older.files}
        self._older_damage = () if older is None else older.damaged or ()
        self._older_root = older_root
        self.copied_bytes = 0
        self.linked_bytes = 0

    def path(self, relative: str) -> str:
        return os.path.join(self._root, *relative.split("/"))

    def copy(
        self, descriptor: int, length: int, relative: str, look: FileInspection | None = None
    ) -> ManifestFile:
        """Copy the beginning of an open file, and put it on disk; its name is for the caller.

        Args:
            length: how many bytes; the file must have them.
            relative: where to, relative to the directory; nothing has that name.
            look: looks at what is copied, while it is in memory. What can't be read is zeros then:
                it finds them.

        Returns:
            What was written. Its identity is that of the source, as it was before.

        Raises:
            StorageError: the file is shorter.
            UnreadableError: nothing looks at it, and some of it can't be read. There is no copy.
        """
        status = self._files.fstat(descriptor)
        path = self.path(relative)
        target = self._files.open_new(path, _OWNERS_ONLY)
        try:
            copy = _Copy(self._files, descriptor, length, target, relative, self._advance)
            if look is not None:
                copy.skips_unreadable = True
                look(BlockReads(copy.block, _BLOCK_BYTES))
            copy.up_to(length, _COPY_BYTES)
            mode = S_IMODE(status.st_mode)
            self._files.fchmod(target, mode)
            # Where there is no time index, retention goes by this.
            self._files.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
            self._files.fdatasync(target)
        except UnreadableError:
            self._files.unlink(path)
            raise
        finally:
            self._files.close(target)
        self.copied_bytes += length
        return ManifestFile(
            relative, length, copy.digest.hexdigest(), status.st_mtime_ns, mode, identify(status)
        )

    def link_or_copy(
        self, descriptor: int, length: int, relative: str, look: FileInspection | None = None
    ) -> ManifestFile:
        """Link a file, without a look at it, if the older backup has this state; or `copy` it."""
        older = self._older.get(relative)
        if (
            older is not None
            and older.size_bytes == length
            and older.identity == identify(self._files.fstat(descriptor))
            and self._link(older)
        ):
            return older
        return self.copy(descriptor, length, relative, look)

    def older_damage(self, relative: str) -> list[DamagedRange]:
        return [each for each in self._older_damage if each.path == relative]

    def _link(self, older: ManifestFile) -> bool:
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
        """Read a file of the directory again: (its size, its checksum)."""
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


@dataclass(slots=True)
class _Copy:
    """One file on its way. `skips_unreadable` makes zeros of what the disk doesn't give back."""

    files: FileLayer
    source: int
    length: int
    target: int
    relative: str
    advance: Callable[[int], None]
    digest: Any = field(default_factory=hashlib.sha256)
    position: int = 0
    skips_unreadable: bool = False

    def up_to(self, end: int, step_bytes: int) -> bytes:
        """Copy up to a position, so many bytes at a time; returns the last ones."""
        data = b""
        while self.position < end:
            wanted = min(step_bytes, end - self.position)
            data = self._read(wanted, self.position)
            if len(data) < wanted:
                cut_at = self.position + len(data)
                raise StorageError(f"{self.relative} was cut at {cut_at} bytes")
            write_all(self.files, self.target, [data], self.position)
            self.digest.update(data)
            self.position += wanted
            self.advance(wanted)
        return data

    def block(self, position: int) -> bytes:
        end = min(position + _BLOCK_BYTES, self.length)
        if self.position < end:
            return self.up_to(end, _BLOCK_BYTES)
        return self._read(max(0, end - position), position)

    def _read(self, length: int, position: int) -> bytes:
        if self.skips_unreadable:
            return read_or_zeros(self._read_exactly, length, position)
        with reading_source():
            return self._read_exactly(length, position)

    def _read_exactly(self, length: int, position: int) -> bytes:
        return read_exactly(self.files, self.source, length, position)
