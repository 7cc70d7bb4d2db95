"""What becomes of entries that a sender can't send any more."""

import logging
from typing import Any

import pytest

from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerUnavailableError
from hermes.mirror.figures import Problems
from hermes.mirror.links import Link, Outcome
from hermes.mirror.senders import TargetSender
from hermes.mirror.source_claim import TargetAppend


class Claim:
    """Remembers in which epoch it was to start anew."""

    epoch = 7
    holds_records = False

    def __init__(self) -> None:
        self.restarted: list[tuple[int, Any]] = []

    def done(self, entry: Any, *, was_there: bool) -> None:
        raise RuntimeError("a fault")

    def restart(self, epoch: int, error: Any) -> None:
        self.restarted.append((epoch, error))


def entry(claim: Any) -> TargetAppend:
    pending: Any = None
    target = BrokerPartition(0, 0)
    return TargetAppend(claim, 7, pending, "clicks", target, "s", 0, 1, b"x", 1, True)


def unreachable() -> Link:
    raise BrokerUnavailableError("it is gone")


def test_what_comes_when_it_has_stopped_is_planned_anew() -> None:
    sender = TargetSender("target broker 0", unreachable, Problems(logging.getLogger("test")))
    sender.stop()
    claim = Claim()
    sender.put(entry(claim))  # of a thread that had found it a moment before
    assert claim.restarted == [(7, None)]


class Stores:
    """A link to a broker that stores everything."""

    most_in_flight = 1
    begun = 0

    def begin(self, batches: Any) -> None:
        self.begun = len(batches)

    def finish(self) -> list[Outcome]:
        return [Outcome(None)] * self.begun

    def close(self) -> None: ...


def test_who_is_behind_one_that_fails_in_an_answer_is_planned_anew_too() -> None:
    sender = TargetSender("target broker 0", Stores, Problems(logging.getLogger("test")))
    sender.stop()  # what its thread does is done here
    sender._is_stopped = False
    claims = [Claim(), Claim()]
    for each in claims:
        sender.put(entry(each))
    sender._step()
    with pytest.raises(RuntimeError) as caught:
        sender._step()
    sender._give_up(caught.value)
    assert [len(each.restarted) for each in claims] == [1, 1]
