"""A hundred power losses: a broker on what the disk may hold then, by a trace of strace's.

And as many under topics of Kafka's format and clients of Kafka's protocol.
"""

import random
from pathlib import Path

import pytest
from kafka_power_loss import KafkaRecording
from lost_power import MODES
from power_loss_load import record
from power_loss_rounds import Recording
from soak import report, seed, times

pytestmark = pytest.mark.soak

LIVES = 5


def test_no_state_of_the_disk_breaks_a_promise(tmp_path: Path) -> None:
    first_seed, states = seed(), times(100)
    chance = random.Random(first_seed)
    promises = checked = done = 0
    for life in range(LIVES):
        recording = Recording(*record(tmp_path / f"life-{life}", 4, first_seed + life))
        promises += len(recording.promises)
        moments = recording.moments()
        for number in range(life, states, LIVES):
            mode = list(MODES)[number // LIVES % len(MODES)]
            moment = chance.choice(moments)
            name = f"state-{life}-{number}-{moment}"
            try:
                recording.check(tmp_path / name, moment, mode, first_seed + number)
            except AssertionError as error:
                error.add_note(f"{name}, {mode}, HERMES_SOAK_SEED={first_seed}")
                raise
            done += 1
        checked += recording.checked
    report("power loss", seed=first_seed, states=done, promises=promises, checks=checked, broken=0)


def test_a_disk_that_lies_about_syncs_is_found_out(tmp_path: Path) -> None:
    """Without this, a check that looks at nothing would pass as well."""
    recording = Recording(*record(tmp_path / "life", 2, 1))
    with pytest.raises(AssertionError):
        recording.check(
            tmp_path / "state", recording.trace.moments, "all lost", 1, believe_syncs=False
        )


def test_no_state_of_the_disk_breaks_a_promise_to_kafkas_clients(tmp_path: Path) -> None:
    first_seed, states = seed(), times(100)
    chance = random.Random(first_seed)
    promises = checked = done = 0
    for life in range(LIVES):
        recording = KafkaRecording(tmp_path / f"life-{life}", 4)
        promises += len(recording.promises)
        moments = recording.moments()
        for number in range(life, states, LIVES):
            mode = list(MODES)[number // LIVES % len(MODES)]
            moment = chance.choice(moments)
            name = f"state-{life}-{number}-{moment}"
            try:
                recording.check(tmp_path / name, moment, mode, first_seed + number)
            except AssertionError as error:
                error.add_note(f"{name}, {mode}, HERMES_SOAK_SEED={first_seed}")
                raise
            done += 1
        with pytest.raises(AssertionError):  # of a disk that lies about syncs
            recording.check(
                tmp_path / f"lie-{life}", moments[-1], "all lost", 1, believe_syncs=False
            )
        checked += recording.checked
    report(
        "power loss, Kafka's format",
        seed=first_seed,
        states=done,
        promises=promises,
        checks=checked,
        broken=0,
    )
