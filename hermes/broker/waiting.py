"""Fetches that wait until there is enough to answer with.

A waiting fetch is answered when its partitions together hold `min_bytes` behind the offsets it
asks for, when one of its fetches is an error, or after `max_wait_ms` with whatever there is. It
costs nothing while it waits: it is looked at again only when one of its partitions was flushed.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.protocol import WaitingFetchRequest

__all__ = ["WaitingFetches"]

_Partition = tuple[str, int]


class _Waiter:
    __slots__ = ("answered", "partitions", "request", "timer")

    def __init__(self, request: WaitingFetchRequest) -> None:
        self.request = request
        self.partitions = {(fetch.topic, fetch.partition) for fetch in request.fetches}
        self.answered: Deferred[None] = Deferred()
        self.timer: Any = None


class WaitingFetches:
    """All fetches that wait at one broker."""

    def __init__(
        self, clock: IReactorTime, is_ready: Callable[[WaitingFetchRequest], bool]
    ) -> None:
        """Prepare.

        Args:
            clock: the reactor, or a test's `Clock`.
            is_ready: whether a request can be answered now (enough bytes, or an error).
        """
        self._clock = clock
        self._is_ready = is_ready
        self._by_partition: dict[_Partition, set[_Waiter]] = {}

    def wait(self, request: WaitingFetchRequest) -> "Deferred[None]":
        """Wait until a request can be answered, or its time is up.

        Returns:
            A Deferred that fires with None when it is time to answer. Cancel it when the
            connection is lost.
        """
        waiter = _Waiter(request)
        waiter.answered = Deferred(lambda _: self._drop(waiter))
        if request.max_wait_ms <= 0 or self._is_ready(request):
            waiter.answered.callback(None)
            return waiter.answered
        for partition in waiter.partitions:
            self._by_partition.setdefault(partition, set()).add(waiter)
        waiter.timer = self._clock.callLater(request.max_wait_ms / 1000, self._wake, waiter)
        return waiter.answered

    def __len__(self) -> int:
        """How many fetches wait."""
        return len({waiter for waiters in self._by_partition.values() for waiter in waiters})

    def changed(self, topic: str, partition: int) -> None:
        """A partition was flushed, created or deleted: wake whom it satisfies."""
        waiters = self._by_partition.get((topic, partition))
        if waiters:
            for waiter in list(waiters):
                if self._is_ready(waiter.request):
                    self._wake(waiter)

    def wake_all(self) -> None:
        """Answer everybody now, with whatever there is; for a broker that stops."""
        for waiters in list(self._by_partition.values()):
            for waiter in list(waiters):
                self._wake(waiter)

    def _wake(self, waiter: _Waiter) -> None:
        if not waiter.answered.called:
            self._drop(waiter)
            waiter.answered.callback(None)

    def _drop(self, waiter: _Waiter) -> None:
        if waiter.timer is not None and waiter.timer.active():
            waiter.timer.cancel()
        for partition in waiter.partitions:
            waiters = self._by_partition.get(partition)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._by_partition[partition]
