"""The slow check of what nobody reads: every message's CRC, round and round.

Disks lose bits in silence, and a broker sends what it has without looking at it. So one thread
reads all segments, `damage_check_rate` bytes a second, and at most once a day. It waits while
clients wait for the disk, and takes what it brought into memory out again. What it finds is noted
in `Log.damage`, logged once, and forgotten when the segment is gone, or mended.

Damaged segments are listed in a file too: the next start looks at them first, as a broker must not
take for sound what it knew to be damaged. Then come logs that somebody has met damage in.
"""

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EIO
from threading import Event
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.python.failure import Failure

from hermes.announcement import Announcement
from hermes.errors import StorageError
from hermes.logs import ModuleLogger
from hermes.storage import DataDirectory, FileLayer, Log
from hermes.storage.damage import (
    BlockReads,
    Damage,
    DamagedSegment,
    damage_of,
    describe,
    read_damaged,
    read_or_zeros,
    write_damaged,
)
from hermes.storage.files import AsideFiles, identity, read_exactly
from hermes.storage.log_format import OpenSegment
from hermes.storage.segment import Segment

#: The pause from the start of the broker to the first round.
FIRST_ROUND_SECONDS: Final = 60.0

#: Rounds begin at most this often.
ROUND_SECONDS: Final = 24 * 60 * 60.0

#: A log that is suspect time and again is looked at this often.
SUSPECTS_SECONDS: Final = 60 * 60.0

#: How often suspects are looked for in a round; each time all logs are gone through.
_LOOK_SECONDS: Final = 10.0

#: How fast suspects are read while no check is wanted, in bytes per second.
SUSPECTS_RATE: Final = 1024 * 1024

# So little that what is computed between two reads keeps nobody waiting.
_BLOCK_BYTES: Final = 64 * 1024
_WAIT_SECONDS: Final = 1.0
# How long a block waits for clients that wait for the disk, and how often it looks.
_YIELD_SECONDS: Final = 1.0
_YIELD_STEP_SECONDS: Final = 0.02
_MOST_SHOWN: Final = 10


class _StoppedError(Exception):
    """The broker stops, or no check is wanted any more."""


_State = tuple[int, ...]


class _Looked(NamedTuple):
    """The state that a segment's file was found in, and what is damaged."""

    state: _State
    damage: list[Damage]


@dataclass(slots=True)
class _Pace:
    """How fast to read, in bytes per second: waits in the thread that does."""

    is_disk_wanted: Callable[[], bool]
    rate: float = 0.0
    is_over: Event = field(default_factory=Event)
    read_bytes: int = 0

    def wait(self, size_bytes: int) -> None:
        """Wait until so many bytes more may be read. Raises _StoppedError."""
        owed: float = size_bytes
        while owed > 0:
            rate = self.rate  # it may change meanwhile
            seconds = min(owed / rate, _WAIT_SECONDS) if rate else 0.0
            if not rate or self.is_over.wait(seconds):
                raise _StoppedError
            owed -= max(seconds * rate, 1)
        waited = 0.0
        while waited < _YIELD_SECONDS and self.is_disk_wanted():
            if self.is_over.wait(_YIELD_STEP_SECONDS):
                raise _StoppedError
            waited += _YIELD_STEP_SECONDS
        self.read_bytes += size_bytes


