"""File layers that misbehave on purpose, for tests of the storage and of what stands on it.

All of them work on real files below a test's own directory.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import EIO
from random import Random
from typing import Any

from hermes.storage.files import FileLayer

#: The calls that may fail. `close` is left out: it frees the descriptor whatever it says.
OPERATIONS = (
    "pwrite",
    "pwritev",
    "pread",
    "fdatasync",
    "ftruncate",
    "listdir",
    "stat",
    "lstat",
    "fstat",
    "rename",
    "unlink",
    "rmdir",
    "mkdir",
    "link",
    "open_new",
    "open_append",
    "open_read",
    "lock",
    "fsync_directory",
)
WRITES = ("pwrite", "pwritev")


class Crash(BaseException):
    """The machine stops here. No `except Exception` gets in its way."""


class UnsyncedFiles(FileLayer):
    """Real files, but no waiting for a disk: no test pulls the plug of the machine it runs on.

    Attributes:
        boot: what the machine's start is called; another one stands for a loss of power.
    """

    boot = "the first start"

    def boot_id(self) -> str:
        return self.boot

    def fdatasync(self, descriptor: int) -> None:
        os.fstat(descriptor)

    def fsync_directory(self, path: str) -> None:
        os.stat(path)


class WatchedFiles(UnsyncedFiles):
    """Passes every call on, after telling `before`; counts calls, bytes read and open files.

    Attributes:
        calls: the names of the calls made, in order.
        bytes_read: how many bytes `pread` has returned.
        opened: the descriptors that are open.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bytes_read = 0
        self.opened: set[int] = set()
        for name in OPERATIONS:
            setattr(self, name, self._watched(name, getattr(self, name)))

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Called before every call; may raise, or change the arguments."""
        return arguments

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Called after every call that succeeded."""

    def after_failure(self, arguments: tuple[Any, ...]) -> None:
        """Called after every call that failed by itself; may raise another error."""

    def close(self, descriptor: int) -> None:
        self.opened.discard(descriptor)
        os.close(descriptor)

    def close_all(self) -> None:
        """Free what a crash left open."""
        for descriptor in list(self.opened):
            self.close(descriptor)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            arguments = self.before(name, arguments)
            try:
                result = call(*arguments, **options)
            except OSError:
                self.after_failure(arguments)
                raise
            if name.startswith("open_"):
                self.opened.add(result)
            elif name == "pread":
                self.bytes_read += len(result)
            self.after(name, arguments, result)
            return result

        return watched


class FaultyFiles(WatchedFiles):
    """Fails one call, or every call from one on; or cuts writes short.

    Attributes:
        fail_at: which call, counted from 0 over those in `only`; None for none.
        error: the errno to raise; None makes a write short instead (other calls pass).
        stays: whether all later calls in `only` fail as well.
        only: the names of the calls that count.
        path_part: only calls on a file or directory of this name or suffix count, and on what is
            directly in a directory of this name. What lies further above is the machine's choice.
        is_late: whether what a failing call was to do is done all the same.
    """

    is_late = False

    def __init__(
        self,
        fail_at: int | None = None,
        error: int | None = EIO,
        *,
        stays: bool = False,
        only: tuple[str, ...] = OPERATIONS,
        path_part: str = "",
    ) -> None:
        super().__init__()
        self.fail_at = fail_at
        self.error = error
        self.stays = stays
        self.only = only
        self.path_part = path_part
        self.counted = 0
        self.failed = 0
        self._paths: dict[int, str] = {}
        self._fails_late = False

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if name not in self.only or not self._concerns(self._path(arguments)):
            return arguments
        number, self.counted = self.counted, self.counted + 1
        if (
            self.fail_at is None
            or number < self.fail_at
            or (number > self.fail_at and not self.stays)
        ):
            return arguments
        if self.error is not None:
            self.failed += 1
            if self.is_late:
                self._fails_late = True
                return arguments
            raise OSError(self.error, os.strerror(self.error), self._path(arguments))
        if name in WRITES:
            self.failed += 1
            return (arguments[0], _half(arguments[1]), arguments[2])
        return arguments

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        if self._fails_late and name.startswith("open_"):
            self.close(result)
        self._fail_late(arguments)
        if name.startswith("open_"):
            self._paths[result] = arguments[0]

    def after_failure(self, arguments: tuple[Any, ...]) -> None:
        self._fail_late(arguments)

    def _fail_late(self, arguments: tuple[Any, ...]) -> None:
        if self._fails_late:
            self._fails_late = False
            assert self.error is not None
            raise OSError(self.error, os.strerror(self.error), self._path(arguments))

    def _concerns(self, path: str) -> bool:
        *_, directory, name = ("", *path.split(os.sep))
        return self.path_part in ("", directory, name, os.path.splitext(name)[1])

    def _path(self, arguments: tuple[Any, ...]) -> str:
        first = arguments[0]
        return self._paths.get(first, "") if isinstance(first, int) else str(first)


