"""One copy of a partition: its log, and the part that its broker plays, carried out.

Nothing is decided here. A copy tells its `Replica` what happens, to the log, to the broker's
session with coordination and to fetches, and does what that gives. `turn` comes after everything
that happens, and as time goes by. The module is long because leading and following share the log,
and each begins where the other ends.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.coordination.replicas import as_life
from hermes.coordination.sessions import Lease
from hermes.errors import (
    DiskFullError,
    InvalidBatchError,
    LogOfflineError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
    TooFewReplicasError,
)
from hermes.kafka.replicas.fetches import Place
from hermes.limited_log import LimitedLog
from hermes.partition.flushing import FlushScheduler
from hermes.partition.leadership import NOBODYS
from hermes.partition.partition import Partition
from hermes.protocol.kafka_errors import Code
from hermes.replication.electing import Refusals
from hermes.replication.following import (
    Append,
    Cut,
    Following,
    Rest,
    Restart,
    check_batches,
)
from hermes.replication.leading import LeaderSettings, Leading
from hermes.replication.messages import Answer, LogEnds, Records, Refused, ReplicaFetch
from hermes.replication.replica import (
    BeginEpoch,
    Change,
    Command,
    EndEpoch,
    Fetch,
    LogFacts,
    Replica,
    Role,
)
from hermes.replication.state import PartitionState
from hermes.storage import Log, LogSlice

#: After how long a copy whose disk had no room tries again.
_ROOM_SECONDS: Final = 5.0

#: How long followers have for saying that they follow.
_CONFIRM_SECONDS: Final = 3.0

#: The pause after what the disk has refused otherwise.
_PAUSE_SECONDS: Final = 0.5


@dataclass(slots=True)
class CopyCounts:
    """What was done so far to all copies of a broker that follow."""

    cuts: int = 0
    cut_messages: int = 0
    fetched_bytes: int = 0


class _Asking(NamedTuple):
    """Who asks whether this broker leads for certain, in which epoch, and since when."""

    leading: Leading | None
    at: float
    told: "Deferred[bool]"


class Surroundings(Protocol):
    """What a copy needs of its broker."""

    broker_id: int
    tokens: Iterator[int]
    refusals: Refusals
    flusher: FlushScheduler
    lines: LimitedLog
    counts: CopyCounts
    lease: Lease | None

    def now(self) -> float: ...

    def now_ms(self) -> int: ...

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> None: ...

    def in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]": ...

    def has_holes(self, topic: str) -> bool:
        """Whether logs of a topic may lack offsets, since they are compacted."""

    def ask(self, copy: "Copy", leader: int, fetch: ReplicaFetch) -> None:
        """Send a fetch; its answer, or that it was broken off, is told to the copy."""

    def ask_no_more(self, copy: "Copy") -> None:
        """What the copy has asked for doesn't count any more."""

    def came(self, copy: "Copy", size_bytes: int) -> None:
        """So much was copied."""

    def went(self, size_bytes: int) -> None:
        """So much was sent to one that isn't in sync."""

    def delay_of_leader(self) -> float:
        """For how many seconds nothing more is sent to those that aren't."""

    def break_off(self, copy: "Copy") -> None:
        """What came is damaged: end the connection that it came by."""

    def look(self) -> None:
        """Read what stands in coordination now."""

    def change(self, copy: "Copy", change: Change) -> None:
        """Change the partition's state, and tell the copy its outcome."""

    def changed(self, place: Place) -> None:
        """Those who copy this copy are to look at it again."""

    def remake(self, copy: "Copy", log: Log) -> None:
        """Delete a copy's log, and make another."""

    def dismissed(self, copy: "Copy") -> None:
        """Coordination names this broker no more: delete the copy, once that is certain."""

    def press(self, copy: "Copy") -> None:
        """Something is due in fractions of a second: `turn` it often."""


