"""How long a stop waits."""

import pytest
from broker_bench import log_lines
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.broker.shutdown import ShutdownWaits

CLIENTS, DISK = 10.0, 30.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> ShutdownWaits:
    made = ShutdownWaits(clock)
    made.begin(CLIENTS, DISK)
    return made


def outcome(wait: "Deferred[bool]") -> bool | None:
    """Whether it has ended; None while it is waited for."""
    results: list[bool] = []
    wait.addCallback(results.append)
    return results[0] if results else None


def test_what_has_ended_is_not_waited_for(clock: Clock, patience: ShutdownWaits) -> None:
    ended: Deferred[None] = Deferred()
    ended.callback(None)
    assert outcome(patience.for_clients(ended)) is True
    assert outcome(patience.for_disk(ended, object)) is True
    assert not clock.calls


def test_clients_share_one_time(clock: Clock, patience: ShutdownWaits) -> None:
    first: Deferred[None] = Deferred()
    wait = patience.for_clients(first)
    clock.advance(CLIENTS - 1)
    first.callback(None)
    assert outcome(wait) is True
    second = patience.for_clients(Deferred())
    clock.advance(1)
    assert outcome(second) is False
    assert not patience.is_exhausted, "which is for threads"


def test_one_that_hurries_waits_for_no_client(clock: Clock, patience: ShutdownWaits) -> None:
    wait = patience.for_clients(Deferred())
    patience.hurry()
    assert outcome(wait) is False
    wait = patience.for_clients(Deferred())
    clock.advance(0)
    assert outcome(wait) is False
    disk: Deferred[None] = Deferred()
    wait = patience.for_disk(disk, lambda: None)
    patience.hurry()
    assert not wait.called, "what is acknowledged has to be kept"
    disk.callback(None)
    assert outcome(wait) is True


def test_a_disk_that_gets_on_is_waited_for(clock: Clock, patience: ShutdownWaits) -> None:
    done: list[int] = []
    wait = patience.for_disk(Deferred(), lambda: len(done))
    for _ in range(100):
        done.append(1)
        clock.advance(DISK)
    assert not wait.called
    clock.advance(DISK)
    assert outcome(wait) is False
    assert patience.is_exhausted


def test_a_failure_ends_a_wait_and_is_told(patience: ShutdownWaits) -> None:
    failing: Deferred[None] = Deferred()
    wait = patience.for_disk(failing, object)
    with log_lines() as lines:
        failing.errback(ZeroDivisionError("of the disk"))
    assert outcome(wait) is True
    assert "of the disk" in lines[0]
