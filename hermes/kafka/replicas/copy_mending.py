"""A damaged copy gets back what it lacks: from its leader, once nobody counts on it.

The log counts as if it ended before the damage, so its leader is asked for what was there; what
comes is written where it lay. What isn't committed is cut off instead. Where what comes doesn't fit
the copy is made anew as a whole.
"""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.errors import StorageError
from hermes.kafka.replicas.surroundings import OwnCopy, Surroundings
from hermes.partition.damage_check import damage_text
from hermes.protocol.record_batches import BatchHeader
from hermes.replication.messages import LogEnds
from hermes.storage import Log
from hermes.storage.damage import Damage
from hermes.storage.mending import Mending, UnfitBatchesError, damage_from
from hermes.storage.segment import Segment

#: The pause after what the disk has refused.
_PAUSE_SECONDS: Final = 0.5


class CopyMending:
    """Lives in the reactor's thread."""

    __slots__ = ("_around", "_copy", "_is_looking", "_looked_end", "_mending")

    def __init__(self, copy: OwnCopy, around: Surroundings) -> None:
        self._copy = copy
        self._around = around
        self._mending: Mending | None = None
        self._is_looking = False
        self._looked_end = -1

    @property
    def is_under_way(self) -> bool:
        return self._mending is not None

    @property
    def wanted_end(self) -> int | None:
        """Up to where batches are wanted; None for all that there are."""
        return None if self._mending is None else self._mending.wanted_end

    def ends(self, ends: LogEnds) -> LogEnds:
        """Where the log ends for its leader: before what is damaged."""
        if self._mending is None:
            return ends
        end = self._mending.offset
        # While it isn't known what is wanted, nothing is asked for: not all is on this disk.
        return ends._replace(flushed_end=end, end=end + self._is_looking)

    # -- before it leads --------------------------------------------------------------------------

    def look_at_tail(self, told: Callable[[bool], object]) -> None:
        """Tell whether there is damage above what is committed, where nobody has read it yet."""
        log = self._copy.log
        start, end = log.high_watermark, log.flushed_end
        if log.damage or end in (start, self._looked_end):
            told(False)
            return
        self._looked_end = end
        looked = self._around.in_thread(damage_from, log, start)
        looked.addCallbacks(self._note, self._not_read, callbackArgs=(log,))
        looked.addCallback(told)

    def _note(self, found: tuple[Segment, Damage] | None, log: Log) -> bool:
        if found is None or log is not self._copy.log:
            return False
        log.damage = {**log.damage, found[0]: [found[1]]}
        self._around.lines.error(
            "tail",
            "{copy} is {damage}, where nothing is committed yet",
            copy=self._copy.name,
            damage=damage_text(log),
        )
        return True

    def _not_read(self, failure: Failure) -> bool:
        failure.trap(StorageError)  # type: ignore[no-untyped-call]
        return False

    # -- once nobody counts on it -----------------------------------------------------------------

    def begin(self) -> None:
        damage = self._copy.log.damage
        self._around.counts.healed += 1
        self._around.lines.error(
            "mended",
            "{copy} is damaged here, and mended from its leader: {damage}",
            copy=self._copy.name,
            damage=damage_text(self._copy.log),
        )
        self._mending = Mending(
            self._copy.log, damage, min(each[0].start for each in damage.values())
        )
        self._found(self._around.in_thread(self._mending.look))

    def abandon(self) -> None:
        self._mending, self._is_looking = None, False

    def came(self, data: memoryview, headers: Sequence[BatchHeader]) -> "Deferred[None]":
        """Write what was asked for; fires once more may be."""
        assert self._mending is not None
        return self._found(self._around.in_thread(self._mending.write, data, headers))

    def _found(self, looking: "Deferred[bool]") -> "Deferred[None]":
        mending, self._is_looking = self._mending, True
        return looking.addCallbacks(
            self._looked, self._failed, callbackArgs=(mending,), errbackArgs=(mending,)
        )

    def _looked(self, is_damaged: bool, mending: Mending) -> None:
        if mending is not self._mending:
            return
        self._is_looking, log = False, self._copy.log
        if not is_damaged:
            self.abandon()
            left = {each: log.damage[each] for each in log.damage.keys() - mending.segments}
            log.damage = left
            self._around.lines.info("whole", "{copy} is whole again", copy=self._copy.name)
            self._copy.replica.mended()
        elif mending.offset >= log.high_watermark:
            self.abandon()
            self._copy.cut_off(mending.offset)
            return
        self._copy.turn()

    def _failed(self, failure: Failure, mending: Mending) -> None:
        failure.trap(StorageError)  # type: ignore[no-untyped-call]
        if mending is not self._mending:
            return
        if isinstance(failure.value, UnfitBatchesError):
            self._around.lines.error(
                "not mended",
                "{copy} can't be mended, and is copied again as a whole: {error}",
                copy=self._copy.name,
                error=failure.value,
            )
            self._copy.begin_log_anew()
        else:
            self._around.call_later(_PAUSE_SECONDS, self._try_again, mending)

    def _try_again(self, mending: Mending) -> None:
        if mending is self._mending:
            self.abandon()
            self._copy.turn()
