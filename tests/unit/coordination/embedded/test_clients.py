"""Who is served next."""

import pytest
from twisted.internet.task import Clock

from hermes.coordination.embedded.clients import RoundRobin
from hermes.coordination.embedded.four_letter_words import ClientReport


class Wishes:
    """A client that wants something so many times."""

    report = ClientReport("", 0, 0, 0)
    received_bytes = 100

    def __init__(self, name: str, count: int, served: list[str]) -> None:
        self.name = name
        self.count = count
        self.served = served

    def serve_some(self) -> bool:
        self.served.append(self.name)
        self.count -= 1
        return self.count > 0

    def abort(self) -> None:
        raise AssertionError("nobody is cut off here")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_all_are_served_to_the_end(clock: Clock) -> None:
    served: list[str] = []
    turns = RoundRobin(clock)
    for name, count in (("a", 3), ("b", 1), ("c", 2)):
        turns.add(Wishes(name, count, served))
    clock.advance(0)
    assert sorted(served) == ["a", "a", "a", "b", "c", "c"]
    assert clock.getDelayedCalls() == []


def test_whoever_asks_once_does_not_wait_for_all_who_ask_for_more(clock: Clock) -> None:
    served: list[str] = []
    turns = RoundRobin(clock)
    for number in range(1000):
        turns.add(Wishes(f"busy {number}", 3, served))

    class Late(Wishes):
        def serve_some(self) -> bool:
            if self.count == 1:
                turns.add(Wishes("late", 1, self.served))
            return super().serve_some()

    turns.add(Late("last", 1, served))
    clock.advance(0)
    assert len(served) == 3002
    assert served.index("late") - served.index("last") <= 2


def test_large_requests_wait_for_small_ones(clock: Clock) -> None:
    served: list[str] = []
    turns = RoundRobin(clock)
    for _ in range(100):
        large = Wishes("large", 1, served)
        large.received_bytes = 100_000
        turns.add(large)
    for _ in range(10):
        turns.add(Wishes("small", 1, served))
    clock.advance(0)
    assert served[:20].count("small") == 10
    assert served.count("large") == 100


def test_whoever_is_gone_is_not_served(clock: Clock) -> None:
    served: list[str] = []
    turns = RoundRobin(clock)
    gone = Wishes("gone", 1, served)
    turns.add(gone)
    turns.remove(gone)
    assert clock.getDelayedCalls() == []
    turns.add(Wishes("here", 1, served))
    clock.advance(0)
    assert served == ["here"]


def test_other_things_are_done_in_between() -> None:
    class Slow(Clock):
        """A clock by which serving anybody takes 4 ms."""

        def __init__(self) -> None:
            super().__init__()
            self.spent = 0.0

        def seconds(self) -> float:
            return super().seconds() + self.spent

    clock, served = Slow(), list[str]()

    class Spends(Wishes):
        def serve_some(self) -> bool:
            clock.spent += 0.004
            return super().serve_some()

    turns = RoundRobin(clock)
    for number in range(100):
        turns.add(Spends(str(number), 1, served))
    (call,) = clock.getDelayedCalls()
    clock.calls.remove(call)
    call.func()
    assert 1 <= len(served) <= 4
    assert len(clock.getDelayedCalls()) == 1
