"""Sizes and durations: every spelling that is read, every one that is refused, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.units import (
    format_bytes,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        (0, 0),
        (65536, 65536),
        ("65536", 65536),
        ("1B", 1),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("100 MB", 100_000_000),
        ("100MiB", 104_857_600),
        ("1GiB", 1 << 30),
        ("1gib", 1 << 30),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 << 40),
        ("1.5GiB", 3 << 29),
        ("0.5kB", 500),
        (" 1GiB ", 1 << 30),
    ],
)
def test_a_size_is_read(written: object, size_bytes: int) -> None:
    assert parse_size(written) == size_bytes


@pytest.mark.parametrize(
    "written",
    [
        -1,
        1.5,
        True,
        None,
        "",
        "GiB",
        "1Gib/s",
        "-1GiB",
        "1e6",
        "1,000",
        "0.3B",
        "1 000",
        [],
        "0x10",
    ],
)
def test_what_is_no_size_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as 1GiB, 100MB or 65536, got"):
        parse_size(written)


@pytest.mark.parametrize("written", ["64k", "64K"])
def test_a_size_that_could_mean_two_things_names_both(written: str) -> None:
    with pytest.raises(ValueError, match=r"write 64KiB or 64kB"):
        parse_size(written)


@pytest.mark.parametrize(
    ("written", "duration_ms"),
    [
        (0, 0),
        ("0", 0),
        ("0s", 0),
        ("500ms", 500),
        ("3s", 3000),
        ("10m", 600_000),
        ("10 m", 600_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("1w1d1h1m1s1ms", 694_861_001),
        ("0.5s", 500),
    ],
)
def test_a_duration_is_read(written: object, duration_ms: int) -> None:
    assert parse_duration(written) == duration_ms


@pytest.mark.parametrize(
    "written",
    [
        True,
        False,
        None,
        "",
        " ",
        "s",
        "-1s",
        "1:30",
        "1 day",
        "30m1h",
        "1h1h",
        "1H",
        "0.5ms",
        "1h30",
        [],
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 500ms, 30s"):
        parse_duration(written)


@pytest.mark.parametrize("written", [600, "600", 600.0])
def test_a_bare_number_is_no_duration_and_the_refusal_shows_what_to_write(written: object) -> None:
    with pytest.raises(ValueError, match=rf"without a unit \(write {written}s or {written}ms\)"):
        parse_duration(written)


@given(st.integers(min_value=0, max_value=1 << 63))
def test_a_shown_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=1 << 63))
def test_a_shown_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0"),
        (1, "1"),
        (102_400, "100KiB"),
        (1 << 30, "1GiB"),
        (1_000_000, "1MB"),
        (1025, "1025"),
    ],
)
def test_a_size_is_shown_as_people_write_it(size_bytes: int, shown: str) -> None:
    assert format_size(size_bytes) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (5000 << 60, "5000.0 EiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_bytes_are_shown_in_the_unit_that_they_round_to(count: int, shown: str) -> None:
    assert format_bytes(count) == shown


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [(0, "0"), (3_600_000 * 168, "7d"), (5_400_000, "1h30m"), (500, "500ms"), (1500, "1s500ms")],
)
def test_a_duration_is_shown_as_people_write_it(duration_ms: int, shown: str) -> None:
    assert format_duration(duration_ms) == shown
