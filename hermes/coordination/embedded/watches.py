"""Watches: who is told once when a node changes.

A watch belongs to a connection and goes with it. getData and exists set data watches, getChildren
child watches. A watch fires once, and a client hears of one change once, whichever of its watches
fire.

Source: ZooKeeper's `WatchManager` and `DataTree`.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from hermes.coordination.embedded.paths import parent_path
from hermes.coordination.embedded.records import EventType

__all__ = ["WatchTable", "Watches"]

_Watcher = TypeVar("_Watcher", bound=Hashable)


class WatchTable(Generic[_Watcher]):
    """Watches of one kind, by path and by watcher; both in the order in which they were set."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[_Watcher, None]] = {}
        self._paths: dict[_Watcher, dict[str, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, path: str, watcher: _Watcher) -> None:
        """Set a watch; it is the same one when it is set already."""
        self._watchers.setdefault(path, {})[watcher] = None
        self._paths.setdefault(watcher, {})[path] = None

    def take(self, path: str) -> list[_Watcher]:
        """Remove the watches of a path.

        Returns:
            Whose they were.
        """
        watchers = list(self._watchers.pop(path, ()))
        for watcher in watchers:
            paths = self._paths[watcher]
            del paths[path]
            if not paths:
                del self._paths[watcher]
        return watchers

    def forget(self, watcher: _Watcher) -> None:
        """Remove the watches of a watcher."""
        for path in self._paths.pop(watcher, ()):
            watchers = self._watchers[path]
            del watchers[watcher]
            if not watchers:
                del self._watchers[path]


class Watches(Generic[_Watcher]):
    """All watches.

    Attributes:
        data: set by getData and exists.
        children: set by getChildren.
    """

    def __init__(self) -> None:
        self.data: WatchTable[_Watcher] = WatchTable()
        self.children: WatchTable[_Watcher] = WatchTable()

    def __len__(self) -> int:
        return len(self.data) + len(self.children)

    def forget(self, watcher: _Watcher) -> None:
        """Remove the watches of a connection that is gone."""
        self.data.forget(watcher)
        self.children.forget(watcher)

    def fire(self, kind: EventType, path: str) -> Iterator[tuple[_Watcher, EventType, str]]:
        """Take the watches that a change fires.

        Args:
            kind: CREATED, DELETED or DATA_CHANGED.
            path: of the node.

        Yields:
            Who is to be told what about which path, in order.
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
