"""When a wall clock is believed."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from hermes.broker.clocks import BELIEVE_AFTER_SECONDS, BelievedClock, use_monotonic_clock

START_MS = 1_800_000_000_000
DAY_MS = 24 * 3_600_000


class Clocks:
    """Both, and what is believed."""

    def __init__(self) -> None:
        self.monotonic = Clock()
        self.offset_ms = 0
        self.believed = BelievedClock(self.wall_ms, self.monotonic.seconds)

    def wall_ms(self) -> int:
        return START_MS + int(self.monotonic.seconds() * 1000) + self.offset_ms

    def pass_by(self, minutes: int) -> None:
        """Let time pass, and look at the clock each minute."""
        for _ in range(minutes):
            self.monotonic.advance(60)
            self.believed.now_ms()

    def believed_offset_ms(self) -> int:
        return self.believed.now_ms() - START_MS - int(self.monotonic.seconds() * 1000)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_a_clock_that_goes_on_is_believed(clocks: Clocks) -> None:
    for _ in range(100):
        clocks.offset_ms += 500  # it gains a little
        clocks.pass_by(1)
        assert clocks.believed_offset_ms() == clocks.offset_ms


def test_a_jump_ahead_is_believed_after_an_hour(clocks: Clocks) -> None:
    clocks.pass_by(10)
    clocks.offset_ms = DAY_MS
    for _ in range(int(BELIEVE_AFTER_SECONDS) // 60):
        assert clocks.believed_offset_ms() == 0
        clocks.pass_by(1)
    assert clocks.believed_offset_ms() == DAY_MS
    clocks.offset_ms += DAY_MS
    assert clocks.believed_offset_ms() == DAY_MS, "each for itself"


def test_a_jump_that_does_not_last_was_none(clocks: Clocks) -> None:
    for _ in range(5):
        clocks.offset_ms = DAY_MS
        clocks.pass_by(59)
        assert clocks.believed_offset_ms() == 0
        clocks.offset_ms = 0
        clocks.pass_by(1)


def test_a_second_jump_has_to_last_for_itself(clocks: Clocks) -> None:
    clocks.offset_ms = DAY_MS
    clocks.pass_by(50)
    clocks.offset_ms = 2 * DAY_MS
    clocks.pass_by(50)
    assert clocks.believed_offset_ms() == 0
    clocks.pass_by(11)
    assert clocks.believed_offset_ms() == 2 * DAY_MS


def test_a_clock_that_is_set_back_is_believed_at_once(clocks: Clocks) -> None:
    clocks.pass_by(1)
    clocks.offset_ms = -DAY_MS
    assert clocks.believed_offset_ms() == -DAY_MS
    clocks.offset_ms = 0
    assert clocks.believed_offset_ms() == -DAY_MS, "which then is a jump ahead"


def test_a_reactor_goes_by_a_clock_that_is_none_of_the_calendars() -> None:
    class Reactor:
        seconds: Any = None

    reactor = Reactor()
    use_monotonic_clock(reactor)
    assert 0 < reactor.seconds() < 1_000_000_000
