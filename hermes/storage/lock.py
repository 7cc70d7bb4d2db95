"""One data directory, one process: a lock that vanishes with whoever holds it.

The lock is `flock` on the file `.hermes_lock`, whose text is the holder's process id, for people
and for the error of the one who comes second. The file stays when the lock goes: what counts is the
lock, not the file, so a crash leaves nothing to clean up. Kafka 0.7 ignores plain files there.
"""

import os

from hermes.errors import DataDirectoryLockedError
from hermes.storage.files import FileLayer
from hermes.storage.layout import LOCK_NAME


class DirectoryLock:
    """Holds a directory for this process, from `DirectoryLock(path)` to `release`.

    Args:
        advice: what whoever comes second can do; part of the error.

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
            holder = files.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            self.release()
            named = f"process {holder}" if holder else "another process"
            text = f"{directory} is in use by {named}: {advice}"
            raise DataDirectoryLockedError(text) from None
        except OSError:
            self.release()
            raise
        try:
            files.ftruncate(self._descriptor, 0)
            files.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)
