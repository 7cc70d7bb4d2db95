"""Offsets before a time: as 0.7 answers without our index, exact with it."""

import os
from pathlib import Path
from typing import Any

import pytest
from storage_logs import NOW_MS, append, message, open_log, settings, write_segments

from hermes.errors import StorageError
from hermes.storage import Log

SECOND = 1000


def touch(path: Path, time_ms: int) -> None:
    os.utime(path, ns=(time_ms * 10**6, time_ms * 10**6))


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kafka"))


@pytest.fixture
def foreign(tmp_path: Path) -> Log:
    """Three segments of 22 bytes as Kafka left them, last written 30, 20 and 10 s ago."""
    write_segments(tmp_path / "clicks-0", [message("x") * 2] * 3)
    for number, path in enumerate(segments(tmp_path / "clicks-0")):
        touch(path, NOW_MS - (30 - 10 * number) * SECOND)
    return open_log(tmp_path / "clicks-0", clean=True)


@pytest.fixture
def ours(tmp_path: Path) -> Log:
    """Three segments of 22 bytes; a message at every second from 60 to 55 s ago."""
    log = open_log(tmp_path / "clicks-0", log_settings=settings(20))
    for number in range(6):
        append(log, message("x"), now_ms=NOW_MS - (60 - number) * SECOND)
    log.flush()
    return log


def test_latest_is_the_end_and_then_every_segment_descending(foreign: Log) -> None:
    assert foreign.offsets_before(-1, 100, NOW_MS) == [66, 44, 22, 0]
    assert foreign.offsets_before(-1, 1, NOW_MS) == [66]
    assert foreign.offsets_before(-1, 2, NOW_MS) == [66, 44]


def test_the_recorded_answer_for_latest(tmp_path: Path, kafka_vectors: dict[str, Any]) -> None:
    """Vector offsets-latest-many: topic roll with segments of 114 bytes and an end of 532."""
    answer = bytes.fromhex(kafka_vectors["vectors"]["offsets-latest-many.response"]["hex"])
    expected = [int.from_bytes(answer[at : at + 8], "big") for at in range(10, len(answer), 8)]
    write_segments(tmp_path / "roll-0", [message("x" * 28) * 3] * 4 + [message("x" * 28) * 2])
    log = open_log(tmp_path / "roll-0", clean=True)
    assert log.offsets_before(-1, 100, NOW_MS) == expected


def test_earliest_is_one_offset_whatever_the_maximum(foreign: Log) -> None:
    assert foreign.offsets_before(-2, 100, NOW_MS) == [0]
    foreign.delete_oldest(1)
    assert foreign.offsets_before(-2, 1, NOW_MS) == [22]


@pytest.mark.parametrize("time_ms", [-2, -1, NOW_MS])
@pytest.mark.parametrize("max_offsets", [0, -1])
def test_no_offsets_when_none_are_wanted(foreign: Log, time_ms: int, max_offsets: int) -> None:
    assert foreign.offsets_before(time_ms, max_offsets, NOW_MS) == []


@pytest.mark.parametrize("time_ms", [0, -3, -(2**63), 1])
@pytest.mark.parametrize("kind", ["foreign", "ours"])
def test_times_before_everything_have_no_offsets(
    request: pytest.FixtureRequest, kind: str, time_ms: int
) -> None:
    log = request.getfixturevalue(kind)
    assert log.offsets_before(time_ms, 10, NOW_MS) == []


@pytest.mark.parametrize(
    ("seconds_ago", "expected"),
    [
        (31, []),
        (30, [0]),
        (29, [0]),
        (20, [22, 0]),
        (11, [22, 0]),
        (10, [44, 22, 0]),
        (1, [44, 22, 0]),
        (0, [66, 44, 22, 0]),
        (-5, [66, 44, 22, 0]),
    ],
)
def test_without_an_index_0_7s_answer(foreign: Log, seconds_ago: int, expected: list[int]) -> None:
    """Pairs of a segment's start and its mtime, and of the end and now."""
    assert foreign.offsets_before(NOW_MS - seconds_ago * SECOND, 10, NOW_MS) == expected


