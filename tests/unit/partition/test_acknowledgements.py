"""Who waits for what was appended is told once: that it is safe, or unknown, or late."""

from dataclasses import dataclass
from typing import Any

import pytest
from twisted.internet.task import Clock

from hermes.errors import LogOfflineError
from hermes.partition.acknowledgements import Acknowledgements, FlushedResponse, Safety
from hermes.server.fairness import FairScheduler


@dataclass(eq=False)
class FakeLog:
    openings: int = 1
    high_watermark: int = 0

    @property
    def state(self) -> "FakeLog":
        return self


class Thing(FlushedResponse):
    """One that was appended, and what is heard of it."""

    def __init__(self, log: Any, opening: int = 1) -> None:
        super().__init__(log, 10)
        self.opening = opening
        self.heard: list[Any] = []

    def answer(self, safety: Safety) -> bytes:
        self.heard.append(safety)
        return safety.value.encode()

    def unknown(self) -> None:
        self.heard.append("unknown")


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.scheduler = FairScheduler(self.clock)
        self.notify: list[Any] = []
        self.acknowledgements = Acknowledgements(self.clock, self.scheduler, self)  # type: ignore[arg-type]

    def when_committed(self, log: Any, notify: Any, urgent: bool = True) -> None:
        self.notify.append(notify)

    def wait(self, seconds: float | None = None, log: Any = None, opening: int = 1) -> Thing:
        thing = Thing(log or FakeLog(), opening)
        self.acknowledgements.wait(thing, seconds)
        return thing


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_what_is_committed_in_time_is_safe(bench: Bench, seconds: float | None) -> None:
    thing = bench.wait(seconds)
    bench.clock.advance(4.9)
    assert thing.heard == []
    bench.notify[0](None)
    bench.clock.advance(10)
    assert thing.heard == [Safety.FLUSHED]
    assert not bench.clock.getDelayedCalls()


def test_what_failed_is_unknown(bench: Bench) -> None:
    thing = bench.wait(5.0)
    bench.notify[0](LogOfflineError("EIO"))
    assert thing.heard == ["unknown", Safety.UNKNOWN]


def test_what_its_log_may_have_lost_is_unknown(bench: Bench) -> None:
    before = bench.wait(5.0, FakeLog(openings=2))
    assert before.heard == ["unknown", Safety.UNKNOWN]
    assert bench.notify == [], "nothing is flushed for it"
    meanwhile = bench.wait(5.0)
    meanwhile.log.openings += 1
    bench.notify[0](None)
    assert meanwhile.heard == ["unknown", Safety.UNKNOWN]


def test_what_is_late_may_be_unknown_later(bench: Bench) -> None:
    late, failed = bench.wait(5.0), bench.wait(5.0)
    bench.clock.advance(5.0)
    assert late.heard == failed.heard == [Safety.LATE]
    bench.notify[0](None)
    bench.notify[1](LogOfflineError("EIO"))
    assert (late.heard, failed.heard) == ([Safety.LATE], [Safety.LATE, "unknown"])


def test_what_is_there_when_the_time_is_up_is_safe(bench: Bench) -> None:
    there, lost = bench.wait(5.0), bench.wait(5.0)
    there.log.high_watermark = lost.log.high_watermark = 10
    lost.log.openings += 1
    bench.clock.advance(5.0)
    assert (there.heard, lost.heard) == ([Safety.FLUSHED], [Safety.LATE])


def test_one_timer_tells_each_in_its_time(bench: Bench) -> None:
    seconds = (3.0, 5.0, 1.0, 5.001, 2.999)
    things = [bench.wait(each) for each in seconds]
    told: dict[float, float] = {}
    while len(told) < len(things):
        (timer,) = bench.clock.getDelayedCalls()
        bench.clock.advance(timer.getTime() - bench.clock.seconds())
        for each, thing in zip(seconds, things, strict=True):
            if thing.heard:
                told.setdefault(each, bench.clock.seconds())
    for each, when in told.items():
        assert each <= when + 1e-6
        assert when <= each + 0.011
    assert not bench.clock.getDelayedCalls()


def test_a_thousand_that_were_answered_leave_one_timer(bench: Bench) -> None:
    for _ in range(1000):
        bench.wait(30.0)
        bench.clock.advance(0.001)
        bench.notify.pop()(None)
    assert len(bench.clock.getDelayedCalls()) == 1
    bench.acknowledgements.stop()
    assert not bench.clock.getDelayedCalls()


def test_those_that_are_late_together_advance_their_connection_once(bench: Bench) -> None:
    advanced: list[int] = []

    def advance() -> None:
        advanced.append(sum(len(each.heard) for each in things))

    class Answer(Thing):
        def answer(self, safety: Safety) -> bytes:
            bench.scheduler.after_this(advance)
            return super().answer(safety)

    things = [Answer(FakeLog()) for _ in range(3)]
    for thing in things:
        bench.acknowledgements.wait(thing, 1.0)
    bench.clock.advance(1.0)
    assert advanced == [3]
    assert [each.heard for each in things] == [[Safety.LATE]] * 3
