"""The users file on disk: read again when it has changed, replaced as a whole."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Final

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import AuthenticatorSettings, Disguise, IAuthenticator, User
from hermes.security.secret_files import replace_secret_file
from hermes.security.users import Users

#: Some eighty thousand users.
_MOST_BYTES: Final = 32 * 1024 * 1024

#: How often it is looked whether the file has changed.
_LOOK_SECONDS: Final = 1.0

_State = tuple[int, ...]


class _NotReadError(ConfigError):
    """A file could not be read: the same one may be, once a disk or descriptors allow it."""


def read_users(path: Path, secret: bytes | None = None) -> tuple[Users, _State]:
    """Read a users file, and the state by which its next change is recognised.

    `secret`: see `Users.parse`. Raises ConfigError: it can't be read or parsed, or others than its
    owner may read it.
    """
    try:
        # Without O_NONBLOCK the open of a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not S_ISREG(found.st_mode):
                raise ConfigError("users_file", f"{path} is not a regular file")
            if found.st_mode & 0o077:
                raise ConfigError(
                    "users_file",
                    f"others than its owner may use {path}: run chmod 600 {path}",
                )
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _NotReadError(
            "users_file", f"can't read {path}: {error.strerror}; hermes users add makes one"
        ) from None
    if len(content) > _MOST_BYTES:
        raise _too_large(path)
    return Users.parse(content, str(path), secret), _state(found)


def _too_large(path: str | Path) -> ConfigError:
    return ConfigError("users_file", f"{path} can have up to {_MOST_BYTES >> 20} MiB")


def _state(found: os.stat_result) -> _State:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode


@implementer(IAuthenticator)
class UsersFile:
    """A users file that may change while it is used. Thread-safe.

    Raises:
        ConfigError: it can't be used as it is.

    Attributes:
        problem: why the file, as it is now, can't be used, so that its former content still
            holds; None while it can.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.problem: str | None = None
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._users, seen = read_users(self._path)
        self._seen: _State | None = seen
        self._revision = 0
        self._looked = clock()

    def current(self) -> Users:
        """The users of the last usable file; checks for changes at most once a second."""
        now = self._clock()
        # Who comes meanwhile doesn't wait: a large file takes seconds.
        if now - self._looked >= _LOOK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._looked = now
                self._look()
            finally:
                self._lock.release()
        return self._users

    def _look(self) -> None:
        try:
            seen: _State | None = _state(os.stat(self._path))
        except OSError:
            seen = None
        if seen is not None and seen == self._seen:
            return
        self._seen = seen
        try:
            self._users, self._seen = read_users(self._path, self._users.secret)
        except ConfigError as error:
            self.problem = str(error)
            if isinstance(error, _NotReadError):
                self._seen = None
        else:
            self.problem = None
            self._revision += 1

    def find(self, name: str) -> User | None:
        return self.current().find(name)

    def disguise(self) -> Disguise:
        return self._users.disguise()

    def revision(self) -> object:
        self.current()
        return self._revision


def from_settings(settings: AuthenticatorSettings) -> UsersFile:
    """Make the authenticator `users-file`, of broker.yaml's `users_file`.

    Raises ConfigError: there is no such setting, or the file can't be used.
    """
    if settings.users_file is None:
        raise ConfigError("users_file", "needed by the authenticator users-file")
    return UsersFile(settings.users_file)


def change_users_file(
    path: str | Path, change: Callable[[Users], Users], *, may_create: bool = False
) -> Users:
    """Replace a users file by a changed one; concurrent changes wait for each other.

    A crash leaves the old file or the new one. Blocks; the new one is on disk when this returns.

    Args:
        path: the file; of a link, where it leads to.
        may_create: whether there need be no file yet.

    Raises:
        ConfigError: the file can't be used or written, or what `change` raises.
    """
    target = Path(os.path.realpath(path))
    try:
        with _locked(target.parent):
            is_new = may_create and not os.path.lexists(target)
            users = Users.none() if is_new else read_users(target)[0]
            changed = change(users)
            content = changed.encode()
            if len(content) > _MOST_BYTES:  # nobody could read it again
                raise _too_large(path)
            replace_secret_file(target, content)
            return changed
    except OSError as error:
        raise ConfigError("users_file", f"can't write {path}: {error.strerror}") from None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
