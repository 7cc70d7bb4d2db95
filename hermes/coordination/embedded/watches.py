"""Watches: who is notified, once, when a node changes.

A watch belongs to a connection and goes with it. getData and exists set data watches, getChildren
child watches. A watch fires once, and a client is told of a change once, whichever watches fire.

Source: ZooKeeper's `WatchManager` and `DataTree`.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hermes.coordination.embedded.jute_records import EventType
from hermes.coordination.embedded.limits import MAX_WATCH_BYTES, MAX_WATCH_BYTES_PER_CLIENT
from hermes.coordination.embedded.tree import parent_path
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode

_WATCH_BYTES = 300  # in three dictionaries

_Watcher = TypeVar("_Watcher", bound=Hashable)


@dataclass
class _Weights(Generic[_Watcher]):
    count: int = 0
    total_bytes: int = 0
    by_watcher: dict[_Watcher, int] = field(default_factory=dict)

    def add(self, path: str, watcher: _Watcher) -> None:
        weight = watch_bytes(path)
        own = self.by_watcher.get(watcher, 0) + weight
        if own > MAX_WATCH_BYTES_PER_CLIENT:
            raise RequestRefusedError(ZooKeeperCode.QUOTA_EXCEEDED, "too many watches")
        self.by_watcher[watcher] = own
        self.total_bytes += weight
        self.count += 1

    def remove(self, path: str, watcher: _Watcher) -> None:
        weight = watch_bytes(path)
        own = self.by_watcher.pop(watcher) - weight
        if own:
            self.by_watcher[watcher] = own
        self.total_bytes -= weight
        self.count -= 1


class WatchTable(Generic[_Watcher]):
    """Watches of one kind, by path and by watcher; both in the order in which they were set."""

    def __init__(self, weights: _Weights[_Watcher]) -> None:
        self._weights = weights
        self._watchers: dict[str, dict[_Watcher, None]] = {}
        self._paths: dict[_Watcher, dict[str, None]] = {}

    def add(self, path: str, watcher: _Watcher) -> None:
        """Set a watch, once; refuse with QUOTA_EXCEEDED what is too many for the watcher."""
        if path in self._paths.get(watcher, ()):
            return
        self._weights.add(path, watcher)
        self._watchers.setdefault(path, {})[watcher] = None
        self._paths.setdefault(watcher, {})[path] = None

    def take(self, path: str) -> list[_Watcher]:
        watchers = list(self._watchers.pop(path, ()))
        for watcher in watchers:
            self._weights.remove(path, watcher)
            paths = self._paths[watcher]
            del paths[path]
            if not paths:
                del self._paths[watcher]
        return watchers

    def forget(self, watcher: _Watcher) -> None:
        for path in self._paths.pop(watcher, ()):
            self._weights.remove(path, watcher)
            watchers = self._watchers[path]
            del watchers[watcher]
            if not watchers:
                del self._watchers[path]


class Watches(Generic[_Watcher]):
    """All watches: `data`, set by getData and exists, and `children`, set by getChildren."""

    def __init__(self) -> None:
        self._weights: _Weights[_Watcher] = _Weights()
        self.data: WatchTable[_Watcher] = WatchTable(self._weights)
        self.children: WatchTable[_Watcher] = WatchTable(self._weights)

    def __len__(self) -> int:
        return self._weights.count

    def largest(self) -> _Watcher | None:
        """The watcher with most watches while all have too many; None otherwise."""
        weights = self._weights
        if weights.total_bytes <= MAX_WATCH_BYTES:
            return None
        return max(weights.by_watcher, key=weights.by_watcher.__getitem__)

    def forget(self, watcher: _Watcher) -> None:
        self.data.forget(watcher)
        self.children.forget(watcher)

    def fire(self, kind: EventType, path: str) -> Iterator[tuple[_Watcher, EventType, str]]:
        """The watches that a change (CREATED, DELETED or DATA_CHANGED) of a node fires, taken away.

        Yields who is to be notified of what about which path, in order.
        """
        watchers = dict.fromkeys(self.data.take(path))
        if kind is EventType.DELETED:
            watchers |= dict.fromkeys(self.children.take(path))
        for watcher in watchers:
            yield watcher, kind, path
        if kind is not EventType.DATA_CHANGED:
            above = parent_path(path)
            for watcher in self.children.take(above):
                yield watcher, EventType.CHILDREN_CHANGED, above


def watch_bytes(path: str) -> int:
    """What a watch takes in memory, roughly; its path is sent to the client that set it."""
    return _WATCH_BYTES + len(path)
