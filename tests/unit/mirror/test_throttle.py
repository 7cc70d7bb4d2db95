"""How fast a mirror may read, by a clock of the test's own."""

from hermes.mirror.throttle import BandwidthLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_limit_nobody_waits() -> None:
    throttle = BandwidthLimit(None)
    assert throttle.take(10**12) == 0
    assert throttle.largest_fetch(1 << 20) == 1 << 20


def test_whoever_reads_more_than_allowed_waits_until_it_is() -> None:
    clock = Clock()
    throttle = BandwidthLimit(1_000, clock)
    assert throttle.take(500) == 0.5
    assert throttle.take(500) == 1.0
    clock.now += 1.0
    assert throttle.take(125) == 0.125


def test_a_pause_saves_up_little() -> None:
    clock = Clock()
    throttle = BandwidthLimit(1_000, clock)
    clock.now += 3_600
    assert throttle.take(250) == 0
    assert throttle.take(500) == 0.5


def test_fetches_become_small_enough_to_go_evenly() -> None:
    assert BandwidthLimit(100_000).largest_fetch(1 << 20) == 25_000
    assert BandwidthLimit(1_024).largest_fetch(1 << 20) == 1_024
