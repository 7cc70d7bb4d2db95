"""A hundred wrong bits in each kind of file; tests/crash/storage/test_flipped_bits.py has a few."""

from pathlib import Path

import flipped_bits_beside as beside
import pytest
from flipped_bits import KINDS, differences, flips, look_at_copy, make_directory
from soak import report, seed, times


@pytest.mark.soak
def test_nothing_changes_in_silence(tmp_path: Path) -> None:
    number, count = seed(), times(100)
    make_directory(tmp_path / "base")
    reference = look_at_copy(tmp_path / "base", tmp_path / "work")
    told = {}
    for kind in KINDS:
        same = 0
        for which, seen in flips(tmp_path / "work", tmp_path / "base", kind, count, number):
            changed = differences(reference, seen)
            assert not changed or seen.said, f"HERMES_SOAK_SEED={number}: {which}: {changed}"
            same += not changed
        told[kind] = f"{same} of {count} changed nothing"
    report("flipped bits", seed=number, silent=0, **told)


@pytest.mark.soak
@pytest.mark.parametrize("kind", beside.KINDS)
def test_nothing_beside_logs_changes_in_silence(tmp_path: Path, kind: str) -> None:
    number, count = seed(), times(500)
    same = 0
    for which, reference, seen in beside.flips(tmp_path, kind, count, number):
        changed = differences(reference, seen)
        assert not changed or seen.said, f"HERMES_SOAK_SEED={number}: {which}: {changed}"
        same += not changed
    report("flipped bits beside logs", seed=number, silent=0, **{kind: same})
