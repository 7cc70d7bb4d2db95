"""Every touch of a file by a load, in small steps: a test can end the program at any of them.

What must survive a crash is written under another name, flushed to the disk, and then linked to
its own name. A link fails when the name is taken, so of several writers exactly one wins; and a
name, once there, always stands for the whole content.
"""

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Final

from hermes.errors import LoadTargetError

__all__ = ["Files", "above", "publish"]

# How file systems say that they have no hard links.
_NO_LINKS: Final = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EXDEV,
}


class Files:
    """The file system. Knows nothing of loads; every method is one step, in the sense of above."""

    def read(self, path: Path) -> bytes | None:
        """The content of a file; None when there is none.

        Raises:
            LoadTargetError: it is a FIFO, say, which may never end, or never begin.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LoadTargetError(f"{path} is no regular file")
            return file.read()

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file, not yet flushed."""
        with open(path, "xb") as file:
            file.write(content)

    def sync(self, path: Path) -> None:
        """Flush a file, or the names in a directory, to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError when that is taken."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name; one that isn't there is no error."""
        path.unlink(missing_ok=True)

    def make_directories(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it, as far as it is there."""
        shutil.rmtree(path, ignore_errors=True)


def above(path: Path) -> list[Path]:
    """The directories above one that may have been made for it, and so are to be flushed.

    That is up to the mount point, as far as this user may open them.
    """
    found = []
    for each in path.parents:
        if os.access(each, os.R_OK):
            found.append(each)
        if os.path.ismount(each):
            break
    return found


def publish(files: Files, path: Path, content: bytes) -> bool:
    """Write a file whole and durably, unless there is one of its name.

    Args:
        files: the file system.
        path: its name; the directory exists.
        content: what it holds.

    Returns:
        Whether a file of this content has the name now; False when another content has it: that
        file is left as it is.

    Raises:
        OSError: the disk is full or fails. Before the name was given, nothing is left behind.
        LoadTargetError: this file system has no hard links, or doesn't permit this one.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        files.write(temporary, content)
        files.sync(temporary)
        _link(files, temporary, path)
    except (FileExistsError, FileNotFoundError):
        # The name may be taken, or a clean-up about, which removes leftovers of what is settled.
        # Or the link was made, but NFS lost the answer and asked again: then the content is ours.
        there = files.read(path)
        if there is None:
            raise
        if there != content:
            return False
    finally:
        files.unlink(temporary)
    files.sync(path.parent)
    return True


def _link(files: Files, source: Path, target: Path) -> None:
    try:
        files.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise LoadTargetError(
                f"{target}: this file system has no hard links ({error.strerror}), by which one of "
                "several loads wins: choose a target on another one"
            ) from error
        if error.errno == errno.EACCES:
            raise LoadTargetError(
                f"{target}: {error.strerror}: a load writes to its target, and needs the right to"
            ) from error
        raise
