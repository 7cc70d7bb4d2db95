"""A copy, as its parts and its broker know it, and what it needs of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.coordination.sessions import Lease
from hermes.kafka.replicas.fetches import Place
from hermes.kafka.replicas.links import Fetcher
from hermes.limited_log import LimitedLog
from hermes.metrics import Histogram
from hermes.partition.flushing import FlushScheduler
from hermes.partition.partition import Partition
from hermes.replication.electing import Refusals
from hermes.replication.messages import LogEnds, ReplicaFetch
from hermes.replication.replica import Change, Replica
from hermes.replication.state import PartitionState
from hermes.storage import Log


@dataclass(slots=True)
class CopyCounts:
    """What was done so far to all copies of a broker that follow.

    Attributes:
        healed: how many of them were damaged, and given up until they are mended.
        sent_behind_bytes, fetched_behind_bytes: what went to and came for copies that aren't in
            sync, which is what throttles bound.
        commit_seconds: of those that lead, from an append to its being committed.
    """

    cuts: int = 0
    cut_messages: int = 0
    fetched_bytes: int = 0
    healed: int = 0
    sent_behind_bytes: int = 0
    fetched_behind_bytes: int = 0
    commit_seconds: Histogram = field(default_factory=Histogram)


class OwnCopy(Protocol):
    """A `Copy`.

    Attributes:
        partition: None until its log was made.
        replica: what decides.
    """

    topic: str
    topic_id: UUID
    number: int
    place: Place
    partition: Partition | None
    replica: Replica
    is_gone: bool

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def follower(self) -> Fetcher: ...

    def is_behind(self, broker_id: int) -> bool:
        """Whether a broker's copy isn't in sync: only then its making is throttled."""

    def ends(self) -> LogEnds: ...

    def turn(self) -> None:
        """Do what is due by now."""

    def advance(self) -> None:
        """Commit what may be by now."""

    def opened(self, partition: Partition, *, is_whole: bool) -> None:
        """The log is in service, and known as a copy."""

    def cannot_open(self) -> None:
        """The log is offline, and isn't known as a copy yet: said at each attempt to open it."""

    def was_cut(self, *, is_in_service: bool) -> None:
        """The log was cut, and is in service still, or not."""

    def cut_off(self, offset: int) -> None:
        """Cut off what is damaged, and isn't committed."""

    def begin_log_anew(self) -> None:
        """Nothing of the log is shared with the leader's, or may be cut: delete it."""

    def begin_anew(self) -> None:
        """It was to be deleted, and is named again."""

    @property
    def known(self) -> tuple[PartitionState | None, int]:
        """The state that was read last, and the version of the node that has it."""

    def change_ended(self, state: PartitionState | None, version: int, *, is_done: bool) -> None:
        """A change's outcome is known; `state` is None where the topic is gone."""


class Surroundings(Protocol):
    """Lives in the reactor's thread."""

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

    def ask(self, copy: OwnCopy, leader: int, fetch: ReplicaFetch) -> None:
        """Send a fetch; its answer, or that it was broken off, is told to the copy's follower."""

    def ask_no_more(self, copy: OwnCopy) -> None:
        """What the copy has asked for doesn't count any more."""

    def came(self, copy: OwnCopy, size_bytes: int) -> None:
        """So much was copied."""

    def went(self, size_bytes: int) -> None:
        """So much was sent to one that isn't in sync."""

    def delay_of_leader(self) -> float:
        """For how many seconds nothing more is sent to those that aren't."""

    def break_off(self, copy: OwnCopy) -> None:
        """What came is damaged: end the connection that it came by."""

    def look(self) -> None:
        """Read what stands in coordination now."""

    def change(self, copy: OwnCopy, change: Change) -> None:
        """Change the partition's state, and tell the copy its outcome."""

    def changed(self, place: Place) -> None:
        """Those who copy this copy are to look at it again."""

    def remake(self, copy: OwnCopy, log: Log) -> None:
        """Delete a copy's log, and make another."""

    def unreadable(self, copy: OwnCopy) -> None:
        """Its log is offline, and can't be opened again: make it anew, unless others need it."""

    def now_whole(self) -> None:
        """A copy lacks nothing any more that others count on."""

    def dismissed(self, copy: OwnCopy) -> None:
        """Coordination names this broker no more: delete the copy, once that is certain."""

    def press(self, copy: OwnCopy) -> None:
        """Something is due in fractions of a second: `turn` it often."""
