"""A world in one thread: one heap of events, one source of chance, one clock that nobody has.

Whatever happens is an event at a time in whole microseconds; events of one time happen in the order
in which they were made. All that is by chance is drawn from `World.random`, so a seed tells a run
to its last line. What must not shift when something else draws more has a `child` of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from random import Random
from traceback import format_exc
from typing import Any, NoReturn


class BrokenError(BaseException):
    """What must hold does not. No `except Exception` gets in its way."""


class Happening:
    """Something that is going to happen, unless it is cancelled."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments

    def cancel(self) -> None:
        self.function, self.arguments = None, ()


class World:
    """Everything that one seed makes happen.

    Args:
        without: the numbers of faults that are left out, to see whether they matter.
        traced: whether to keep `trace`.

    Attributes:
        now_us: the time, in µs since the beginning.
        happened: how many events there have been.
        faults: the faults that were asked for, by their kinds, in order; the number of each is its
            place here.
        broken: what doesn't hold, once it doesn't.
        trace: lines of what happened: time, who, what.
        after_each: called after each event.
        process: the simulated process whose code runs now; None between them.
    """

    def __init__(
        self, seed: int | str, *, without: frozenset[int] = frozenset(), traced: bool = False
    ) -> None:
        self.seed = seed
        self.random = Random(str(seed))
        self.now_us = 0
        self.happened = 0
        self.faults: list[str] = []
        self.broken: str | None = None
        self.is_traced = traced
        self.trace: list[str] = []
        self.after_each: list[Callable[[], None]] = []
        self.at_end: list[Callable[[], None]] = []
        self.process: Any = None
        self._without = without
        self._order = count()
        self._heap: list[tuple[int, int, Happening]] = []

    # -- time -----------------------------------------------------------------------------------

    def at(self, delay_us: int, function: Callable[..., Any], *arguments: Any) -> Happening:
        """Have a function called so many µs from now."""
        made = Happening(function, arguments)
        heappush(self._heap, (self.now_us + max(0, delay_us), next(self._order), made))
        return made

    def run(self, until_us: int, most: int | None = None) -> None:
        """Let happen what is due by a time, unless something breaks before.

        Args:
            most: how many events there may have been in all.
        """
        with self.breaking():
            self._run(until_us, most)
        if self.broken is None:
            self.now_us = max(self.now_us, until_us)

    def _run(self, until_us: int, most: int | None) -> None:
        heap, after_each = self._heap, self.after_each
        while heap and heap[0][0] <= until_us and self.broken is None:
            if most is not None and self.happened >= most:
                return
            self.now_us, _, each = heappop(heap)
            function = each.function
            if function is None:
                continue
            self.happened += 1
            function(*each.arguments)
            for check in after_each:
                check()

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Tell of what fails in it: nothing of the product's or of ours may."""
        try:
            yield
        except BrokenError as error:
            self.breaks(str(error))
        except Exception:
            self.breaks(format_exc())

    def end(self) -> None:
        """Free what lives in it."""
        self._heap.clear()
        for each in self.at_end:
            each()
        self.after_each.clear()

    # -- chance ---------------------------------------------------------------------------------

    def child(self, name: str) -> Random:
        """A source of chance of one part's own."""
        return Random(f"{self.seed}/{name}")

    def fault(self, kind: str) -> bool:
        """Number a fault that is about to be injected; whether it is to be."""
        self.faults.append(kind)
        is_wanted = len(self.faults) - 1 not in self._without
        if is_wanted and self.is_traced:
            self.note("fault", f"{len(self.faults) - 1}: {kind}")
        return is_wanted

    # -- what is told ---------------------------------------------------------------------------

    def note(self, who: object, what: str) -> None:
        """Add a line to the trace; where building it costs much, ask `is_traced` before."""
        if self.is_traced:
            self.trace.append(f"{self.now_us / 1e6:12.6f} {who}: {what}")

    def breaks(self, what: str) -> None:
        """Tell that something doesn't hold; the first of these stands, and ends the run."""
        if self.broken is None:
            self.broken = what
            self.note("BROKEN", what)

    def fail(self, what: str) -> NoReturn:
        """The same, and go no further."""
        self.breaks(what)
        raise BrokenError(what)
