"""A life of Kafka's format ends at some of its calls; `tests/soak/test_kafka_disk.py` has all."""

from pathlib import Path

import pytest
from kafka_disk_lives import MODES, ended, hold_to_the_books, total_calls

#: Every how many calls, so that it takes a second. The modes begin at different ones.
_EVERY = 13


@pytest.mark.parametrize("mode", MODES)
def test_what_was_told_holds_wherever_it_ended(tmp_path: Path, mode: str) -> None:
    total = total_calls(tmp_path / "whole")
    assert total > 300
    for number in range(MODES.index(mode) * _EVERY // len(MODES), total, _EVERY):
        hold_to_the_books(*ended(tmp_path / str(number), number, mode, number))
