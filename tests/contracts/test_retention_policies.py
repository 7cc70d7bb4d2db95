"""What every retention policy must do, run on each that is installed, the built-ins for a start."""

import copy
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo
from hermes.plugins import available, find_plugin

GROUP = "hermes.retention"
NOW_MS = 1_700_000_000_000


@cache
def maker(name: str) -> Callable[[RetentionSettings], IRetentionPolicy]:
    """Looked up once: that reads all that is installed."""
    return find_plugin(GROUP, name, IRetentionPolicy)


def create(name: str, settings: RetentionSettings) -> IRetentionPolicy:
    return maker(name)(settings)


@st.composite
def logs(draw: st.DrawFn) -> tuple[SegmentInfo, ...]:
    """A partition's segments: any sizes, any times, also in the future and out of order."""
    sizes = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
    ages_ms = draw(st.lists(st.integers(-50, 200), min_size=len(sizes), max_size=len(sizes)))
    segments, offset = [], draw(st.integers(0, 10**12))
    for index, (size_bytes, age_ms) in enumerate(zip(sizes, ages_ms, strict=True)):
        active = index == len(sizes) - 1
        segments.append(SegmentInfo(offset, size_bytes, NOW_MS - age_ms, active))
        offset += size_bytes
    return tuple(segments)


limits = st.none() | st.integers(0, 150)
all_settings = st.builds(RetentionSettings, time_ms=limits, size_bytes=limits)


def test_the_built_ins_are_there() -> None:
    assert {"time", "size", "time-and-size"} <= set(available(GROUP))


@pytest.mark.parametrize("name", available(GROUP))
class TestContract:
    def test_it_provides_the_interface(self, name: str) -> None:
        assert verifyObject(IRetentionPolicy, create(name, RetentionSettings()))

    @given(segments=logs(), settings=all_settings)
    def test_it_asks_for_a_leading_run(
        self, name: str, segments: tuple[SegmentInfo, ...], settings: RetentionSettings
    ) -> None:
        count = create(name, settings).expired(segments, NOW_MS)
        assert type(count) is int
        assert 0 <= count <= len(segments)

    @given(segments=logs(), settings=all_settings)
    def test_an_empty_active_segment_stays(
        self, name: str, segments: tuple[SegmentInfo, ...], settings: RetentionSettings
    ) -> None:
        active = segments[-1]
        empty = SegmentInfo(active.base_offset, 0, active.last_append_ms, active=True)
        count = create(name, settings).expired((*segments[:-1], empty), NOW_MS)
        assert count < len(segments)

    @given(segments=logs(), settings=all_settings)
    def test_it_remembers_nothing_between_two_partitions(
        self, name: str, segments: tuple[SegmentInfo, ...], settings: RetentionSettings
    ) -> None:
        policy = create(name, settings)
        before = copy.deepcopy(segments)
        first = policy.expired(segments, NOW_MS)
        policy.expired((SegmentInfo(0, 10**9, 0, active=True),), NOW_MS)
        assert policy.expired(segments, NOW_MS) == first
        assert segments == before


@pytest.mark.parametrize("name", ["time", "size", "time-and-size"])
@given(segments=logs())
def test_without_a_limit_a_built_in_keeps_everything(
    name: str, segments: tuple[SegmentInfo, ...]
) -> None:
    assert create(name, RetentionSettings()).expired(segments, NOW_MS) == 0
