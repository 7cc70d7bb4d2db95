"""A file layer in memory, and what a disk may hold of it after a loss of power.

What POSIX says of files, directories, links and descriptors, as far as storage asks for it; no
symbolic links, no permissions. Descriptors are numbers that no process has, so that a call which
goes past the layer fails. The rules of a loss of power are those of `lost_power`: bytes are on the
disk once an `fdatasync` has returned, names once an `fsync_directory` has; of all else any sector
as it stood at some time since, and any of the changes of names.

A file is copied for each write until it is synced: for logs of some hundred kB.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from errno import EBADF, EEXIST, EINVAL, EIO, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EWOULDBLOCK
from random import Random
from stat import S_IFDIR, S_IFREG

from hermes.storage.files import Buffer, FileLayer

#: What a disk writes as a whole.
SECTOR_BYTES = 512

#: From here on descriptors are this module's.
FIRST_DESCRIPTOR = 1 << 30
_DEVICE = 7


@dataclass(eq=False)
class _Node:
    """A file or a directory, whatever its names are.

    Attributes:
        names: a directory's; None for a file.
        data: a file's bytes.
        durable, durable_names: its bytes, or names, on the disk.
        since: the states of `data` that writes and cuts have replaced since then.
        changes: what has become of a directory's names since then, a change in each; None is gone.
        links: how many names it has.
        synced: how many states, or changes, are over and done with.
        unreadable: (start, end) of what the disk doesn't give back before it is written again.
        turned: (position, mask) of bits that the disk has lost.
    """

    number: int
    mode: int
    names: "dict[str, _Node] | None" = None
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    durable_names: "dict[str, _Node]" = field(default_factory=dict)
    since: list[bytes] = field(default_factory=list)
    changes: "list[dict[str, _Node | None]]" = field(default_factory=list)
    links: int = 1
    modified_ns: int = 0
    synced: int = 0
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    turned: list[tuple[int, int]] = field(default_factory=list)


class MemoryFiles(FileLayer):
    """Files in memory.

    Args:
        root: a directory that exists from the beginning, with its parents.

    Attributes:
        now_ns: what a file's modification time becomes, in ns since 1970.
        boot: what the machine's start is called; another one stands for a loss of power.
    """

    def __init__(self, root: str = "/data") -> None:
        self.now_ns = 1_780_000_000 * 10**9
        self.boot = "the first start"
        self._numbers = 0
        self._root = self._made(S_IFDIR | 0o755)
        self._open: dict[int, tuple[_Node, bool]] = {}
        self._next_descriptor = FIRST_DESCRIPTOR
        self._locks: dict[_Node, int] = {}
        path = ""
        for name in root.strip("/").split("/"):
            path = f"{path}/{name}"
            self.mkdir(path)
            self.fsync_directory(os.path.dirname(path))

    def boot_id(self) -> str:
        return self.boot

    @property
    def open_count(self) -> int:
        """How many descriptors are open."""
        return len(self._open)

    # -- names ----------------------------------------------------------------------------------

    def _made(self, mode: int) -> _Node:
        self._numbers += 1
        names: dict[str, _Node] | None = {} if mode & S_IFDIR else None
        return _Node(self._numbers, mode, names, modified_ns=self.now_ns)

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in filter(None, os.path.normpath(path).split("/")):
            assert node is not None
            if node.names is None:
                raise _error(ENOTDIR, path)
            node = node.names.get(name)
            if node is None:
                return None
        return node

    def _there(self, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise _error(ENOENT, path)
        return node

    def _change(self, names: "dict[str, _Node | None]") -> None:
        """Give names to nodes, or take them (None): at once, where they are of one directory."""
        changes: dict[str, dict[str, _Node | None]] = {}
        for path, node in names.items():
            parent, name = os.path.split(os.path.normpath(path))
            changes.setdefault(parent, {})[name] = node
        for parent, change in changes.items():
            directory = self._there(parent)
            if directory.names is None:
                raise _error(ENOTDIR, parent)
            _apply(change, directory.names)
            directory.changes.append(change)

    def _add(self, path: str, mode: int) -> _Node:
        if self._find(path) is not None:
            raise _error(EEXIST, path)
        node = self._made(mode)
        self._change({path: node})
        return node

    def mkdir(self, path: str, mode: int = 0o777) -> None:  # type: ignore[override]
        self._add(path, S_IFDIR | mode)

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        node = self._there(path)
        if node.names is None:
            raise _error(ENOTDIR, path)
        if node.names:
            raise _error(ENOTEMPTY, path)
        self._change({path: None})

    def listdir(self, path: str) -> list[str]:  # type: ignore[override]
        names = self._there(path).names
        if names is None:
            raise _error(ENOTDIR, path)
        return list(names)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        node = self._there(path)
        if node.names is not None:
            raise _error(EISDIR, path)
        self._change({path: None})
        node.links -= 1

    def link(self, source: str, target: str) -> None:  # type: ignore[override]
        node = self._there(source)
        if self._find(target) is not None:
            raise _error(EEXIST, target)
        self._change({target: node})
        node.links += 1

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        node, replaced = self._there(source), self._find(target)
        if replaced is node:
            return
        if replaced is not None:
            if replaced.names:
                raise _error(ENOTEMPTY, target)
            replaced.links -= 1
        self._change({source: None, target: node})

    def fsync_directory(self, path: str) -> None:
        self.begin_directory_sync(path)()

    def begin_directory_sync(self, path: str) -> Callable[[], None]:
        """As `begin_sync`, for a directory's names."""
        node = self._there(path)
        if node.names is None:
            raise _error(ENOTDIR, path)
        names, synced = dict(node.names), node.synced + len(node.changes)

        def end() -> None:
            if synced >= node.synced:
                node.durable_names, node.changes = names, node.changes[synced - node.synced :]
                node.synced = synced

        return end

    # -- looking --------------------------------------------------------------------------------

    def stat(self, path: str) -> os.stat_result:  # type: ignore[override]
        return _status(self._there(path))

    lstat = stat  # type: ignore[assignment]

    def fstat(self, descriptor: int) -> os.stat_result:  # type: ignore[override]
        return _status(self._node(descriptor))

    def fchmod(self, descriptor: int, mode: int) -> None:  # type: ignore[override]
        node = self._node(descriptor)
        node.mode = (node.mode & ~0o7777) | mode

    def utime(  # type: ignore[override]
        self, path: str, times: None = None, *, ns: tuple[int, int]
    ) -> None:
        self._there(path).modified_ns = ns[1]

    # -- opening --------------------------------------------------------------------------------

    def _opened(self, node: _Node, *, writable: bool) -> int:
        self._next_descriptor += 1
        self._open[self._next_descriptor] = node, writable
        return self._next_descriptor

    def open_new(self, path: str, mode: int = 0o644) -> int:
        return self._opened(self._add(path, S_IFREG | mode), writable=True)

    def open_append(self, path: str, *, create: bool = False) -> int:
        if create and self._find(path) is None:
            return self.open_new(path)
        return self._opened(self._regular(path), writable=True)

    def open_read(self, path: str) -> int:
        return self._opened(self._regular(path), writable=False)

    def _regular(self, path: str) -> _Node:
        node = self._there(path)
        if node.names is not None:
            text = f"{path} is not a regular file (links are not followed); remove it"
            raise OSError(EINVAL, text, path)
        return node

    def _node(self, descriptor: int, *, writable: bool = False) -> _Node:
        node, may_write = self._open.get(descriptor, (None, False))
        if node is None or (writable and not may_write):
            raise OSError(EBADF, os.strerror(EBADF))
        return node

    def close(self, descriptor: int) -> None:  # type: ignore[override]
        node = self._node(descriptor)
        del self._open[descriptor]
        if self._locks.get(node) == descriptor:
            del self._locks[node]

    def close_all(self) -> None:
        """Close what is open, as the end of a process does: the files stay as they are."""
        self._open.clear()
        self._locks.clear()

    def lock(self, descriptor: int) -> None:
        if self._locks.setdefault(self._node(descriptor), descriptor) != descriptor:
            raise OSError(EWOULDBLOCK, os.strerror(EWOULDBLOCK))

    # -- bytes ----------------------------------------------------------------------------------

    def pread(self, descriptor: int, length: int, position: int) -> bytes:  # type: ignore[override]
        node, end = self._node(descriptor), position + length
        if node.unreadable and any(a < end and position < b for a, b in node.unreadable):
            raise OSError(EIO, os.strerror(EIO))
        return bytes(node.data[position:end])

    def read_resident(self, descriptor: int, length: int, position: int) -> bytes:
        return self.pread(descriptor, length, position)

    def pwrite(  # type: ignore[override]
        self, descriptor: int, data: Buffer, position: int
    ) -> int:
        return self.pwritev(descriptor, [data], position)

    def pwritev(  # type: ignore[override]
        self, descriptor: int, buffers: Sequence[Buffer], position: int
    ) -> int:
        node = self._changed(descriptor)
        data = b"".join(bytes(each) for each in buffers)
        node.data.extend(bytes(max(0, position - len(node.data))))
        node.data[position : position + len(data)] = data
        node.unreadable = _without(node.unreadable, position, position + len(data))
        return len(data)

    def ftruncate(self, descriptor: int, length: int) -> None:  # type: ignore[override]
        node = self._changed(descriptor)
        del node.data[length:]
        node.data.extend(bytes(length - len(node.data)))
        node.unreadable = [(a, min(b, length)) for a, b in node.unreadable if a < length]

    def _changed(self, descriptor: int) -> _Node:
        node = self._node(descriptor, writable=True)
        node.since.append(bytes(node.data))
        node.modified_ns = self.now_ns
        return node

    def fdatasync(self, descriptor: int) -> None:
        self.begin_sync(descriptor)()

    def begin_sync(self, descriptor: int) -> Callable[[], None]:
        """Begin to put on the disk what a file is now; what is returned ends it.

        Of what is written in between nothing is certain.
        """
        node = self._node(descriptor)
        data, synced = bytes(node.data), node.synced + len(node.since)
        turned = len(node.turned)

        def end() -> None:
            if synced >= node.synced:  # else a sync that began later is over already
                node.durable, node.since = data, node.since[synced - node.synced :]
                for lost in node.turned[turned:]:
                    node.durable = _turned(node.durable, *lost)
                node.synced = synced

        return end

    # -- what disks do by themselves ------------------------------------------------------------

    def durable(self, path: str) -> bytes:
        """What of a file is on the disk; zeros for what is not given back."""
        node = self._regular(path)
        data = bytearray(node.durable)
        for start, end in node.unreadable:
            data[start:end] = bytes(len(data[start:end]))
        return bytes(data)

    def rot(self, path: str, position: int, mask: int) -> None:
        """Turn bits of a byte that is on the disk, whoever reads it from now on."""
        node = self._regular(path)
        node.turned.append((position, mask))
        node.durable = _turned(node.durable, position, mask)
        node.since = [_turned(each, position, mask) for each in node.since]
        node.data[position] ^= mask

    def fail_reads(self, path: str, start: int, end: int) -> None:
        """Give a part of a file back no more, before it is written again."""
        self._regular(path).unreadable.append((start, end))

    def allow_reads(self, path: str, start: int, end: int) -> None:
        node = self._regular(path)
        node.unreadable = _without(node.unreadable, start, end)

    # -- a loss of power ------------------------------------------------------------------------

    def after_power_loss(self, chance: Random | None = None) -> "MemoryFiles":
        """What the machine finds at its next start, in another layer.

        Args:
            chance: chooses what else has reached the disk; None: nothing that was not synced.
        """
        found = type(self)()
        found.now_ns, found.boot = self.now_ns, f"after {self.boot}"
        found._numbers = self._numbers
        copies: dict[int, _Node] = {}
        found._root = self._surviving(self._root, chance, copies)
        return found

    def is_durable(self, descriptor: int, data: bytes, position: int) -> bool:
        """Whether a file has these bytes there whatever becomes of the power; not of its name."""
        durable = self._node(descriptor).durable
        return durable[position : position + len(data)] == data

    def _surviving(self, node: _Node, chance: Random | None, copies: dict[int, _Node]) -> _Node:
        if node.number in copies:
            return copies[node.number]
        copy = copies[node.number] = _Node(node.number, node.mode, modified_ns=node.modified_ns)
        if node.names is None:
            copy.durable = _kept(node, chance)
            copy.data = bytearray(copy.durable)
            copy.unreadable = list(node.unreadable)
            return copy
        names = dict(node.durable_names)
        for change in () if chance is None else node.changes:
            if chance.random() < 0.5:
                _apply(change, names)
        copy.names = {name: self._surviving(each, chance, copies) for name, each in names.items()}
        for each in copy.names.values():
            each.links = 1
        copy.durable_names = dict(copy.names)
        return copy


