"""One partition of a source while this process has it: fetched, sent, acknowledged, committed.

    committed <= acknowledged <= fetch_offset

What is fetched becomes stretches, in the order of the partition, each with the entries that go to
the target. A stretch is settled when the target has all of it on disk and all before it is settled:
only then the audit counts it, and offsets may be committed up to there. Nothing is done twice to
be on the safe side: after any failure the claim starts anew from what is acknowledged, and the
target's own positions say what of it is there already.

The lock is the stream's, as for every claim of a group. The module is long because fetching,
sending and acknowledging meet in one state, which must be seen whole.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hermes.client.fetching import FetchedSet
from hermes.client.groups.streams import Claim
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import (
    BrokerError,
    HermesError,
    InvalidMessageError,
    MessageTooLargeBrokerError,
)
from hermes.mirror.figures import PartitionFigures
from hermes.mirror.kafka_cluster import KafkaPartition
from hermes.mirror.record_stretches import record_stretches
from hermes.mirror.routing import RoutingPlan
from hermes.mirror.stretches import Stretch, boundaries, stretches
from hermes.protocol import Buffer, RecordSet

#: How long a partition is paused when only somebody's help, or new data, can get it further.
LONG_PAUSE_SECONDS: Final = 15.0

#: Why a topic of Kafka's format isn't mirrored from a source that is read by Hermes' protocol.
HOLDS_RECORDS: Final = (
    "its topic has Kafka's format: it is mirrored from a source that is given by its `kafka`"
)


class PendingStretch:
    """A stretch that is not on the target's disk yet, with how many of its entries are `left`."""

    __slots__ = ("duplicates", "left", "stretch")

    def __init__(self, stretch: Stretch, left: int) -> None:
        self.stretch = stretch
        self.left = left
        self.duplicates = 0


@dataclass(slots=True, eq=False)
class TargetAppend:
    """What one partition of the target is to append, or only to know.

    Attributes:
        epoch: the claim's epoch when it was made; if that has changed, the entry is void.
        source, begin, end: the range of the source that it covers.
        data: whole messages, or nothing.
        is_verbatim: whether the data are the source's own bytes from begin to end.
    """

    claim: "SourceClaim"
    epoch: int
    pending: PendingStretch
    topic: str
    target: BrokerPartition
    source: str
    begin: int
    end: int
    data: Buffer
    messages: int
    is_verbatim: bool

    def is_wanted(self) -> bool:
        return self.epoch == self.claim.epoch


class ClaimContext(Protocol):
    """What a claim reports to. Its methods return at once."""

    skips_damage: bool
    counter: Any  # hermes.audit's TierCounter, or None

    def send(self, entries: Iterable[TargetAppend]) -> None:
        """Have entries sent, in this order."""

    def plan(self, claim: "SourceClaim", pause_seconds: float) -> None:
        """Have `begin` called, after a pause at the earliest."""

    def has_room(self) -> None: ...

    def set_error(self, claim: "SourceClaim", text: str) -> None:
        """Say what keeps a claim from going on; empty when it goes on."""

    def released(self, claim: "SourceClaim") -> None: ...

    def is_compacted(self, claim: "SourceClaim") -> bool:
        """Whether compaction may have taken messages of its topic at the source; blocks."""

    def note(self, text: str) -> None: ...


