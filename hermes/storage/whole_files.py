"""Small files that are replaced as a whole: after a crash there is the old one or the new one."""

import os
from contextlib import suppress

from hermes.storage.files import FileLayer, read_exactly, storage_error, write_all


def read_whole(path: str, max_bytes: int, files: FileLayer) -> bytes | None:
    """Read a file, or the beginning of one that is larger than it should be.

    Args:
        path: the file.
        max_bytes: the largest size that is believed; of a larger file a byte more is returned.
        files: the file layer.

    Returns:
        Its bytes; None when there is none.

    Raises:
        OSError: it can't be read.
    """
    try:
        descriptor = files.open_read(path)
    except FileNotFoundError:
        return None
    try:
        size = files.fstat(descriptor).st_size
        return read_exactly(files, descriptor, min(size, max_bytes + 1), 0)
    finally:
        files.close(descriptor)


def replace_whole(path: str, data: bytes, files: FileLayer) -> None:
    """Write a file anew. Blocks; all of it is on disk when this returns.

    Raises:
        StorageError: the disk refused; the old file is still there, unless only its name could
            not be put on disk.
    """
    draft = f"{path}.new"
    try:
        with suppress(FileNotFoundError):
            files.unlink(draft)
        descriptor = files.open_new(draft)
        try:
            write_all(files, descriptor, [data], 0)
            files.fdatasync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(draft, path)
        files.fsync_directory(os.path.dirname(path))
    except OSError as error:
        with suppress(OSError):
            files.unlink(draft)
        raise storage_error(f"write {path}", error) from error
