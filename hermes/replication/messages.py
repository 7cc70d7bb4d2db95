"""What leader and follower say to each other, and what both know of a log."""

from typing import NamedTuple, Protocol

from hermes.protocol.kafka_errors import Code


class LogEnds(NamedTuple):
    """Where a log begins and ends.

    Attributes:
        start: the base offset of its first batch, which may hold the log's first offset inside.
        flushed_end: up to where it is on this disk, at most the end.
        earliest: the log's first offset; what is before it can't be cut to.
    """

    start: int
    flushed_end: int
    end: int
    earliest: int = 0


class LogEpochs(Protocol):
    """Which leader epochs a log has, up to its end, committed or not."""

    def epoch_before(self, offset: int) -> int:
        """The epoch of what comes before an offset; -1 for nothing, or where it isn't known."""

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to it that is known, where that ends); (-1, -1) when none is."""


class ReplicaFetch(NamedTuple):
    """A follower asks for what comes next.

    Attributes:
        life: the follower's session with coordination.
        epoch: the one that it follows.
        offset: its log's end, all of it on its disk: so a fetch acknowledges what is before.
        last_epoch: that of its last batch; -1 where it has none.
        high_watermark: what it knows to be committed.
        token: by which it knows the answer.
        wants_sources: whether it has nothing yet, and so not where the log has mirrors' sources.
        earliest: its log's first offset: of what is before that it shows nothing, also as leader.
    """

    broker_id: int
    life: int
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    token: int
    wants_sources: bool = False
    earliest: int = 0


class Refused(NamedTuple):
    """The follower looks at coordination, and asks again."""

    code: Code


class Diverging(NamedTuple):
    """The follower has what the leader hasn't, and cuts it off.

    Attributes:
        epoch: the largest of the leader's up to that of the follower's last batch; -1 for none.
        end: where it ends in the leader's log.
        start: the leader's first batch's.
    """

    epoch: int
    end: int
    start: int


class StartsLater(NamedTuple):
    """The leader has deleted what the follower asks for; `start`: its first batch's."""

    start: int


class Records(NamedTuple):
    """Batches from the offset on go with it, as they lie, maybe none.

    Attributes:
        start: the leader's first offset; what is before may be deleted.
        until: up to where there is nothing after the batches of the part of the log that they are
            of: where the next part begins, or the log ends. -1 without batches.
    """

    high_watermark: int
    start: int
    until: int = -1


Answer = Refused | Diverging | StartsLater | Records
