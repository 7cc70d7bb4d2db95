"""Calls that take turns: each gives its own back, whatever becomes of it."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.server.turns import Turns


def test_a_call_that_raises_at_once_fails_and_keeps_no_turn() -> None:
    def call() -> "Deferred[Any]":
        raise RuntimeError("can't start new thread")

    turns, failures = Turns(1), list[Failure]()
    for _ in range(3):
        turns.run(call).addErrback(failures.append)
    assert [each.type for each in failures] == [RuntimeError] * 3
    assert turns.waiting == 0
