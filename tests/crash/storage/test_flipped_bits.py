"""One wrong bit in each kind of file: docs/failures.md has the table of what it comes to."""

from pathlib import Path

import pytest
from flipped_bits import KINDS, differences, flips, kinds_of, look_at_copy, make_directory

SEED = 27
FLIPS = 6


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "base"
    make_directory(path)
    return path


def test_there_is_one_of_each_kind(base: Path) -> None:
    assert sorted(kinds_of(base)) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_changes_in_silence(base: Path, tmp_path: Path, kind: str) -> None:
    reference = look_at_copy(base, tmp_path / "work")
    assert reference.said == []
    for which, seen in flips(tmp_path / "work", base, kind, FLIPS, SEED):
        changed = differences(reference, seen)
        assert not changed or seen.said, f"{which}: {changed}"
        if KINDS[kind] in ("mended", "time"):
            assert changed == [], f"{which}: {seen.said}"


@pytest.mark.parametrize("kind", [each for each in KINDS if KINDS[each] != "messages"])
def test_a_missing_file_is_made_again_or_said(base: Path, tmp_path: Path, kind: str) -> None:
    reference = look_at_copy(base, tmp_path / "work")
    for path in kinds_of(base)[kind][:2]:
        seen = look_at_copy(base, tmp_path / "work", without=path)
        changed = differences(reference, seen)
        assert changed == ONLY_MISSED.get(kind, []), f"{path}: {seen.said}"


#: What goes with a file that nothing else can stand in for, and that may be absent from the start.
ONLY_MISSED = {
    ".hermes_topics": ["topics"],
    ".hermes_kafka_groups": ["groups"],
}
