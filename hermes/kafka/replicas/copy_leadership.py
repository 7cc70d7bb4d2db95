"""What a copy's broker may do because it leads: append, answer, and let others copy.

Produces and consumers' fetches ask before they append or answer (`Leadership`), and followers'
sessions ask what they get (`LedCopy`).
"""

from contextlib import suppress
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred

from hermes.coordination.replicas import as_life
from hermes.errors import HermesError, NotLeaderError, TooFewReplicasError
from hermes.kafka.replicas.surroundings import OwnCopy, Surroundings
from hermes.protocol import NOBODY
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import HEADER_BYTES
from hermes.replication.awaiting import Awaiting
from hermes.replication.leading import Leading
from hermes.replication.messages import Answer, Refused, ReplicaFetch, StartsLater
from hermes.storage import Log, LogSlice, ToldSources

#: How many spans of mirrors' sources one answer tells: a follower gets to where they end.
_MOST_SPANS: Final = 2048

#: How long followers have for saying that they follow.
_CONFIRM_SECONDS: Final = 3.0

#: Who is sent the same so often can't use it: it may be damaged on this disk.
_SUSPICIOUS: Final = 3


class _Asking(NamedTuple):
    """Who asks whether this broker leads for certain, in which epoch, and since when.

    Or, with `is_of_successor`, whether another one does.
    """

    leading: Leading | None
    at: float
    told: "Deferred[bool]"
    is_of_successor: bool


