"""How fast passwords may be tried: an attacker is slow, and nobody else is locked out."""

import pytest

from hermes.security.login_attempts import LoginAttempts, client_of


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tries(clock: Clock) -> LoginAttempts:
    return LoginAttempts(clock)


def numbered(n: int) -> str:
    """An address of many."""
    return f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"


def test_a_few_failures_cost_nothing_then_each_waits_longer_then_none_is_looked_at(
    tries: LoginAttempts,
) -> None:
    waits = [tries.begin("192.0.2.1", "alice") for n in range(25)]
    assert waits[:5] == [0.0] * 5
    grown = [wait for wait in waits[5:20] if wait is not None]
    assert grown == sorted(grown)
    assert (grown[0], grown[-1]) == (0.5, 3.0)
    assert waits[20:] == [None] * 5


def test_an_address_tries_a_user_once_in_ten_seconds(tries: LoginAttempts, clock: Clock) -> None:
    looked_at = 0
    for _ in range(36_000):
        clock.now += 0.1
        looked_at += tries.begin("192.0.2.1", "alice") is not None
    assert looked_at == pytest.approx(360 + 20, abs=2)


def test_an_address_tries_all_users_together_once_in_two_seconds(
    tries: LoginAttempts, clock: Clock
) -> None:
    looked_at = 0
    for n in range(36_000):
        clock.now += 0.1
        looked_at += tries.begin("192.0.2.1", f"user{n}") is not None
    assert looked_at == pytest.approx(1800 + 60, abs=2)


def test_failures_are_forgotten(tries: LoginAttempts, clock: Clock) -> None:
    for _ in range(30):
        tries.begin("192.0.2.1", "alice")
    clock.now += 200
    assert tries.begin("192.0.2.1", "alice") == 0.0


def test_who_succeeds_is_never_slowed(tries: LoginAttempts) -> None:
    for _ in range(1000):
        assert tries.begin("192.0.2.1", "alice") == 0.0
        tries.succeeded("192.0.2.1", "alice")


def test_a_user_that_the_world_tries_is_slow_but_never_locked_out(tries: LoginAttempts) -> None:
    for n in range(10_000):
        tries.begin(numbered(n), "alice")
    assert tries.begin("192.0.2.1", "alice") == 2.0
    assert tries.begin("192.0.2.1", "bob") == 0.0


def test_programs_with_old_passwords_do_not_lock_out_their_neighbours(
    tries: LoginAttempts, clock: Clock
) -> None:
    """Four of them, without pause, for an hour; then a fifth comes for the first time."""
    for _ in range(3600):
        clock.now += 1
        for n in range(4):
            tries.begin("192.0.2.1", f"broken-{n}")
    wait = tries.begin("192.0.2.1", "fresh")
    assert wait is not None
    assert wait <= 3.0


def test_from_where_a_user_has_come_before_nobody_else_slows_it(tries: LoginAttempts) -> None:
    assert tries.begin("192.0.2.1", "alice") == 0.0
    tries.succeeded("192.0.2.1", "alice")
    for n in range(100):
        tries.begin(f"198.51.100.{n}", "alice")  # strangers
        tries.begin("192.0.2.1", f"bob{n}")  # a neighbour that guesses
    assert tries.begin("192.0.2.1", "carol") is None
    assert tries.begin("192.0.2.1", "alice") == 0.0


def test_a_known_address_may_not_try_for_ever_either(tries: LoginAttempts) -> None:
    tries.begin("192.0.2.1", "alice")
    tries.succeeded("192.0.2.1", "alice")
    assert [tries.begin("192.0.2.1", "alice") for _ in range(30)][20:] == [None] * 10


def test_a_success_does_not_clear_failures_with_other_names(tries: LoginAttempts) -> None:
    for turn in range(10):
        for n in range(10):
            tries.begin("192.0.2.1", f"victim{turn}-{n}")
        tries.begin("192.0.2.1", "own")
        tries.succeeded("192.0.2.1", "own")
    assert tries.begin("192.0.2.1", "victim") is None


def test_what_is_remembered_is_bounded(tries: LoginAttempts) -> None:
    for n in range(30_000):
        tries.begin(numbered(n), f"user{n}")
        tries.succeeded(numbered(n), f"user{n}")
        tries.begin(numbered(n), f"user{n}")
        tries.begin(numbered(n), f"other{n}")
    kinds = (tries._known, tries._by_pair, tries._by_address, tries._by_user)
    assert max(map(len, kinds)) == 10_000


def test_names_that_no_user_can_have_take_no_room(tries: LoginAttempts) -> None:
    for n in range(100):
        tries.begin(numbered(n), f"no name {n} " + "x" * 2000)
    assert list(tries._by_user._counts) == [""]
    assert max(map(len, tries._by_pair._counts)) < 50


def test_addresses_that_one_host_may_take_are_one() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1%eth0")
    assert client_of("2001:db8:0:1::1") != client_of("2001:db8:0:2::1")
    assert client_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_of("") == ""
