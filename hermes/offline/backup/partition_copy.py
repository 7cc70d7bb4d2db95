"""Copies one partition, the newest segment first: `hermes.offline.backup.taking` says why."""

import os
from collections.abc import Sequence
from contextlib import ExitStack

from hermes.errors import StorageError
from hermes.offline.backup.copying import (
    Copier,
    FileInspection,
    UnreadableError,
    reading_source,
)
from hermes.offline.backup.extents import LogExtent, open_segment
from hermes.offline.backup.manifest import DATA, DamagedRange, ManifestFile
from hermes.storage.checkpoints import EPOCHS_NAME, METADATA_NAME
from hermes.storage.damage import Damage, damage_of
from hermes.storage.files import FileLayer, Identity, identity, read_exactly
from hermes.storage.index_entries import ENTRY_BYTES, decode_entry
from hermes.storage.kafka_format import format_of
from hermes.storage.log_format import OpenSegment
from hermes.storage.segment import BESIDE, Segment, segment_name
from hermes.storage.source_positions import POSITIONS_NAME

_NOT_MADE_AGAIN = (".snapshot", ".txnindex")


class ChangedError(Exception):
    """A partition isn't what it was when its copy began: look again."""


class TooShortError(Exception):
    """A partition ends before the wanted end."""

    def __init__(self, found: int, end: int) -> None:
        super().__init__(f"it ends at offset {found}, and is committed up to {end}")
        self.found = found
        self.end = end


