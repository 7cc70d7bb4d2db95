"""From a backup to a data directory that a broker can open; every byte is checked on its way.

During a restore, and after an interrupted one, the directory holds a file beside which no broker
starts: half of the data must never be taken for all of it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath

from hermes.errors import StorageError
from hermes.offline.backup.copying import Copier
from hermes.offline.backup.manifest import DATA, BackupManifest, ManifestFile
from hermes.storage.files import FileLayer, storage_error
from hermes.storage.layout import DIRECTORY_ID_NAME, LOCK_NAME, RESTORE_MARKER, partition_directory
from hermes.storage.lock import DirectoryLock


def verify(
    directory: str,
    manifest: BackupManifest,
    *,
    advance: Callable[[int], None] = lambda size_bytes: None,
    files: FileLayer | None = None,
) -> Iterator[str]:
    """Read every byte of a backup and compare checksums; yields a line for each wrong file.

    `advance` is called with the number of bytes read since the last call.
    """
    files = FileLayer() if files is None else files
    copier = Copier(directory, files, advance)
    for stored in manifest.files:
        try:
            found = copier.checksum(stored.path)
        except OSError as error:
            yield f"{copier.path(stored.path)}: {error.strerror or error}"
        else:
            if found != (stored.size_bytes, stored.sha256):
                yield f"{copier.path(stored.path)} is damaged: its checksum is wrong"


def restore(
    directory: str,
    manifest: BackupManifest,
    target: str,
    *,
    finish: Callable[[], None] = lambda: None,
    advance: Callable[[int], None] = lambda size_bytes: None,
    files: FileLayer | None = None,
) -> None:
    """Make a data directory of a backup. Blocks.

    Args:
        target: the data directory: an empty one, or one that doesn't exist.
        finish: called when all files are there, before a broker may use them.
        advance: called with the number of bytes copied since the last call.

    Raises:
        StorageError: the target isn't empty (nothing was done), or the restore could not be
            finished: what is there now is of no use.
    """
    files = FileLayer() if files is None else files
    try:
        _begin(target, files)
        lock = DirectoryLock(target, files)
        try:
            marker = os.path.join(target, RESTORE_MARKER)
            files.close(files.open_new(marker))
            files.fsync_directory(target)
            _copy_all(directory, manifest, target, Copier(target, files, advance), files)
            finish()
            files.unlink(marker)
            files.fsync_directory(target)
        finally:
            lock.release()
    except OSError as error:
        raise storage_error(f"restore to {target}", error) from error


def _begin(target: str, files: FileLayer) -> None:
    with suppress(FileExistsError):
        files.mkdir(target)
        files.fsync_directory(os.path.dirname(os.path.abspath(target)))
    names = set(files.listdir(target))
    if RESTORE_MARKER in names:
        raise StorageError(f"{target} holds a restore that was not finished: delete it first")
    if names - {LOCK_NAME, "lost+found"}:
        raise StorageError(f"{target} is not empty: give a new directory")


def _copy_all(
    directory: str, manifest: BackupManifest, target: str, copier: Copier, files: FileLayer
) -> None:
    made = [target]
    for topic, partition, _, _ in manifest.partitions:
        made.append(os.path.join(target, partition_directory(topic, partition)))
        files.mkdir(made[-1])
    for stored in manifest.files:
        if stored.path != f"{DATA}/{DIRECTORY_ID_NAME}":  # of the directory that it was
            _copy(directory, stored, copier, files)
    for each in reversed(made):
        files.fsync_directory(each)


def _copy(directory: str, stored: ManifestFile, copier: Copier, files: FileLayer) -> None:
    path = os.path.join(directory, *stored.path.split("/"))
    relative = PurePosixPath(stored.path).relative_to(DATA).as_posix()
    fault = f"{path} is damaged: choose another backup (hermes backup verify), and delete "
    try:
        descriptor = files.open_read(path)
    except FileNotFoundError:
        raise StorageError(f"{path} is missing: choose another backup") from None
    try:
        if files.fstat(descriptor).st_size != stored.size_bytes:
            raise StorageError(f"{fault}what was restored")
        copied = copier.copy(descriptor, stored.size_bytes, relative)
    finally:
        files.close(descriptor)
    if copied.sha256 != stored.sha256:
        raise StorageError(f"{fault}what was restored")
