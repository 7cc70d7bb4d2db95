"""Who waits until what was appended is committed, or what was deleted is so everywhere."""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Awaiting(Generic[Key]):
    """Who waits until all in-sync replicas have got somewhere, by what each is called."""

    __slots__ = (
        "_gone",
        "_order",
        "_waiting",
    )

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Key]] = []
        self._gone: dict[Key, None] = {}  # as a set, of which the empty one is small
        self._order = 0

    def __len__(self) -> int:
        return len(self._waiting) - len(self._gone)

    def add(self, end: int, key: Key) -> None:
        """Let somebody wait for an offset: where an append ended, or a log is to begin."""
        heappush(self._waiting, (end, self._order, key))
        self._order += 1

    def remove(self, key: Key) -> None:
        """Somebody who waits does so no more."""
        self._gone[key] = None

    def reached(self, watermark: int) -> Iterator[Key]:
        """Take out who has waited for what is reached by now, in order."""
        while self._waiting and self._waiting[0][0] <= watermark:
            yield from self._taken()

    def ended(self) -> Iterator[Key]:
        """Take out all, since leadership ends: nobody knows what becomes of it."""
        while self._waiting:
            yield from self._taken()

    def _taken(self) -> Iterator[Key]:
        key = heappop(self._waiting)[2]
        if key in self._gone:
            del self._gone[key]
        else:
            yield key