class SourceClaim(Claim):
    """A partition of a source; see the module.

    Attributes:
        plan: how messages get to the target; None while that is being found out.
        acknowledged: up to where the target has everything on disk; None until it is known.
        covered: up to where offsets may be committed.
        holds_records: whether its topic is of Kafka's format.
        start_over_at: where the source's log began anew, and so the claim has to; or None.
        is_draining: whether nothing is fetched until all has arrived and there is another plan.
        is_ending: whether nothing is fetched any more.
    """

    def __init__(
        self,
        source: str,
        figures: PartitionFigures,
        context: ClaimContext,
        topic: str,
        partition: BrokerPartition,
        stream_id: str,
        lock: threading.Condition,
        lease: Lease,
    ) -> None:
        super().__init__(topic, partition, stream_id, lock, lease)
        self.source = source
        self.holds_records = isinstance(partition, KafkaPartition)
        self.figures = figures
        self.plan: RoutingPlan | None = None
        self.acknowledged: int | None = None
        self.covered: int | None = None
        self.start_over_at: int | None = None
        self.is_draining = self.is_ending = False
        self.failures = 0
        self._context = context
        self._counter = context.counter
        self._pending: deque[PendingStretch] = deque()
        self._in_flight_bytes = 0
        self._paused_until = 0.0
        # Where a set was refused: there messages go one by one; and the refused ones.
        self._singly = (0, 0)
        self._refused: set[int] = set()
        # Those that are too large: nothing is sent behind one before the target has taken it.
        self._large: set[int] = set()
        # Whether compaction at the source is why offsets have no message; asked when some have none
        self._is_compacted = False

    def __str__(self) -> str:
        return f"{self.source}: topic {self.topic!r} partition {self.partition}"

    @property
    def log(self) -> str:
        return f"{self.source}/{self.partition}"

    # -- for the membership ---------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self.acknowledged or 0

    @property
    def finished(self) -> int:
        return self.covered or 0

    def start_at(self, offset: int) -> None:
        """Note what is committed; `begin` starts."""
        with self.lock:
            self.fetch_offset = self.acknowledged = self.covered = offset

    def fail(self, error: Exception) -> None:
        self._context.set_error(self, str(error))

    def revoke(self, *, lost: bool) -> None:
        """Fetch nothing more; if the claim is lost, what is on its way is nobody's."""
        with self.lock:
            self.is_revoked = True
            if lost:
                self.is_lost = True
                self._forget()
                self.figures.is_held = False
                self._context.released(self)
            self.lock.notify_all()

    def is_full(self) -> bool:
        return bool(self._pending) and self._paused_until < time.monotonic()

    def is_idle(self) -> bool:
        """Whether nothing is on its way; with the lock held."""
        return not self._pending

    def cover(self, offset: int) -> None:
        with self.lock:
            # One beyond is of a log that the source has begun anew since.
            if self.covered is not None and offset <= (self.acknowledged or 0):
                self.covered = max(self.covered, offset)

    # -- planning -------------------------------------------------------------------------------

    def begin(self, plan: RoutingPlan, offset: int) -> None:
        """Fetch from an offset on, up to which the target has everything.

        An audit has to count what is there, so it is read from where that was committed, not sent.
        """
        with self.lock:
            if self.is_revoked:
                return
            self._forget()
            if self._counter is not None and self.acknowledged is not None:
                offset = min(offset, self.acknowledged)
            self.plan = plan
            if self.start_over_at is not None:  # other messages are at these offsets now
                self.start_over_at, self._singly = None, (0, 0)
                self._refused.clear()
                self._large.clear()
            self.is_draining = False
            self.fetch_offset = self.acknowledged = offset
            # What this process has counted may not be reported yet.
            is_counted = self._counter is not None and self.covered is not None
            self.covered = min(self.covered or 0, offset) if is_counted else offset
            self.figures.position = offset
            self.figures.is_held = True
        self._context.has_room()

    def restart(self, epoch: int, error: HermesError | None, least_seconds: float = 0.0) -> None:
        """Give up what is on its way, and plan again after a pause that grows.

        `error` is None when nothing went wrong: then there is no pause beyond `least_seconds`.
        """
        with self.lock:
            if epoch != self.epoch or self.is_revoked:
                return
            self._forget()
            pause = least_seconds
            if error is not None:
                pause = max(pause, min(0.1 * 2 ** min(self.failures, 6), 5.0))
                self.failures += 1
        if error is not None:
            self._context.set_error(self, str(error))
        self._context.plan(self, pause)

    def refused(self, entries: Sequence[TargetAppend], error: BrokerError) -> None:
        """The target refused a set whose messages look intact: find out which one is meant.

        A damaged one (a compressed message's inside) is skipped, or the partition waits there. One
        that is too large waits for a higher limit, and a record batch in any case: its CRC is
        right, so that it is the target that doesn't want it.
        """
        first, last = entries[0], entries[-1]
        self._refuse(first.pending.stretch, last.pending.stretch, error, first.epoch)

    def _refuse(self, first: Stretch, last: Stretch, error: HermesError, epoch: int) -> None:
        is_single = first is last and (first.is_batch or first.messages == 1)
        is_too_large = isinstance(error, MessageTooLargeBrokerError)
        with self.lock:
            if epoch != self.epoch:
                return
            if not is_single:
                self._singly = (first.begin, last.end)
            elif is_too_large:
                self._large.add(first.end)
            elif not first.is_batch:
                self._refused.add(first.end)
        skips = self._context.skips_damage and not first.is_batch
        if not is_single or (not is_too_large and skips):
            self.restart(epoch, None)
        else:
            self.restart(epoch, error, LONG_PAUSE_SECONDS)

    def is_suspect(self, offset: int) -> bool:
        """Whether a set around there was refused, so that messages go one by one."""
        return self._singly[0] <= offset < self._singly[1]

    # -- fetching -------------------------------------------------------------------------------

    def wants_bytes(self, share_bytes: int, fetch_bytes: int) -> int:
        if self.is_revoked or self.plan is None or self.is_draining or self.is_ending:
            return 0
        if self._paused_until and time.monotonic() < self._paused_until:
            return 0
        most = min(fetch_bytes, share_bytes)
        room = share_bytes - self._in_flight_bytes
        return min(room, most) if 2 * room >= most or not self._pending else 0

    def add(self, messages: FetchedSet, epoch: int) -> None:
        if epoch != self.epoch:
            return
        if not len(messages):
            self._goes_on()
            return
        found: Iterable[Stretch]
        if isinstance(messages, RecordSet):
            if not self.holds_records:
                self.pause(HOLDS_RECORDS)
                return
            found = record_stretches(messages, self._there())
        else:
            found = self._one_by_one(stretches(messages.data, messages.base_offset))
        try:
            for stretch in found:
                if stretch.fault and not self._context.skips_damage:
                    self.pause(
                        f"{stretch.fault} message at offset {stretch.begin}, and damaged: stop"
                    )
                    return
                try:
                    self._take(stretch, epoch)
                except InvalidMessageError as error:  # by a key, compressed messages are opened
                    self._refuse(stretch, stretch, error, epoch)
                    return
                if stretch.end in self._large:
                    self._paused_until = math.inf  # until it is done, or planned anew
                    return
        except InvalidMessageError as error:
            self.pause(str(error))
            return
        self._goes_on()

    def skip(self, begin: int, end: int, fault: str, epoch: int) -> None:
        """Go on behind a range, from `fetch_offset` on, that is "damaged" or "lost"."""
        if fault == "lost" or self._context.skips_damage:
            self._take(Stretch(begin, end, b"", 0, fault), epoch)
        else:
            self.pause(f"{fault} message at offset {begin}, and damaged: stop")

    def pause(self, text: str, seconds: float = LONG_PAUSE_SECONDS) -> None:
        self._paused_until = time.monotonic() + seconds
        self._context.set_error(self, text)

    # -- sending --------------------------------------------------------------------------------

    def done(self, entry: TargetAppend, *, was_there: bool) -> None:
        with self.lock:
            if not entry.is_wanted():
                return
            pending = entry.pending
            pending.left -= 1
            pending.duplicates += entry.messages if was_there else 0
            if self._large and pending.stretch.end in self._large:
                self._large.discard(pending.stretch.end)
                self._paused_until = 0.0
            while self._pending and not self._pending[0].left:
                self._settle(self._pending.popleft())
            if not self._pending:
                self.lock.notify_all()
        if self.failures:
            self.failures = 0
            self._context.set_error(self, "")
        self._context.has_room()

    # -- inside ---------------------------------------------------------------------------------

    def _goes_on(self) -> None:
        """A fetch went well: nothing is wrong, unless what failed has yet to arrive."""
        with self.lock:
            was_wrong = bool(self._paused_until or self.failures)
            is_over = was_wrong and not (self.failures and self._pending)
            self._paused_until = 0.0
            if is_over:
                self.failures = 0
        if is_over:
            self._context.set_error(self, "")

    def _there(self) -> int:
        plan = self.plan
        return 0 if plan is None else plan.reached[plan.route.home(len(plan.reached))]

    def _one_by_one(self, found: Iterable[Stretch]) -> Iterator[Stretch]:
        begin, end = self._singly
        for stretch in found:
            if stretch.end <= begin or stretch.begin >= end or stretch.fault:
                yield stretch
                continue
            for start, stop in boundaries(stretch.data):
                data, base = stretch.data[start:stop], stretch.begin
                if base + stop in self._refused:
                    yield Stretch(base + start, base + stop, b"", 0, "refused")
                else:
                    yield Stretch(base + start, base + stop, data, 1)

    def _take(self, stretch: Stretch, epoch: int) -> None:
        plan = self.plan
        if plan is None or epoch != self.epoch:
            return
        if stretch.empty and self._counter is not None and not self._is_compacted:
            self._is_compacted = self._context.is_compacted(self)
        pending = PendingStretch(stretch, 0)
        entries = list(self._entries(plan, pending, epoch))
        pending.left = len(entries)
        with self.lock:
            if epoch != self.epoch or self.is_revoked:
                return
            self.fetch_offset = stretch.end
            self._pending.append(pending)
            self._in_flight_bytes += len(stretch.data)
            if self._pending[0] is pending and not entries:
                self._settle(self._pending.popleft())
        self._context.send(entries)

    def _entries(
        self, plan: RoutingPlan, pending: PendingStretch, epoch: int
    ) -> Iterator[TargetAppend]:
        stretch, reached = pending.stretch, plan.reached
        if stretch.fault:
            home = plan.route.home(len(reached))
            begin, reached[home] = reached[home], max(reached[home], stretch.end)
            if plan.is_exact and begin < stretch.end:
                where = (plan.topic, plan.targets[home], plan.source, begin, stretch.end)
                yield TargetAppend(self, epoch, pending, *where, b"", 0, False)
            return
        for part in plan.route.parts(stretch, reached):
            if plan.is_exact or part.messages:
                target = plan.targets[part.target]
                yield TargetAppend(self, epoch, pending, plan.topic, target, plan.source, *part[1:])

    def _settle(self, pending: PendingStretch) -> None:
        """Count a stretch that is done, with the lock held: the one place where all ranges pass."""
        stretch, figures = pending.stretch, self.figures
        self._in_flight_bytes -= len(stretch.data)
        self.acknowledged = figures.position = stretch.end
        counter, log = self._counter, self.log
        if not stretch.fault:
            figures.messages += stretch.messages
            figures.bytes += len(stretch.data)
            figures.duplicates += pending.duplicates
        elif stretch.fault == "lost":
            figures.lost_bytes += stretch.end - stretch.begin
        else:
            figures.damaged += 1
            self._context.note(
                f"{self}: skipped what is {stretch.fault} from {stretch.begin} to {stretch.end}"
            )
        if counter is None:
            self.covered = stretch.end
        elif stretch.is_batch and not stretch.fault:
            counter.add_records(
                self.topic,
                RecordSet(bytes(stretch.data), 0),
                log=log,
                start=stretch.begin,
                end=stretch.end,
                target_topic=figures.target_topic,
                empty=stretch.empty,
                is_compacted=lambda: self._is_compacted,
            )
        elif not stretch.fault:
            counter.add_set(
                self.topic,
                stretch.data,
                log=log,
                start=stretch.begin,
                end=stretch.end,
                target_topic=figures.target_topic,
            )
        elif stretch.fault == "lost":
            counter.add_lost(self.topic, log, stretch.begin, stretch.end)
        else:
            counter.add_damaged(self.topic, log, stretch.begin, stretch.end)

    def _forget(self) -> None:
        """Void what is on its way, with the lock held."""
        self.epoch += 1
        self.plan = None
        self._pending.clear()
        self._in_flight_bytes = 0
        if self._paused_until:  # its end is still to be told
            self._paused_until = time.monotonic()
        self.lock.notify_all()
