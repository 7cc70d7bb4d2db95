"""A life of Kafka's format ends at some of its calls, or goes on after some have failed.

`tests/soak/test_kafka_disk.py` has all of them.
"""

from pathlib import Path

import pytest
from kafka_disk_lives import MODES, ended, hold_to_the_books, total_calls
from kafka_failing_lives import FAULTS, live_with, total_failing_calls

#: Every how many calls, so that it takes a second. The modes begin at different ones.
_EVERY = 13


@pytest.mark.parametrize("mode", MODES)
def test_what_was_told_holds_wherever_it_ended(tmp_path: Path, mode: str) -> None:
    total = total_calls(tmp_path / "whole")
    assert total > 300
    for number in range(MODES.index(mode) * _EVERY // len(MODES), total, _EVERY):
        hold_to_the_books(*ended(tmp_path / str(number), number, mode, number))


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_told_holds_whatever_failed(tmp_path: Path, fault: str, stays: bool) -> None:
    total, refused = total_failing_calls(tmp_path / "whole", fault), 0
    every = 1 if total < 100 else _EVERY
    for number in range(0, total, every):
        refused += live_with(tmp_path / str(number), fault, number, stays=stays) > 0
    assert refused > 2 or fault == "short writes"
