"""Who waits until what was appended is committed, or what was deleted is so everywhere."""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Awaiting(Generic[Key]):
    """Who waits until all in-sync replicas have got somewhere, by what each is called."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Key]] = []
        self._gone: set[Key] = set()
        self._order = count()

    def __len__(self) -> int:
        return len(self._waiting) - len(self._gone)

    def add(self, end: int, key: Key) -> None:
        """Let somebody wait for an offset: where an append ended, or a log is to begin."""
        heappush(self._waiting, (end, next(self._order), key))

    def remove(self, key: Key) -> None:
        """Somebody who waits does so no more."""
        self._gone.add(key)

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
            self._gone.remove(key)
        else:
            yield key
