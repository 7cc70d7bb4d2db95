"""Small files that are replaced as a whole: after a crash there is the old one or the new one.

Those of Hermes' own that nothing else could vouch for have a checksum: a line with what they say,
and one with the CRC-32 of the bytes before it. So an operator can read them, and whatever is cut
off or changed is noticed.

Two are older than that: a line without one. They stay so, for versions that know no other, and have
a copy with a checksum beside them.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EIO
from typing import Any, Final
from zlib import crc32

from hermes.errors import StorageError
from hermes.storage.files import FileLayer, read_exactly, storage_error, write_all

COPY_SUFFIX: Final = ".copy"

_MOST_LINE_BYTES: Final = 200


def read_whole(path: str, max_bytes: int, files: FileLayer) -> bytes | None:
    """Read a file; None without one. Of one larger than `max_bytes`, a byte more than that."""
    try:
        descriptor = files.open_read(path)
    except FileNotFoundError:
        return None
    try:
        size = files.fstat(descriptor).st_size
        return read_exactly(files, descriptor, min(size, max_bytes + 1), 0)
    finally:
        files.close(descriptor)


def read_or_nothing(path: str, max_bytes: int, files: FileLayer) -> bytes | None:
    """The same for a file that others make up for: what the disk has lost is as if it was empty."""
    try:
        return read_whole(path, max_bytes, files)
    except OSError as error:
        if error.errno != EIO:
            raise
    return b""


def replace_whole(
    path: str, data: bytes, files: FileLayer, *, is_synced: bool = True, mode: int = 0o644
) -> None:
    """Write a file anew. Blocks; all of it is on disk when this returns.

    Args:
        is_synced: False to leave that to whoever syncs later: a loss of power may damage it then.

    Raises:
        StorageError: the disk refused; the old file is still there, unless only its name could
            not be put on disk.
    """
    draft = f"{path}.new"
    try:
        with suppress(FileNotFoundError):
            files.unlink(draft)
        descriptor = files.open_new(draft, mode)
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
    body = line + b"\n"
    return body + b'{"crc32": "%08x"}\n' % crc32(body)


def without_checksum(data: bytes) -> bytes:
    """Read what `with_checksum` has written; ValueError when it is damaged."""
    line = data.partition(b"\n")[0]
    if with_checksum(line) != data:
        raise ValueError("its CRC-32 is wrong")
    return line


def replace_with_copy(path: str, line: bytes, files: FileLayer) -> None:
    """Write a file of one line anew, and its copy, to the disk. Raises as `replace_whole`."""
    replace_whole(path, line + b"\n", files)
    replace_whole(path + COPY_SUFFIX, with_checksum(line), files)


def mend_with_copy(
    path: str, files: FileLayer, counts: Callable[[bytes, bytes | None], bool]
) -> str:
    """Let a file of one line and its copy say the same. Blocks.

    Args:
        counts: whether what the file says, "" where there is none, makes sense and is true rather
            than its copy, of which there may be none.

    Returns:
        What was wrong; nothing if nothing was.

    Raises:
        StorageError: the file has to be written, and the disk refused.
    """
    name, told, copy = os.path.basename(path), "", None
    line = (read_whole(path, _MOST_LINE_BYTES, files) or b"").removesuffix(b"\n")
    try:
        data = read_whole(path + COPY_SUFFIX, _MOST_LINE_BYTES, files)
        copy = None if data is None else without_checksum(data)
    except ValueError as error:
        told = f"{name}{COPY_SUFFIX}, which was damaged ({error})"
    if counts(line, copy):
        if line != copy:
            if copy is not None:
                told = (
                    f"{name}{COPY_SUFFIX}, which said less than {name}: that says {line.decode()}"
                )
            with suppress(StorageError):  # it is only for the next time
                replace_whole(path + COPY_SUFFIX, with_checksum(line), files)
        return told
    if copy is None or line == copy:
        return told
    replace_whole(path, copy + b"\n", files)
    return f"{name}, which was {'damaged' if line else 'missing'}: it says {copy.decode()}"


def encode_checked(value: Mapping[str, Any]) -> bytes:
    return with_checksum(json.dumps(value).encode())


def decode_checked(data: bytes) -> dict[str, Any]:
    """Read what `encode_checked` has written; ValueError when it is damaged."""
    value = json.loads(without_checksum(data))
    if not isinstance(value, dict):
        raise ValueError("it holds something else")
    return value
