"""Who waits until something is committed is told once."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.replication.awaiting import Awaiting


def test_who_waits_is_told_in_order_and_once() -> None:
    waiting: Awaiting[str] = Awaiting()
    for end, key in ((5, "b"), (3, "a"), (5, "c"), (9, "d")):
        waiting.add(end, key)
    assert list(waiting.reached(2)) == []
    assert list(waiting.reached(5)) == ["a", "b", "c"]
    assert len(waiting) == 1
    assert list(waiting.ended()) == ["d"]
    assert not waiting


def test_who_waits_no_more_is_not_told() -> None:
    waiting: Awaiting[str] = Awaiting()
    waiting.add(3, "a")
    waiting.add(4, "b")
    waiting.remove("a")
    assert len(waiting) == 1
    assert list(waiting.reached(9)) == ["b"]


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_each_is_told_exactly_once(ends: list[int], marks: list[int]) -> None:
    waiting: Awaiting[int] = Awaiting()
    for key, end in enumerate(ends):
        waiting.add(end, key)
    told: list[int] = []
    for mark in sorted(marks):
        now = list(waiting.reached(mark))
        assert all(ends[key] <= mark for key in now)
        told += now
    told += waiting.ended()
    assert sorted(told) == list(range(len(ends)))
