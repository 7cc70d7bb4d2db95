import pytest

from hermes.cli.patience import Patience
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


def patience(clock, limit):
    return Patience(limit, sleep=clock.sleep, seconds=lambda: clock.now)


def test_pauses_grow_and_one_line_is_said(clock, capsys):
    patient = patience(clock, None)
    for _ in range(9):
        patient.bear(AWAY)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert capsys.readouterr().err == "hermes: gone; trying again\n"
    patient.reward()
    patient.bear(StorageUnavailableError("busy"))
    assert clock.pauses[-1] == 0.1
    assert capsys.readouterr().err.endswith("busy; trying again\n")


def test_it_ends_when_the_time_is_up(clock):
    patient = patience(clock, 10)
    while clock.now < 10:
        patient.bear(AWAY)
    assert clock.now == 10
    with pytest.raises(BrokerUnavailableError):
        patient.bear(AWAY)


def test_without_patience_the_first_failure_is_the_last(clock, capsys):
    with pytest.raises(BrokerUnavailableError):
        patience(clock, 0).bear(AWAY)
    assert (clock.pauses, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize(
    "error", [ClientError("no"), MessageTooLargeBrokerError("large")], ids=repr
)
def test_what_time_does_not_mend_is_not_waited_for(clock, error):
    with pytest.raises(type(error)):
        patience(clock, None).bear(error)
    assert clock.pauses == []