class CopyLeadership:
    """Lives in the reactor's thread. While another broker leads it refuses everything."""

    __slots__ = (
        "_around",
        "_asking",
        "_copy",
        "_deleting",
        "_sent",
        "_timed",
    )

    def __init__(self, copy: OwnCopy, around: Surroundings) -> None:
        self._copy = copy
        self._around = around
        self._asking: list[_Asking] = []
        self._deleting: Awaiting[Deferred[int]] = Awaiting()
        self._sent: dict[int, tuple[int, int]] = {}  # to whom from where on, and how often
        self._timed: tuple[int, float] | None = None  # where an append ends, and when it came

    # -- as its partition's leadership ------------------------------------------------------------

    @property
    def epoch(self) -> int:
        state = self._copy.replica.state
        return -1 if state is None else state.epoch

    @property
    def leader(self) -> int:
        state = self._copy.replica.state
        return NOBODY if state is None else state.leader

    @property
    def is_handing_over(self) -> bool:
        return self._copy.replica.is_handing_over

    @property
    def is_end_known(self) -> bool:
        leading = self._copy.replica.leading
        return leading is not None and leading.is_end_known

    def check(self) -> None:
        leading = self._copy.replica.leading
        if leading is None or not leading.is_confirmed(
            self._around.now(), has_lease=self._has_lease()
        ):
            raise self._not_leader()

    def check_append(self) -> None:
        self.check()
        if not self._copy.replica.takes_appends:
            raise self._not_leader()

    def check_enough(self) -> None:
        leading = self._copy.replica.leading
        if leading is not None and not leading.has_enough:
            raise TooFewReplicasError(
                f"partition {self._copy.number} of topic {self._copy.topic} has "
                f"{len(leading.state.isr)} in-sync replicas, and min_insync_replicas is "
                f"{leading.settings.min_insync}"
            )

    def when_confirmed(self) -> "Deferred[bool]":
        return self._ask(is_of_successor=False)

    def when_handed_over(self) -> "Deferred[bool]":
        return self._ask(is_of_successor=True)

    def _ask(self, *, is_of_successor: bool) -> "Deferred[bool]":
        replica, now = self._copy.replica, self._around.now()
        asking = _Asking(replica.leading, now, Deferred(), is_of_successor)
        self._asking.append(asking)
        self._around.call_later(_CONFIRM_SECONDS, self.confirm)
        self.confirm()
        return asking.told

    def confirm(self) -> None:
        """Tell who asks whether this broker led, or does still, what is known by now."""
        asking, self._asking = self._asking, []
        late = self._around.now() - _CONFIRM_SECONDS
        for each in asking:
            leading = self._copy.replica.leading
            if leading is None or leading is not each.leading or self._copy.is_gone:
                each.told.callback(False)
            elif each.is_of_successor:
                if each.at <= late or not self.is_handing_over:
                    each.told.callback(False)
                else:
                    self._asking.append(each)
            elif leading.led_at(each.at) or each.at <= late:
                each.told.callback(leading.led_at(each.at))
            else:
                self._asking.append(each)

    def when_deleted(self, offset: int) -> "Deferred[int]":
        told: Deferred[int] = Deferred(self._deleting.remove)
        if self._copy.replica.leading is None:
            told.errback(self._not_leader())
            return told
        self._deleting.add(offset, told)
        self.tell_deleted()
        self._around.changed(self._copy.place)  # whose followers are told at once
        return told

    def tell_deleted(self) -> None:
        """Tell who waits until in-sync replicas begin later, what is known by now."""
        leading = self._copy.replica.leading
        if self._deleting and leading is not None:
            low = leading.low_watermark(self._copy.log.earliest)
            for told in self._deleting.reached(low):
                told.callback(low)

    def appended(self) -> None:
        if self._timed is None:
            self._timed = self._copy.log.end_offset, self._around.now()
        self._around.changed(self._copy.place)

    def committed(self, offset: int) -> None:
        """All up to there is committed: of one append at a time it is told how long that took."""
        if self._timed is not None and self._timed[0] <= offset:
            self._around.counts.commit_seconds.observe(self._around.now() - self._timed[1])
            self._timed = None

    def ended(self) -> None:
        """The epoch is over: what wasn't committed may never be."""
        self._timed = None
        self.confirm()
        for told in self._deleting.ended():
            told.errback(self._not_leader())

    def no_room(self) -> None:
        self._copy.replica.hand_over(self._around.now())
        self._copy.turn()

    def _not_leader(self) -> NotLeaderError:
        leader = self.leader
        return NotLeaderError(
            f"partition {self._copy.number} of topic {self._copy.topic} is led by "
            f"{'nobody' if leader == NOBODY else f'broker {leader}'} at the moment"
        )

    def _has_lease(self) -> bool:
        lease = self._around.lease
        if lease is None or as_life(lease.session_id) != self._copy.replica.life:
            return False
        return lease.is_held()

    # -- as followers' sessions know it -----------------------------------------------------------

    def judge(self, fetch: ReplicaFetch, answered_at: float) -> Answer | None:
        copy = self._copy
        replica, log = copy.replica, copy.log
        leading = replica.leading
        if leading is None or log.is_offline:
            return Refused(Code.NOT_LEADER_OR_FOLLOWER)
        life = replica.lives.get(fetch.broker_id)
        verdict = leading.judge(fetch, life, copy.ends(), log.replica)
        if verdict is None and not self._lacks_sources(fetch):
            leading.fetched(fetch, log.end_offset, self._around.now(), answered_at)
            if self._asking:
                self.confirm()
            if copy.is_behind(fetch.broker_id):
                copy.turn()  # it may be in sync with that
            else:
                copy.advance()
        elif verdict == Refused(Code.UNKNOWN_LEADER_EPOCH):
            self._around.look()
        return verdict

    def _lacks_sources(self, fetch: ReplicaFetch) -> bool:
        """Whether a follower doesn't get in sync by what it has: mirrors would begin anew there."""
        wants = fetch.wants_sources and self._copy.log.sources.has_any
        return wants and self._copy.is_behind(fetch.broker_id)

    def has_after(self, fetch: ReplicaFetch) -> bool:
        leading, log = self._copy.replica.leading, self._copy.log
        return (
            leading is None
            or leading.epoch != fetch.epoch
            or fetch.offset < log.end_offset
            or log.is_offline
            or (fetch.wants_sources and log.sources.has_any)
            or (len(self._deleting) > 0 and self._lacks_deletion(fetch))
        )

    def _lacks_deletion(self, fetch: ReplicaFetch) -> bool:
        """Whether somebody waits until a follower's log begins where the own one does."""
        is_awaited = not self._copy.is_behind(fetch.broker_id)
        return is_awaited and fetch.earliest < self._copy.log.earliest

    def refresh(self, fetch: ReplicaFetch, answered_at: float) -> None:
        leading = self._copy.replica.leading
        if leading is None or leading.epoch != fetch.epoch:
            return
        if not (fetch.wants_sources and self._lacks_sources(fetch)):
            end = self._copy.log.end_offset
            leading.fetched(fetch, end, self._around.now(), answered_at)
            if self._asking:
                self.confirm()

    def delay(self, fetch: ReplicaFetch) -> float:
        leads = self._copy.replica.leading is not None
        is_behind = self._copy.is_behind(fetch.broker_id)
        return self._around.delay_of_leader() if leads and is_behind else 0.0

    def answer(
        self, fetch: ReplicaFetch, max_bytes: int, *, resident: bool
    ) -> tuple[Answer, LogSlice | bytes]:
        leading, log = self._copy.replica.leading, self._copy.log
        if leading is None or leading.epoch != fetch.epoch or log.is_offline:
            return Refused(Code.NOT_LEADER_OR_FOLLOWER), b""
        if fetch.offset < log.earliest and fetch.offset < (start := self._copy.ends().start):
            # Messages were deleted while it waited. What begins after them would leave the
            # follower with transactions open that ended among them.
            return StartsLater(start), b""
        offset = max(fetch.offset, log.earliest)
        records = leading.records(log.earliest)
        if offset >= log.end_offset:
            return records, b""
        found, until = log.replica.fetch_appended(offset, max_bytes, resident=resident)
        if self._copy.is_behind(fetch.broker_id):
            length = found.length if isinstance(found, LogSlice) else len(found)
            self._around.went(length)
            self._around.counts.sent_behind_bytes += length
        before, times = self._sent.get(fetch.broker_id, (-1, 0))
        times = times + 1 if before == offset else 1
        self._sent[fetch.broker_id] = offset, times
        if times >= _SUSPICIOUS:
            log.is_suspect = True
        return records._replace(until=until), found

    def warm(self, fetch: ReplicaFetch, max_bytes: int) -> "Deferred[None]":
        return self._around.in_thread(_look, self._copy.log, fetch.offset, max_bytes)

    def sources(self, fetch: ReplicaFetch, size_bytes: int) -> ToldSources | None:
        sources, wants = self._copy.log.sources, fetch.wants_sources
        if not sources.has_any or not (size_bytes or wants):
            return None
        most = min(size_bytes // HEADER_BYTES, _MOST_SPANS) + 1
        return sources.told(fetch.offset, most, with_positions=wants)

    def is_told(self, fetch: ReplicaFetch) -> bool:
        leading, log = self._copy.replica.leading, self._copy.log
        if leading is None:
            return False
        is_committed = fetch.high_watermark >= leading.high_watermark
        return is_committed and fetch.earliest >= log.earliest


def _look(log: Log, offset: int, max_bytes: int) -> None:
    with suppress(HermesError):  # which the answer meets, too
        log.replica.read_appended(max(offset, log.earliest), max_bytes, whole_first=True).release()
