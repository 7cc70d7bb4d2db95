"""A hundred power losses: a broker on what the disk may hold then, by a trace of strace's.

And as many under topics of Kafka's format and clients of Kafka's protocol.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_power_loss import KafkaRecording
from lost_power import MODES
from power_loss_load import record
from power_loss_rounds import Recording
from soak import report, seed, times

pytestmark = pytest.mark.soak

LIVES = 5


def _legacy(path: Path, number: int) -> Recording:
    return Recording(*record(path, 4, number))


def _kafka(path: Path, _number: int) -> KafkaRecording:
    return KafkaRecording(path, 4)


@pytest.mark.parametrize("record_life", [_legacy, _kafka], ids=["0.7", "kafka"])
def test_no_state_of_the_disk_breaks_a_promise(
    record_life: Callable[[Path, int], Recording | KafkaRecording],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    first_seed, states = seed(), times(100)
    chance = random.Random(first_seed)
    promises = checked = done = 0
    for life in range(LIVES):
        recording = record_life(tmp_path / f"life-{life}", first_seed + life)
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
        # Without this, a check that looks at nothing would pass as well.
        with pytest.raises(AssertionError):  # of a disk that lies about syncs
            recording.check(
                tmp_path / f"lie-{life}", moments[-1], "all lost", 1, believe_syncs=False
            )
    report(
        f"power loss, {request.node.callspec.id}",
        seed=first_seed,
        states=done,
        promises=promises,
        checks=checked,
        broken=0,
    )
