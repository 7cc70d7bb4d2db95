"""Simulated disks: what a process writes is in memory, and on the disk once a sync has returned.

A sync takes time, and only what was written before it began is certain to be on the disk then. A
disk may be slow, full, or fail; power may go, and takes any part of what wasn't synced with it.
"""

from collections.abc import Callable
from errno import EIO, ENOSPC
from functools import partial
from os import strerror
from typing import Any

from machines import KilledError, Machine, Process
from memory_files import MemoryFiles

from hermes.storage.files import FileLayer

__all__ = ["Disk", "ProcessFiles"]

#: How long a sync takes in µs, at the least and at the most.
_SYNC_US = 200, 4_000

#: How long one takes at the most, however slow the disk.
_LONGEST_SYNC_US = 5_000_000

#: What harms nobody when somebody who is dead does it, and takes no time.
_LOOKING = ("pread", "read_resident", "stat", "lstat", "fstat", "listdir", "boot_id")

#: What grows a file or a directory: not on a full disk.
_GROWING = ("pwrite", "pwritev", "open_new", "open_append", "mkdir", "link")

_OTHERS = (
    "ftruncate",
    "close",
    "rename",
    "unlink",
    "rmdir",
    "fchmod",
    "utime",
    "open_read",
    "lock",
)


class Disk:
    """A machine's disk.

    Attributes:
        files: its state, whoever has it open.
        slowness: by what a sync takes longer than usual.
        is_full: whether nothing can grow.
        failing: how many of the next syncs fail.
        syncs: how many there were.
    """

    def __init__(self, machine: Machine, root: str = "/data") -> None:
        self.machine = machine
        self.root = root
        self.files = MemoryFiles(root)
        self.slowness = 1.0
        self.is_full = False
        self.failing = 0
        self.syncs = 0
        self._chance = machine.world.child(f"disk {machine}")
        self._usual = self._chance.choice((1, 10, 40))

    def mount(self, process: Process) -> "ProcessFiles":
        """The disk's files for a process; they are closed when it ends."""
        process.on_end.append(self.files.close_all)
        return ProcessFiles(self, process)

    def lose_power(self) -> None:
        """Forget what was not synced, or some of it; the process has been killed before."""
        assert not self.machine.is_up
        chance = self._chance
        self.files = self.files.after_power_loss(None if chance.random() < 0.3 else chance)

    def wipe(self) -> None:
        """Be another, empty disk."""
        assert not self.machine.is_up
        self.files = MemoryFiles(self.root)

    def sync_us(self) -> int:
        self.syncs += 1
        least, most = _SYNC_US
        usual = self._usual * (least + (most - least) * self._chance.random() ** 4)
        # Else one that begins while the disk is slow could outlast the calm.
        return min(int(usual * self.slowness), _LONGEST_SYNC_US)


class ProcessFiles(FileLayer):
    """A disk's files as one process has them; once it is dead, it changes nothing any more."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._files = files = disk.files
        for name in _LOOKING:
            setattr(self, name, getattr(files, name))
        for name in _GROWING:
            setattr(self, name, partial(self._grow, getattr(files, name)))
        for name in _OTHERS:
            setattr(self, name, partial(self._do, getattr(files, name)))

    def _do(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._process.is_dead:
            raise OSError(EIO, "its process is dead")
        files = self._files
        files.now_ns = self._process.clock.now_ms() * 1_000_000
        return call(*arguments, **options)

    def _grow(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._disk.is_full and (call.__name__ != "open_append" or options.get("create")):
            raise OSError(ENOSPC, strerror(ENOSPC))
        return self._do(call, *arguments, **options)

    def fdatasync(self, descriptor: int) -> None:  # type: ignore[override]
        self._sync(self._do(self._files.begin_sync, descriptor), "an fdatasync")

    def fsync_directory(self, path: str) -> None:
        self._sync(self._do(self._files.begin_directory_sync, path), f"an fsync of {path}")

    def _sync(self, end: Callable[[], None], what: str) -> None:
        disk, process = self._disk, self._process
        process.wait(disk.sync_us(), what)
        if process.is_dead:
            raise KilledError
        if disk.failing:
            disk.failing -= 1
            raise OSError(EIO, strerror(EIO))
        end()