class DamageCheck:
    """Looks for damage, in a thread of its own; lives in the reactor's thread.

    Args:
        in_thread: calls a function in that thread and returns its Deferred.
        seconds: a clock that can't be set.
        rate: how fast to read, in bytes per second; 0 for not at all.
        is_disk_wanted: whether clients wait for the disk; any thread.

    Attributes:
        rounds: how often all logs were looked at.
    """

    _logger = ModuleLogger()

    def __init__(
        self,
        directory: DataDirectory,
        in_thread: Callable[..., "Deferred[Any]"],
        seconds: Callable[[], float],
        rate: Callable[[], int],
        is_disk_wanted: Callable[[], bool] = lambda: False,
        files: FileLayer | None = None,
    ) -> None:
        self._directory = directory
        self._in_thread = in_thread
        self._seconds = seconds
        self._rate = rate
        self._files = FileLayer() if files is None else files
        self._pace = _Pace(is_disk_wanted)
        self._next_round = seconds() + FIRST_ROUND_SECONDS
        self._in_round = False
        self._looked_at: dict[Log, float] = {}  # since when suspects were last looked at
        # In which state damaged files were.
        self._states: dict[Segment, _State] = {}
        self._noted: frozenset[DamagedSegment] | None = None  # on disk
        # Those of an earlier life that could not be looked at yet.
        self._left: frozenset[DamagedSegment] = frozenset()
        self._has_changed = False  # what is damaged, since that was noted
        self._next_suspects = -math.inf
        self._is_running = False
        self._stopped = Announcement[None]()
        self.rounds = 0

    @property
    def read_bytes(self) -> int:
        return self._pace.read_bytes

    def damaged(self) -> list[Log]:
        return [log for log in self._directory.logs.values() if log.damage]

    def look(self) -> None:
        """Forget what is gone, and look at what there is; call it often."""
        for log in self.damaged():
            there = {segment for segment, _ in log.flushed_segments()}
            if not there.issuperset(log.damage):
                log.damage = {each: log.damage[each] for each in log.damage if each in there}
        logs = set(self._directory.logs.values())
        self._looked_at = {each: at for each, at in self._looked_at.items() if each in logs}
        known = {segment for log in self.damaged() for segment in log.damage}
        self._states = {each: state for each, state in self._states.items() if each in known}
        self._pace.rate = self._rate() or (0 if self._in_round else SUSPECTS_RATE)
        if not (self._is_running or self._pace.is_over.is_set()):
            self._is_running = True
            self._run().addErrback(self._failed).addBoth(self._ended)

    def stop(self) -> "Deferred[None]":
        """Fires when the thread has ended with what it was at."""
        self._pace.is_over.set()
        stopped = self._stopped.wait()
        if not self._is_running:
            self._stopped.tell(None)
        return stopped

    def _failed(self, failure: Failure) -> None:
        self._logger.failure("looking for damage failed; it will be tried again", failure)

    def _ended(self, _: Any) -> None:
        self._is_running = self._in_round = False
        self._stopped.tell(None)

    @inlineCallbacks
    def _run(self) -> "Any":
        try:
            if self._noted is None:
                noted = yield self._in_thread(read_damaged, self._directory.path, self._files)
                self._noted = self._left = noted
            yield self._known_before()
            yield self._suspects()
            yield self._save()
            if not self._rate() or self._seconds() < self._next_round:
                return
            self._next_round = self._seconds() + ROUND_SECONDS
            self._in_round = True
            logs = list(self._directory.logs.values())
            # A broker that is often started anew must not always look at the same ones.
            first = random.randrange(len(logs) or 1)
            for log in (*logs[first:], *logs[:first]):
                for segment, _ in log.flushed_segments():
                    yield self._segment(log, segment)
                    # Not each time: there may be very many logs, with little in each.
                    if self._seconds() >= self._next_suspects:
                        yield self._suspects()
                    if self._has_changed:
                        yield self._save()
            self.rounds += 1
        except _StoppedError:
            pass

    @inlineCallbacks
    def _known_before(self) -> "Any":
        for each in self._left:
            log, is_over = self._directory.get(each.topic, each.partition), True
            if log is not None:
                is_over = bool(log.view.bases)  # else it could not be opened so far
                for segment, _ in log.flushed_segments():
                    if segment.base_offset == each.base_offset:
                        is_over = yield self._segment(log, segment)
            if is_over:
                self._left -= {each}

    @inlineCallbacks
    def _save(self) -> "Any":
        damaged = frozenset(
            DamagedSegment(log.topic, log.partition, segment.base_offset)
            for log in self.damaged()
            for segment in log.damage
        )
        damaged |= self._left
        self._has_changed = False
        if damaged != self._noted:
            with suppress(StorageError):  # a full disk, say: it is tried again
                yield self._in_thread(write_damaged, self._directory.path, damaged, self._files)
                self._noted = damaged

    @inlineCallbacks
    def _suspects(self) -> "Any":
        self._next_suspects = self._seconds() + _LOOK_SECONDS
        for log in list(self._directory.logs.values()):
            since = self._looked_at.get(log, -SUSPECTS_SECONDS)
            is_due = self._seconds() - since >= SUSPECTS_SECONDS and bool(log.view.bases)
            if log.is_suspect and is_due:
                yield self._suspect(log)
            for segment in list(log.damage):
                state = yield self._in_thread(self._state_of, log, segment)
                if state != self._states.get(segment):
                    yield self._segment(log, segment)

    @inlineCallbacks
    def _suspect(self, log: Log) -> "Any":
        """Look at a log that somebody has met damage in; it stays suspect if that fails."""
        log.is_suspect, left = False, log.flushed_segments()
        self._looked_at[log] = self._seconds()
        try:
            for each in list(left):
                if (yield self._segment(log, each[0])):
                    left.remove(each)
        finally:
            log.is_suspect |= bool(left)

    @inlineCallbacks
    def _segment(self, log: Log, segment: Segment) -> "Any":
        """Look at a segment, if it is still there; False if that can't be done now.

        Raises _StoppedError.
        """
        end = dict(log.flushed_segments()).get(segment)
        if end is None:
            return True
        looked = yield self._in_thread(self._look_at, log, segment, end)
        is_there = segment in dict(log.flushed_segments())
        if looked is not None and is_there:
            self._note(log, segment, looked)
        return looked is not None or not is_there

    def _note(self, log: Log, segment: Segment, looked: _Looked) -> None:
        damage = [each for each in looked.damage if each.end > log.earliest]
        before = log.damage.get(segment, ())
        others = {each: found for each, found in log.damage.items() if each is not segment}
        self._has_changed |= bool(damage) or bool(before)
        if damage:
            self._states[segment] = looked.state
            log.damage = {**others, segment: damage}
            if damage != before:
                self._logger.error(
                    "{log} is {damage}, in {path}: see docs/failures.md",
                    log=log.name,
                    damage=describe(damage, _MOST_SHOWN),
                    path=segment.path,
                )
        elif before:
            log.damage = others
            self._logger.info("{log} is damaged no more in {path}", log=log.name, path=segment.path)

    # -- in the thread ----------------------------------------------------------------------------

    def _state_of(self, log: Log, segment: Segment) -> _State:
        try:
            return _state(log, segment, log.files.lstat(segment.path))
        except OSError:
            return ()

    def _look_at(self, log: Log, segment: Segment, end: int) -> _Looked | None:
        """Read a segment up to an offset; None if that can't be done now. Raises _StoppedError."""
        files = AsideFiles(log.files)
        try:
            descriptor = files.open_read(segment.path)
        except OSError as error:
            if error.errno != EIO:  # it was renamed or deleted, or there is no descriptor
                return None
            return _Looked((), [Damage(segment.base_offset, end)])
        try:
            status = files.fstat(descriptor)
            if segment.file.identity not in (None, identity(status)):
                return None
            opened = OpenSegment(segment, self._reads(files, descriptor, status), descriptor)
            limit = log.settings.max_message_bytes
            found = damage_of(log.format, opened, end, status.st_size, limit)
        except OSError:  # clients that read it are told
            return None
        finally:
            files.close(descriptor)
        # What follows is being appended.
        flushed = [Damage(each.start, min(each.end, end)) for each in found if each.start < end]
        return _Looked(_state(log, segment, status), flushed)

    def _reads(self, files: FileLayer, descriptor: int, status: os.stat_result) -> BlockReads:
        def read_now(length: int, position: int) -> bytes:
            return read_exactly(files, descriptor, length, position)

        def read(position: int) -> bytes:
            length = max(0, min(_BLOCK_BYTES, status.st_size - position))
            self._pace.wait(length)
            return read_or_zeros(read_now, length, position)

        return BlockReads(read, _BLOCK_BYTES)


def damage_text(log: Log) -> str:
    ranges: list[Damage] = [each for found in log.damage.values() for each in found]
    return describe(sorted(ranges))


def by_topic(logs: Sequence[Log]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for log in logs:
        if log.damage:
            counts[log.topic] = counts.get(log.topic, 0) + len(log.damage)
    return counts


def _state(log: Log, segment: Segment, status: os.stat_result) -> _State:
    """Which state of which file this is, as far as its messages go."""
    if any(each is segment for each, _ in log.flushed_segments()[-1:]):  # it grows
        return identity(status)
    return (*identity(status), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
