"""What becomes of a leader's answers: the log is appended to, cut, or begun anew."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from twisted.python.failure import Failure

from hermes.errors import (
    CorruptLogError,
    DiskFullError,
    InvalidBatchError,
    LogOfflineError,
    OffsetOutOfRangeError,
    StorageError,
)
from hermes.kafka.replicas.copy_mending import CopyMending
from hermes.kafka.replicas.surroundings import OwnCopy, Surroundings
from hermes.protocol.record_batches import HEADER_BYTES, decode_header
from hermes.replication.following import (
    Append,
    Cut,
    Following,
    Rest,
    Restart,
    check_batches,
)
from hermes.replication.messages import Answer
from hermes.storage import Log, ToldSources

#: After how long a copy whose disk had no room tries again.
_ROOM_SECONDS: Final = 5.0

#: The pause after what the disk has refused otherwise.
_PAUSE_SECONDS: Final = 0.5

#: The pause after what came damaged once more: from the leader's disk, which it has to look at.
_DAMAGED_SECONDS: Final = 2.0

#: The pause after what the leader has refused.
_REST_SECONDS: Final = 0.05


class CopyFollower:
    """Lives in the reactor's thread.

    Attributes:
        is_full: whether the disk has refused what came for want of room.
        told_watermark: what the leader last said is committed.
    """

    __slots__ = (
        "_around",
        "_copy",
        "_damaged_at",
        "_has_sources",
        "_is_flushing",
        "_mending",
        "_told_start",
        "_writing",
        "is_full",
        "place",
        "told_watermark",
    )

    def __init__(self, copy: OwnCopy, around: Surroundings, mending: CopyMending) -> None:
        self.place = copy.place
        self._copy = copy
        self._mending = mending
        self._around = around
        self._writing: Following | None = None
        self.is_full = False
        self.told_watermark = self._told_start = 0
        self._has_sources = False
        self._is_flushing = False
        self._damaged_at = -1

    @property
    def wants_sources(self) -> bool:
        """Whether the log has nothing, and so isn't known to be without mirrors' sources."""
        log = self._copy.log
        return log.earliest == log.end_offset and not self._has_sources

    def answered(
        self,
        token: int,
        answer: Answer,
        data: memoryview | bytes,
        sources: ToldSources | None = None,
    ) -> None:
        """A fetch was answered."""
        copy = self._copy
        replica, log = copy.replica, copy.log
        known = replica.following
        if known is None or copy.is_gone:
            return
        command = replica.answered(token, answer, copy.ends(), log.replica)
        if isinstance(command, Append):
            self._writing = known
            if sources is None or log.sources.takes_ranges:
                self._append(command, known, data, sources)
            else:
                begun = self._in_thread(log.sources.begin)
                begun.addCallbacks(
                    lambda _: self._append(command, known, data, sources), self._not_begun
                )
        elif isinstance(command, Cut | Restart):
            counts = self._around.counts
            counts.cuts += 1
            counts.cut_messages += max(0, log.end_offset - max(command.offset, log.earliest))
            self._around.lines.info(
                "cut",
                "{copy} is cut at offset {offset}, where broker {leader} has another history",
                copy=copy.name,
                offset=command.offset,
                leader=known.leader,
            )
            is_mending = self._mending.is_under_way  # then the log says nothing of where to cut
            if is_mending or (isinstance(command, Restart) and command.offset < log.end_offset):
                copy.begin_log_anew()
            else:
                self.cut(command)
        elif isinstance(command, Rest):
            self._around.look()
            self._around.call_later(_REST_SECONDS, self._rested, known)

    def _rested(self, known: Following) -> None:
        known.rested()
        self._copy.turn()

    def broken_off(self, token: int) -> None:
        """A fetch will not be answered."""
        known = self._copy.replica.following
        if known is not None and known.is_awaited(token):
            known.broken_off()
            self._copy.turn()

    def forget(self) -> None:
        """What a leader said isn't of this log: it is to be another one, or has begun an epoch.

        One that leads unclean has less than its leader had committed, and goes another way.
        """
        self.told_watermark = self._told_start = 0
        self._has_sources = False

    # -- appending --------------------------------------------------------------------------------

    def _append(
        self,
        command: Append,
        known: Following,
        data: memoryview | bytes,
        sources: ToldSources | None,
    ) -> None:
        copy, around = self._copy, self._around
        if self._writing is not known or copy.replica.following is not known or copy.is_gone:
            if self._writing is known:
                self._writing = None  # another epoch began meanwhile
            copy.turn()
            return
        log, now_ms = copy.log, around.now_ms()
        end, mending = copy.ends().end, self._mending
        last_epoch = log.replica.epoch_before(end)
        try:
            before = mending.wanted_end
            if not mending.is_under_way and self._begins_inside(data, end):
                self._writing = None
                copy.begin_log_anew()
                return
            headers = check_batches(data, end, last_epoch, known.epoch, command.until, before)
            if sources is not None:
                headers = [each for each in headers if each.next_offset <= sources.until]
            whole = memoryview(data)[: sum(each.size_bytes for each in headers)]
            around.counts.fetched_bytes += len(whole)
            if mending.is_under_way:
                pass
            elif headers:
                log.replica.append_placed([whole], headers, now_ms, sources)
            elif sources is not None:
                log.replica.note_sources(sources, now_ms)
        except InvalidBatchError as error:
            around.lines.error(
                "damaged",
                "{copy} gets what can't be from broker {leader}, and asks again: {error}",
                copy=copy.name,
                leader=known.leader,
                error=error,
            )
            self._writing = None
            is_again, self._damaged_at = self._damaged_at == end, end
            if not is_again:  # else it isn't the connection
                around.break_off(copy)
            pause = _DAMAGED_SECONDS if is_again else _PAUSE_SECONDS
            around.call_later(pause, self._goes_on, known)
            return
        except DiskFullError:
            self._no_room()
            return
        except StorageError:
            self._try_again()
            return
        around.came(copy, len(data))
        if copy.is_behind(around.broker_id):
            around.counts.fetched_behind_bytes += len(data)
        self._told_start = command.start
        if mending.is_under_way:
            mending.came(memoryview(data), headers).addCallback(lambda _: self._written())
            return
        self.told_watermark = command.high_watermark
        self._has_sources |= sources is not None
        if headers:
            self.flush()
        elif sources is not None:  # which is on disk before it asks again: a fetch says so
            noted = self._in_thread(log.flush)
            noted.addCallbacks(lambda _: self._written(), self._not_noted)
        else:
            self._written()

    def _not_noted(self, failure: Failure) -> None:
        failure.trap(StorageError)  # type: ignore[no-untyped-call]
        self._try_again()

    def _not_begun(self, failure: Failure) -> None:
        copy, is_corrupt = self._copy, isinstance(failure.value, CorruptLogError)
        is_counted_on = not copy.is_behind(self._around.broker_id)
        if is_corrupt and copy.log is not None and not is_counted_on:
            self._writing = None  # it isn't known what is here of which source
            copy.begin_log_anew()
        else:
            self._not_noted(failure)

    def _no_room(self) -> None:
        self._writing, self.is_full = None, True
        self._copy.turn()
        self._around.call_later(_ROOM_SECONDS, self._has_room)

    def _has_room(self) -> None:
        self.is_full = False
        self._copy.turn()

    def flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            flushed = self._around.flusher.flush_now(self._copy.log)
            flushed.addCallbacks(self._flushed, self._not_flushed)

    def _flushed(self, _: object) -> None:
        self._is_flushing = False
        log = self._copy.log
        if log is None:
            return  # it is made anew
        if log.flushed_end < log.end_offset:
            self.flush()
            return
        self._written()

    def _not_flushed(self, failure: Failure) -> None:
        failure.trap(StorageError)  # type: ignore[no-untyped-call]
        self._is_flushing = False
        self._try_again()

    def _try_again(self) -> None:
        """The disk refused: the log is out of service now, or what came comes again."""
        writing, self._writing = self._writing, None
        self._copy.turn()
        if writing is not None:
            self._around.call_later(_PAUSE_SECONDS, self._goes_on, writing)

    def _goes_on(self, following: Following | None) -> None:
        if following is not None:
            following.written()
        self._copy.turn()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        copy, start = self._copy, self._told_start
        log = copy.log
        if log is not None and not log.is_closed and copy.replica.leading is None:
            copy.advance()
            if log.earliest < start <= log.high_watermark:
                # Before it asks again: a fetch says where its log begins.
                begun = self._in_thread(self._begin_at, log, start)
                begun.addCallback(self._has_begun, log, writing)
                return
        self._goes_on(writing)

    def _begin_at(self, log: Log, start: int) -> bool:
        """In a thread: whether it is done, else it is said again."""
        try:
            log.delete_records(start, keeps_files=True)
        except (StorageError, OffsetOutOfRangeError):
            return False
        return True

    def _has_begun(self, is_done: bool, log: Log, writing: Following | None) -> None:
        if is_done:
            self._goes_on(writing)
            self._in_thread(self._delete_files, log)
        else:
            self._around.call_later(_PAUSE_SECONDS, self._goes_on, writing)

    def _delete_files(self, log: Log) -> None:
        with suppress(StorageError):  # the next deletion tries it again
            log.delete_oldest(0)

    # -- cutting ----------------------------------------------------------------------------------

    def _begins_inside(self, data: bytes | memoryview, end: int) -> bool:
        """Whether an empty log begins inside of a batch of the leader's.

        Whoever led before could not read that batch, and so didn't know where it begins.
        """
        copy = self._copy
        is_empty = copy.is_behind(self._around.broker_id) and copy.ends().start == end
        if not is_empty or len(data) < HEADER_BYTES:
            return False
        header = decode_header(data)
        return header.base_offset < end < header.next_offset

    def cut(self, command: Cut | Restart) -> None:
        self._in_thread(self._cut, command).addCallback(self._was_cut)

    def _cut(self, command: Cut | Restart) -> bool | None:
        """In a thread: whether the log is in service after that; None: it couldn't be cut."""
        log = self._copy.log
        try:
            if isinstance(command, Cut):
                now_ms, is_forced = self._around.now_ms(), command.is_forced
                log.replica.cut_to(command.offset, now_ms, is_forced=is_forced)
            else:
                log.replica.restart_at(command.offset)
        except LogOfflineError:
            return False
        except StorageError as error:
            self._around.lines.error(
                "not cut",
                "{copy} can't be cut at offset {offset}: {error}",
                copy=self._copy.name,
                offset=command.offset,
                error=error,
            )
            return None
        return True

    def _was_cut(self, is_in_service: bool | None) -> None:
        self.told_watermark = 0
        self._has_sources = False
        if is_in_service is None:  # it is asked for again, soon
            self._around.call_later(_PAUSE_SECONDS, self._was_cut, True)
        else:
            self._copy.was_cut(is_in_service=is_in_service)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Any":
        return self._around.in_thread(function, *args)