def _half(data: Any) -> Any:
    """Half of what was to be written, but at least a byte."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return memoryview(data)[: max(1, len(data) // 2)]
    joined = b"".join(data)
    return [joined[: max(1, len(joined) // 2)]]


@dataclass
class _Inode:
    """A file or directory: what is on disk of it for certain, and what is in memory."""

    is_directory: bool = False
    durable: bytes = b""
    volatile: bytes = b""


@dataclass
class _Change:
    """A change of names in a directory that isn't synced yet."""

    removed: str | None
    added: str | None
    inode: _Inode | None = field(default=None, repr=False)


class ForgetfulFiles(WatchedFiles):
    """Knows what would be on disk if the power went now, and stops the machine at the nth call.

    A file's bytes are certain after `fdatasync`, a name after `fsync_directory`. Everything else
    may or may not have reached the disk: `disk` takes a `Random` to choose. What is in the root at
    the beginning is on disk.

    Attributes:
        crash_at: at which call to raise `Crash`, counted from 0; None for never.
        meanwhile: called once, inside the next `fdatasync`, when that has taken what it takes: what
            this writes comes too late for it.
    """

    meanwhile: Callable[[], None] | None = None

    def __init__(self, root: str, crash_at: int | None = None) -> None:
        super().__init__()
        self.crash_at = crash_at
        self._root = root
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._changes: dict[str, list[_Change]] = {}
        self._inodes: dict[int, _Inode] = {}
        for directory, directories, files in os.walk(root):
            for each in directories:
                self._names[os.path.join(directory, each)] = _Inode(is_directory=True)
            for each in files:
                path = os.path.join(directory, each)
                self._names[path] = _Inode(durable=self._read(path))
        self._durable_names.update(self._names)

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.crash_at is not None and len(self.calls) > self.crash_at:
            raise Crash
        # What loses its name here may keep it on disk.
        lost = {"unlink": arguments[:1], "rename": arguments[1:]}.get(name, ())
        for path in lost:
            if path in self._names:
                self._names[path].volatile = self._read(path)
        return arguments

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        first = arguments[0]
        if name.startswith("open_"):
            if first not in self._names:
                self._add(first, _Inode())
            self._inodes[result] = self._names[first]
        elif name == "mkdir":
            self._add(first, _Inode(is_directory=True))
        elif name in ("unlink", "rmdir"):
            self._change(first, _Change(first, None))
            del self._names[first]
        elif name == "link":
            self._add(arguments[1], self._names[first])
        elif name == "rename":
            inode = self._names.pop(first)
            self._names[arguments[1]] = inode
            self._change(first, _Change(first, arguments[1], inode))
        elif name == "fdatasync":
            self._inodes[first].durable = os.pread(first, os.fstat(first).st_size, 0)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
        elif name == "fsync_directory":
            for change in self._changes.pop(first, []):
                _apply(change, self._durable_names)

    def disk(self, target: str, random: Random | None = None) -> None:
        """Write what is on disk now into another directory, as a machine would find it.

        Args:
            target: a directory that doesn't exist yet.
            random: chooses what else reached the disk; None: nothing that was not synced.
        """
        names = dict(self._durable_names)
        for changes in self._changes.values():
            for change in changes:
                if random is not None and random.random() < 0.5:
                    _apply(change, names)
        os.mkdir(target)
        for path in sorted(names):
            inode = names[path]
            copy = os.path.join(target, os.path.relpath(path, self._root))
            if not os.path.isdir(os.path.dirname(copy)):
                continue  # the directory's own name was lost
            if inode.is_directory:
                os.mkdir(copy)
            else:
                with open(copy, "wb") as file:
                    file.write(self._surviving(inode, random))

    def _surviving(self, inode: _Inode, random: Random | None) -> bytes:
        if random is None:
            return inode.durable
        path = next((path for path, each in self._names.items() if each is inode), None)
        volatile = inode.volatile if path is None else self._read(path)
        if not volatile.startswith(inode.durable):
            return random.choice((inode.durable, volatile))
        kept = bytearray(volatile[: random.randint(len(inode.durable), len(volatile))])
        for _ in range(random.choice((0, 0, 1, 3))):
            # A page that was allocated but never written.
            start = random.randint(len(inode.durable), len(kept))
            end = min(len(kept), start + random.choice((1, 16, 512)))
            kept[start:end] = bytes(end - start)
        return bytes(kept)

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def _add(self, path: str, inode: _Inode) -> None:
        self._names[path] = inode
        self._change(path, _Change(None, path, inode))

    def _change(self, path: str, change: _Change) -> None:
        self._changes.setdefault(os.path.dirname(path), []).append(change)


def _apply(change: _Change, names: dict[str, _Inode]) -> None:
    """Do a change to a set of names; one that presumes another that was lost does what it can."""
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None and change.inode is not None:
        names[change.added] = change.inode
