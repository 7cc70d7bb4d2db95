"""One copy of a partition: its log, and the part that its broker plays, carried out.

Nothing is decided here. A copy tells its `Replica` what happens, to the log, to the broker's
session with coordination and to fetches, and does what that gives. `turn` comes after everything
that happens, and as time goes by.
"""

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from twisted.python.failure import Failure

from hermes.kafka.replicas.copy_follower import CopyFollower
from hermes.kafka.replicas.copy_leadership import CopyLeadership
from hermes.kafka.replicas.copy_mending import CopyMending
from hermes.kafka.replicas.fetches import Place
from hermes.kafka.replicas.surroundings import Surroundings
from hermes.partition.leadership import NOBODYS
from hermes.partition.partition import Partition
from hermes.replication.following import Cut, Following
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import LogEnds
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
from hermes.storage import Log


class Copy:
    """Lives in the reactor's thread; see `OwnCopy`.

    Attributes:
        leadership, follower: what it does in the one part, and in the other.

    Args:
        version: of the node when this broker deleted a copy that it had before; else -1.
    """

    __slots__ = (
        "_around",
        "_followed",
        "_is_leaving",
        "_is_turning",
        "_log",
        "_mending",
        "_must_turn",
        "_opening",
        "_settings",
        "follower",
        "is_gone",
        "leadership",
        "number",
        "partition",
        "place",
        "replica",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        around: Surroundings,
        topic: str,
        topic_id: UUID,
        number: int,
        settings: Callable[[str, int], LeaderSettings],
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
        self.leadership = CopyLeadership(self, around)
        self._mending = CopyMending(self, around)
        self.follower = CopyFollower(self, around, self._mending)
        self._log: Log = None  # type: ignore[assignment]
        self._opening = -1
        self._followed: Following | None = None  # in which a fetch is under way
        self._is_turning = self._must_turn = self._is_leaving = False

    def __repr__(self) -> str:
        return f"<Copy {self.name} {self.replica.role.name}>"

    def _new_replica(self, version: int) -> Replica:
        around = self._around
        settings = self._settings(self.topic, self.number)
        return Replica(around.broker_id, settings, around.tokens, around.refusals, version)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def log(self) -> Log:
        return self._log

    def opened(self, partition: Partition, *, is_whole: bool) -> None:
        self.partition, self._log = partition, partition.log
        partition.leadership = self.leadership
        self._opening = self._log.openings
        self.replica.opened(is_whole=is_whole)
        if self._log.replica.has_cut_damage:
            self._around.lines.warn(
                "doubted",
                "of {copy} what was damaged after the stop, and came after that, is cut off: if it "
                "was acknowledged, others have it, and lead",
                copy=self.name,
            )
            self.replica.doubted(self._around.now())
        self.turn()

    def cannot_open(self) -> None:
        """The log can't be opened: nobody is to count on it, or to wait for this broker to lead."""
        self.replica.lost()
        facts = LogFacts(LogEnds(0, 0, 0, 0), -1, 0)
        for command in self.replica.due(facts, self._around.now()):
            self._carry_out(command)

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
        self._use_settings()
        self.replica.registered(life)
        self.replica.learned(state, version, lives)
        self.turn()

    def replaced(self) -> None:
        """Another data directory has been the broker's since: what is here may lack something."""
        if self.replica.is_whole:
            self.replica.is_whole = False

    def settings_changed(self) -> None:
        self._use_settings()
        self.turn()

    def _use_settings(self) -> None:
        self.replica.settings = self._settings(self.topic, self.number)
        if self.replica.leading is not None:
            self.replica.leading.settings = self.replica.settings

    def is_behind(self, broker_id: int) -> bool:
        state = self.replica.state
        return state is not None and broker_id not in state.isr

    # -- what is due ------------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due as time goes by."""
        if not self._rests:
            self.turn()

    @property
    def _rests(self) -> bool:
        """Whether all is well: nothing is due before the leader answers, or a follower fetches."""
        log, replica = self._log, self.replica
        if log is None or log.is_offline or log.damage or self._opening != log.openings:
            return False
        if replica.leading is not None:
            is_committed = log.high_watermark == log.end_offset
            is_settled = is_committed and replica.takes_appends and not replica.is_changing
            return is_settled and replica.leading.rests(replica.lives, self._around.now())
        following = replica.following
        is_awaited = following is not None and following is self._followed and following.is_fetching
        return is_awaited and not self.follower.is_full

    def turn(self) -> None:
        if self._is_turning:
            self._must_turn = True
            return
        self._is_turning = True
        try:
            self._must_turn = True
            while self._must_turn and not self.is_gone:
                self._must_turn = False
                try:
                    self._turn()
                except Exception:  # whoever has it turn has others to look after
                    self._around.lines.failure(
                        "turn",
                        "looking after {copy} failed; it will be tried again",
                        Failure(),  # type: ignore[no-untyped-call]
                        copy=self.name,
                    )
        finally:
            self._is_turning = False

    def _turn(self) -> None:
        log, replica = self._log, self.replica
        if log is None or log.is_closed:
            return
        self._watch(log)
        if log.damage:
            self._mend(log)
        elif replica.is_damaged and not self._mending.is_under_way:
            replica.mended()  # its segments are gone, or a disk reads them again
        ends = self.ends()
        facts = LogFacts(ends, log.replica.epoch_before(ends.end), log.high_watermark)
        commands = replica.due(facts, self._around.now())
        if self._followed is not None and replica.following is not self._followed:
            # Whoever led must not take this broker for its follower any longer.
            self._followed = None
            self._around.ask_no_more(self)
        for command in commands:
            self._carry_out(command)
        self.advance()
        if replica.role is Role.FOLLOWING and log.flushed_end < log.end_offset:
            self.follower.flush()
        if replica.role is Role.LEAVING and not self._is_leaving:
            self._is_leaving = True
            self._around.dismissed(self)
        if replica.is_candidate or replica.is_handing_over:
            self._around.press(self)

    def _mend(self, log: Log) -> None:
        """Have it mended, once it is so that nobody counts on it."""
        replica, mending = self.replica, self._mending
        replica.damaged()
        if mending.is_under_way and not self.is_behind(self._around.broker_id):
            mending.abandon()  # an operator wants what there is
            replica.mended()
        elif replica.is_given_up and not mending.is_under_way:
            mending.begin()

    def _watch(self, log: Log) -> None:
        """Tell the replica whether the log is in service, or has been out of it."""
        if log.is_offline or self.follower.is_full:
            if self._opening >= 0:
                self._opening = -1
                self._lost()
            if log.is_offline and log.replica.is_unreadable:
                self._around.unreadable(self)
        elif self._opening != log.openings:
            if self._opening >= 0:
                self._lost()
            self._opening = log.openings
            self.replica.opened(is_whole=True)

    def _lost(self) -> None:
        self._mending.abandon()
        self.replica.lost()

    def ends(self) -> LogEnds:
        log = self._log
        start = 0 if not log.earliest or log.is_offline else log.replica.first_base()
        return self._mending.ends(LogEnds(start, log.flushed_end, log.end_offset, log.earliest))

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, EndEpoch):
            self._end_epoch()
        elif isinstance(command, BeginEpoch):
            self._log.replica.begin_epoch(command.epoch)
            self._around.flusher.begin_epoch(self._log)
            self.follower.forget()
            self._mending.look_at_tail(lambda is_damaged: self.turn() if is_damaged else None)
            self._around.lines.info(
                "leads", "{copy} is led here, in epoch {epoch}", copy=self.name, epoch=command.epoch
            )
        elif isinstance(command, Fetch):
            self._followed = self.replica.following
            wants_sources = self.follower.wants_sources
            fetch = command.fetch._replace(wants_sources=wants_sources)
            self._around.ask(self, command.to, fetch)
        elif command.what == "lead":
            self._mending.look_at_tail(partial(self._lead, command))
        else:
            if command.what == "lack":
                self._around.lines.error(
                    "lacks",
                    "{copy} lacks what it had, and no other copy is in sync: nobody leads it until "
                    "its disk is back, or somebody has another copy lead",
                    copy=self.name,
                )
            self._around.change(self, command)

    def _lead(self, change: Change, is_damaged: bool) -> None:
        if is_damaged:
            self.change_ended(*self.known, is_done=False)  # it is decided anew
        elif not self.is_gone:
            self._around.change(self, change)

    def _end_epoch(self) -> None:
        self._around.lines.info("led", "{copy} is led here no more", copy=self.name)
        self._around.flusher.end_epoch(self._log)
        self.leadership.ended()
        self._around.changed(self.place)

    def advance(self) -> None:
        log, leading = self._log, self.replica.leading
        if leading is None:
            committed = min(self.follower.told_watermark, log.flushed_end)
        else:
            committed = leading.advance(log.flushed_end, self.replica.lives, self._around.now())
            if not leading.has_enough:
                self._around.flusher.not_enough(log)
        if committed > log.high_watermark:
            self._around.flusher.commit(log, committed)
            self.leadership.committed(committed)
            if self.replica.is_handing_over:
                self.turn()  # which waits for no more than that
        self.leadership.tell_deleted()

    @property
    def known(self) -> tuple[PartitionState | None, int]:
        return self.replica.state, self.replica.version

    def change_ended(self, state: PartitionState | None, version: int, *, is_done: bool) -> None:
        was_lacking = self.replica.is_whole is False
        if state is None:
            self.replica.dismissed()
        else:
            self.replica.change_ended(state, version, is_done=is_done)
        if was_lacking and self.replica.is_whole:
            self._around.now_whole()
        self.turn()

    # -- ends and beginnings ----------------------------------------------------------------------

    def was_cut(self, *, is_in_service: bool) -> None:
        if self._opening >= 0:  # else it was seen out of service meanwhile, and comes back as such
            self._opening = self._log.openings if is_in_service else -1
            if not is_in_service:
                self._lost()
        self.replica.cut()
        self.turn()

    def cut_off(self, offset: int) -> None:
        self.replica.mended()
        self.replica.being_cut()
        self._log.damage = {}  # its segments are others then
        self.follower.cut(Cut(offset))

    def begin_log_anew(self) -> None:
        log, self._log, self.partition = self._log, None, None  # type: ignore[assignment]
        self._opening = -1
        self.follower.forget()
        self._lost()
        self.replica.cut()
        self._around.remake(self, log)

    def begin_anew(self) -> None:
        former, state = self.replica, self.replica.state
        self.replica = self._new_replica(former.version)
        self.replica.registered(former.life)
        self._is_leaving = False
        self._opening = -1
        self.follower.forget()
        if not former.is_whole:
            self.replica.opened(is_whole=False)
        if state is not None and self._around.broker_id in state.replicas:
            # It was named again before, and nobody may change the node any more.
            self.replica.learned(state, former.version, former.lives)
            self.turn()

    def stopping(self) -> None:
        """Hand over what it leads, and leave the in-sync replicas."""
        self.replica.stopping(self._around.now())
        self.turn()

    @property
    def has_left(self) -> bool:
        """Whether nobody counts on this copy any more, or nothing can be done for that."""
        return self.is_gone or self._log is None or self.replica.may_stop
