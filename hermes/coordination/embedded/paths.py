"""Paths of nodes: what may be one, and who is whose parent.

Source: ZooKeeper's `PathUtils` and `PrepRequestProcessor`.
"""

import re
from typing import Final

from hermes.coordination.embedded.errors import ErrorCode, RequestRefusedError

__all__ = ["ROOT", "check_path", "child_name", "parent_path"]

ROOT: Final = "/"

# Surrogates and what follows up to U+F8FF are no characters to ZooKeeper; nor is a path above
# U+FFFF, which Java sees as two surrogates.
_ILLEGAL: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

_NO_NAME: Final = re.compile(r"/\.{0,2}(?:/|\Z)")


def check_path(path: str) -> None:
    """Check that a node may have this path.

    Raises:
        RequestRefusedError: with BAD_ARGUMENTS; the text says why.
    """
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise RequestRefusedError(ErrorCode.BAD_ARGUMENTS, f"{path!r} does not start with '/'")
    if _NO_NAME.search(path):
        raise RequestRefusedError(
            ErrorCode.BAD_ARGUMENTS, f"{path!r} has an empty or relative part"
        )
    if _ILLEGAL.search(path):
        raise RequestRefusedError(ErrorCode.BAD_ARGUMENTS, f"{path!r} has an illegal character")


def parent_path(path: str) -> str:
    """The path of the parent; of the root the root.

    Raises:
        RequestRefusedError: with BAD_ARGUMENTS, when there is no '/' or there is a null character.
    """
    parent, slash, _ = path.rpartition("/")
    if not slash or "\0" in path:
        raise RequestRefusedError(ErrorCode.BAD_ARGUMENTS, f"{path!r} is no path")
    return parent or ROOT


def child_name(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
