"""Files of certificates and keys: opened without waiting, read within bounds, noticed to change."""

import os
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from hermes.errors import ConfigError
from hermes.quoting import quoted

#: What changes with a file; None while there is none.
Stamp: TypeAlias = tuple[int, ...] | None

#: Larger files are no certificates: all authorities of a system take a quarter of one MiB.
_MOST_BYTES: Final = 8 * 1024 * 1024


class UnreadableFileError(ConfigError):
    """A file is missing or can't be read: the same one may be, once a disk or descriptors allow."""


def file_name(path: str | Path) -> str:
    """A file's name for a text, shortened if it is absurdly long."""
    return quoted(os.fspath(path), 1000)


def stamp(path: str | Path) -> Stamp:
    """Look at a file, and read nothing of it."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def open_pem(path: str | Path, setting: str) -> BinaryIO:
    """Open a file; the caller closes it.

    Raises UnreadableFileError, about `setting`, if it can't be.
    """
    try:
        return open(path, "rb", opener=_open_at_once)
    except (OSError, ValueError) as error:
        raise _unreadable(path, setting, error) from None


def read_pem(path: str | Path, setting: str) -> bytes:
    """Read a file; raises UnreadableFileError, about `setting`, if it can't be."""
    with open_pem(path, setting) as file:
        try:
            return file.read(_MOST_BYTES) or b""  # of a pipe without data, None
        except OSError as error:
            raise _unreadable(path, setting, error) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(path: str | Path, setting: str, error: OSError | ValueError) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return UnreadableFileError(setting, f"{file_name(path)} can't be read: {reason}")
