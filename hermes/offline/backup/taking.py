"""Takes one backup of a data directory, whether or not a broker is using it.

What may change under it, and why that costs nothing:

- Appends: only what is on disk is copied, and that never changes.
- Rolls and renames: a segment is opened under whichever of its names it has.
- Retention deletes the oldest segments first, so the newest are copied first: one that is gone
  means that all before it are. What was copied is the end of the log, without a gap.
- Topics deleted, or deleted and created again: the newest segment stays open while its partition
  is copied. If it isn't where it was afterwards, the partition is looked at once more.
- The files of the broker itself are replaced as a whole. They come first, so that no stored offset
  is beyond what is copied of its log.

Of a log that has other copies what is on disk may still be taken back: what is committed is copied,
as the broker says if it leads it, or as it keeps it in the directory. The directory's own id stays
behind: a restored one is another directory, whose copies leave the in-sync ones before all else.

Without a broker the directory is locked, and what an unclean stop has left is recovered in the
copy, by the broker's own code; the directory itself is not touched.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import Final, NamedTuple

from hermes.errors import CorruptLogError, DataDirectoryLockedError, StorageError
from hermes.offline.backup.copying import Copier, UnreadableError, reading_source
from hermes.offline.backup.extents import LogExtent, flushed_extent, stopped_extent
from hermes.offline.backup.manifest import (
    DATA,
    BackupManifest,
    DamagedRange,
    ManifestFile,
    PartitionExtent,
)
from hermes.offline.backup.partition_copy import ChangedError, PartitionCopy, TooShortError
from hermes.offline.backup.repository import Repository, remove_tree
from hermes.quoting import quoted
from hermes.storage.checkpoints import STARTS_NAME, Checkpoints
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, exists, storage_error
from hermes.storage.formats import is_leftover
from hermes.storage.kafka_format import format_of
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    DIRECTORY_ID_NAME,
    LOCK_NAME,
    RESTORE_MARKER,
    list_partitions,
    partition_directory,
)
from hermes.storage.lock import DirectoryLock
from hermes.storage.log import Log
from hermes.storage.partition_record import missing_of, read_record
from hermes.storage.settings import LogSettings
from hermes.storage.watermarks import Watermarks

_ATTEMPTS: Final = 5
_PREFIX: Final = ".hermes_"  # of the broker's own files


@dataclass(frozen=True, slots=True)
class BackupSource:
    """What to back up.

    Attributes:
        flushed: asks the broker that uses it for the high watermarks of a topic's partitions, by
            number; those that it doesn't serve are missing. None when there is no broker.
        settings: for the recovery of what an unclean stop has left.
        live_names: files of the broker that can't be copied while it runs.
    """

    log_dir: str
    flushed: Callable[[str], Mapping[int, int]] | None
    settings: LogSettings
    live_names: Collection[str] = ()


class CompletedBackup(NamedTuple):
    """A backup that is whole; its files were copied, or linked to an older backup's.

    `deleted`: the names of the older ones that had to go.
    """

    name: str
    manifest: BackupManifest
    copied_bytes: int
    linked_bytes: int
    deleted: Sequence[str] = ()


def take_backup(
    repository: Repository,
    source: BackupSource,
    *,
    now_ms: int,
    version: str,
    pause: Callable[[], None],
    advance: Callable[[int], None] = lambda size_bytes: None,
    files: FileLayer | None = None,
    keep: int | None = None,
) -> CompletedBackup:
    """Back up a data directory; everything that is flushed when this is called is in it. Blocks.

    Args:
        pause: lets a change of topics pass, up to five times per partition.
        advance: called with the number of bytes dealt with since the last call.
        keep: how many backups to leave, this one among them; None for all. One that lacks
            something takes the place of no other.

    Returns:
        What was taken. Its faults are what could not be, its damage is the source's.

    Raises:
        StorageError: there is no new backup, and the older ones are as they were; or one of them
            can't be deleted.
        HermesError: the same; what `flushed` raised.
    """
    files = FileLayer() if files is None else files
    _check_apart(source.log_dir, repository.path)
    with ExitStack() as stack:
        is_running = _lock_source(source, files, stack)
        stack.callback(repository.lock().release)
        name = ""
        try:
            name = repository.begin(now_ms)
            copier = _copier(repository, name, files, advance)
            taking = _Taking(source, copier, files, now_ms, is_running, pause)
            taking.run()
            manifest = taking.manifest(version)
            repository.finish(name, manifest)
        except BaseException as error:
            if name:
                repository.abandon(name)
            if isinstance(error, OSError):
                raise storage_error(f"back up {source.log_dir}", error) from error
            raise
        deleted = repository.keep(keep) if keep and not manifest.faults else []
    return CompletedBackup(name, manifest, copier.copied_bytes, copier.linked_bytes, deleted)


def _check_apart(log_dir: str, repository: str) -> None:
    places = [os.path.realpath(log_dir), os.path.realpath(repository)]
    if os.path.commonpath(places) in places:
        raise StorageError(f"{repository} and {log_dir} lie in one another: keep backups elsewhere")


def _lock_source(source: BackupSource, files: FileLayer, stack: ExitStack) -> bool:
    """Keep brokers out of the directory, unless one is using it; return whether one is."""
    if not os.path.isdir(source.log_dir):
        raise StorageError(f"there is no directory {source.log_dir}")
    try:
        advice = "name that broker with -b HOST:PORT, so that it can be asked"
        stack.callback(DirectoryLock(source.log_dir, files, advice).release)
    except DataDirectoryLockedError:
        if source.flushed is None:
            raise
    except OSError as error:
        if source.flushed is None or not isinstance(error, PermissionError):
            raise storage_error(f"lock {source.log_dir}", error) from error
    else:
        return False
    return True


def _copier(
    repository: Repository, name: str, files: FileLayer, advance: Callable[[int], None]
) -> Copier:
    root = repository.directory(name)
    for older, manifest in repository.readable():
        if manifest.damaged is not None:  # else nobody knows what is in its files
            return Copier(root, files, advance, manifest, repository.directory(older))
    return Copier(root, files, advance)


@dataclass(slots=True)
class _Taking:
    source: BackupSource
    copier: Copier
    files: FileLayer
    now_ms: int
    is_running: bool
    pause: Callable[[], None]
    is_clean: bool = False
    partitions: list[PartitionExtent] = field(default_factory=list)
    stored: dict[str, ManifestFile] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)

    def manifest(self, version: str) -> BackupManifest:
        return BackupManifest(
            hermes=version,
            taken_ms=self.now_ms,
            source=self.source.log_dir,
            was_running=self.is_running,
            partitions=self.partitions,
            files=list(self.stored.values()),
            faults=self.faults,
            notes=self.notes,
            damaged=self.damaged,
        )

    def run(self) -> None:
        self.files.mkdir(self.copier.path(DATA))
        partitions, others = list_partitions(self.source.log_dir, self.files)
        self.is_clean = CLEAN_SHUTDOWN_MARKER in others
        for name in others:
            self._other(name)
        for topic, group in groupby(partitions, key=lambda each: each[0]):
            self._topic(topic, [partition for _, partition in group])
        if partitions and self.faults and not self.partitions:
            raise StorageError(f"nothing could be backed up: {self.faults[0]}")
        self.files.fsync_directory(self.copier.path(DATA))

    def _other(self, name: str) -> None:
        """Copy a file of the broker itself; leave anything else out, with a note."""
        if name in (CLEAN_SHUTDOWN_MARKER, DIRECTORY_ID_NAME, LOCK_NAME):
            return
        if name == RESTORE_MARKER:
            raise StorageError(f"{self.source.log_dir} holds a restore that was not finished")
        path = os.path.join(self.source.log_dir, name)
        with suppress(FileNotFoundError):
            mode = self.files.lstat(path).st_mode
            if name.startswith((_PREFIX, STARTS_NAME)) and S_ISREG(mode):
                if not (self.is_running and name in self.source.live_names):
                    self._copy(path, f"{DATA}/{name}")
            elif name != "lost+found":
                kind = "directory" if S_ISDIR(mode) else "file"
                self.notes.append(f"the {kind} {quoted(name)} is none of Hermes': left out")

    def _copy(self, path: str, relative: str) -> None:
        descriptor = self.files.open_read(path)
        try:
            size = self.files.fstat(descriptor).st_size
            self.stored[relative] = self.copier.copy(descriptor, size, relative)
        except UnreadableError as error:
            self.faults.append(f"{os.path.basename(path)} is not in the backup: {error}")
        finally:
            self.files.close(descriptor)

    # -- partitions -----------------------------------------------------------------------------

    def _topic(self, topic: str, partitions: list[int]) -> None:
        flushed = self._ask(topic)
        committed = Watermarks(self.source.log_dir, self.files)
        for partition in partitions:
            name = partition_directory(topic, partition)
            for _ in range(_ATTEMPTS):
                committed.load()
                mark = committed.committed(topic, partition)
                try:
                    self._partition(topic, partition, flushed.get(partition), mark)
                    break
                except ChangedError as error:
                    reason = str(error)
                    self._unstage(name)
                    self.pause()
                    flushed = self._ask(topic)
                except (CorruptLogError, UnreadableError, TooShortError) as error:
                    if isinstance(error, TooShortError) and mark is None:
                        raise self._is_another(name, error) from error
                    self._unstage(name)
                    self.faults.append(f"{name} is not in the backup: {error}")
                    break
            else:
                self.faults.append(f"{name} is not in the backup: {reason}")

    def _is_another(self, name: str, error: TooShortError) -> StorageError:
        directory = os.path.join(self.source.log_dir, name)
        return StorageError(
            f"{directory} ends at offset {error.found}, but the broker says that it "
            f"has flushed up to {error.end}: is it the broker that uses this directory?"
        )

    def _unstage(self, name: str) -> None:
        staged = self.copier.path(f"{DATA}/{name}")
        if exists(staged, self.files):
            remove_tree(staged, self.files)

    def _ask(self, topic: str) -> Mapping[int, int]:
        if not self.is_running:
            return {}
        assert self.source.flushed is not None
        return self.source.flushed(topic)

    def _partition(
        self, topic: str, partition: int, high_watermark: int | None, committed: int | None
    ) -> None:
        """Copy a partition.

        `committed`: what the broker has kept of that, if there are other copies. Raises
        ChangedError: that is to be tried again; CorruptLogError, UnreadableError, TooShortError: it
        can't be copied.
        """
        name = partition_directory(topic, partition)
        directory = os.path.join(self.source.log_dir, name)
        if not exists(directory, self.files):
            self.notes.append(f"{name} was deleted meanwhile: left out")
            return
        try:
            if is_leftover(directory, self.files):
                self.notes.append(f"{name} is only what a deletion has left: left out")
                return
            with reading_source():
                extent = self._extent(directory, high_watermark, committed)
        except FileNotFoundError:
            raise ChangedError("it is being deleted") from None
        staged = self.copier.path(f"{DATA}/{name}")
        self.files.mkdir(staged)
        earliest = end = 0  # where a broker begins one without segments
        if extent is not None:
            limit = self.source.settings.max_message_bytes
            copying = PartitionCopy(self.copier, self.files, directory, name, extent, limit)
            earliest, end = copying.run(), extent.end
            if extent.tail:
                earliest, end = self._recover(topic, partition, copying)
            self.stored |= copying.stored
            self.faults += copying.faults
            # What lies beyond the end, recovery has cut off.
            self.damaged += [each for each in copying.damaged if each.start < end]
        if not self.is_running:  # one that runs has looked when it opened the partition
            bases = () if extent is None else extent.bases
            self.faults += [f"{name}: {each}" for each in self._missing(directory, bases, end)]
        self.files.fsync_directory(staged)
        self.partitions.append(PartitionExtent(topic, partition, earliest, end))

    def _missing(self, directory: str, bases: Sequence[int], end: int) -> list[str]:
        try:
            with reading_source():
                checkpoints = Checkpoints(self.source.log_dir, self.files)
                record = read_record(directory, self.files, checkpoints)
        except (ValueError, UnreadableError):  # a start believes the files that there are, too
            return []
        return [] if record is None else missing_of(directory, record, bases, end)

    def _extent(
        self, directory: str, high_watermark: int | None, committed: int | None
    ) -> LogExtent | None:
        if not self.is_running:
            return stopped_extent(directory, self.files, clean=self.is_clean)
        if committed is None and high_watermark is None:
            raise ChangedError("the broker doesn't serve it")
        end, has_copies = max(committed or 0, high_watermark or 0), committed is not None
        try:
            extent = flushed_extent(directory, end, self.files, has_copies=has_copies)
        except StorageError as error:  # all of that is deleted, since it was said or kept
            raise ChangedError(str(error)) from error
        if extent is None and not has_copies:
            raise ChangedError("it holds no segment")
        return extent

    def _recover(self, topic: str, partition: int, copying: PartitionCopy) -> tuple[int, int]:
        relative = f"{DATA}/{partition_directory(topic, partition)}"
        directory = self.copier.path(relative)
        descriptors = DescriptorCache(self.files, 16)
        log_format = format_of(directory, self.files)
        settings = self.source.settings
        log = Log(
            topic, partition, directory, settings, self.files, descriptors, log_format=log_format
        )
        earliest, end = copying.extent.bases[0], copying.extent.end
        try:
            report = log.open(clean=False, now_ms=self.now_ms)
            earliest, end = log.earliest, log.end_offset
            if report is not None and report.dropped_bytes:
                self.notes.append(
                    f"{log.name}: the last stop left {report.dropped_bytes} bytes that no broker "
                    "would serve: left out"
                )
        except CorruptLogError as error:
            copying.faults.append(f"{log.name}: {error}")
        finally:
            log.close()
            descriptors.close_idle()
        names = [f"{relative}/{each}" for each in sorted(self.files.listdir(directory))]
        copying.stored = {
            path: copying.stored[path]
            if path in copying.stored and path not in copying.changing
            else self._recovered(path)
            for path in names
        }
        return earliest, end

    def _recovered(self, relative: str) -> ManifestFile:
        descriptor = self.files.open_append(self.copier.path(relative))
        try:
            self.files.fdatasync(descriptor)
            status = self.files.fstat(descriptor)
        finally:
            self.files.close(descriptor)
        size, checksum = self.copier.checksum(relative)
        mode = S_IMODE(status.st_mode)
        return ManifestFile(relative, size, checksum, status.st_mtime_ns, mode, None)