@pytest.mark.parametrize(
    ("seconds_ago", "expected"),
    [
        (61, []),
        (60, [11, 0]),
        (59.5, [11, 0]),
        (59, [22, 0]),
        (58, [33, 22, 0]),
        (57, [44, 22, 0]),
        (55.001, [55, 44, 22, 0]),
        (55, [66, 44, 22, 0]),
        (1, [66, 44, 22, 0]),
        (0, [66, 44, 22, 0]),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_with_our_index_the_exact_end_at_that_time(
    ours: Log, tmp_path: Path, seconds_ago: float, expected: list[int], restarted: bool
) -> None:
    log = ours
    if restarted:
        log.close()
        for path in segments(tmp_path / "clicks-0"):
            touch(path, NOW_MS + 99 * SECOND)  # copied, or touched: of no importance
        log = open_log(tmp_path / "clicks-0", clean=True)
    assert log.offsets_before(NOW_MS - int(seconds_ago * SECOND), 10, NOW_MS) == expected
    assert log.offsets_before(NOW_MS - int(seconds_ago * SECOND), 1, NOW_MS) == expected[:1]


def test_only_visible_offsets_are_given(ours: Log) -> None:
    append(ours, message("x"), now_ms=NOW_MS)
    append(ours, message("x"), now_ms=NOW_MS)
    append(ours, message("x"), now_ms=NOW_MS)
    assert ours.offsets_before(-1, 2, NOW_MS) == [66, 44]
    assert ours.offsets_before(NOW_MS + 1, 2, NOW_MS) == [66, 44]
    ours.flush()
    assert ours.offsets_before(-1, 3, NOW_MS) == [99, 88, 66]


def test_an_empty_log_has_one_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0")
    assert log.offsets_before(-1, 10, NOW_MS) == [0]
    assert log.offsets_before(-2, 10, NOW_MS) == [0]
    assert log.offsets_before(2**62, 10, NOW_MS) == [0]
    assert log.offsets_before(0, 10, NOW_MS) == []


def test_after_total_retention_there_is_the_end_offset(ours: Log) -> None:
    ours.delete_oldest(3)
    assert ours.offsets_before(-1, 10, NOW_MS) == [66]
    assert ours.offsets_before(-2, 10, NOW_MS) == [66]


def test_a_segment_that_kafka_continued_ends_at_its_mtime(ours: Log, tmp_path: Path) -> None:
    ours.close()
    last = segments(tmp_path / "clicks-0")[-1]
    last.write_bytes(last.read_bytes() + message("theirs"))
    touch(last, NOW_MS - 20 * SECOND)
    log = open_log(tmp_path / "clicks-0", clean=True)
    assert log.offsets_before(NOW_MS - 55 * SECOND, 1, NOW_MS) == [66]
    assert log.offsets_before(NOW_MS - 21 * SECOND, 1, NOW_MS) == [66]
    assert log.offsets_before(NOW_MS - 20 * SECOND, 1, NOW_MS) == [66 + len(message("theirs"))]


def test_old_segments_of_kafka_before_ours(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [message("x") * 2] * 2)
    for path in segments(tmp_path / "clicks-0"):
        touch(path, NOW_MS - 90 * SECOND)
    log = open_log(tmp_path / "clicks-0", clean=True, log_settings=settings(20))
    append(log, message("x"), now_ms=NOW_MS - 50 * SECOND)
    log.flush()
    assert log.offsets_before(NOW_MS - 50 * SECOND, 10, NOW_MS) == [55, 44, 22, 0]
    assert log.offsets_before(NOW_MS - 51 * SECOND, 10, NOW_MS) == [22, 0]
    assert log.offsets_before(NOW_MS - 91 * SECOND, 10, NOW_MS) == []


def test_a_damaged_index_falls_back_and_never_invents(ours: Log, tmp_path: Path) -> None:
    ours.close()
    for path in (tmp_path / "clicks-0").glob("*.timeindex"):
        path.write_bytes(bytes(len(path.read_bytes())))
    for number, path in enumerate(segments(tmp_path / "clicks-0")):
        touch(path, NOW_MS - (30 - 10 * number) * SECOND)
    log = open_log(tmp_path / "clicks-0", clean=True)
    assert log.offsets_before(NOW_MS - 15 * SECOND, 10, NOW_MS) == [22, 0]


def test_a_segment_that_vanished_is_an_error_of_ours(foreign: Log, tmp_path: Path) -> None:
    segments(tmp_path / "clicks-0")[2].unlink()
    with pytest.raises(StorageError, match=r"read .*\.kafka: No such file"):
        foreign.offsets_before(NOW_MS - 15 * SECOND, 10, NOW_MS)


def test_segments_are_described(ours: Log) -> None:
    append(ours, message("x"), now_ms=NOW_MS)
    infos = ours.segment_infos()
    assert [info.base_offset for info in infos] == [0, 22, 44, 66]
    assert [info.size_bytes for info in infos] == [22, 22, 22, 11]
    assert [info.active for info in infos] == [False, False, False, True]
    assert [NOW_MS - info.last_append_ms for info in infos] == [59_000, 57_000, 55_000, 0]
