"""What moves copies is bounded in bytes a second."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hermes.replication.throttling import Throttle


def test_without_a_rate_nothing_waits() -> None:
    throttle = Throttle()
    throttle.took(1 << 40, 5)
    assert throttle.delay(5) == 0


def test_what_was_taken_beyond_the_rate_delays_what_comes_next() -> None:
    throttle = Throttle(100)
    assert throttle.delay(0) == 0
    throttle.took(300, 0)
    assert throttle.delay(0) == 2
    assert throttle.delay(1) == 1
    assert throttle.delay(2.5) == 0
    throttle.took(50, 1000)
    assert throttle.delay(1000) == 0, "a second's worth is saved up, and no more"
    throttle.took(100, 1000)
    assert throttle.delay(1000) == 0.5


def test_the_rate_may_change_at_any_time() -> None:
    throttle = Throttle(100)
    throttle.took(300, 0)
    throttle.set_rate(400, 0)
    assert throttle.delay(0) == 0.5
    throttle.set_rate(0, 0)
    assert throttle.delay(1000) == math.inf
    throttle.set_rate(math.inf, 1000)
    assert throttle.delay(1000) == 0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.integers(1, 10_000))
def test_over_any_time_no_more_goes_than_the_rate_and_one_burst(
    sizes: list[int], rate: int
) -> None:
    throttle, now, before = Throttle(rate), 0.0, 0
    for size in sizes:
        now += throttle.delay(now)
        assert before <= rate * (now + 1) + 1e-6 * rate
        throttle.took(size, now)
        before += size
