import threading

import pytest

from hermes.console.cache import ReadCache
from hermes.console.rolling_refresh import RollingRefresh


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_value_is_made_once_while_it_is_fresh(clock):
    made = []
    cache = ReadCache(1.0, 5.0, clock)
    for _ in range(3):
        assert cache.get("key", lambda: made.append(1) or len(made)) == 1
    clock.now = 1.0
    assert cache.get("key", lambda: made.append(1) or len(made)) == 2


def test_keys_have_values_of_their_own_and_all_can_be_forgotten(clock):
    cache = ReadCache(1.0, 5.0, clock)
    assert cache.get("a", lambda: 1) == 1
    assert cache.get("b", lambda: 2) == 2
    cache.forget()
    assert cache.get("a", lambda: 3) == 3


def test_a_failure_is_raised_and_not_remembered(clock):
    cache = ReadCache(1.0, 5.0, clock)
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 / 0)
    assert cache.get("key", lambda: 1) == 1


def test_while_a_value_is_made_anew_others_get_the_old_one(clock):
    cache = ReadCache(1.0, 5.0, clock)
    cache.get("key", lambda: "old")
    clock.now = 2.0
    began, go_on = threading.Event(), threading.Event()

    def make():
        began.set()
        go_on.wait(60)
        return "new"

    thread = threading.Thread(target=cache.get, args=("key", make))
    thread.start()
    assert began.wait(60)
    assert cache.get("key", lambda: "another") == "old"
    go_on.set()
    thread.join()
    assert cache.get("key", lambda: "another") == "new"


def test_what_was_used_least_lately_is_dropped(clock):
    cache = ReadCache(1.0, 5.0, clock)
    cache.get("first", lambda: 1)
    for number in range(300):
        cache.get(number, lambda: 0)
    assert cache.get("first", lambda: 2) == 2


def test_a_refresh_looks_at_a_few_at_a_time_and_those_again_that_are_old(clock):
    looked = []

    def look(name):
        looked.append(name)
        clock.now += 0.006
        return name.upper()

    refresh = RollingRefresh(look, 15.0, clock)
    names = ["a", "b", "c"]
    assert refresh.refresh(names) == [("a", "A"), ("b", "B")]
    assert refresh.refresh(names) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert refresh.refresh(["c"]) == [("c", "C")]
    assert looked == ["a", "b", "c"]
    clock.now += 15.0
    refresh.refresh(["c"])
    assert looked == ["a", "b", "c", "c"]


def test_a_refresh_looks_longer_at_what_a_page_is_about_to_show(clock):
    looked = []

    def look(name):
        looked.append(name)
        clock.now += 0.006
        return name.upper()

    refresh = RollingRefresh(look, 15.0, clock)
    names = ["a", "b", "c", "d", "e", "f"]
    shown = refresh.refresh(names, ["f", "e", "d", "c"], 0.02)
    assert [name for name, _ in shown] == ["c", "d", "e", "f"]
    assert refresh.refresh(names, ["c"], 0.02)[:1] == [("a", "A")]
    assert looked == ["c", "d", "e", "f", "a", "b"]
