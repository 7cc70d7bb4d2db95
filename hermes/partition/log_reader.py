"""Reading of many partitions for one response: no disk is waited for in the reactor's thread.

What says where messages lie may not be in memory, or a segment not open. Then a thread looks first,
for all partitions that lack it, which are read after the others. Reading takes a quantum at a time.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred

from hermes.errors import HermesError, OffsetOutOfRangeError
from hermes.server.fairness import FairScheduler, cooperatively
from hermes.server.outcomes import settled, then
from hermes.server.turns import Turns
from hermes.storage import Log, NotInMemoryError

#: How many questions are looked up in worker threads at a time. A worker that computes holds the
#: interpreter's lock, and the reactor waits for it: with eight at a time it would be left little.
CONCURRENT_LOOKUPS = 2


class Held(Protocol):
    """What reading one partition gives: it may hold a file until it is released."""

    def release(self) -> None: ...


_Held = TypeVar("_Held", bound=Held)


class LogRead(NamedTuple):
    log: Log
    offset: int
    max_bytes: int
    whole_first: bool = False
    is_committed: bool = False


class Reader:
    """Reads for responses. Lives in the reactor's thread."""

    def __init__(self, scheduler: FairScheduler, in_thread: "Callable[..., Deferred[Any]]") -> None:
        self._scheduler = scheduler
        self._in_thread = in_thread
        self._looking_up = Turns(CONCURRENT_LOOKUPS)

    def warm(self, reads: Sequence[LogRead]) -> "Deferred[None]":
        """Load in a thread what says where messages lie, and open their segments."""
        warmed: Deferred[None] = self._looking_up.run(self._in_thread, _warm, reads)
        return warmed

    def read_all(
        self, count: int, read: Callable[[int, bool], _Held], cold: Callable[[int], LogRead]
    ) -> "list[_Held] | Deferred[list[_Held]]":
        """Read some partitions, in order; those that a thread has to look up, after the others.

        Args:
            read: reads one, by its place; raises NotInMemoryError where it is to do without a
                disk, which the second argument says, and can't.
            cold: says what it would have read then; asked at once, as it may soon be gone.

        Returns:
            What was read of each; a Deferred of it that can be cancelled: then all is released.
        """
        places: list[int] = []
        reads: list[LogRead] = []

        def note(place: int) -> None:
            places.append(place)
            with suppress(HermesError):  # which reading meets, too
                reads.append(cold(place))

        def read_resident(place: int) -> Held:
            try:
                return read(place, True)
            except NotInMemoryError:
                note(place)
                return _NOTHING

        def go_on(found: list[Any]) -> "Deferred[list[_Held]]":
            return Deferred.fromCoroutine(self._read_cold(found, places, read, reads))

        if count == 1:  # nearly always
            try:
                return [read(0, True)]
            except NotInMemoryError:
                note(0)
            return go_on([_NOTHING])
        found = cooperatively(self._scheduler, range(count), read_resident, _release)
        result: list[_Held] | Deferred[list[_Held]] = then(
            found, lambda found: go_on(found) if places else found
        )
        return result

    async def _read_cold(
        self,
        found: list[Any],
        places: list[int],
        read: Callable[[int, bool], Any],
        reads: Sequence[LogRead],
    ) -> list[Any]:
        try:
            await self.warm(reads)
            rest = await settled(
                cooperatively(self._scheduler, places, lambda place: read(place, False), _release)
            )
        except BaseException:  # the client has left, or its connection is closed
            for each in found:
                each.release()
            raise
        for place, each in zip(places, rest, strict=True):
            found[place] = each
        return found


class _Nothing:
    """Stands for what isn't read yet."""

    def release(self) -> None: ...


_NOTHING: Final = _Nothing()


def _release(held: Held) -> None:
    held.release()


def _warm(reads: Sequence[LogRead]) -> None:
    for log, offset, max_bytes, whole_first, is_committed in reads:
        # What fails here the fetch meets, too.
        with suppress(HermesError), log.read(offset, max_bytes, whole_first=whole_first) as found:
            if is_committed and found.length:
                log.transactions.aborted_in(found, offset)


def awaits_its_end(log: Log, offset: int, error: HermesError) -> bool:
    """Whether an offset is out of range only until what is there is decided.

    A new leader doesn't know its end yet, or a transaction is open.
    """
    is_outside = isinstance(error, OffsetOutOfRangeError)
    end: int = log.high_watermark if log.is_sole_copy else log.end_offset
    return is_outside and log.earliest <= offset <= end
