"""What lies beside a log's segments and follows the log's life: its sidecars.

A log (`hermes.storage.log`) calls each of them, always in the same order, at these moments:

    open         load -> the segments are read (`end_for`) -> opened -> installed -> record
    append       prepare, when the tail gets ready for one; rolled, after a new segment has begun
    flush        account -> sync -> the segments' sync -> the flushed end moves -> flushed
    reopen, cut  what remains of the tail is read (`end_for`) -> recovered -> cut
    retention    record, before the file of a segment goes
    close        close, record -> retire
    delete       retire -> forget -> the files go

One belongs to the log's format, and tells what only that knows: whose log it is, its leader
epochs, its idempotent producers (`FormatSidecar`). Another is what mirrors need (`log_sources`).

Under the log's lock run `prepare`, `rolled`, `account`, `installed`, `cut` and `retire`: they write
into the page cache at most. All others run in a worker thread, under the log's lock for flushes,
and may wait for a disk; but `record` and `forget` also without it. Any of them may raise `OSError`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple
from uuid import UUID

from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.transaction_markers import Marker
from hermes.storage.aborted_index import AbortedIndex, AbortedTransaction
from hermes.storage.checkpoints import LeaderEpochs
from hermes.storage.files import FileLayer
from hermes.storage.producer_states import ProducerStates
from hermes.storage.segment import LogView, Segment
from hermes.storage.transactions import Transactions

_NO_EPOCH = (-1, -1)


class Sidecar:
    """What lies beside a log; as it is here, nothing.

    Attributes:
        set_aside: names of its files that were damaged and stay for whoever looks.
        is_idle: whether appends and flushes needn't call it yet, since the log has nothing of it;
            `LogState.enlist` follows a change.
    """

    set_aside: Sequence[str] = ()
    is_idle: bool = False

    def load(self, *, clean: bool, is_new: bool) -> None:
        """Read what there is, before the segments are; `clean` as for `Log.open`.

        Args:
            is_new: whether the directory's files may be in memory only.
        """

    def end_for(self, start: int, end: int, bad_ranges: Sequence[tuple[int, int]]) -> int:
        """Say where the log must end, from `start` to `end`, after its tail was scanned.

        Args:
            start: where the scan began: what is before was flushed.
            end: the offset after the last valid message.
            bad_ranges: (start, end) of damage before that.
        """
        return end

    def opened(self, segments: tuple[Segment, ...], end: int, now_ms: int, *, is_new: bool) -> int:
        """Start from what was loaded, all of it on disk; say where the log begins, 0 if unknown.

        `is_new`: whether the directory's files may be in memory only.
        """
        return 0

    def installed(self) -> None:
        pass

    def recovered(self, segments: Sequence[Segment], earliest: int, end: int, now_ms: int) -> None:
        """The log ends elsewhere, and what remains is on disk: as `opened`; `cut` follows."""

    def cut(self, earliest: int, end: int) -> None:
        pass

    def prepare(self) -> None:
        pass

    def rolled(self, end: int) -> None:
        pass

    def account(self, end: int, flushed_end: int) -> None:
        """A flush begins: of what was appended up to `end`."""

    def sync(self) -> None:
        pass

    def flushed(self, lock: AbstractContextManager[object], view_of: Callable[[], LogView]) -> None:
        """More of the log is on disk. What fails here costs time later, and no message.

        `lock`: the log's, which is not held.
        """

    def record(
        self,
        view_of: Callable[[], LogView],
        *,
        is_synced: bool = False,
        has_new_end: bool = False,
    ) -> None:
        """Write down what the log is like by now, if that has changed.

        Args:
            view_of: tells the log's segments, and up to where they are on disk.
            is_synced: put it on disk, before it comes true.
            has_new_end: whether that the log ends elsewhere is reason enough to write it.
        """

    def close(self, end: int) -> None:
        pass

    def retire(self) -> None:
        pass

    def forget(self) -> None:
        """The log is about to be deleted: another one of its name begins at 0."""


def busy_at(moment: str, sidecars: Iterable[Sidecar]) -> tuple[Sidecar, ...]:
    """Choose those that do anything at a moment, for moments that must cost the others no call."""
    nothing = getattr(Sidecar, moment)
    return tuple(
        each for each in sidecars if not each.is_idle and getattr(type(each), moment) is not nothing
    )


class KnownLog(NamedTuple):
    """What a sidecar knows of a log before its segments are read.

    Attributes:
        segments: the base offsets of segments that must be there.
        end: up to where the log was on disk, at least.
    """

    segments: Sequence[int] = ()
    end: int = 0


class FormatSidecar(Sidecar):
    """The sidecar of a format; as it is here, that of one which keeps nothing but segments.

    Attributes:
        has_provisional_id: whether the id was lost, and it has another one for now.
        producers: what is known of idempotent producers; None where there are none.
        mended: its files which were damaged, and what is true, in words.
        lost: what was there before the log was opened, and isn't any more, in words; else empty.
        known: what the log must have, after `load`.
        can_begin_inside: whether a log can begin inside of a segment.
        epochs: its leader epochs; nothing changes them in a format that has none.
        transactions: which are open; the same.
        aborted: which were aborted; the same.
    """

    topic_id: UUID | None = None
    has_provisional_id: bool = False
    producers: ProducerStates | None = None
    mended: Sequence[str] = ()
    lost: str = ""
    known: KnownLog = KnownLog()
    can_begin_inside: bool = False
    epochs = LeaderEpochs("", ())
    transactions = Transactions()
    aborted: AbortedIndex = AbortedIndex("", FileLayer())

    def recovery_point(self) -> int:
        """Up to where another program has put the log on disk, when it was the last to use it."""
        return 0

    def end_of_epoch(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Find where a leader epoch ends, for clients that want to know whether a log was cut.

        Returns:
            (the largest epoch up to it that is known, where that ends); (-1, -1) when none is.
        """
        return (0, log_end) if epoch == 0 else _NO_EPOCH

    def keep_id(self) -> None:
        """Put on disk which topic it is of, if no flush has: before any index is there."""

    def adopt(self, topic_id: UUID) -> None:
        """Take the topic's id instead of one that was made up."""

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of what comes before an offset; -1 when that isn't known."""
        return -1

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Under the log's lock: append in a leader epoch from an offset on, the log's end."""

    def ends_in(
        self, headers: Sequence[BatchHeader], markers: Mapping[int, Marker]
    ) -> list[AbortedTransaction]:
        """Under the log's lock: which transactions are aborted in batches about to be appended."""
        return []

    def placed(
        self, headers: Sequence[BatchHeader], markers: Mapping[int, Marker], now_ms: int
    ) -> None:
        """Under the log's lock: batches were appended with their offsets, epochs and markers."""

    def restarted(self, offset: int) -> None:
        """Under the log's lock: it begins and ends at an offset, and nothing before it counts."""

    def keep_restart(self, offset: int, view_of: Callable[[], LogView]) -> None:
        """The same on disk; a start finds out by itself what of that isn't."""

    def keep_start(self, earliest: int, view_of: Callable[[], LogView]) -> None:
        """Put on disk that the log begins inside of a segment, before anybody is told.

        Raises OSError, StorageError: it is not on disk.
        """
