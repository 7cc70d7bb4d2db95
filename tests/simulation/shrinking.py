"""Makes a broken schedule shorter: faults that it breaks without are left out."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

__all__ = ["Shrunk", "shrunk"]

#: How many schedules are run for it at most.
_TRIES: Final = 300


class _Outcome(Protocol):
    """See `schedule.Outcome`."""

    @property
    def events(self) -> int: ...

    @property
    def faults(self) -> int: ...

    @property
    def broken(self) -> str | None: ...


class Shrunk(NamedTuple):
    """`without`: the numbers of the faults that were left out."""

    outcome: Any
    without: frozenset[int]


def shrunk(
    outcome: _Outcome, run: Callable[[frozenset[int], int], _Outcome], tries: int = _TRIES
) -> Shrunk:
    """Leave out as many faults as can be, halves first; the result breaks no later.

    Args:
        outcome: of a schedule that broke.
        run: runs it without some faults, for so many events at most. What a number stands for may
            be another fault then, since all that follows may differ.
    """
    best, without = outcome, frozenset[int]()
    size = (best.faults + 1) // 2
    while size and tries:
        before = without
        for first in range(0, best.faults, size):
            part = frozenset(range(first, min(first + size, best.faults))) - without
            if part and tries:
                tries -= 1
                tried = run(without | part, best.events)
                if tried.broken is not None:
                    best, without = tried, without | part
        if size == 1 and without == before:
            break
        size = max(size // 2, 1)
    return Shrunk(best, without)
