"""One broker's copy of a partition: which part it plays, and what is to be done for that.

    state      what it means
    OFFLINE    the log isn't in service or its copy not whole, or what the node says isn't known
    FOLLOWING  another broker leads, or nobody does
    LEADING    this broker does, in an epoch that it was given in this life
    LEAVING    the broker stops, or has no copy any more: nothing is fetched or taken

`TRANSITIONS` has what leads from one to another. Whoever runs it tells what happens, and carries
out what `due` gives: one change of the node at a time, whose outcome it tells.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final, NamedTuple

from hermes.errors import LastReplicaError, WrongStateError
from hermes.protocol import NOBODY
from hermes.replication.electing import Electing, Refusals
from hermes.replication.following import Append, Cut, Following, Rest, Restart
from hermes.replication.leading import LeaderSettings, Leading
from hermes.replication.messages import Answer, LogEnds, LogEpochs, ReplicaFetch
from hermes.replication.moving import HandOver, PreferredLeader, finished_move, successor
from hermes.replication.state import (
    PartitionState,
    forfeited,
    handed_over,
    lacking,
    led_by,
    left,
    resigned,
)


class Role(Enum):
    OFFLINE = auto()
    FOLLOWING = auto()
    LEADING = auto()
    LEAVING = auto()


class Event(Enum):
    """What a replica's part depends on.

    ELECTED: the node names this broker, in this life, in an epoch in which it can append.
    OVERRULED: it names another one, nobody, or this one in an epoch that is over for it.
    LOST: the log is out of service or being cut, the copy isn't whole, or there is no session.
    DISMISSED: the broker stops, or the node names it no more.
    """

    ELECTED = auto()
    OVERRULED = auto()
    LOST = auto()
    DISMISSED = auto()


#: How many others stay in sync where one leaves: a single one's disk may be gone already.
_LEAST_LEFT: Final = 2

#: Each event leads somewhere from every state: the node is written by others, too. Nothing leads
#: back from LEAVING: who comes back makes a new replica.
TRANSITIONS: Final[Mapping[tuple[Role, Event], Role]] = {
    (Role.OFFLINE, Event.ELECTED): Role.LEADING,
    (Role.OFFLINE, Event.OVERRULED): Role.FOLLOWING,
    (Role.OFFLINE, Event.LOST): Role.OFFLINE,
    (Role.OFFLINE, Event.DISMISSED): Role.LEAVING,
    (Role.FOLLOWING, Event.ELECTED): Role.LEADING,
    (Role.FOLLOWING, Event.OVERRULED): Role.FOLLOWING,
    (Role.FOLLOWING, Event.LOST): Role.OFFLINE,
    (Role.FOLLOWING, Event.DISMISSED): Role.LEAVING,
    (Role.LEADING, Event.ELECTED): Role.LEADING,
    (Role.LEADING, Event.OVERRULED): Role.FOLLOWING,
    (Role.LEADING, Event.LOST): Role.OFFLINE,
    (Role.LEADING, Event.DISMISSED): Role.LEAVING,
    (Role.LEAVING, Event.ELECTED): Role.LEAVING,
    (Role.LEAVING, Event.OVERRULED): Role.LEAVING,
    (Role.LEAVING, Event.LOST): Role.LEAVING,
    (Role.LEAVING, Event.DISMISSED): Role.LEAVING,
}


class BeginEpoch(NamedTuple):
    """Append in an epoch from now on."""

    epoch: int


class EndEpoch(NamedTuple):
    """Answer who waits for what was appended: nobody knows what becomes of it."""


class Fetch(NamedTuple):
    """Send a fetch; `to`: the leader."""

    to: int
    fetch: ReplicaFetch


class Change(NamedTuple):
    """Change the partition's state in coordination, and tell the outcome.

    Attributes:
        what: it is for, in a word.
        make: the new state of the one that stands there. Raises WrongStateError: it is not what
            this change was made for.
        isr: who may be in sync until the outcome is known.
        of: the state that it was made for; None where another one will do.
    """

    what: str
    make: Callable[[PartitionState], PartitionState]
    isr: frozenset[int] = frozenset()
    of: PartitionState | None = None


Command = BeginEpoch | EndEpoch | Fetch | Change


class LogFacts(NamedTuple):
    """`last_epoch`: the leader epoch of the last batch; -1 for none."""

    ends: LogEnds
    last_epoch: int
    high_watermark: int


class Replica:
    """One copy.

    Args:
        tokens: numbers that no fetch of this broker's had before.
        refusals: whose address refuses connections.
        version: of the node when this broker deleted a copy that it had before: what stood there
            earlier may name it as leader, of a log that is gone.

    Attributes:
        state: the partition's, as it was read last; None before that.
        life: this broker's session; None while it has none.
        leading: while it leads.
        following: while another leads.
        version: of the node that was read last.
        is_whole: whether the log has all that it ever said it had; None until that was found out.
        is_damaged: whether something that was committed can't be read from it.
        is_given_up: whether nobody counts on a damaged log any more: it is to be mended.
    """

    __slots__ = (
        "_are_lives_older",
        "_changing",
        "_doubted_until",
        "_electing",
        "_hand_over",
        "_has_ended",
        "_is_being_cut",
        "_is_dismissed",
        "_is_in_service",
        "_is_stopping",
        "_preferred",
        "_refusals",
        "_spent_epoch",
        "_tokens",
        "_wants_out",
        "broker_id",
        "following",
        "is_damaged",
        "is_given_up",
        "is_whole",
        "leading",
        "life",
        "lives",
        "role",
        "settings",
        "state",
        "version",
    )

    def __init__(
        self,
        broker_id: int,
        settings: LeaderSettings,
        tokens: Iterator[int],
        refusals: Refusals,
        version: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.role = Role.OFFLINE
        self.state: PartitionState | None = None
        self.life: int | None = None
        self.lives: Mapping[int, int] = {}
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.is_whole: bool | None = None
        self._is_in_service = self._is_being_cut = self._are_lives_older = False
        self.version = version
        self._tokens = tokens
        self._refusals = refusals
        self._electing = Electing(broker_id)
        self._changing: str | None = None
        self._spent_epoch = -1
        self._hand_over: HandOver | None = None
        self._preferred = PreferredLeader()
        self._is_dismissed = False
        self._wants_out = self._is_stopping = False
        self._has_ended = False
        self.is_damaged = self.is_given_up = False
        self._doubted_until = -inf

    # -- what happens -----------------------------------------------------------------------------

    def opened(self, *, is_whole: bool) -> None:
        """The log is in service.

        `is_whole`: whether it has all that it ever said it had; False for one in another directory
        than the broker's last one, that lacks what was committed, or is damaged below that.
        """
        self._is_in_service = True
        self._wants_out = False
        self.is_whole = is_whole if self.is_whole is None else self.is_whole and is_whole

    def lost(self, *, is_whole: bool = True) -> None:
        """The log is out of service: what wasn't flushed may be gone from it when it comes back."""
        self._is_in_service = self.is_damaged = self.is_given_up = False
        self._wants_out = True
        if not is_whole:
            self.is_whole = False
        self._close_epoch()

    def damaged(self) -> None:
        """Something that was committed can't be read from the log any more.

        If others have it, and are there, they lead, and the copy is given up. Else it goes on.
        """
        self.is_damaged = True

    def doubted(self, now: float) -> None:
        """What a stop without warning has left may lack the last of what was acknowledged.

        So the copy is given up as soon as another in-sync one is there, and doesn't lead before one
        has had time to come: as long as a replica may lag.
        """
        self._doubted_until = now + self.settings.lag_seconds

    def mended(self) -> None:
        """It can be read again, or it can't and is wanted as it is."""
        self.is_damaged = self.is_given_up = False

    def answered(
        self, token: int, answer: Answer, ends: LogEnds, epochs: LogEpochs
    ) -> Append | Cut | Restart | Rest | None:
        """A fetch was answered: what is to be done, None where it is to none that is under way."""
        if self.following is None:
            return None
        found = self.following.answered(token, answer, ends, epochs)
        if isinstance(found, Cut | Restart):
            self.being_cut()
        return found

    def being_cut(self) -> None:
        """While the log is cut it is out of service: who led would append to what goes."""
        self._is_being_cut, self.following = True, None

    def cut(self) -> None:
        """The log ends where it was to, or the disk failed, and it is `lost`."""
        self._is_being_cut = False

    def registered(self, life: int | None) -> None:
        """The broker has another session, or none."""
        if life != self.life:
            self.life = life
            self._close_epoch()

    def learned(self, state: PartitionState | None, version: int, lives: Mapping[int, int]) -> None:
        """What stands in coordination was read; None: the topic is gone.

        `lives`: read after that. A leader that registered in between would be taken for gone.
        """
        self.lives, self._are_lives_older = lives, False
        if state is None:
            self.dismissed()
        elif version >= self.version:
            self.version, self.state = version, state
            if self.leading is not None and self.leading.epoch == state.epoch:
                self.leading.learned(state)

    def change_ended(self, state: PartitionState, version: int, *, is_done: bool) -> None:
        """A change's outcome is known: what stands in coordination, after it was written or not.

        `is_done`: whether it certainly was; what was not, or perhaps, is decided anew.
        """
        what, self._changing = self._changing, None
        is_news = version > self.version
        if what == "forfeit" and is_done:
            self.is_whole, self.is_given_up = True, self.is_damaged
            self._doubted_until = -inf
        self.learned(state, version, self.lives)
        self._are_lives_older |= is_news
        assert self.state is not None
        if self.leading is not None and self.leading.epoch == self.state.epoch:
            self.leading.settled(self.state)

    def dismissed(self) -> None:
        """The broker stops, or has no copy any more."""
        self._is_dismissed = True

    def stopping(self, now: float) -> None:
        """Hand over what it leads, and leave what it doesn't, unless one would be left in sync.

        That one's disk may be gone already, within its session. So the leader takes this one out,
        once it sees that it is gone: at once.
        """
        self._is_stopping = True
        self.hand_over(now)

    @property
    def may_stop(self) -> bool:
        """Whether nobody counts on it, or nothing better can be done about that."""
        state = self.state
        if state is None or self.life is None or self.broker_id not in state.isr:
            return True
        return self._hand_over is None and len(state.isr) <= _LEAST_LEFT

    def hand_over(self, now: float) -> None:
        """Let another broker lead, if one can."""
        if self.leading is not None and self._hand_over is None:
            heir = successor(self.leading, self.lives)
            if heir != NOBODY:
                self._hand_over = HandOver(heir, now, must=True)

    @property
    def is_handing_over(self) -> bool:
        """Whether it is about to let another broker lead."""
        return self._hand_over is not None

    @property
    def takes_appends(self) -> bool:
        is_leaving = self._wants_out or self._is_stopping
        return self.role is Role.LEADING and self._hand_over is None and not is_leaving

    @property
    def is_changing(self) -> bool:
        """Whether a change's outcome is awaited: there is no other one before that."""
        return self._changing is not None

    @property
    def is_candidate(self) -> bool:
        """Whether its turn to lead comes as time goes by: call `due` often."""
        is_waiting = not self.is_changing and self._electing.is_waiting
        return self.role is Role.FOLLOWING and is_waiting

    # -- what is to be done -----------------------------------------------------------------------

    def due(self, facts: LogFacts, now: float) -> list[Command]:
        """What is to be done by now: call it after everything that happens, and as time goes by."""
        commands: list[Command] = []
        self._play(facts, now, commands)
        if self._has_ended:
            self._has_ended = False
            commands.insert(0, EndEpoch())
        if self._changing is None and self.state is not None and self.life is not None:
            change = self._due_change(facts, now)
            if change is not None:
                self._changing = change.what
                if self.leading is not None and change.isr:
                    self.leading.proposed(change.isr)
                commands.append(change)
        # In the epoch that begins with what is forfeited nobody may count what is to be mended.
        is_forfeiting = self._changing == "forfeit"
        if self.role is Role.FOLLOWING and self.following is not None and not is_forfeiting:
            fetch = self.following.fetch(facts.ends, facts.last_epoch, facts.high_watermark)
            if fetch is not None:
                commands.append(Fetch(self.following.leader, fetch))
        return commands

    def _event(self, last_epoch: int) -> Event:
        state = self.state
        if self._is_dismissed or (state is not None and self.broker_id not in state.replicas):
            return Event.DISMISSED
        has_log = self._is_in_service and self.is_whole and not self._is_being_cut
        if state is None or self.life is None or not has_log:
            return Event.LOST
        is_elected = state.is_led_by(self.broker_id, self.life) and self._may_append_in(
            state, last_epoch
        )
        return Event.ELECTED if is_elected else Event.OVERRULED

    def _may_append_in(self, state: PartitionState, last_epoch: int) -> bool:
        """Whether it isn't an epoch whose unflushed tail this log may have lost.

        Nor one that is over in the log: a Kafka has written it, and whoever named this broker
        leader of what was a single copy didn't know.
        """
        is_later = self.leading is not None or state.epoch > last_epoch
        return is_later and state.epoch > self._spent_epoch

    def _play(self, facts: LogFacts, now: float, commands: list[Command]) -> None:
        """Take the part that the node and the log leave to this broker."""
        state, self.role = self.state, TRANSITIONS[self.role, self._event(facts.last_epoch)]
        if self.leading is not None and (
            self.role is not Role.LEADING or state is None or self.leading.epoch != state.epoch
        ):
            self._close_epoch()
        if self.role is not Role.FOLLOWING:
            self.following = None
        if state is None or self.life is None:
            return
        if self.role is Role.LEADING and self.leading is None:
            commands.append(BeginEpoch(state.epoch))
            self.leading = Leading(
                self.broker_id, state, facts.ends.end, facts.high_watermark, self.settings, now
            )
            self._preferred = PreferredLeader()
        elif self.role is Role.FOLLOWING:
            self._follow(state, self.life)

    def _follow(self, state: PartitionState, life: int) -> None:
        known = self.following
        # Who has left because it stops would be taken in again by a fetch, and waited for then.
        has_left = self._is_stopping and self.broker_id not in state.isr
        if has_left or state.leader in (NOBODY, self.broker_id):
            self.following = None
        elif known is None or (known.leader, known.epoch) != (state.leader, state.epoch):
            self.following = Following(
                self.broker_id,
                life,
                state.leader,
                state.epoch,
                self._tokens,
                state.unclean_epoch,
            )

    def _close_epoch(self) -> None:
        self.following = None
        if self.leading is not None:
            self._spent_epoch = self.leading.epoch
            self._has_ended = True
        self.leading = self._hand_over = None

    # -- changes of the node ----------------------------------------------------------------------

    def _due_change(self, facts: LogFacts, now: float) -> Change | None:
        state, life = self.state, self.life
        assert state is not None
        assert life is not None
        if self.role is Role.LEAVING:
            return None
        if self.is_whole is False:
            return self._forfeit(state, life)
        others, is_doubted = state.isr - {self.broker_id}, now < self._doubted_until
        is_to_be_given_up = (self.is_damaged and not self.is_given_up) or is_doubted
        if is_to_be_given_up and any(each in self.lives for each in others):
            if self.leading is None:
                return self._forfeit(state, life)
            self.hand_over(now)
        if (self._wants_out or self._is_stopping) and self._hand_over is None:
            return self._leave(state)
        if self.leading is not None:
            return self._led_change(self.leading, facts, now)
        if self.role is not Role.FOLLOWING:
            return None
        if self._is_to_lead(state, now) and not (is_doubted and others):
            me = self.broker_id
            return _of(state, "lead", lambda found: led_by(found, me, life))
        return None

    def _is_to_lead(self, state: PartitionState, now: float) -> bool:
        if state.leader == self.broker_id:
            return True  # in an epoch that is over for it: it needs one of its own
        if self._are_lives_older:
            return False  # they are read again, since the node has changed
        due_at = self._electing.due_at(state, self.lives, self._refusals, now)
        return due_at is not None and due_at <= now

    def _forfeit(self, state: PartitionState, life: int) -> Change | None:
        me = self.broker_id
        if state.is_led_by(me, life) and self._spent_epoch < state.unclean_epoch == state.epoch:
            # An operator wants what is left of it.
            return _of(state, "forfeit", lambda found: led_by(found, me, life))
        forfeit = partial(forfeited, broker_id=self.broker_id)
        if _is_possible(forfeit, state):
            return Change("forfeit", forfeit)
        if state.is_lacking and state.leader == NOBODY:
            return None
        return _of(state, "lack", lambda found: lacking(found, me))

    def _leave(self, state: PartitionState) -> Change | None:
        me = self.broker_id
        leave = partial(left, broker_id=me, least=_LEAST_LEFT)
        if me in state.isr and _is_possible(leave, state):
            return Change("leave", leave)
        if self._wants_out and state.leader == me and len(state.isr) > 1:
            # Perhaps since before a restart. Who is in service leads, and takes this one out; where
            # nobody is, who is first again.
            return _of(state, "resign", lambda found: resigned(found, me))
        return None

    def _led_change(self, leading: Leading, facts: LogFacts, now: float) -> Change | None:
        hand_over = self._hand_over
        if hand_over is None:
            preferred = self._preferred.due(leading, self.lives, now)
            if preferred != NOBODY:
                hand_over = self._hand_over = HandOver(preferred, now, must=False)
        if hand_over is not None:
            can_lead = hand_over.to in self.lives and hand_over.to in leading.state.isr
            if hand_over.is_over(now) or not can_lead:
                # Not at once again: nothing was taken meanwhile.
                self._hand_over, self._preferred = None, PreferredLeader()
            elif hand_over.is_due(leading, facts.ends.end, now):
                return self._handing_over(leading.state, hand_over.to)
        lives = self._living(leading)
        after = finished_move(leading, lives) or leading.due_change(lives, now, facts.ends.earliest)
        if after is None:
            return None
        return _of(leading.state, "isr", lambda found: after, after.isr)

    def _living(self, leading: Leading) -> Mapping[int, int]:
        """The sessions of those that are registered, and whose process isn't known to be gone."""
        return {
            each: life
            for each, life in self.lives.items()
            if not self._refusals.is_gone(each, leading.heard_at(each))
        }

    def _handing_over(self, state: PartitionState, to: int) -> Change:
        me, life = self.broker_id, self.lives[to]
        return _of(state, "hand over", lambda found: handed_over(found, me, to, life))


def _is_possible(change: Callable[[PartitionState], PartitionState], state: PartitionState) -> bool:
    try:
        change(state)
    except LastReplicaError:
        return False
    return True


def _of(
    expected: PartitionState,
    what: str,
    change: Callable[[PartitionState], PartitionState],
    isr: frozenset[int] = frozenset(),
) -> Change:
    """A change that is made only of the state that it was decided for."""

    def make(found: PartitionState) -> PartitionState:
        if found != expected:
            raise WrongStateError(f"the partition is in another state by now: {found}")
        return change(found)

    return Change(what, make, isr, expected)
