"""One wrong bit in what stands beside logs: docs/failures.md has the table of what it comes to."""

from pathlib import Path

import pytest
from flipped_bits import differences
from flipped_bits_beside import KINDS, flips

SEED = 27
FLIPS = 40


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_changes_in_silence(tmp_path: Path, kind: str) -> None:
    for which, reference, seen in flips(tmp_path, kind, FLIPS, SEED):
        assert reference.said == []
        changed = differences(reference, seen)
        assert not changed or seen.said, f"{which}: {changed}"
