"""Twelve thousand lives of data directories in memory, ended by kills and losses of power."""

import pytest
from memory_lives import lives
from soak import report, seed, times

LIVES = 12


@pytest.mark.soak
def test_what_was_told_holds_over_kills_and_losses_of_power() -> None:
    first_seed, histories = seed(), times(1000)
    for number in range(first_seed, first_seed + histories):
        try:
            lives(number, LIVES)
        except Exception as error:
            error.add_note(f"HERMES_SOAK_SEED={number}")
            raise
    report("lives in memory", seed=first_seed, histories=histories, lives=histories * LIVES)
