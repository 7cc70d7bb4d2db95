"""Passwords in files, as administrators and secret stores keep them: one line."""

import os
from pathlib import Path
from typing import Final

from hermes.errors import ConfigError

_MOST_BYTES: Final = 4096


def read_password_file(path: str | Path, setting: str = "password_file") -> str:
    """Read a file that holds a password: one line of UTF-8, with or without its newline.

    Args:
        path: a file, or a pipe that its writer closes.
        setting: what an error is about.

    Returns:
        The password, never empty.

    Raises:
        ConfigError: it can't be read, or doesn't hold one line; the text has nothing of it.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(setting, f"{os.fspath(path)}: {error.strerror}") from None
    except ValueError:  # a null character in the path
        raise ConfigError(setting, "expected the path of a file") from None
    try:
        password = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or len(content) > _MOST_BYTES:
        expected = f"expected one line of UTF-8 of up to {_MOST_BYTES} bytes: the password"
        raise ConfigError(setting, f"{os.fspath(path)}: {expected}")
    return password
