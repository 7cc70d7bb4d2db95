"""Has the target assignments of consumer groups made: those of large ones in threads."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.groups.assignors import Target
from hermes.groups.bounds import Counts
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.group_entry import GroupEntry
from hermes.groups.targets import Assignment
from hermes.logs import ModuleLogger


class Assigner:
    """Makes targets, one of a group at a time. Lives in the reactor's thread.

    Args:
        clock: the reactor, or a test's `Clock`.
        in_thread: calls a function in a worker thread and returns its Deferred.
        counts: what was done so far.
        changed: told each group that has got a target from a thread.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        clock: IReactorTime,
        in_thread: "Callable[..., Deferred[Any]]",
        counts: Counts,
        changed: Callable[[GroupEntry], None],
    ) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._counts = counts
        self._changed = changed

    def catch_up(self, kept: GroupEntry, group: ConsumerGroup) -> "Deferred[None]":
        """Have a group's target made anew, if it is time for that.

        Returns:
            Fires when no target of the group is being made, whatever became of that.
        """
        made = group.begin_assignment(self._clock.seconds())
        if made is not None and made.is_large:
            self._in_thread(made.make).addBoth(self._finished, kept, group, made)
        elif made is not None:
            self._end(group, made, made.make())
        if not group.is_assigning:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        kept.awaiting_target.append(waiter)
        return waiter

    def _end(self, group: ConsumerGroup, made: Assignment, target: Target | None) -> None:
        is_taken = group.end_assignment(made, target, self._clock.seconds())
        self._counts.rebalances += is_taken

    def _finished(
        self, target: Any, kept: GroupEntry, group: ConsumerGroup, made: Assignment
    ) -> None:
        if isinstance(target, Failure):
            self._log.failure("group {name} got no target assignment", target, name=group.name)
            target = None
        self._end(group, made, target)
        waiting, kept.awaiting_target = kept.awaiting_target, []
        for each in waiting:
            each.callback(None)
        self._changed(kept)
