"""What is held against a replicated topic is found when it is planted, so that silence counts."""

from pathlib import Path

import pytest
from kafka_logs import append_batch, open_kafka_log, sent
from replicated_log import Findings, Watcher, differences, judge

TOLD = {0: (0, 0), 1: (0, 1), 2: (0, 2)}
WHOLE = {0: [(0, b"0 x"), (1, b"1 x"), (2, b"2 x")]}


@pytest.mark.parametrize("told", [{}, {1: (0, None)}, {2: (0, -1)}], ids=str)
def test_what_holds_is_not_held_against_it(told: dict[int, tuple[int, int | None]]) -> None:
    assert not judge({**TOLD, **told}, WHOLE)


@pytest.mark.parametrize(
    ("read", "findings"),
    [
        ([(0, b"0 x"), (1, b"1 x")], Findings(lost=[2])),
        ([(0, b"0 x"), (1, b"1 x"), (3, b"2 x")], Findings(moved=[(2, (0, 2), [(0, 3)])])),
        ([*WHOLE[0], (3, b"2 x")], Findings(twice=[2])),
        ([*WHOLE[0], (3, b"5 x"), (4, b"4 x")], Findings(turned=[(5, 4)])),
    ],
    ids=["lost", "moved", "twice", "turned"],
)
def test_what_does_not_is(read: list[tuple[int, bytes]], findings: Findings) -> None:
    assert judge(TOLD, {0: read}) == findings


@pytest.mark.parametrize("seen", [{(0, 2): b"7 x"}, {(0, 3): b"3 x"}], ids=["other", "gone"])
def test_what_somebody_saw_counts(seen: dict[tuple[int, int], bytes]) -> None:
    watcher = Watcher.__new__(Watcher)
    watcher.seen, watcher.changed = seen, []
    assert judge(TOLD, WHOLE, [watcher]) == Findings(changed=list(seen))


@pytest.mark.parametrize(
    ("other", "place"),
    [([b"a", b"c"], 1), ([b"a"], 1), ([b"a", b"b", b"c"], 2), ([b"b", b"a"], 0)],
    ids=["bytes", "shorter", "longer", "order"],
)
def test_copies_that_differ_are_found(tmp_path: Path, other: list[bytes], place: int) -> None:
    log_dirs = {
        number: _copy(tmp_path / str(number), values)
        for number, values in enumerate(([b"a", b"b"], [b"a", b"b"], other))
    }
    assert not differences({each: log_dirs[each] for each in (0, 1)}, "clicks", 1)
    found = differences(log_dirs, "clicks", 1)[0]
    assert found[0] == found[1] != found[2]
    assert {each.base_offset for each in found.values() if each is not None} == {place}


def _copy(directory: Path, values: list[bytes]) -> Path:
    directory.mkdir()
    log, _ = open_kafka_log(directory / "clicks-0")
    for each in values:
        append_batch(log, sent([each]))
    log.flush()
    log.close()
    return directory
