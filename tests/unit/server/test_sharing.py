"""A rate that some share: nothing is given away, and who owes little is done soon."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.server.sharing import BURST_SECONDS, SharedRate


def used_up(per_second: float = 100.0) -> SharedRate:
    """A rate whose burst is gone."""
    rate = SharedRate(per_second, 0.0)
    assert not rate.use("burst", per_second * BURST_SECONDS)
    return rate


def test_what_was_not_used_is_kept_for_a_second() -> None:
    rate = SharedRate(100, 0.0)
    assert not rate.use("a", 100)
    assert rate.use("a", 1)
    assert rate.due() == pytest.approx(0.01)
    assert rate.settle(50.0) == ["a"]
    assert not rate.use("a", 100)
    assert rate.use("a", 1)


def test_a_debt_is_paid_at_the_rate() -> None:
    rate = used_up()
    rate.use("a", 250)
    assert rate.settle(2.4) == []
    assert rate.owes("a")
    assert rate.settle(2.5) == ["a"]
    assert not rate.owes("a")
    assert rate.due() is None


def test_who_owes_little_is_done_soon_whatever_others_owe() -> None:
    rate = used_up()
    rate.use("large", 10_000)
    rate.use("small", 10)
    assert rate.due() == pytest.approx(0.2)
    assert rate.settle(0.2) == ["small"]
    assert rate.settle(100.0) == []
    assert rate.due() == pytest.approx(100.1), "and the rate is used up all the time"
    assert rate.settle(100.1) == ["large"]


def test_who_joins_later_shares_from_then_on() -> None:
    rate = used_up()
    rate.use("first", 200)
    rate.settle(1.0)  # which has paid half of it
    rate.use("second", 50)
    assert rate.settle(2.0) == ["second"]
    assert rate.settle(2.5) == ["first"]


def test_another_rate_holds_for_debts_that_there_are() -> None:
    rate = used_up()
    rate.use("a", 200)
    rate.settle(1.0)
    rate.change(1000)
    assert rate.due() == pytest.approx(1.1)


def test_a_debt_can_be_handed_over() -> None:
    rate = used_up()
    rate.use("lost", 100)
    rate.settle(0.5)
    rate.hand_over("lost", "heir")
    assert not rate.owes("lost")
    assert rate.due() == pytest.approx(1.0)
    rate.hand_over("nobody", "heir")
    assert rate.settle(1.0) == ["heir"]


def test_it_is_unused_once_all_is_paid_and_kept_again() -> None:
    rate = SharedRate(100, 0.0)
    assert rate.is_unused
    rate.use("a", 150)
    rate.settle(0.5)
    assert not rate.is_unused
    rate.settle(1.6)
    assert rate.is_unused


@given(
    per_second=st.integers(1, 1000),
    uses=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 5000), st.floats(0, 3)), max_size=30
    ),
)
def test_never_more_than_the_rate_and_all_of_it_while_somebody_owes(
    per_second: int, uses: Sequence[tuple[str, int, float]]
) -> None:
    rate, now, used, done = SharedRate(per_second, 0.0), 0.0, 0, set()
    idle = 0.0
    for who, amount, pause in uses:
        while (due := rate.due()) is not None and due <= now + pause:
            done.update(rate.settle(due))
        owed = rate.due() is not None
        now += pause
        rate.settle(now)
        idle += 0 if owed else pause
        rate.use(who, amount)
        used += amount
    last = now
    while (due := rate.due()) is not None:
        last = max(last, due)
        done.update(rate.settle(due))
    assert all(not rate.owes(who) for who in "abcd")
    assert used <= per_second * (last + BURST_SECONDS) * 1.001 + 1
    assert last <= now + used / per_second + 0.001
