"""Who may try a password, and when."""

import threading

import pytest

from hermes.console import login_limit
from hermes.console.login_limit import LoginLimit, TooManyTriesError


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limit(clock):
    return LoginLimit(clock)


def fail(limit, address, times=1):
    for _ in range(times):
        assert not limit.check(address, lambda: False)


def right():
    return True


def test_after_five_failures_one_is_allowed_every_ten_seconds(limit, clock):
    fail(limit, "192.0.2.1", 5)
    for _ in range(3):
        with pytest.raises(TooManyTriesError, match="Try again in 10 seconds"):
            limit.check("192.0.2.1", right)
    clock.now += 9.5
    with pytest.raises(TooManyTriesError, match=r"Try again in 1 second\.$") as caught:
        limit.check("192.0.2.1", right)
    assert caught.value.retry_after_seconds == 1
    clock.now += 0.5
    fail(limit, "192.0.2.1")
    with pytest.raises(TooManyTriesError, match="10 seconds"):
        limit.check("192.0.2.1", right)
    clock.now += 3600
    fail(limit, "192.0.2.1", 4)
    assert limit.check("192.0.2.1", right)


def test_one_address_locks_out_no_other(limit):
    fail(limit, "192.0.2.1", 5)
    for other in ("192.0.2.2", "2001:db8::1", "::ffff:192.0.2.3", ""):
        assert limit.check(other, right)


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_many_addresses_of_one_host_are_one(limit, address, same):
    fail(limit, address, 5)
    with pytest.raises(TooManyTriesError):
        limit.check(same, right)


def test_only_so_many_addresses_are_remembered(limit, monkeypatch):
    monkeypatch.setattr(login_limit, "_MOST_CLIENTS", 2)
    fail(limit, "192.0.2.1", 5)
    fail(limit, "192.0.2.2", 5)
    fail(limit, "192.0.2.3")
    assert len(limit._failures) == 2
    with pytest.raises(TooManyTriesError):
        limit.check("192.0.2.2", right)


def test_an_address_tries_one_at_a_time_and_holds_up_no_other(limit):
    def while_checking():
        with pytest.raises(TooManyTriesError, match="your address is being checked"):
            limit.check("192.0.2.1", right)
        return limit.check("192.0.2.2", right)

    assert limit.check("192.0.2.1", while_checking)
    assert limit.check("192.0.2.1", right)


def test_who_would_wait_for_too_many_is_refused(clock):
    limit = LoginLimit(clock, checks=2, waiting=0)

    def crowded():
        with pytest.raises(TooManyTriesError, match="Too many passwords"):
            limit.check("192.0.2.3", right)
        return True

    assert limit.check("192.0.2.1", lambda: limit.check("192.0.2.2", crowded))
    assert limit.check("192.0.2.3", right)


def test_the_others_wait_for_their_turn(clock):
    limit = LoginLimit(clock, checks=1, waiting=1)
    order = []
    waiting = threading.Thread(target=limit.check, args=("192.0.2.2", lambda: order.append(2)))

    def first():
        waiting.start()
        while len(limit._under_way) < 2:
            threading.Event().wait(0.001)
        order.append(1)
        return True

    limit.check("192.0.2.1", first)
    waiting.join(60)
    assert order == [1, 2]


def test_a_check_that_breaks_counts_and_leaves_nothing_behind(limit):
    def broken():
        raise MemoryError

    for _ in range(5):
        with pytest.raises(MemoryError):
            limit.check("192.0.2.1", broken)
    assert not limit._under_way
    with pytest.raises(TooManyTriesError):
        limit.check("192.0.2.1", right)
