"""One data directory, one process: a lock that vanishes with whoever holds it.

The lock is `flock` on the file `.hermes_lock`, whose first line is the holder's process id, for
people and for the error of the one who comes second. The file stays when the lock goes: what counts
is the lock, not the file, so a crash leaves nothing to clean up. Kafka 0.7 ignores plain files.

Its second line names the start of the machine in which the directory last came into service. After
another one what wasn't synced is gone from the page cache, and a file may have holes; after a kill
it has none.
"""

import os
from contextlib import suppress

from hermes.errors import DataDirectoryLockedError
from hermes.storage.files import FileLayer, write_all
from hermes.storage.layout import LOCK_NAME


class DirectoryLock:
    """Holds a directory for this process, from `DirectoryLock(path)` to `release`.

    Args:
        advice: what whoever comes second can do; part of the error.

    Attributes:
        has_lost_power: whether the machine was started since the directory was last in service.

    Raises:
        DataDirectoryLockedError: another process (or this one) holds it.
        OSError: the file can't be opened or locked; it is a link, say.
    """

    def __init__(self, directory: str, files: FileLayer, advice: str = "stop it first") -> None:
        path = os.path.join(directory, LOCK_NAME)
        self._files = files
        self._descriptor = files.open_append(path, create=True)
        try:
            files.lock(self._descriptor)
        except BlockingIOError:
            holder = self._lines()[0]
            self.release()
            named = f"process {holder}" if holder else "another process"
            text = f"{directory} is in use by {named}: {advice}"
            raise DataDirectoryLockedError(text) from None
        except OSError:
            self.release()
            raise
        self._boot = ""
        with suppress(OSError):
            self._boot = self._lines()[1]
        self.has_lost_power = self._boot not in ("", files.boot_id())
        self._write()

    def enter_service(self) -> None:
        """Note that what the last stop has left is recovered, on disk; blocks."""
        boot = self._files.boot_id()
        if boot != self._boot:
            self._boot = boot
            self._write(is_synced=True)

    def _lines(self) -> list[str]:
        text = self._files.pread(self._descriptor, 128, 0).decode("ascii", "replace")
        return [*text.split("\n"), ""][:2]

    def _write(self, *, is_synced: bool = False) -> None:
        text = f"{os.getpid()}\n{self._boot}\n".encode("ascii", "replace")
        with suppress(OSError):  # a full disk, say: it is locked all the same
            write_all(self._files, self._descriptor, [text], 0)
            self._files.ftruncate(self._descriptor, len(text))
            if is_synced:
                self._files.fdatasync(self._descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)
