"""A directory of backups, each in a directory named by when it began.

    <repository>/.hermes_lock                  one backup at a time
    <repository>/20260522T101500.123Z/         a backup
        manifest.json                          there only when the backup is whole
        data/                                  laid out as a data directory

A backup without a manifest was not finished; the next one removes it. Files of several backups may
be links to one and the same: whatever is in a repository is never written to again.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from stat import S_ISDIR
from typing import Final

from hermes.errors import StorageError
from hermes.offline.backup.manifest import MANIFEST_NAME, BackupManifest
from hermes.quoting import quoted
from hermes.storage.files import FileLayer, exists, read_exactly, storage_error, write_all
from hermes.storage.lock import DirectoryLock

_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z")


class Repository:
    def __init__(self, path: str | os.PathLike[str], files: FileLayer | None = None) -> None:
        self.path = os.path.abspath(path)
        self._files = FileLayer() if files is None else files

    def lock(self) -> DirectoryLock:
        """Make the directory if it is missing, and keep other backups out until it is released.

        Raises DataDirectoryLockedError: a backup is being taken; StorageError: the directory
        can't be made or written to, or holds something else.
        """
        try:
            if not exists(self.path, self._files):
                self._files.mkdir(self.path)
                self._files.fsync_directory(os.path.dirname(self.path))
            self._check_is_ours()
            advice = "a backup is being taken there, wait until it has ended"
            return DirectoryLock(self.path, self._files, advice)
        except OSError as error:
            raise storage_error(f"use {self.path} for backups", error) from error

    def _check_is_ours(self) -> None:
        for name in self._files.listdir(self.path):
            if not (_NAME.fullmatch(name) or name in (".hermes_lock", "lost+found")):
                raise StorageError(
                    f"{self.path} holds {quoted(name)}, which is no backup: "
                    "give a directory for backups alone"
                )

    # -- reading --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of the whole backups, oldest first."""
        return [name for name, is_whole in self._all() if is_whole]

    def _all(self) -> list[tuple[str, bool]]:
        try:
            found = filter(_NAME.fullmatch, sorted(self._files.listdir(self.path)))
            return [
                (name, exists(self.directory(name, MANIFEST_NAME), self._files)) for name in found
            ]
        except OSError as error:
            raise storage_error(f"read the backups in {self.path}", error) from error

    def directory(self, name: str, *below: str) -> str:
        return os.path.join(self.path, name, *below)

    def read(self, name: str) -> BackupManifest:
        """Raises StorageError if there is none, it was not finished, or its manifest is damaged."""
        path = self.directory(name, MANIFEST_NAME)
        if not _NAME.fullmatch(name):
            raise StorageError(f"{quoted(name)} is not a backup's name ({_known(self.names())})")
        try:
            descriptor = self._files.open_read(path)
            try:
                size = self._files.fstat(descriptor).st_size
                return BackupManifest.decode(read_exactly(self._files, descriptor, size, 0))
            finally:
                self._files.close(descriptor)
        except FileNotFoundError:
            raise StorageError(
                f"there is no whole backup {name} in {self.path} ({_known(self.names())})"
            ) from None
        except OSError as error:
            raise storage_error(f"read {path}", error) from error
        except StorageError as error:
            raise StorageError(f"{path} can't be used: {error}; choose another backup") from error

    def latest(self) -> str:
        """The name of the newest whole backup. Raises StorageError: there is none."""
        names = self.names()
        if not names:
            raise StorageError(f"there is no whole backup in {self.path}")
        return names[-1]

    def readable(self) -> Iterator[tuple[str, BackupManifest]]:
        """The backups that can be read, newest first."""
        for name in reversed(self.names()):
            with suppress(StorageError):
                yield name, self.read(name)

    # -- writing --------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> str:
        """Remove what was not finished, and make the directory of a new backup.

        Its name is later than all others, also if the clock was set back.
        """
        names = []
        for name, is_whole in self._all():
            if is_whole:
                names.append(name)
            else:
                remove_tree(self.directory(name), self._files)
        name = _name_of(now_ms)
        if names and name <= names[-1]:
            name = _name_of(_time_ms(names[-1]) + 1)
        self._files.mkdir(self.directory(name))
        return name

    def finish(self, name: str, manifest: BackupManifest) -> None:
        directory = self.directory(name)
        draft = os.path.join(directory, f"{MANIFEST_NAME}.new")
        descriptor = self._files.open_new(draft)
        try:
            write_all(self._files, descriptor, [manifest.encode()], 0)
            self._files.fdatasync(descriptor)
        finally:
            self._files.close(descriptor)
        # The names of all files, and of the backup itself, come before what vouches for them.
        self._files.fsync_directory(directory)
        self._files.fsync_directory(self.path)
        self._files.rename(draft, os.path.join(directory, MANIFEST_NAME))
        self._files.fsync_directory(directory)

    def abandon(self, name: str) -> None:
        """Remove a backup that will not be finished, as far as that is possible."""
        with suppress(OSError):
            remove_tree(self.directory(name), self._files)

    def keep(self, count: int) -> list[str]:
        """Delete all but the `count` newest whole backups; returns the names of the deleted.

        Needs the lock: the next backup removes what isn't whole, and links to what is.
        """
        doomed = self.names()[:-count]
        for name in doomed:
            directory = self.directory(name)
            try:
                # Without it the backup is not whole, whatever a kill leaves of the rest.
                self._files.unlink(os.path.join(directory, MANIFEST_NAME))
                self._files.fsync_directory(directory)
                remove_tree(directory, self._files)
            except OSError as error:
                raise storage_error(f"delete the backup {directory}", error) from error
        return doomed


def remove_tree(path: str, files: FileLayer) -> None:
    """Delete a directory with all it holds; links are not followed."""
    for name in files.listdir(path):
        each = os.path.join(path, name)
        if S_ISDIR(files.lstat(each).st_mode):
            remove_tree(each, files)
        else:
            files.unlink(each)
    files.rmdir(path)


def _name_of(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{time_ms % 1000:03}Z"


def _time_ms(name: str) -> int:
    moment = datetime.strptime(f"{name[:15]}+0000", "%Y%m%dT%H%M%S%z")
    return int(moment.timestamp()) * 1000 + int(name[16:19])


def _known(names: list[str]) -> str:
    return f"there are {', '.join(names[-5:])}" if names else "there is none"
