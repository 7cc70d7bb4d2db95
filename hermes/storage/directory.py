"""All partitions of a broker in one data directory: opening, creating, deleting, closing.

`hermes.storage.layout` describes the names. 0.7 exits on any other *directory* in log_dir.
Here whatever isn't understood is reported and left alone, and a partition that can't be opened is
reported and stays out of service while the others start.

The marker's life: read at start, removed before anything can be appended, written again only when
everything was flushed and every log was in service. A start that fails does not write one, and
keeps one that was there, since nothing has changed: when the failure comes after `open` (a port is
in use, say), `close(clean=False)` puts it back.

The module is long because all of that guards one mapping of logs, and one lock on the directory.

Threads: `logs` and `get` any thread; `create` the reactor's thread (it makes a directory and an
empty file); `open`, `delete_topic`, `close` block and belong into a worker thread.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from stat import S_ISREG
from types import MappingProxyType
from typing import Final
from uuid import UUID, uuid4
from weakref import WeakSet

from hermes.errors import StorageError
from hermes.storage.checkpoints import Checkpoints, write_topic_id
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import (
    FileLayer,
    Identity,
    identity,
    is_directory,
    storage_error,
)
from hermes.storage.formats import FORMATS, find_format
from hermes.storage.kafka_format import KAFKA
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    CLUSTER_ID_NAME,
    DIRECTORY_ID_NAME,
    LARGEST_PARTITION,
    LOCK_NAME,
    OWN_FILES,
    RESTORE_MARKER,
    TopicPartition,
    empty,
    is_left_of_deletion,
    is_unused,
    list_partitions,
    partition_directory,
    remove_unused,
)
from hermes.storage.lock import DirectoryLock
from hermes.storage.log import Log
from hermes.storage.log_format import LogFormat
from hermes.storage.owner import check_owner, read_owner, write_owner
from hermes.storage.producer_ids import (
    free_from,
    mend_producer_ids,
    read_producer_ids,
    write_producer_ids,
)
from hermes.storage.recovery import RecoveryReport
from hermes.storage.settings import LogSettings
from hermes.storage.topic_entries import EntryLines, TopicEntries, read_entries, write_entries
from hermes.storage.watermarks import Watermarks
from hermes.storage.whole_files import (
    mend_with_copy,
    read_whole,
    replace_whole,
    replace_with_copy,
    with_checksum,
    without_checksum,
)

_MAX_ID_BYTES = 100
_LOCKED: Final = "stop that process, or give this broker another log_dir"


@dataclass(frozen=True, slots=True)
class OpenReport:
    """What opening a data directory found.

    Attributes:
        was_clean: whether the last stop was clean; nothing was recovered then.
        offline: why partitions could not be opened; the error names files.
        strange: paths relative to log_dir that belong to no log, as `os.listdir` gives them; they
            were left alone.
        healed: small files that were damaged, with what was believed instead.
        lost: what partitions had before and have no more, in words.
        foreign: partitions whose topic's id isn't that of the topic's first, with both ids, in
            words.
    """

    was_clean: bool
    recovered: Mapping[TopicPartition, RecoveryReport] = field(default_factory=dict)
    offline: Mapping[TopicPartition, str] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    healed: tuple[str, ...] = ()
    lost: Mapping[TopicPartition, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()

    @property
    def dropped_bytes(self) -> int:
        return sum(report.dropped_bytes for report in self.recovered.values())


class DataDirectory:
    """The logs of a broker. Made without touching a file; `open` comes first.

    Args:
        path: log_dir; created with its parents when missing.
        files: the file layer; the operating system's unless given.
        max_open_segments: how many segments may be open while nobody uses them.
        take_entries: told what was set for single topics, before `settings_for` is asked.

    Attributes:
        path: log_dir, absolute.
        files: the file layer.
        watermarks: of the logs that have other copies.
        closing: what `close` puts on disk now, for whoever waits for it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings_for: Callable[[str], LogSettings],
        files: FileLayer | None = None,
        *,
        max_open_segments: int = 1024,
        take_entries: Callable[[TopicEntries], None] = lambda entries: None,
    ) -> None:
        self.path = os.path.abspath(path)
        self._settings_for = settings_for
        self._take_entries = take_entries
        self.files = FileLayer() if files is None else files
        self._descriptors = DescriptorCache(self.files, max_open_segments)
        self._entry_lines = EntryLines()
        self._checkpoints = Checkpoints(self.path, self.files)
        self.watermarks = Watermarks(self.path, self.files)
        self._lock: DirectoryLock | None = None
        # Guards the exchange of `_logs`, which is copied on every change.
        self._change = threading.Lock()
        self._logs: Mapping[TopicPartition, Log] = {}
        # Topics, or single copies of them: None for all partitions.
        self._deleting: set[tuple[str, int | None]] = set()
        # Of topics whose deletion has failed: those whose files are still there.
        self._undeleted: dict[str, list[Log]] = {}
        self._made_alone = WeakSet[Log]()
        # Those whose directory could not be looked at.
        self._unseen: set[Log] = set()
        self._is_open = False
        # The directory that was opened and locked.
        self._place: Identity | None = None
        self._opened_ms = 0
        self._owner: int | None = None
        self._mended: list[str] = []
        self.closing = ""
        # Where the logs ended at a clean start that had nothing to recover; else None.
        self._clean_ends: Mapping[TopicPartition, int] | None = None

    # -- logs -----------------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The logs by (topic, partition): a read-only snapshot; offline ones are in it too."""
        return MappingProxyType(self._logs)

    def get(self, topic: str, partition: int) -> Log | None:
        """Find a log, perhaps offline; None when the partition has none yet."""
        return self._logs.get((topic, partition))

    def create(
        self,
        topic: str,
        partition: int,
        log_format: LogFormat | None = None,
        topic_id: UUID | None = None,
        *,
        is_sole_copy: bool = True,
    ) -> Log:
        """Create a partition's log, or find the one that exists.

        Nothing is synced here: the log's first flush does that.

        Args:
            topic: a name that was checked with `hermes.protocol.check_new_topic_name`.
            partition: 0 to `hermes.storage.layout.LARGEST_PARTITION`.
            log_format: that of the topic's other partitions here unless given, or what the topic's
                settings say.
            topic_id: that of the topic's other partitions here unless given, or a new one, in
                formats that have ids.

        Returns:
            The log. It is offline when the directory was there and holds something (what a failed
            delete has left, say): recovering that takes a while, and `reopen` does it.

        Raises:
            DiskFullError: nothing was created that would block a later attempt.
            StorageError: it can't be created; the topic is being deleted, say.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            return log
        with self._change:
            self._check_not_deleting(topic)
            if topic_id is not None and topic in self._undeleted:
                raise StorageError(f"an earlier topic {topic} is not deleted yet")
        self._check_place(f"create partition {topic}-{partition}")
        if partition > LARGEST_PARTITION:
            raise StorageError(f"partition {partition} of {topic}: {LARGEST_PARTITION} is the last")
        other = self._partition_of(topic)
        if other is not None:
            log_format, topic_id = log_format or other.format, topic_id or other.topic_id
        log_format = log_format or FORMATS[self._settings_for(topic).format]
        if log_format.has_topic_ids:
            topic_id = topic_id or uuid4()
        if is_sole_copy and self.watermarks.get(topic, partition) is not None:
            # Of an earlier topic's: the next start would look for other copies of this one.
            self.watermarks.forget([(topic, partition)], even_lacking=True)
        log = self._made(topic, partition, log_format, topic_id)
        log.is_sole_copy = is_sole_copy
        if self._make_partition(log):
            log.open(clean=False, now_ms=self._opened_ms, is_new_directory=True)
            if is_sole_copy:
                self._made_alone.add(log)
        with self._change:
            self._logs = {**self._logs, (topic, partition): log}
        return log

    def made_alone(self, topic: str, partition: int, topic_id: UUID) -> bool:
        """Whether a log was made here, as the only copy, since the directory was opened."""
        log = self._logs.get((topic, partition))
        return log is not None and log in self._made_alone and log.topic_id == topic_id

    def _partition_of(self, topic: str) -> Log | None:
        first = self._logs.get((topic, 0))
        if first is not None:
            return first
        return next((log for key, log in self._logs.items() if key[0] == topic), None)

    def _make_partition(self, log: Log) -> bool:
        """Make a partition's directory; say whether it is empty, so that opening takes no time."""
        try:
            # One that exists may be what an earlier try has left, and on no disk yet.
            is_new = True
            try:
                self.files.mkdir(log.directory)
            except FileExistsError:
                may_have_files = log.format.has_topic_ids
                is_new = is_unused(
                    log.directory, self.files, may_have_files=may_have_files
                ) or is_left_of_deletion(log.directory, self.files)
                if is_new:  # else what is there would be recovered, before the id is on disk
                    empty(log.directory, self.files)
            if is_new and log.topic_id is not None:
                write_topic_id(log.directory, log.topic_id, self.files)
            return is_new
        except OSError as error:
            raise storage_error(f"create partition {log.name}", error) from error

    def _check_place(self, what: str) -> None:
        """Refuse to work in another directory than the one that was opened and locked."""
        try:
            is_same = identity(self.files.stat(self.path)) == self._place
        except FileNotFoundError:
            is_same = False
        except OSError as error:
            raise storage_error(what, error) from error
        if not is_same:
            raise StorageError(
                f"{what}: {self.path} was removed, replaced or unmounted; put back what was there, "
                "or restart the broker to go on with what is there now"
            )

    def reopen(self, log: Log, now_ms: int) -> RecoveryReport:
        """Bring an offline log back (`Log.reopen`). Blocks.

        Raises StorageError: it stays offline; as for `Log.reopen`, or the directory is not the one
        that was opened, and another broker may be at work in it.
        """
        self._check_place(f"re-open {log.name}")
        if log in self._unseen:
            self._look_again(log)
        return log.reopen(now_ms)

    def _look_again(self, log: Log) -> None:
        """Look at a directory that the start could not look at, and do what it would have done."""
        found = find_format(log.directory, log.format, self.files, self._checkpoints)
        if found.failure is not None:
            raise storage_error(f"{log.name}: open", found.failure)
        if found.format not in (None, log.format):
            raise StorageError(
                f"{log.name} could not be looked at as the broker started, and is a log of another "
                "format than its topic's settings say: restart the broker"
            )
        log.sidecar.has_provisional_id = found.topic_id is not None
        if found.format is None:
            self._begin_again(log)
        self._unseen.discard(log)

    def _begin_again(self, log: Log) -> None:
        """Make the directory of a log in which nothing was ever flushed."""
        if log.format.has_topic_ids:
            others = (each for key, each in self._logs.items() if key[0] == log.topic)
            known = next((each.topic_id for each in others if each.topic_id is not None), None)
            log.sidecar.topic_id = known or uuid4()
            log.sidecar.has_provisional_id = known is None
        self._make_partition(log)

    def _begin_deleting(self, topic: str, partition: int | None = None) -> None:
        """Under the lock: have a topic, or one copy, to oneself; copies go at the same time."""
        if partition is None or {(topic, None), (topic, partition)} & self._deleting:
            self._check_not_deleting(topic)
        self._deleting.add((topic, partition))

    def _check_not_deleting(self, topic: str) -> None:
        """Under the lock: leave a topic to whoever is deleting it."""
        if any(name == topic for name, _ in self._deleting):
            raise StorageError(f"topic {topic} is being deleted")

    def _made(
        self, topic: str, partition: int, log_format: LogFormat, topic_id: UUID | None
    ) -> Log:
        return Log(
            topic,
            partition,
            os.path.join(self.path, partition_directory(topic, partition)),
            self._settings_for(topic),
            self.files,
            self._descriptors,
            log_format,
            topic_id,
            self._checkpoints,
        )

    def _all_found(self, partitions: Sequence[TopicPartition]) -> list[Log]:
        wanted = {topic: FORMATS[self._settings_for(topic).format] for topic, _ in partitions}
        found = {
            each: self._found(
                # Only topics of Kafka's format have copies.
                *each,
                wanted[each[0]] if self.watermarks.get(*each) is None else KAFKA,
            )
            for each in partitions
        }
        kafkas = {log.topic for log in found.values() if log is not None and log.format is KAFKA}
        for each, log in found.items():
            if log is not None and log.format is not KAFKA and log.topic in kafkas:
                # A loss of power has left it empty, and the topic's settings weren't written.
                found[each] = self._found(*each, KAFKA)
        return [log for log in found.values() if log is not None]

    def _found(self, topic: str, partition: int, wanted: LogFormat) -> Log | None:
        """Make the log of a directory that exists, of the format that it has.

        Returns the log; None for one in which nothing was ever flushed: `create` makes it again.
        """
        name = partition_directory(topic, partition)
        directory = os.path.join(self.path, name)
        found = find_format(directory, wanted, self.files, self._checkpoints)
        if found.mended:
            self._mended.append(found.mended)
        if found.format is None:
            if wanted is KAFKA:
                # Else it would pass for a log once the settings that say what it is are forgotten.
                with suppress(OSError):
                    empty(directory, self.files)
                    self.files.rmdir(directory)
            return None
        log = self._made(topic, partition, found.format, found.topic_id)
        log.sidecar.has_provisional_id = found.topic_id is not None
        log.is_sole_copy = self.watermarks.get(topic, partition) is None
        if found.failure is not None:
            log.keep_offline(str(storage_error(f"{log.name}: open", found.failure)))
            self._unseen.add(log)
        return log

    # -- opening --------------------------------------------------------------------------------

    def open(
        self, now_ms: int, *, workers: Executor | None = None, broker_id: int | None = None
    ) -> OpenReport:
        """Take the directory and bring all its logs into service.

        Args:
            workers: recovers logs in parallel; without it one after the other.
            broker_id: the broker's, which must be the one whose directory it is; `keep_owner`
                writes it down. None to take whatever directory it is.

        Returns:
            What was found. Partitions that could not be opened are in it, and in `logs`, offline.

        Raises:
            DataDirectoryLockedError: another process uses the directory.
            StorageError: the directory itself can't be created, locked or listed, or is another
                broker's; nothing in it was changed.
        """
        self._owner = broker_id
        try:
            self._make_directory()
            self._lock = DirectoryLock(self.path, self.files, _LOCKED)
            self._place = identity(self.files.stat(self.path))
            return self._open(now_ms, workers, self._lock)
        except OSError as error:
            self._abandon()
            raise storage_error(f"open data directory {self.path}", error) from error
        except BaseException:
            self._abandon()
            raise

    def _make_directory(self) -> None:
        """Create the data directory and its parents where missing, each put on disk.

        So is the one that an earlier start may have made last, and was stopped.
        """
        missing = []
        path = self.path
        while not is_directory(path, self.files):
            missing.append(path)
            path = os.path.dirname(path)
        if missing or set(self.files.listdir(path)) <= {LOCK_NAME}:
            with suppress(OSError):  # mostly it isn't ours, and has been there for long
                self.files.fsync_directory(os.path.dirname(path))
        for path in reversed(missing):
            self.files.mkdir(path)
            self.files.fsync_directory(os.path.dirname(path))

    def _open(self, now_ms: int, workers: Executor | None, lock: DirectoryLock) -> OpenReport:
        self._opened_ms = now_ms
        healed = self._mended = []
        if self._owner is not None:
            names = self.files.listdir(self.path)
            healed.append(check_owner(self.path, self._owner, names, self.files))
            healed.append(mend_producer_ids(self.path, self.files))
            path = os.path.join(self.path, CLUSTER_ID_NAME)
            healed.append(mend_with_copy(path, self.files, _is_cluster_id))
        self._take_entries(read_entries(self.path, self.files))
        partitions, strange = list_partitions(self.path, self.files)
        if RESTORE_MARKER in strange:
            raise StorageError(
                f"{self.path} holds a restore that was not finished: delete it, and restore again"
            )
        was_clean = CLEAN_SHUTDOWN_MARKER in strange and self._is_file(CLEAN_SHUTDOWN_MARKER)
        if was_clean:
            strange.remove(CLEAN_SHUTDOWN_MARKER)
        strange = [name for name in strange if not name.startswith(OWN_FILES)]
        self._unseen.clear()
        healed.append(self.watermarks.load())
        logs = self._all_found(partitions)

        def open_log(log: Log) -> RecoveryReport | str | None:
            if log in self._unseen:
                return log.offline_reason
            try:
                log.state.has_lost_power = lock.has_lost_power
                report = log.open(clean=was_clean, now_ms=now_ms)
            except StorageError as error:
                return str(error)
            log.commit(self.watermarks.committed(log.topic, log.partition) or 0)
            return report

        results = list(map(open_log, logs) if workers is None else workers.map(open_log, logs))
        if was_clean:
            # Nothing was appended yet; from here on it may be.
            self.files.unlink(os.path.join(self.path, CLEAN_SHUTDOWN_MARKER))
        lock.enter_service()
        # After an unclean stop the names of partitions may still be in memory only.
        self.files.fsync_directory(self.path)
        self._logs = {(log.topic, log.partition): log for log in logs}
        self._is_open = True
        if was_clean and not any(results):
            self._clean_ends = self._ends()
        outcomes = list(zip(self._logs, results, strict=True))
        for log in logs:
            healed += log.sidecar.mended
            strange += [f"{log.name}/{name}" for name in log.strange_files]
        return OpenReport(
            was_clean=was_clean,
            recovered={key: each for key, each in outcomes if isinstance(each, RecoveryReport)},
            offline={key: each for key, each in outcomes if isinstance(each, str)},
            strange=tuple(strange),
            healed=tuple(filter(None, healed)),
            lost={key: log.sidecar.lost for key, log in self._logs.items() if log.sidecar.lost},
            foreign=tuple(_foreign(sorted(logs, key=lambda log: (log.topic, log.partition)))),
        )

    def _is_file(self, name: str) -> bool:
        return S_ISREG(self.files.lstat(os.path.join(self.path, name)).st_mode)

    def _ends(self) -> dict[TopicPartition, int]:
        return {key: log.end_offset for key, log in self._logs.items()}

    def _abandon(self) -> None:
        """Give back what a start has taken, so that another may follow."""
        self._descriptors.close_idle()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def keep_owner(self) -> None:
        """Write down whose directory it is, unless that stands there. Blocks.

        Not before a start has come to its end: one with a wrong id may have failed. Raises
        StorageError: the disk refused.
        """
        if self._owner is None:
            return
        with suppress(ValueError, OSError):
            if read_owner(self.path, self.files) == self._owner:
                return
        write_owner(self.path, self._owner, self.files)

    def write_entries(self, entries: TopicEntries) -> None:
        """Keep what is set for single topics, until the next start and longer. Blocks.

        Raises StorageError: the disk refused, or the directory is another one.
        """
        self._check_place("write the settings of topics")
        write_entries(self.path, entries, self.files, self._entry_lines)

    def cluster_id(self, make: Callable[[], str]) -> str:
        """Read the UUID that is kept for the broker's cluster; make and keep one first. Blocks.

        Raises StorageError: the file holds something else, or can't be read or written.
        """
        path = os.path.join(self.path, CLUSTER_ID_NAME)
        try:
            data = read_whole(path, _MAX_ID_BYTES, self.files)
        except OSError as error:
            raise storage_error(f"read {path}", error) from error
        if data is None:
            made = make()
            replace_with_copy(path, made.encode(), self.files)
            return made
        found = _uuid(data)
        if found is None:
            raise StorageError(
                f"{path} holds no UUID; put back what was there, or remove it, and mirrors will "
                "take this for another cluster"
            )
        return found

    def own_id(self) -> UUID:
        """Read the id that tells this data directory from any other; made at first. Blocks.

        One whose file is damaged is another directory from then on. Raises StorageError: the disk
        refused.
        """
        path = os.path.join(self.path, DIRECTORY_ID_NAME)
        try:
            data = read_whole(path, _MAX_ID_BYTES, self.files)
        except OSError as error:
            raise storage_error(f"read {path}", error) from error
        with suppress(ValueError):
            if data is not None:
                known = UUID(without_checksum(data).decode("ascii"))
                self._sync_names()  # an earlier try may have failed to
                return known
        made = uuid4()
        replace_whole(path, with_checksum(str(made).encode()), self.files)
        return made

    def _sync_names(self) -> None:
        try:
            self.files.fsync_directory(self.path)
        except OSError as error:
            raise storage_error(f"sync {self.path}", error) from error

    def claim_producer_ids(
        self, count: int, elsewhere: Callable[[int, int], int] | None = None
    ) -> int:
        """Take ids for producers that nobody has had before. Blocks; one call at a time.

        None of them is known in a log that is here, whoever gave it out.

        Args:
            count: how many.
            elsewhere: takes them where all brokers do; given how many, and what they must not be
                below.

        Returns:
            The first one.

        Raises:
            StorageError: the disk refused, the file holds something else, or none is left.
        """
        self._check_place("take producer ids")
        known = self._known_producers()
        first = free_from(read_producer_ids(self.path, self.files), count, known)
        while elsewhere is not None:
            taken = elsewhere(count, first)
            first = free_from(taken, count, known)
            if first == taken:
                break
        write_producer_ids(self.path, first + count, self.files)
        return first

    def _known_producers(self) -> set[int]:
        known: set[int] = set()
        for log in self._logs.values():
            if log.producers is not None:
                # The reactor's thread changes them meanwhile; a list of them is made in one step.
                known.update(list(log.producers.states))
        return known

    def limit_open_segments(self, count: int) -> None:
        """Keep at most this many segments open from now on while nobody uses them."""
        self._descriptors.max_open = count

    # -- deleting and closing -------------------------------------------------------------------

    def delete_topic(self, topic: str) -> int:
        """Delete all partitions of a topic that are here. Blocks.

        A crash on the way leaves a log that has lost its oldest segments, or an empty one; what an
        earlier crash has left goes, too.

        Returns:
            How many bytes of messages were deleted; 0 when there is no such topic.

        Raises:
            StorageError: something could not be deleted. All partitions are out of service; what
                is left of the files is tried again by the next call, or comes back with the next
                start. Or another call is deleting the topic; this one has changed nothing.
        """
        (deleted,) = self.delete_topics([topic])
        if isinstance(deleted, StorageError):
            raise deleted
        return deleted

    def delete_topics(self, topics: Sequence[str]) -> list[int | StorageError]:
        """The same for some topics: of each, what `delete_topic` returns or raises. Blocks."""
        found: dict[str, int | StorageError] = {}
        with self._change:
            doomed: dict[str, list[Log]] = {}
            for topic in topics:
                try:
                    self._begin_deleting(topic)
                    doomed[topic] = []
                except StorageError as error:
                    found[topic] = error
            kept = {}
            for key, log in self._logs.items():
                if key[0] in doomed:
                    doomed[key[0]].append(log)
                else:
                    kept[key] = log
            self._logs = kept
        found |= self._delete(doomed, None, is_all=True)
        return [found[topic] for topic in topics]

    def delete_copy(self, topic: str, partition: int, *, keeps_damaged: bool = False) -> int:
        """Delete one partition, of which others have copies. Blocks. As `delete_topic`.

        `keeps_damaged`: segments that are damaged are kept beside its directory; all, of a log that
        can't be opened.
        """
        with self._change:
            self._begin_deleting(topic, partition)
            doomed = [log for key, log in self._logs.items() if key == (topic, partition)]
            self._logs = {key: log for key, log in self._logs.items() if key != (topic, partition)}
        for log in doomed if keeps_damaged else ():
            log.state.directory.kept = {os.path.basename(each.path) for each in log.damage}
            log.state.directory.keeps_all = log.replica.is_unreadable
        deleted = self._delete({topic: doomed}, partition, is_all=False)[topic]
        self.watermarks.forget([(topic, partition)])
        if isinstance(deleted, StorageError):
            raise deleted
        return deleted

    def delete_left(self, topic: str) -> None:
        """Delete what a failed deletion has left, whatever has the topic's name now.

        Blocks. Raises StorageError, as `delete_topic` does; also while another call is at it.
        """
        with self._change:
            self._check_not_deleting(topic)
            if topic not in self._undeleted:
                return
            self._begin_deleting(topic)
        deleted = self._delete({topic: []}, None, is_all=False)[topic]
        if isinstance(deleted, StorageError):
            raise deleted

    def _delete(
        self, doomed: Mapping[str, Sequence[Log]], partition: int | None, *, is_all: bool
    ) -> dict[str, int | StorageError]:
        """Delete the files of logs that are out of service: by topics, how many bytes they had."""
        found: dict[str, int | StorageError] = {}
        gone: list[Log] = []
        try:
            for topic, logs in doomed.items():
                found[topic] = self._delete_logs(topic, logs, gone)
            whole = {each for each, deleted in found.items() if isinstance(deleted, int)}
            try:
                if is_all:
                    remove_unused(self.path, whole, self.files)
                copies = [each for each in gone if not each.is_sole_copy]
                self.watermarks.forget([(each.topic, each.partition) for each in copies])
                self.files.fsync_directory(self.path)
            except (OSError, StorageError) as error:
                # They may come back with the next start, and what was noted of them counts.
                self._are_left(gone)
                for topic in whole:
                    what = f"delete topic {topic}"
                    found[topic] = (
                        error if isinstance(error, StorageError) else storage_error(what, error)
                    )
        finally:
            with self._change:
                self._deleting -= {(topic, partition) for topic in doomed}
        return found

    def _delete_logs(self, topic: str, logs: Sequence[Log], gone: list[Log]) -> int | StorageError:
        """Of one topic, whatever an earlier attempt has left included; `gone`: gets those."""
        deleted_bytes, fault, left = 0, None, []
        try:
            for log in (*self._undeleted.pop(topic, ()), *logs):
                try:
                    deleted_bytes += log.delete()
                    gone.append(log)
                except StorageError as error:
                    fault = fault or error
                    left.append(log)
        finally:
            self._are_left(left)
        return fault or deleted_bytes

    def _are_left(self, logs: Sequence[Log]) -> None:
        """Let the next attempt delete these, too."""
        with self._change:  # others may be deleting other copies
            for log in logs:
                self._undeleted[log.topic] = [*self._undeleted.get(log.topic, ()), log]

    def close(self, *, clean: bool = True, abandoned: Collection[Log] = ()) -> bool:
        """Flush and close all logs, and give the directory back. Blocks. Again is harmless.

        Args:
            clean: False after a start that failed: no marker is written, so the next start
                recovers; unless `open` found one, and nothing was appended or recovered since.
            abandoned: logs that are not to be waited for, since a flush of theirs hangs: they are
                neither flushed nor closed, and no marker is written.

        Returns:
            Whether the marker was written: everything is on disk and every log was in service.
        """
        clean = clean or self._ends() == self._clean_ends
        logs = [log for log in self._logs.values() if log not in abandoned]
        flushed = [self._flush(log) for log in logs]
        for log in logs:
            log.close()
        # A late caller may have appended to a log until it was closed.
        flushed += [log.flushed_end == log.end_offset for log in self._logs.values()]
        self.closing = CLEAN_SHUTDOWN_MARKER
        is_clean = clean and self._is_open and all(flushed) and not abandoned
        if is_clean:
            is_clean = self._write_marker()
        self._is_open = False
        self._logs = {}
        self._abandon()
        return is_clean

    def _flush(self, log: Log) -> bool:
        self.closing = log.name
        try:
            log.flush()
        except StorageError:
            return False
        return True

    def _write_marker(self) -> bool:
        path = os.path.join(self.path, CLEAN_SHUTDOWN_MARKER)
        try:
            self._check_place("write the marker of a clean stop")
            self.files.close(self.files.open_append(path, create=True))
            self.files.fsync_directory(self.path)
        except (OSError, StorageError):
            return False
        return True


def _uuid(data: bytes) -> str | None:
    try:
        return str(UUID(data.decode("ascii").strip()))
    except ValueError:
        return None


def _is_cluster_id(line: bytes, copy: bytes | None) -> bool:
    """See `mend_with_copy`: what was given once never changes."""
    return _uuid(line) is not None and copy in (None, line)


def _foreign(logs: Sequence[Log]) -> Iterator[str]:
    """Describe logs, given in order, whose topic id differs from that of their topic's first."""
    first: dict[str, Log] = {}
    for log in logs:
        if log.topic_id is None:
            continue
        known = first.setdefault(log.topic, log)
        if known.topic_id != log.topic_id:
            yield (
                f"{log.name} has the topic id {log.topic_id}, and {known.name} has {known.topic_id}"
            )
