"""A rate shared by several users: what each has used beyond it is paid off, all at the same time.

Pure: the time is an argument, and the caller calls `settle` when `due` says so.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Final

#: What wasn't used of the rate is kept for this long.
BURST_SECONDS: Final = 1.0

#: What adding times up may cost: a debt that ends so soon has ended.
_ROUNDING_SECONDS: Final = 1e-6


class SharedRate:
    """Processor sharing: of those that owe, each pays off at an equal part of the rate.

    So a small debt is soon paid, however much others owe, and the whole rate is used while anybody
    owes. This is done with a virtual time that goes at the pace of everyone's part: a debt ends at
    a virtual time that is known when it begins, whoever joins later.

    `now` is in seconds of a clock that only goes forward.
    """

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._now = now
        self._credit = per_second * BURST_SECONDS
        self._virtual = 0.0
        self._ends: dict[Hashable, float] = {}  # of each that owes, when in virtual time
        self._queue: list[tuple[float, int, Hashable]] = []  # some are out of date
        self._number = 0  # keeps the order where ends are equal

    def use(self, who: Hashable, amount: float) -> bool:
        """Charge `who`; whether they owe anything now. `settle` comes first."""
        paid = min(amount, self._credit)
        self._credit -= paid
        if amount > paid:
            end = self._ends.get(who, self._virtual) + amount - paid
            self._set_end(who, end)
        return who in self._ends

    def settle(self, now: float) -> list[Hashable]:
        """Let the time go on; returns who owes nothing any more, in order."""
        done: list[Hashable] = []
        while (first := self._first()) is not None:
            end, who = first
            needed = (end - self._virtual) * len(self._ends) / self._per_second
            if self._now + needed > now + _ROUNDING_SECONDS:
                self._virtual += max(0.0, now - self._now) * self._per_second / len(self._ends)
                self._now = max(self._now, now)
                return done
            self._now += needed
            self._virtual = end
            del self._ends[who]
            done.append(who)
        idle = max(0.0, now - self._now)
        self._credit = min(self._credit + idle * self._per_second, self._per_second * BURST_SECONDS)
        self._now = max(self._now, now)
        return done

    def due(self) -> float | None:
        """When the next debt is paid, unless it grows; None if nobody owes."""
        first = self._first()
        if first is None:
            return None
        return self._now + (first[0] - self._virtual) * len(self._ends) / self._per_second

    def change(self, per_second: float) -> None:
        """Use another rate; `settle` comes first."""
        self._credit *= per_second / self._per_second
        self._per_second = per_second

    def hand_over(self, who: Hashable, heir: Hashable) -> None:
        end = self._ends.pop(who, None)
        if end is not None:
            owed = end - self._virtual
            self._set_end(heir, self._ends.get(heir, self._virtual) + owed)

    def owes(self, who: Hashable) -> bool:
        return who in self._ends

    @property
    def is_unused(self) -> bool:
        """Whether it is as new: forgetting it would give nothing away."""
        return not self._ends and self._credit >= self._per_second * BURST_SECONDS

    def _set_end(self, who: Hashable, end: float) -> None:
        self._ends[who] = end
        self._number += 1
        heappush(self._queue, (end, self._number, who))

    def _first(self) -> tuple[float, Hashable] | None:
        queue = self._queue
        while queue:
            end, _, who = queue[0]
            if self._ends.get(who) == end:
                return end, who
            heappop(queue)
        self._virtual = 0.0  # nobody owes: a number that only grows would lose its digits
        return None
