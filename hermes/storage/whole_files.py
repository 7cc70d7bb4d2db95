"""Small files that are replaced as a whole: after a crash there is the old one or the new one.

Those of Hermes' own that nothing else could vouch for have a checksum: a line with what they say,
and one with the CRC-32 of the bytes before it. So an operator can read them, and whatever is cut
off or changed is noticed.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

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


def replace_whole(path: str, data: bytes, files: FileLayer, *, is_synced: bool = True) -> None:
    """Write a file anew. Blocks; all of it is on disk when this returns.

    Args:
        path: the file.
        data: what it is to hold.
        files: the file layer.
        is_synced: False to leave that to whoever syncs later: a loss of power may damage it then.

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
            if is_synced:
                files.fdatasync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(draft, path)
        if is_synced:
            files.fsync_directory(os.path.dirname(path))
    except OSError as error:
        with suppress(OSError):
            files.unlink(draft)
        raise storage_error(f"write {path}", error) from error


def with_checksum(line: bytes) -> bytes:
    """Write a line as a file with a checksum."""
    body = line + b"\n"
    return body + b'{"crc32": "%08x"}\n' % crc32(body)


def without_checksum(data: bytes) -> bytes:
    """Read what `with_checksum` has written.

    Raises:
        ValueError: it is damaged.
    """
    line = data.partition(b"\n")[0]
    if with_checksum(line) != data:
        raise ValueError("its CRC-32 is wrong")
    return line


def encode_checked(value: Mapping[str, Any]) -> bytes:
    """Write a value as a file with a checksum."""
    return with_checksum(json.dumps(value).encode())


def decode_checked(data: bytes) -> dict[str, Any]:
    """Read what `encode_checked` has written.

    Raises:
        ValueError: it is damaged.
    """
    value = json.loads(without_checksum(data))
    if not isinstance(value, dict):
        raise ValueError("it holds something else")
    return value
