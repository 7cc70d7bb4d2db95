"""The built-in policies' arithmetic, case by case."""

import pytest

from hermes.interfaces import RetentionSettings, SegmentInfo
from hermes.plugins.retention.by_size import RetainBySize
from hermes.plugins.retention.by_time import RetainByTime
from hermes.plugins.retention.by_time_and_size import RetainByTimeAndSize

NOW_MS = 1_000_000


def log(*sizes_and_ages: tuple[int, int]) -> tuple[SegmentInfo, ...]:
    """Segments from (bytes, ms since the last append), oldest first."""
    segments, offset = [], 0
    for index, (size_bytes, age_ms) in enumerate(sizes_and_ages, start=1):
        active = index == len(sizes_and_ages)
        segments.append(SegmentInfo(offset, size_bytes, NOW_MS - age_ms, active))
        offset += size_bytes
    return tuple(segments)


@pytest.mark.parametrize(
    ("ages_ms", "expired"),
    [
        ((300, 200, 101, 100, 0), 3),  # exactly as old as the limit is not older
        ((300, 50, 300, 0), 1),  # a leading run only
        ((50, 300, 300), 0),
        ((300, 300, 300), 3),  # everything, the active one too
    ],
)
def test_by_time(ages_ms: tuple[int, ...], expired: int) -> None:
    segments = log(*((10, age_ms) for age_ms in ages_ms))
    assert RetainByTime(RetentionSettings(time_ms=100)).expired(segments, NOW_MS) == expired


@pytest.mark.parametrize(
    ("sizes", "limit", "expired"),
    [
        ((100, 100, 100), 200, 1),  # the rest is exactly the limit
        ((100, 100, 100), 201, 0),
        ((100, 100, 100), 199, 1),
        ((100, 100, 100), 100, 2),
        ((100, 100, 100), 300, 0),
        ((100, 100, 100), 301, 0),
        ((1000, 1, 1), 2, 1),
        ((1, 1000, 1), 1001, 1),
        ((1, 1000, 1), 500, 1),
        ((100, 100, 100), 0, 3),
        ((100, 100, 0), 0, 2),  # the empty active segment stays
        ((0, 100, 100), 200, 1),
        ((0,), 0, 0),
    ],
)
def test_by_size(sizes: tuple[int, ...], limit: int, expired: int) -> None:
    segments = log(*((size_bytes, 0) for size_bytes in sizes))
    assert RetainBySize(RetentionSettings(size_bytes=limit)).expired(segments, NOW_MS) == expired


def test_an_old_but_empty_active_segment_stays() -> None:
    segments = log((10, 900), (0, 900))
    assert RetainByTime(RetentionSettings(time_ms=100)).expired(segments, NOW_MS) == 1


@pytest.mark.parametrize(
    ("time_ms", "size_bytes", "expired"),
    [(150, None, 2), (None, 10, 3), (150, 10, 3), (50, 30, 3), (None, None, 0), (1000, 1000, 0)],
)
def test_by_time_and_size_takes_whichever_asks_for_more(
    time_ms: int | None, size_bytes: int | None, expired: int
) -> None:
    policy = RetainByTimeAndSize(RetentionSettings(time_ms=time_ms, size_bytes=size_bytes))
    assert policy.expired(log((10, 300), (10, 200), (10, 100), (10, 0)), NOW_MS) == expired