class Copy:
    """Lives in the reactor's thread. Is the `Leadership` of its partition.

    Attributes:
        partition: None until its log was made.
        replica: what decides.

    Args:
        version: of the node when this broker deleted a copy that it had before; else -1.
    """

    def __init__(
        self,
        around: Surroundings,
        topic: str,
        topic_id: UUID,
        number: int,
        settings: Callable[[], LeaderSettings],
        version: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.number = number
        self.place: Place = topic_id.bytes, number
        self.partition: Partition | None = None
        self.is_gone = False
        self._around = around
        self._settings = settings
        self.replica = self._new_replica(version)
        self._log: Log = None  # type: ignore[assignment]
        self._opening = -1
        self._is_full = False
        self._followed: Following | None = None  # in which a fetch is under way
        self._writing: Following | None = None
        self._asking: list[_Asking] = []
        self._told_watermark = self._told_start = 0
        self._is_turning = self._must_turn = self._is_flushing = self._is_leaving = False

    def __repr__(self) -> str:
        return f"<Copy {self.name} {self.replica.role.name}>"

    def _new_replica(self, version: int) -> Replica:
        around = self._around
        return Replica(around.broker_id, self._settings(), around.tokens, around.refusals, version)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def log(self) -> Log:
        return self._log

    def opened(self, partition: Partition, *, is_whole: bool) -> None:
        """The log is in service, and known as a copy."""
        self.partition, self._log = partition, partition.log
        partition.leadership = self
        self._opening = self._log.openings
        self.replica.opened(is_whole=is_whole)
        self.turn()

    def gone(self) -> None:
        """The topic is gone, or the broker ends: nothing of this copy counts any more."""
        self.is_gone = True
        self._around.ask_no_more(self)
        if self.partition is not None:
            self.partition.leadership = NOBODYS
            if self.replica.leading is not None:
                self._end_epoch()
            self._around.changed(self.place)

    def learned(
        self,
        state: PartitionState | None,
        version: int,
        lives: Mapping[int, int],
        life: int | None,
    ) -> None:
        """What stands in coordination was read; `life`: this broker's session, None without one."""
        self.replica.settings = self._settings()
        if self.replica.leading is not None:
            self.replica.leading.settings = self.replica.settings
        self.replica.registered(life)
        self.replica.learned(state, version, lives)
        self.turn()

    # -- as its partition's leadership ------------------------------------------------------------

    @property
    def epoch(self) -> int:
        state = self.replica.state
        return -1 if state is None else state.epoch

    @property
    def is_end_known(self) -> bool:
        leading = self.replica.leading
        return leading is not None and leading.is_end_known

    def check(self) -> None:
        leading = self.replica.leading
        if leading is None or not leading.is_confirmed(
            self._around.now(), has_lease=self._has_lease()
        ):
            raise self._not_leader()

    def check_append(self) -> None:
        self.check()
        if not self.replica.takes_appends:
            raise self._not_leader()

    def check_enough(self) -> None:
        leading = self.replica.leading
        if leading is not None and not leading.has_enough:
            raise TooFewReplicasError(
                f"partition {self.number} of topic {self.topic} has {len(leading.state.isr)} "
                f"in-sync replicas, and min_insync_replicas is {leading.settings.min_insync}"
            )

    def when_confirmed(self) -> "Deferred[bool]":
        asking = _Asking(self.replica.leading, self._around.now(), Deferred())
        self._asking.append(asking)
        self._around.call_later(_CONFIRM_SECONDS, self._confirm)
        self._confirm()
        return asking.told

    def _confirm(self) -> None:
        """Tell who asks whether this broker led, what is known by now."""
        asking, self._asking = self._asking, []
        late = self._around.now() - _CONFIRM_SECONDS
        for each in asking:
            leading = self.replica.leading
            if leading is None or leading is not each.leading or self.is_gone:
                each.told.callback(False)
            elif leading.led_at(each.at) or each.at <= late:
                each.told.callback(leading.led_at(each.at))
            else:
                self._asking.append(each)

    def is_behind(self, broker_id: int) -> bool:
        """Whether a broker's copy isn't in sync: only then its making is throttled."""
        state = self.replica.state
        return state is not None and broker_id not in state.isr

    def appended(self) -> None:
        self._around.changed(self.place)

    def _not_leader(self) -> NotLeaderError:
        state = self.replica.state
        leader = -1 if state is None else state.leader
        return NotLeaderError(
            f"partition {self.number} of topic {self.topic} is led by "
            f"{'nobody' if leader < 0 else f'broker {leader}'} at the moment"
        )

    def _has_lease(self) -> bool:
        lease = self._around.lease
        if lease is None or as_life(lease.session_id) != self.replica.life:
            return False
        return lease.is_held()

    # -- what is due ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what is due by now."""
        if self._is_turning:
            self._must_turn = True
            return
        self._is_turning = True
        try:
            self._must_turn = True
            while self._must_turn and not self.is_gone:
                self._must_turn = False
                self._turn()
        finally:
            self._is_turning = False

    def _turn(self) -> None:
        log, replica = self._log, self.replica
        if log is None or log.is_closed:
            return
        self._watch(log)
        facts = LogFacts(self._ends(), log.replica.epoch_before_end(), log.high_watermark)
        commands = replica.due(facts, self._around.now())
        if self._followed is not None and replica.following is not self._followed:
            # Whoever led must not take this broker for its follower any longer.
            self._followed = None
            self._around.ask_no_more(self)
        for command in commands:
            self._carry_out(command)
        self.advance()
        if replica.role is Role.FOLLOWING and log.flushed_end < log.end_offset:
            self._flush()
        if replica.role is Role.LEAVING and not self._is_leaving:
            self._is_leaving = True
            self._around.dismissed(self)
        if replica.is_candidate:
            self._around.press(self)

    def _watch(self, log: Log) -> None:
        """Tell the replica whether the log is in service, or has been out of it."""
        if log.is_offline or self._is_full:
            if self._opening >= 0:
                self._opening = -1
                self.replica.lost()
        elif self._opening != log.openings:
            if self._opening >= 0:
                self.replica.lost()
            self._opening = log.openings
            self.replica.opened(is_whole=True)

    def _ends(self) -> LogEnds:
        log = self._log
        start = 0 if not log.earliest or log.is_offline else log.replica.first_base()
        return LogEnds(start, log.flushed_end, log.end_offset)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, EndEpoch):
            self._end_epoch()
        elif isinstance(command, BeginEpoch):
            self._log.replica.begin_epoch(command.epoch)
            self._around.lines.info(
                "leads", "{copy} is led here, in epoch {epoch}", copy=self.name, epoch=command.epoch
            )
        elif isinstance(command, Fetch):
            self._followed = self.replica.following
            self._around.ask(self, command.to, command.fetch)
        else:
            self._around.change(self, command)

    def _end_epoch(self) -> None:
        self._around.lines.info("led", "{copy} is led here no more", copy=self.name)
        self._around.flusher.end_epoch(self._log)
        self._confirm()
        self._around.changed(self.place)

    def advance(self) -> None:
        """Commit what may be by now."""
        log, leading = self._log, self.replica.leading
        if leading is None:
            committed = min(self._told_watermark, log.flushed_end)
        else:
            committed = leading.advance(log.flushed_end, self.replica.lives, self._around.now())
            if not leading.has_enough:
                self._around.flusher.not_enough(log)
        if committed > log.high_watermark:
            self._around.flusher.commit(log, committed)

    def change_ended(self, state: PartitionState | None, version: int, *, is_done: bool) -> None:
        """A change's outcome is known; `state` is None where the topic is gone."""
        if state is None:
            self.replica.dismissed()
        else:
            self.replica.change_ended(state, version, is_done=is_done)
        self.turn()

    def stopping(self) -> None:
        """Hand over what it leads, and leave the in-sync replicas."""
        self.replica.stopping(self._around.now())
        self.turn()

    @property
    def has_left(self) -> bool:
        """Whether nobody counts on this copy any more, or nothing can be done for that."""
        state = self.replica.state
        if state is None or self.is_gone or self.replica.life is None:
            return True
        me = self._around.broker_id
        return me not in state.isr or state.isr == {me} or self._log is None

    def begin_anew(self) -> None:
        """It was to be deleted, and is named again."""
        is_whole, life = bool(self.replica.is_whole), self.replica.life
        self.replica = self._new_replica(self.replica.version)
        self.replica.registered(life)
        self._is_leaving = False
        self._opening = -1
        self._told_watermark = self._told_start = 0
        if not is_whole:
            self.replica.opened(is_whole=False)

    # -- following --------------------------------------------------------------------------------

    def answered(self, token: int, answer: Answer, data: memoryview | bytes) -> None:
        """A fetch was answered."""
        known, log = self.replica.following, self._log
        if known is None or self.is_gone:
            return
        command = self.replica.answered(token, answer, self._ends(), log.replica)
        if isinstance(command, Append):
            self._append(command, known, data)
        elif isinstance(command, Cut | Restart):
            counts = self._around.counts
            counts.cuts += 1
            counts.cut_messages += max(0, log.end_offset - max(command.offset, log.earliest))
            self._around.lines.info(
                "cut",
                "{copy} is cut at offset {offset}, where broker {leader} has another history",
                copy=self.name,
                offset=command.offset,
                leader=known.leader,
            )
            if isinstance(command, Restart) and command.offset < log.end_offset:
                self._begin_log_anew()
                return
            self._in_thread(self._cut, command).addCallback(self._was_cut)
        elif isinstance(command, Rest):
            self._around.look()
            self._around.call_later(0.05, self.turn)

    def broken_off(self, token: int) -> None:
        """A fetch will not be answered."""
        known = self.replica.following
        if known is not None and known.is_awaited(token):
            known.broken_off()
            self.turn()

    def _append(self, command: Append, known: Following, data: memoryview | bytes) -> None:
        log, self._writing = self._log, known
        end, last_epoch = log.end_offset, log.replica.epoch_before_end()
        has_holes = self._around.has_holes(self.topic)
        try:
            headers = check_batches(data, end, last_epoch, known.epoch, has_holes=has_holes)
            if headers:
                size = sum(each.size_bytes for each in headers)
                self._around.counts.fetched_bytes += size
                log.replica.append_placed([memoryview(data)[:size]], headers, self._around.now_ms())
        except InvalidBatchError as error:
            self._around.lines.error(
                "damaged",
                "{copy} gets what can't be from broker {leader}, and asks again: {error}",
                copy=self.name,
                leader=known.leader,
                error=error,
            )
            self._writing = None
            known.written()
            self._around.break_off(self)
            self._around.call_later(0.5, self.turn)
            return
        except DiskFullError:
            self._no_room()
            return
        except StorageError:
            self._try_again()
            return
        self._told_watermark, self._told_start = command.high_watermark, command.start
        self._around.came(self, len(data))
        if headers:
            self._flush()
        else:
            self._written()

    def _no_room(self) -> None:
        self._writing, self._is_full = None, True
        self.turn()
        self._around.call_later(_ROOM_SECONDS, self._has_room)

    def _has_room(self) -> None:
        self._is_full = False
        self.turn()

    def _flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._around.flusher.flush_now(self._log).addCallbacks(self._flushed, self._not_flushed)

    def _flushed(self, _: object) -> None:
        self._is_flushing = False
        if self._log is None:
            return  # it is made anew
        if self._log.flushed_end < self._log.end_offset:
            self._flush()
            return
        self._written()

    def _not_flushed(self, failure: Failure) -> None:
        failure.trap(StorageError)  # type: ignore[no-untyped-call]
        self._is_flushing = False
        self._try_again()

    def _try_again(self) -> None:
        """The disk refused: the log is out of service now, or what came comes again."""
        writing, self._writing = self._writing, None
        self.turn()
        if writing is not None:
            self._around.call_later(_PAUSE_SECONDS, self._goes_on, writing)

    def _goes_on(self, following: Following) -> None:
        following.written()
        self.turn()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.written()
        self.turn()
        if self.replica.leading is None and self._log.earliest < self._told_start:
            self._delete_before(self._told_start)

    def _delete_before(self, start: int) -> None:
        if start <= self._log.high_watermark:
            self._in_thread(self._delete_in_thread, start)

    def _delete_in_thread(self, start: int) -> None:
        with suppress(StorageError, OffsetOutOfRangeError):  # the next fetch says it again
            self._log.delete_records(start)

    def _cut(self, command: Cut | Restart) -> bool | None:
        """In a thread: whether the log is in service after that; None: it couldn't be cut."""
        try:
            if isinstance(command, Cut):
                now_ms, is_forced = self._around.now_ms(), command.is_forced
                self._log.replica.cut_to(command.offset, now_ms, is_forced=is_forced)
            else:
                self._log.replica.restart_at(command.offset)
        except LogOfflineError:
            return False
        except StorageError as error:
            self._around.lines.error(
                "not cut",
                "{copy} can't be cut at offset {offset}: {error}",
                copy=self.name,
                offset=command.offset,
                error=error,
            )
            return None
        return True

    def _was_cut(self, is_in_service: bool | None) -> None:
        self._told_watermark = 0
        if is_in_service is None:  # it is asked for again, soon
            self._around.call_later(_PAUSE_SECONDS, self._was_cut, True)
            return
        if self._opening >= 0:  # else it was seen out of service meanwhile, and comes back as such
            self._opening = self._log.openings if is_in_service else -1
            if not is_in_service:
                self.replica.lost()
        self.replica.cut()
        self.turn()

    def _begin_log_anew(self) -> None:
        """Nothing of the log is shared with the leader's, or may be cut: delete it."""
        log, self._log, self.partition = self._log, None, None  # type: ignore[assignment]
        self._opening, self._told_watermark = -1, 0
        self.replica.lost()
        self.replica.cut()
        self._around.remake(self, log)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        return self._around.in_thread(function, *args)

    # -- leading: as followers' sessions know it --------------------------------------------------

    def judge(self, fetch: ReplicaFetch, answered_at: float) -> Answer | None:
        leading, log = self.replica.leading, self._log
        if leading is None or log.is_offline:
            return Refused(Code.NOT_LEADER_OR_FOLLOWER)
        life = self.replica.lives.get(fetch.broker_id)
        verdict = leading.judge(fetch, life, self._ends(), log.replica)
        if verdict is None:
            leading.fetched(fetch, log.end_offset, self._around.now(), answered_at)
            if self._asking:
                self._confirm()
            if self.is_behind(fetch.broker_id):
                self.turn()  # it may be in sync with that
            else:
                self.advance()
        elif verdict == Refused(Code.UNKNOWN_LEADER_EPOCH):
            self._around.look()
        return verdict

    def has_after(self, fetch: ReplicaFetch) -> bool:
        leading, log = self.replica.leading, self._log
        return (
            leading is None
            or leading.epoch != fetch.epoch
            or fetch.offset < log.end_offset
            or log.is_offline
        )

    def refresh(self, fetch: ReplicaFetch, answered_at: float) -> None:
        leading = self.replica.leading
        if leading is not None and leading.epoch == fetch.epoch:
            leading.fetched(fetch, self._log.end_offset, self._around.now(), answered_at)
            if self._asking:
                self._confirm()

    def delay(self, fetch: ReplicaFetch) -> float:
        leads = self.replica.leading is not None
        return self._around.delay_of_leader() if leads and self.is_behind(fetch.broker_id) else 0.0

    def answer(self, fetch: ReplicaFetch, max_bytes: int) -> tuple[Answer, LogSlice | bytes]:
        leading, log = self.replica.leading, self._log
        if leading is None or leading.epoch != fetch.epoch or log.is_offline:
            return Refused(Code.NOT_LEADER_OR_FOLLOWER), b""
        offset = max(fetch.offset, log.earliest)
        records = leading.records(log.earliest)
        if offset >= log.end_offset:
            return records, b""
        found = log.replica.read_appended(offset, max_bytes, whole_first=True)
        if self.is_behind(fetch.broker_id):
            self._around.went(found.length)
        return records, found

    def is_told(self, fetch: ReplicaFetch, records: Records | None) -> bool:
        leading, log = self.replica.leading, self._log
        if leading is None:
            return False
        told = Records(fetch.high_watermark, 0) if records is None else records
        return told.high_watermark >= leading.high_watermark and told.start >= log.earliest
