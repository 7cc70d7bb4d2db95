"""Durations as people, Spark and Python write them."""

from datetime import timedelta

import pytest

from hermes.errors import ConfigError
from hermes.spark.arguments import Duration, as_interval, as_ms, require_new


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("10 minutes", 600_000),
        ("1 Minute", 60_000),
        ("1 hour 30 minutes", 5_400_000),
        ("2 weeks", 1_209_600_000),
        ("1 millisecond", 1),
        ("0s", 0),
        (timedelta(minutes=1, milliseconds=1), 60_001),
    ],
)
def test_durations(written: Duration, ms: int) -> None:
    assert as_ms(written, "width") == ms
    assert as_interval(ms) == f"{ms} milliseconds"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "10",
        "1 month",
        "1 year",
        "minutes 10",
        "10 minutes 5",
        "-1s",
        "-1 seconds",
        60,
        timedelta(microseconds=5),
    ],
)
def test_what_is_no_duration(written: Duration) -> None:
    with pytest.raises(ConfigError) as caught:
        as_ms(written, "width")
    assert caught.value.key == "width"


def test_durations_that_are_too_short() -> None:
    assert as_ms("1ms", "gap", least_ms=1) == 1
    for written in ("0s", timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ConfigError, match=r"^gap: expected at least 1 ms, got "):
            as_ms(written, "gap", least_ms=1)


def test_names_that_are_taken() -> None:
    require_new(["value", "topic"], "decoded", "into")
    for name in ("value", "VALUE", ""):
        with pytest.raises(ConfigError, match=r"^into: there is a column "):
            require_new(["value", "topic"], name, "into")
