"""Calls a store in a worker thread, one call at a time and in order; writes that wait go together.

So what many clients commit meanwhile costs one fdatasync, or one transaction.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.errors import StorageError
from hermes.groups.offsets import Change, GroupStore, StoredGroup
from hermes.logs import ModuleLogger

#: How many changes are written together at the most.
_MOST_AT_ONCE: Final = 500

#: As many changes and offsets are small work.
_SMALL: Final = 64

#: Told, in the reactor's thread, what a call gave: a result, or a Failure.
Then: TypeAlias = Callable[[Any], object]

#: Calls the second argument with those after it, in a thread, and tells the first.
StoreCalls: TypeAlias = Callable[..., None]


class StoreQueue:
    """A store's calls. Lives in the reactor's thread.

    `call_small` is for small writes, which need no thread where the store doesn't block.
    """

    _log = ModuleLogger()

    def __init__(
        self, store: GroupStore, call: StoreCalls, call_small: StoreCalls | None = None
    ) -> None:
        self._store = store
        self._call = call
        self._call_small = call_small
        self._tasks: deque[tuple[Change | Callable[[], Any], Then]] = deque()
        self._is_busy = False

    def write(self, change: Change, then: Then) -> None:
        """Store a change; `then` is told None once it is on disk, else why it isn't."""
        self._tasks.append((change, then))
        if not self._is_busy:
            self._next()

    def load(self, group: str) -> "Deferred[StoredGroup | None]":
        return self._called(lambda: self._store.load(group))

    def names(self) -> "Deferred[list[str]]":
        return self._called(self._store.names)

    def release(self, group: str) -> "Deferred[None]":
        return self._called(lambda: self._store.release(group))

    def close(self) -> "Deferred[None]":
        """Close the store after all that was asked for until now."""
        return self._called(self._store.close)

    def _called(self, call: Callable[[], Any]) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self._tasks.append((call, done.callback))
        if not self._is_busy:
            self._next()
        return done

    def _next(self) -> None:
        tasks = self._tasks
        self._is_busy = bool(tasks)
        changes: list[Change] = []
        waiting: list[Then] = []
        while tasks and len(changes) < _MOST_AT_ONCE:
            task, then = tasks[0]
            if not isinstance(task, Change):
                if not changes:
                    tasks.popleft()
                    self._carry_out(self._call, partial(self._ended, then), task)
                    return
                break
            tasks.popleft()
            changes.append(task)
            waiting.append(then)
        if changes:
            call = self._call
            if self._call_small is not None and _are_small(changes):
                call = self._call_small
            self._carry_out(call, partial(self._written, waiting), self._store.write, changes)

    @staticmethod
    def _carry_out(call: StoreCalls, then: Then, function: Callable[..., Any], *args: Any) -> None:
        try:
            call(then, function, *args)
        except RuntimeError as error:  # no more threads may be made: who waits has to hear of it
            failure = StorageError(f"no thread for it: {error}")
            then(Failure(failure))  # type: ignore[no-untyped-call]

    def _ended(self, then: Then, result: Any) -> None:
        then(result)
        self._next()

    def _written(self, waiting: Sequence[Then], results: Any) -> None:
        for place, then in enumerate(waiting):
            try:
                then(results if isinstance(results, Failure) else results[place])
            except Exception:
                self._log.failure("telling what was stored failed")
        if self._tasks:
            self._next()
        else:
            self._is_busy = False


def _are_small(changes: Sequence[Change]) -> bool:
    left = _SMALL
    for each in changes:
        left -= 1 + len(each.offsets)
        if left < 0 or each.record is not None or each.forget:
            return False
    return True
