"""Reads files with settings without blocking on pipes or devices."""

import os
from errno import EFBIG, EINVAL
from pathlib import Path
from stat import S_ISREG


def read_regular_file(path: str | Path, max_bytes: int) -> bytes:
    """Read a file that can neither block nor fill the memory.

    Raises OSError if it can't be read, is a pipe or a device, or is larger than `max_bytes`.
    """
    # Without O_NONBLOCK the open of a pipe would wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(EINVAL, "it is not a regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(EFBIG, f"it is larger than {max_bytes >> 10} KiB")
    return content