class PartitionCopy:
    """A partition that is being copied.

    Args:
        max_message_bytes: the largest payload to believe in where bytes are damaged.

    Attributes:
        stored: the files so far, by path.
        changing: the paths of those that recovery may change.
        faults: what is wrong with the source.
        damaged: the damaged messages in what was copied.
    """

    def __init__(
        self,
        copier: Copier,
        files: FileLayer,
        directory: str,
        name: str,
        extent: LogExtent,
        max_message_bytes: int,
    ) -> None:
        self._copier = copier
        self._files = files
        self._directory = directory
        self._name = name
        self.extent = extent
        self._format = format_of(directory, files)
        self.stored: dict[str, ManifestFile] = {}
        self.changing: set[str] = set()
        self.faults: list[str] = []
        self.damaged: list[DamagedRange] = []
        self._max_message_bytes = max_message_bytes

    def run(self) -> int:
        """Copy it; returns its first offset.

        Raises:
            ChangedError: it changed; nothing that was copied is of use.
            TooShortError: it isn't what the broker says.
            UnreadableError: its end can't be found.
        """
        bases, end, tail = self.extent
        self._add_sources()
        if not self._format.is_dense:
            for own in (METADATA_NAME, EPOCHS_NAME):
                self._add_beside(own, will_change=own != METADATA_NAME and tail > 0)
        with ExitStack() as stack:
            newest = -1
            for number in reversed(range(len(bases))):
                opened = open_segment(self._directory, bases[number], self._files, self._format)
                if opened is None:
                    self._check_was_oldest(bases[number])
                    break
                descriptor, segment = opened
                if newest < 0:
                    newest = descriptor
                    stack.callback(self._files.close, newest)
                # What recovery has to look at keeps its name; all else is on disk.
                suffix = os.path.splitext(segment.path)[1] if number >= len(bases) - tail else ""
                try:
                    self._segment(descriptor, segment, end, suffix)
                finally:
                    if descriptor != newest:
                        self._files.close(descriptor)
                end = bases[number]
            if self._look(bases[-1]) != identity(self._files.fstat(newest)):
                raise ChangedError("it was deleted, or replaced, while it was copied")
        return end

    def _add_sources(self) -> None:
        """Copy the positions of mirrors, which are as new as the extent, or newer.

        A start drops from them what lies beyond the copy of the log.
        """
        try:
            self._add_beside(POSITIONS_NAME, will_change=True)
        except StorageError as error:  # an append was taken back in this very moment
            raise ChangedError(str(error)) from error

    def _segment(self, descriptor: int, segment: Segment, end: int, suffix: str) -> None:
        base, size = segment.base_offset, self._files.fstat(descriptor).st_size
        is_last = base == self.extent.bases[-1]
        if is_last:
            length = self._length_up_to(end, descriptor, segment, size)
        else:
            length = end - base if self._format.is_dense else size
        if not is_last and size != length:
            self.faults.append(
                f"{self._name}: the segment at {base} has {size} bytes, not {length}: "
                "hermes check-log tells more"
            )
            length = size
        name = segment_name(base, suffix or self._format.suffix)

        damage: list[Damage] | None = None

        def look(files: FileLayer) -> None:
            nonlocal damage
            opened = OpenSegment(segment, files, descriptor)
            damage = damage_of(self._format, opened, end, length, self._max_message_bytes)
            if is_last and suffix and damage and damage[-1].end == end:
                del damage[-1]  # the tail is for recovery to judge

        self._add(descriptor, name, length, will_change=bool(suffix), look=look)
        self._note_damage(base, damage)
        will_be_mended = self.extent.tail > 0
        index = segment_name(base, self._format.index_suffix)
        self._add_beside(index, will_change=will_be_mended, end=None if will_be_mended else end)
        for beside in BESIDE[self._format.suffix]:
            # What Kafka keeps of the last one is made again; it may be about more than is copied.
            if beside != self._format.index_suffix and (not is_last or beside in _NOT_MADE_AGAIN):
                self._add_beside(segment_name(base, beside), will_change=will_be_mended)

    def _length_up_to(self, end: int, descriptor: int, segment: Segment, size: int) -> int:
        with reading_source():
            found = self._format.end_of(self._files, segment, size)
            if found < end:
                raise TooShortError(found, end)
            if self._format.is_dense:
                return end - segment.base_offset
            return self._format.locate(segment, self._files, descriptor, end, end)[0]

    def _note_damage(self, base: int, damage: Sequence[Damage] | None) -> None:
        """Note what of a segment is damaged; what was linked is as the older backup says."""
        path = f"{DATA}/{self._name}/{segment_name(base, self._format.suffix)}"
        if damage is None:
            self.damaged += self._copier.older_damage(path)
        else:
            self.damaged += [DamagedRange(path, *each) for each in damage]

    def _add_beside(self, name: str, *, will_change: bool, end: int | None = None) -> None:
        """Copy what is kept beside the messages; they are of use also without it.

        `end`: of an index, up to where the log is copied; None for all that there is.
        """
        try:
            descriptor = self._files.open_read(os.path.join(self._directory, name))
        except FileNotFoundError:
            return
        try:
            size = self._files.fstat(descriptor).st_size
            if end is not None:
                with reading_source():
                    size = self._usable_bytes(descriptor, size, end)
            self._add(descriptor, name, size, will_change=will_change)
        except UnreadableError as error:
            self.faults.append(f"{self._name}: {name} is not in the backup: {error}")
        finally:
            self._files.close(descriptor)

    def _usable_bytes(self, descriptor: int, size: int, end: int) -> int:
        """The length of an index up to its last intact entry that isn't about more than `end`."""
        count = size // ENTRY_BYTES
        while count:
            data = read_exactly(self._files, descriptor, ENTRY_BYTES, (count - 1) * ENTRY_BYTES)
            entry = decode_entry(data) if len(data) == ENTRY_BYTES else None
            if entry is not None and entry.end_offset <= end:
                break
            count -= 1
        return count * ENTRY_BYTES

    def _add(
        self,
        descriptor: int,
        name: str,
        length: int,
        *,
        will_change: bool,
        look: FileInspection | None = None,
    ) -> None:
        relative = f"{DATA}/{self._name}/{name}"
        if will_change:
            self.changing.add(relative)
        copy = self._copier.copy if will_change else self._copier.link_or_copy
        self.stored[relative] = copy(descriptor, length, relative, look)

    def _check_was_oldest(self, base: int) -> None:
        """Make sure that a missing segment went by retention: with all before it."""
        bases = self.extent.bases
        if base == bases[-1] or any(self._look(each) for each in bases if each < base):
            raise ChangedError(f"its segment at {base} was deleted")

    def _look(self, base: int) -> Identity | None:
        opened = open_segment(self._directory, base, self._files, self._format)
        if opened is None:
            return None
        try:
            return identity(self._files.fstat(opened[0]))
        finally:
            self._files.close(opened[0])
