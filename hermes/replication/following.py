"""Following a partition's leader for one epoch: one fetch at a time, and what its answer means.

    idle --fetch--> fetching --records--> writing --written--> idle, once all is on the disk
                        |  '---diverging, starts later--> it is over: the log is cut, or begun again
                        '---refused, broken off--> idle

A fetch says that the log is on this disk up to its end, and is like the leader's. So it is made
only when nothing is being appended, flushed or cut; and an answer counts once, for the fetch that
is under way: what an earlier one said may not hold any more.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from hermes.errors import InvalidBatchError
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header, is_intact
from hermes.replication.messages import (
    Answer,
    Diverging,
    LogEnds,
    LogEpochs,
    Records,
    Refused,
    ReplicaFetch,
    StartsLater,
)

#: A batch begins with its offset.
_OFFSET_BYTES: Final = 8


class Append(NamedTuple):
    """Append the batches that came, flush them, and say `written`; see `Records`."""

    high_watermark: int
    start: int
    until: int = -1


class Cut(NamedTuple):
    """Let the log end at an offset, on the disk; then follow anew.

    `is_forced`: what was committed may go, since an unclean election came after it.
    """

    offset: int
    is_forced: bool = False


class Restart(NamedTuple):
    """Let the log begin and end at an offset, without batches; then follow anew.

    The offset is before the log's end where an unclean election left nothing in common, of what the
    log shows: then the log is deleted, and another one begins.
    """

    offset: int


class Rest(NamedTuple):
    """Fetch again later, once it has `rested`: the leader refuses."""

    refusal: Refused


class _Doing(Enum):
    IDLE = auto()
    FETCHING = auto()
    WRITING = auto()
    RESTING = auto()


class Following:
    """One follower's side of an epoch.

    Args:
        tokens: numbers that no fetch of this broker's had before.
        unclean_epoch: see `PartitionState`.
    """

    def __init__(
        self,
        broker_id: int,
        life: int,
        leader: int,
        epoch: int,
        tokens: Iterator[int],
        unclean_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.life = life
        self.leader = leader
        self.epoch = epoch
        self._tokens = tokens
        self._doing = _Doing.IDLE
        self._token = -1
        self._unclean_epoch = unclean_epoch
        self._last_epoch = -1

    def fetch(self, ends: LogEnds, last_epoch: int, high_watermark: int) -> ReplicaFetch | None:
        """Begin the next fetch; None while one is under way, or not all is on this disk."""
        if self._doing is not _Doing.IDLE or ends.flushed_end < ends.end:
            return None
        self._doing, self._token = _Doing.FETCHING, next(self._tokens)
        self._last_epoch = last_epoch
        return ReplicaFetch(
            self.broker_id,
            self.life,
            self.epoch,
            ends.end,
            last_epoch,
            high_watermark,
            self._token,
            earliest=ends.earliest,
        )

    def answered(
        self, token: int, answer: Answer, ends: LogEnds, epochs: LogEpochs
    ) -> Append | Cut | Restart | Rest | None:
        """Take the answer to a fetch; None where it is to none that is under way."""
        if not self.is_awaited(token):
            return None
        if isinstance(answer, Refused):
            self._doing = _Doing.RESTING
            return Rest(answer)
        if isinstance(answer, Records):
            self._doing = _Doing.WRITING
            return Append(*answer)
        self._token = -1
        if isinstance(answer, StartsLater):
            return Restart(max(answer.start, ends.end))
        return self._parted(answer, ends, epochs)

    def is_awaited(self, token: int) -> bool:
        return self.is_fetching and token == self._token

    @property
    def is_fetching(self) -> bool:
        return self._doing is _Doing.FETCHING

    def _parted(self, answer: Diverging, ends: LogEnds, epochs: LogEpochs) -> Cut | Restart:
        """Where histories part: after the last epoch that both have, where it ends first."""
        is_forced = self._last_epoch < self._unclean_epoch
        if answer.epoch < 0:
            # All that the leader has is later than all that is here.
            shared = answer.start if answer.start < ends.end else ends.start
        else:
            epoch, end = epochs.end_of_epoch(answer.epoch)
            shared = min(answer.end, end) if epoch >= 0 else ends.start
        if is_forced and shared < max(ends.start, ends.earliest):
            return Restart(answer.start)
        return Cut(min(max(shared, ends.start), ends.end), is_forced)

    def rested(self) -> None:
        """The leader may be asked again."""
        if self._doing is _Doing.RESTING:
            self._doing = _Doing.IDLE

    def written(self) -> None:
        """What came is in the log, or couldn't be appended."""
        self._doing = _Doing.IDLE

    def broken_off(self) -> None:
        """The connection was lost, or the answer is too late: it doesn't count any more."""
        if self._doing is _Doing.FETCHING:
            self._doing = _Doing.IDLE


def check_batches(
    data: bytes | memoryview,
    end: int,
    last_epoch: int,
    epoch: int,
    until: int = -1,
    before: int | None = None,
) -> Sequence[BatchHeader]:
    """Find the whole batches of an answer; bytes after them are the beginning of one more.

    A batch's CRC covers neither its own offset nor its leader's epoch. So a hole before it, which
    compaction leaves, is believed only where the batch fits before what comes after it: of a log
    without holes a larger offset never does. An epoch is believed between those of its neighbours:
    of the first batch of an epoch a bit may be lost without anybody's knowing.

    Args:
        end, last_epoch: of the follower's log.
        epoch: the one that it follows.
        until: see `Records`; what comes after the last batch, where nothing of that came.
        before: only batches before this offset are wanted; others aren't looked at.

    Raises:
        InvalidBatchError: bytes were damaged on the way or at the leader, or don't follow the log;
            nothing of them is to be appended.
    """
    found: list[BatchHeader] = []
    position, view = 0, memoryview(data)
    while len(view) - position >= HEADER_BYTES:
        header = decode_header(view, position)
        size = header.size_bytes
        is_wanted = before is None or header.base_offset < before
        if position + size > len(view) or not is_wanted:
            break
        if not is_intact(view[position : position + size]):
            raise InvalidBatchError(f"the batch at offset {header.base_offset} is damaged")
        position += size
        following = view[position : position + _OFFSET_BYTES]
        is_next = header.base_offset == end or (
            end < header.base_offset
            and header.next_offset
            <= (int.from_bytes(following) if len(following) == _OFFSET_BYTES else until)
        )
        if not is_next or not last_epoch <= header.leader_epoch <= epoch:
            raise InvalidBatchError(
                f"a batch at offset {header.base_offset} of epoch {header.leader_epoch} came after "
                f"offset {end} of epoch {last_epoch}, in epoch {epoch}"
            )
        end, last_epoch = header.next_offset, header.leader_epoch
        found.append(header)
    return found
