"""Calls a store in a worker thread, one call at a time and in order; writes that wait go together.

So what many clients commit meanwhile costs one fdatasync, or one transaction.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.errors import HermesError
from hermes.groups.offsets import Change, GroupStore, StoredGroup

#: How many changes are written together at the most.
_MOST_AT_ONCE: Final = 500


@dataclass(slots=True)
class _Task:
    change: Change | None = None
    call: Callable[[], Any] | None = None
    done: "Deferred[Any]" = field(default_factory=Deferred)


class StoreQueue:
    """A store's calls. Lives in the reactor's thread."""

    def __init__(self, store: GroupStore, in_thread: "Callable[..., Deferred[Any]]") -> None:
        self._store = store
        self._in_thread = in_thread
        self._tasks: deque[_Task] = deque()
        self._is_busy = False

    def write(self, change: Change) -> "Deferred[None]":
        """Store a change; fires once it is on disk, fails with HermesError if it isn't."""
        return self._add(_Task(change=change))

    def load(self, group: str) -> "Deferred[StoredGroup | None]":
        return self._add(_Task(call=lambda: self._store.load(group)))

    def names(self) -> "Deferred[list[str]]":
        return self._add(_Task(call=self._store.names))

    def release(self, group: str) -> "Deferred[None]":
        return self._add(_Task(call=lambda: self._store.release(group)))

    def close(self) -> "Deferred[None]":
        """Close the store after all that was asked for until now."""
        return self._add(_Task(call=self._store.close))

    def _add(self, task: _Task) -> "Deferred[Any]":
        self._tasks.append(task)
        if not self._is_busy:
            self._next()
        return task.done

    def _next(self) -> None:
        self._is_busy = bool(self._tasks)
        if not self._is_busy:
            return
        batch: list[_Task] = []
        while self._tasks and self._tasks[0].change is not None and len(batch) < _MOST_AT_ONCE:
            batch.append(self._tasks.popleft())
        if batch:
            changes = [each.change for each in batch]
            called = self._in_thread(self._store.write, changes)
        else:
            batch = [self._tasks.popleft()]
            called = self._in_thread(batch[0].call)
            called.addCallback(lambda result: [result])
        called.addBoth(self._finished, batch)

    def _finished(self, results: Any, batch: list[_Task]) -> None:
        for place, task in enumerate(batch):
            result = results if isinstance(results, Failure) else results[place]
            if isinstance(result, Failure | HermesError):
                task.done.errback(result)
            else:
                task.done.callback(result)
        self._next()
