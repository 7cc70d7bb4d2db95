"""The directory of one log: whether it is still the one that was opened, its syncs, its deletions.

A broker that keeps writing into files whose names are gone acknowledges messages that nobody will
find again. So the directory's identity, and those of the files in it, are checked with every flush
and roll, and before anything is deleted.

Deleting takes long, so it has a lock of its own, which is taken alone.
"""

import os
import threading
from collections.abc import Callable, Collection, Sequence
from errno import ESTALE
from stat import S_ISLNK
from typing import Final

from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, Identity, identity
from hermes.storage.log_format import LogFormat
from hermes.storage.segment import BESIDE, Segment, parse_segment_name
from hermes.storage.segment_files import remove_segment
from hermes.storage.source_positions import DAMAGED_NAME, POSITIONS_NAMES

#: What a damaged segment is called beside the directory that it was in.
DAMAGED_SUFFIX: Final = ".damaged"


class LogDirectory:
    """A partition's directory; all calls block, and belong in worker threads (but for `check`).

    Args:
        log_format: what its segments hold.
        descriptors: gives idle descriptors up when there is none for a sync.

    Attributes:
        identity: which directory was opened; None before that.
        is_new: whether its own name may be in memory only, so that the next sync of its names
            must cover its parent as well.
        kept: names that a deletion moves beside the directory, since they may be all that is left
            of some messages; `keeps_all`: so it does with all segments.
    """

    def __init__(
        self, path: str, log_format: LogFormat, files: FileLayer, descriptors: DescriptorCache
    ) -> None:
        self.path = path
        self._format = log_format
        self.identity: Identity | None = None
        self.is_new = False
        self._files = files
        self._descriptors = descriptors
        self.kept: Collection[str] = ()
        self.keeps_all = self._is_deleted = False
        self._removed: list[Segment] = []
        self._delete_lock = threading.Lock()

    def current_identity(self) -> Identity:
        return identity(self._files.stat(self.path))

    def check(self, segments: Sequence[Segment] = ()) -> None:
        """Make sure that the names still lead to what was opened.

        Args:
            segments: the ones to look for. That they are where they were shows that their
                directory is; without any, the directory itself is looked at.

        Raises:
            OSError: they don't: what is written goes where nobody will find it.
        """
        try:
            is_same = bool(segments) or self.current_identity() == self.identity
            for segment in segments:
                status = self._files.lstat(segment.file.path)
                is_same &= (status.st_dev, status.st_ino) == segment.file.identity
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        if not is_same:
            raise OSError(
                ESTALE,
                f"{self.path} or a file in it was removed, replaced or unmounted; put back "
                "what was there, or restart the broker to go on with what is there now",
            )

    def sync(self) -> None:
        self._descriptors.opening(self._files.fsync_directory, self.path)

    def sync_parent(self) -> None:
        """Put on disk that the directory exists, unless that is known to be."""
        if self.is_new:
            self._descriptors.opening(self._files.fsync_directory, os.path.dirname(self.path))
            self.is_new = False

    @property
    def has_removed(self) -> bool:
        return bool(self._removed)

    def remove(self, segments: Sequence[Segment]) -> None:
        self._removed += segments

    def delete_removed(self, is_followed: Callable[[], bool]) -> None:
        """Delete the files of segments that were removed, oldest first, each for certain.

        One that resists stays in the list, and those after it stay on disk: whatever is left must
        be a log without holes when it is opened again.

        Args:
            is_followed: whether the segment that follows them is on disk; none is deleted before.
        """
        with self._delete_lock:
            while self._removed and is_followed():
                remove_segment(self._removed[0], self._files)
                self._files.fsync_directory(self.path)
                del self._removed[0]

    def forget_removed(self) -> None:
        """Delete nothing more: whatever has these names from now on may be another log's."""
        with self._delete_lock:
            self._removed.clear()

    def delete(self, *, from_end: bool = False) -> None:
        """Delete the log's files, oldest segment first, and the directory: a crash leaves a log.

        Files that aren't ours are left alone, and with them the directory. Raises OSError:
        something can't be deleted, or it isn't the directory that was opened.

        `from_end`: the newest first, so that a crash leaves the log's beginning.
        """
        with self._delete_lock:
            if not self._is_deleted:
                self._delete(from_end)
                self._is_deleted = True  # whatever has its name from now on is another one's

    def _delete(self, from_end: bool) -> None:
        try:
            current = self.current_identity()
        except FileNotFoundError:
            return
        if self.identity not in (None, current):
            text = "it is not the directory that was opened; nothing was deleted"
            raise OSError(ESTALE, text, self.path)
        for name in self._own_files(from_end):
            path = os.path.join(self.path, name)
            is_segment = name.endswith(self._format.suffix)
            if name in self.kept or (self.keeps_all and is_segment):
                self._files.rename(path, f"{self.path}-{name}{DAMAGED_SUFFIX}")
            else:
                self._files.unlink(path)
            if is_segment:
                self._files.fsync_directory(self.path)
        if S_ISLNK(self._files.lstat(self.path).st_mode):
            self._files.unlink(self.path)
        else:
            self._files.rmdir(self.path)

    def _own_files(self, from_end: bool) -> list[str]:
        names, kind = self._files.listdir(self.path), self._format
        parsed = [
            (-base if from_end else base, suffix not in BESIDE[kind.suffix], name)
            for name in names
            for base, suffix in [parse_segment_name(name, kind.suffix) or (-1, "")]
            if suffix
        ]
        # What is said of messages goes before them.
        said = (*POSITIONS_NAMES, DAMAGED_NAME, *kind.first_names)
        return [
            *(name for name in said if name in names),
            *(name for name in names if name.endswith(kind.draft_suffixes)),
            *(name for _, _, name in sorted(parsed)),
            *(name for name in kind.last_names if name in names),
        ]
