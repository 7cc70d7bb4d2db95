"""Groups' offsets in the data directory of a broker without coordination: one file, appended to.

A commit is one write and one fdatasync, shared by all that wait at the time; the file is written
anew, as a whole and beside the old one, when most of it no longer counts. Its contents are in
memory, too. `offset_records` has the bytes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from hermes.errors import HermesError, StorageError
from hermes.groups.offset_records import (
    Skipped,
    encode_change,
    new_header,
    parse_changes,
    seeds_of,
)
from hermes.groups.offsets import (
    Change,
    GroupMovedError,
    StoredGroup,
)
from hermes.storage.files import FileLayer, read_exactly, storage_error, write_all
from hermes.storage.whole_files import replace_whole

#: Smaller files are not written anew.
_SMALL_BYTES: Final = 1024 * 1024

#: How many times as large as it need be the file may become.
_GROWTH: Final = 3


class OffsetFile:
    """The groups of one broker. Creating it reads the file, if there is one.

    Args:
        report: told in a sentence what was found that is not as it should be.

    Raises:
        StorageError: it can't be read or written, or is none of this kind.
    """

    def __init__(self, path: str, files: FileLayer, report: Callable[[str], None]) -> None:
        self._path = path
        self._files = files
        self._groups: dict[str, StoredGroup] = {}
        self._loaded: set[str] = set()
        self._descriptor = -1
        self._size = self._live = self._seed = 0
        try:
            data = self._read()
            if data is not None and self._replay(data, report):
                self._size = self._live = len(data)
        except OSError as error:
            raise storage_error(f"read {path}", error) from error

    # -- the store ------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self._groups)

    def load(self, group: str) -> StoredGroup | None:
        self._loaded.add(group)
        found = self._groups.get(group)
        return None if found is None else StoredGroup(found.record, dict(found.offsets))

    def write(self, changes: Sequence[Change]) -> list[HermesError | None]:
        results: list[HermesError | None] = []
        wanted: list[Change] = []
        for change in changes:
            if change.group not in self._loaded:
                results.append(GroupMovedError(f"{change.group} was released"))
                continue
            results.append(None)
            if change.offsets or not change.is_empty:
                wanted.append(change)
        try:
            if wanted:
                self._append(wanted)
        except HermesError as error:
            return [error if each is None else each for each in results]
        return results

    def release(self, group: str) -> None:
        self._loaded.discard(group)

    def close(self) -> None:
        self._loaded.clear()
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with suppress(OSError):
                self._files.close(descriptor)

    # -- the file -------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        try:
            descriptor = self._files.open_read(self._path)
        except FileNotFoundError:
            return None
        try:
            size = self._files.fstat(descriptor).st_size
            # A kill may have left the end in memory only, and groups are told of it from now on.
            self._files.fdatasync(descriptor)
            return read_exactly(self._files, descriptor, size, 0)
        finally:
            self._files.close(descriptor)

    def _replay(self, data: bytes, report: Callable[[str], None]) -> bool:
        seeds = seeds_of(data)
        if not seeds:
            raise StorageError(
                f"{self._path} doesn't begin as a file of Kafka groups' offsets of this release "
                "does: move it away, and groups begin where auto.offset.reset says"
            )
        self._seed, is_whole = seeds[0], len(seeds) == 2
        if not is_whole:
            report("one half of its beginning is damaged, and the other half was believed")
        for found in parse_changes(data, self._seed):
            if not isinstance(found, Skipped):
                self._apply(found)
                continue
            is_whole = False
            if found.end == len(data):
                report(f"dropped the last {found.end - found.begin} bytes, of an unfinished write")
            else:
                report(f"passed over bytes {found.begin} to {found.end}, which are damaged")
        return is_whole

    def _append(self, changes: Sequence[Change]) -> None:
        if self._descriptor < 0:
            self._open()
        data = b"".join(encode_change(each, self._seed) for each in changes)
        length = len(data)
        try:
            write_all(self._files, self._descriptor, (data,), self._size)
            self._files.fdatasync(self._descriptor)
        except OSError as error:
            # Nobody knows what is in the file now: it is written anew before the next change.
            descriptor, self._descriptor = self._descriptor, -1
            self._size = 0
            with suppress(OSError):
                self._files.close(descriptor)
            raise storage_error(f"write {self._path}", error) from error
        self._size += length
        for each in changes:
            self._apply(each)
        if self._size > max(_SMALL_BYTES, self._live * _GROWTH):
            with suppress(StorageError):  # tried again with the next change
                self._rewrite()

    def _open(self) -> None:
        """Open what was read if it is whole; else write it anew, as after a failure."""
        if not self._size:
            self._rewrite()
            return
        try:
            self._descriptor = self._files.open_append(self._path)
        except OSError as error:
            raise storage_error(f"open {self._path}", error) from error

    def _rewrite(self) -> None:
        header = new_header()
        self._seed = seed = seeds_of(header)[0]
        data = header + b"".join(
            encode_change(Change(name, record, offsets), seed)
            for name, (record, offsets) in self._groups.items()
        )
        # Whatever fails from here on, the old descriptor's file may have no name any more, and a
        # commit to it would be answered and lost.
        descriptor, self._descriptor, self._size = self._descriptor, -1, 0
        if descriptor >= 0:
            with suppress(OSError):
                self._files.close(descriptor)
        replace_whole(self._path, data, self._files)
        try:
            self._descriptor = self._files.open_append(self._path)
        except OSError as error:
            raise storage_error(f"open {self._path}", error) from error
        self._size = self._live = len(data)

    def _apply(self, change: Change) -> None:
        if change.forget:
            self._groups.pop(change.group, None)
            return
        found = self._groups.get(change.group)
        if found is None or change.record is not None:
            before = {} if found is None else found.offsets
            found = self._groups[change.group] = StoredGroup(change.record, before)
        offsets = found.offsets
        for place, committed in change.offsets.items():
            if committed is None:
                offsets.pop(place, None)
            else:
                offsets[place] = committed