def _turned(data: bytes, position: int, mask: int) -> bytes:
    if position >= len(data):
        return data
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def _without(ranges: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    pieces = (((a, min(b, start)), (max(a, end), b)) for a, b in ranges)
    return [(a, b) for both in pieces for a, b in both if a < b]


def _apply(change: dict[str, _Node | None], names: dict[str, _Node]) -> None:
    for name, node in change.items():
        names.pop(name, None)
        if node is not None:
            names[name] = node


def _kept(node: _Node, chance: Random | None) -> bytes:
    """A file's bytes after a loss of power: each sector as it stood at some time since a sync."""
    if chance is None:
        return node.durable
    states = [node.durable, *node.since[1:], bytes(node.data)] if node.since else [node.durable]
    size = len(chance.choice(states))
    sectors = []
    for start in range(0, size, SECTOR_BYTES):
        part = chance.choice(states)[start : start + SECTOR_BYTES]
        sectors.append(part.ljust(SECTOR_BYTES, b"\0"))
    return b"".join(sectors)[:size]


def _status(node: _Node) -> os.stat_result:
    size, seconds = len(node.data), node.modified_ns // 10**9
    plain = (node.mode, node.number, _DEVICE, node.links, 0, 0, size, seconds, seconds, seconds)
    return os.stat_result(plain, {"st_mtime_ns": node.modified_ns})


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
