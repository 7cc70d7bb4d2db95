"""Idempotent producers under a disk whose calls fail, and under kills: each message once, in order.

`tests/soak/test_kafka_disk.py` begins at each of the calls, in many orders.
"""

from pathlib import Path

import pytest
from idempotent_lives import FAULTS, live_under_producers

#: Every how many calls, so that it takes a few seconds.
_EVERY = 41


def test_a_life_in_which_nothing_fails(tmp_path: Path) -> None:
    outcome = live_under_producers(tmp_path, None, 0, 1)
    assert outcome.counted > 300
    assert (outcome.failed, outcome.lives, outcome.bumped) == (0, 1, 0)


@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_message_is_there_once_whichever_call_failed(
    tmp_path: Path, fault: str, is_killed: bool
) -> None:
    failed = 0
    every, end = (5, 50) if fault == "lost pages" else (_EVERY, 320)
    for number in range(list(FAULTS).index(fault), end, every):
        path = tmp_path / str(number)
        outcome = live_under_producers(path, fault, number, number, is_killed=is_killed)
        failed += outcome.failed
        assert outcome.bumped == 0, "a producer has numbered anew what may be stored"
    assert failed or "renames" in fault
