import pytest

from hermes.cli.retrying import Retrying
from hermes.errors import (
    BrokerUnavailableError,
    ClientError,
    MessageTooLargeBrokerError,
    StorageUnavailableError,
)

AWAY = BrokerUnavailableError("gone")


class Clock:
    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def make(clock, limit):
    return Retrying(limit, sleep=clock.sleep, seconds=lambda: clock.now)


def test_pauses_grow_and_one_line_is_said(clock, capsys):
    retrying = make(clock, None)
    for _ in range(9):
        retrying.failed(AWAY)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert capsys.readouterr().err == "hermes: gone; retrying\n"
    retrying.succeeded()
    retrying.failed(StorageUnavailableError("busy"))
    assert clock.pauses[-1] == 0.1
    assert capsys.readouterr().err.endswith("busy; retrying\n")


def test_it_ends_when_the_time_is_up(clock):
    retrying = make(clock, 10)
    while clock.now < 10:
        retrying.failed(AWAY)
    assert clock.now == 10
    with pytest.raises(BrokerUnavailableError):
        retrying.failed(AWAY)


def test_without_time_the_first_failure_is_the_last(clock, capsys):
    with pytest.raises(BrokerUnavailableError):
        make(clock, 0).failed(AWAY)
    assert (clock.pauses, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize(
    "error", [ClientError("no"), MessageTooLargeBrokerError("large")], ids=repr
)
def test_what_time_does_not_mend_is_not_waited_for(clock, error):
    with pytest.raises(type(error)):
        make(clock, None).failed(error)
    assert clock.pauses == []
