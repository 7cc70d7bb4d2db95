"""The file system of this machine: durable steps, and "create if absent".

What must survive a crash is written under another name, flushed to the disk, and then linked to
its own name. A link fails when the name is taken, so of several writers exactly one wins; and a
name, once it exists, always stands for the whole content.

Every change is one method of `LocalFileSystem`, so that a test can end the program at any of them.
`hermes.spark.stores` has further kinds of stores. Knows nothing of Spark.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final, TypeVar

from hermes.errors import LoadTargetError

AnyPath = TypeVar("AnyPath", bound=PurePath)

_FILE_URL: Final = re.compile("file:/(//|/localhost/)?(?!/)")

# So often may a directory be removed just as it was found to be there.
_MOST_REMOVALS: Final = 100

# How file systems say that they have no hard links.
_NO_LINKS: Final = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EXDEV,
}


class LocalFileSystem:
    """The local file system; every method is one step."""

    def read(self, path: Path) -> bytes | None:
        """The content; None when there is no file. LoadTargetError for a FIFO, say."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LoadTargetError(f"{path} is not a regular file")
            return file.read()

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def write(self, path: Path, content: bytes) -> None:
        with _named(path), open(path, "xb") as file:
            file.write(content)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with _named(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError when that is taken."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directories(self, path: Path) -> None:
        """Create a directory and its missing parents, though somebody removes empty ones."""
        removals = 0
        while True:
            try:
                return path.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError:
                pass  # a parent was there, and has just gone
            except FileExistsError:  # it was there, and has just gone; or it is no directory
                removals += 1
                if removals > _MOST_REMOVALS:
                    raise

    def remove_empty(self, path: Path) -> bool:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have errors say which file it was: the system's don't, of one that is open."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def local_path(text: str | Path) -> Path:
    """The absolute path of a directory, or of a URL with `file:`. Raises LoadTargetError."""
    if is_address(text):
        raise LoadTargetError(
            f"{text}: expected a directory with hard links, on this machine or mounted by it and "
            "by all workers"
        )
    return Path(_FILE_URL.sub("/", str(text))).absolute()


def is_address(text: str | Path) -> bool:
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]+):/", str(text))  # a Path has merged its slashes
    return scheme is not None and _FILE_URL.match(str(text)) is None


def sync_all(paths: Iterable[Path]) -> None:
    """Flush files, and the names in directories, to the disk; missing ones are skipped."""
    files = LocalFileSystem()
    for path in paths:
        with suppress(FileNotFoundError):
            files.sync(path)


def ancestors(path: Path) -> list[Path]:
    """The directories above a path that may be new, up to the mount point, if they are readable."""
    found = []
    for each in path.parents:
        if os.access(each, os.R_OK):
            found.append(each)
        if os.path.ismount(each):
            break
    return found


def temporary_name(path: AnyPath) -> AnyPath:
    """A name beside a file for its content while that isn't whole; `clean_up` knows the form."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def create_durably(files: LocalFileSystem, path: Path, content: bytes) -> bool:
    """Create a file, whole and durable, if its name is free; see `FileStore.create`.

    Raises LoadTargetError: this file system has no hard links, or doesn't permit this one.
    """
    temporary = temporary_name(path)
    try:
        files.write(temporary, content)
        files.sync(temporary)
        _link(files, temporary, path)
    except (FileExistsError, FileNotFoundError):
        # The name may be taken, or a clean-up may have removed what it took for a leftover. Or the
        # link was made, but NFS lost the answer and asked again: then the content is ours.
        found = files.read(path)
        if found is None:
            raise
        if found != content:
            return False
    finally:
        files.unlink(temporary)
    files.sync(path.parent)
    return True


def _link(files: LocalFileSystem, source: Path, target: Path) -> None:
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
