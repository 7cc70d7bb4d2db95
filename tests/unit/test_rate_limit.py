"""How often something is said."""

from hermes.rate_limit import RateLimit


def test_it_counts_what_it_suppressed() -> None:
    now = [0.0]
    rate = RateLimit(lambda: now[0], allowed=2, period=10.0)
    assert [rate.allow("a") for _ in range(5)] == [0, 0, None, None, None]
    assert rate.allow("b") == 0, "each kind has an allowance of its own"
    now[0] = 10.0
    assert rate.allow("a") == 3
    assert rate.allow("a") == 0


def test_after_a_reset_nothing_is_held_against_anything() -> None:
    rate = RateLimit(lambda: 0.0, allowed=1)
    assert [rate.allow("a"), rate.allow("a")] == [0, None]
    rate.reset()
    assert rate.allow("a") == 0
