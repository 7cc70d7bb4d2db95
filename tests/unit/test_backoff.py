"""Pauses that grow."""

from hermes.backoff import growing_pause


def test_a_pause_doubles_up_to_the_longest() -> None:
    pauses = [growing_pause(0.5, count, 5.0) for count in range(6)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_longest_is_the_longest_however_often_it_failed() -> None:
    assert growing_pause(0.5, 1_000_000, 5.0) == 5.0
    assert growing_pause(8.0, 0, 5.0) == 5.0
    assert growing_pause(0.0, 7, 5.0) == 0.0
