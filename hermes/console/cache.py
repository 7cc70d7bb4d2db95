"""A short-lived cache: many requests for a page cost one request to a broker."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_MOST_KEYS: Final = 256


class _CacheEntry:
    """A value, and the lock held while it is computed."""

    __slots__ = ("lock", "made_at", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made_at: float | None = None
        self.value: Any = None


class ReadCache:
    """Caches what functions return. Thread-safe.

    While one thread computes a value anew, others get the old one unless that is too old: a page
    rather shows what was true seconds ago than waits.

    Args:
        seconds: how long a value is fresh.
        stale_seconds: how old a value may be that is shown while a new one is computed.
    """

    def __init__(
        self,
        seconds: float = 1.0,
        stale_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._stale_seconds = stale_seconds
        self._clock = clock
        self._entries: dict[Hashable, _CacheEntry] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The value of a key, computed by `make` unless it is fresh.

        A key always has values of one type. Errors of `make` are raised here, and not cached.
        """
        entry = self._entry(key)
        if self._is_younger(entry, self._seconds):
            return entry.value  # type: ignore[no-any-return]
        if not entry.lock.acquire(blocking=not self._is_younger(entry, self._stale_seconds)):
            return entry.value  # type: ignore[no-any-return]
        try:
            if not self._is_younger(entry, self._seconds):  # another thread may have made it
                entry.value = make()
                entry.made_at = self._clock()
            return entry.value  # type: ignore[no-any-return]
        finally:
            entry.lock.release()

    def forget(self) -> None:
        with self._lock:
            self._entries.clear()

    def _entry(self, key: Hashable) -> _CacheEntry:
        with self._lock:
            entry = self._entries.pop(key, None) or _CacheEntry()
            self._entries[key] = entry  # the last one used is the last one dropped
            while len(self._entries) > _MOST_KEYS:
                del self._entries[next(iter(self._entries))]
            return entry

    def _is_younger(self, entry: _CacheEntry, seconds: float) -> bool:
        made_at = entry.made_at
        return made_at is not None and self._clock() - made_at < seconds
