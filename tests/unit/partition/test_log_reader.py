"""Reading for responses: what a thread looks up, whoever waits for it or leaves."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.testing import Clock

from hermes.partition.log_reader import CONCURRENT_LOOKUPS, Reader
from hermes.server.fairness import FairScheduler


class Threads:
    """Worker threads whose calls the test ends; they go on when nobody waits any more."""

    def __init__(self) -> None:
        self.running: list[Deferred[Any]] = []

    def call(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        self.running.append(Deferred())
        waited: Deferred[Any] = Deferred()
        self.running[-1].addBoth(lambda found: None if waited.called else waited.callback(found))
        return waited


def test_who_leaves_makes_no_room_for_more_at_a_time() -> None:
    threads, ended = Threads(), list[Any]()
    reader = Reader(FairScheduler(Clock()), threads.call)
    for _ in range(3 * CONCURRENT_LOOKUPS):
        looked = reader.warm([])
        looked.addErrback(lambda failure: ended.append(failure.trap(CancelledError)))
        looked.cancel()
    last = reader.warm([])
    last.addCallback(ended.append)
    assert ended == [CancelledError] * 3 * CONCURRENT_LOOKUPS
    assert len(threads.running) == CONCURRENT_LOOKUPS
    threads.running[0].callback(None)
    assert len(threads.running) == CONCURRENT_LOOKUPS + 1
    threads.running[-1].callback("found")
    assert ended[-1] == "found"
