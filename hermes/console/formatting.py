"""Formats numbers, times and sizes for people. Pure functions, used as filters by templates."""

import math
from typing import Final

from hermes.config.units import format_bytes, moment_of

_NO_VALUE: Final = "–"  # noqa: RUF001 - a dash in a table, not a minus


def bytes_text(count: float | None) -> str:
    """`512 B`, `1.4 MiB`; a dash for None."""
    return _NO_VALUE if count is None else format_bytes(count)


def rate_text(bytes_per_second: float | None) -> str:
    """`1.4 MiB/s`; a dash for None."""
    return _NO_VALUE if bytes_per_second is None else f"{bytes_text(bytes_per_second)}/s"


def count_text(number: float | None) -> str:
    """`1,234,567`; a dash for None."""
    return _NO_VALUE if number is None else f"{number:,.0f}"


def amount_text(amount: float | None, counts_messages: bool) -> str:
    """The distance between two offsets: `12 messages` where they count these, else bytes."""
    if amount is None or not counts_messages:
        return bytes_text(amount)
    return f"{count_text(amount)} message{'' if amount == 1 else 's'}"


def percent(part: float, whole: float) -> float:
    """A part in percent, between 0 and 100 with one decimal; 0 of nothing."""
    return 0.0 if whole <= 0 else round(min(max(part / whole, 0.0), 1.0) * 100, 1)


def time_text(time_ms: int | None) -> str:
    """UTC to the second, `2025-05-17 10:05:03`; a dash for None."""
    if time_ms is None or time_ms < 0:
        return _NO_VALUE
    moment = moment_of(time_ms)
    return str(time_ms) if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def ago(seconds: float | None) -> str:
    """`3 s ago`, `5 min ago`, `2 days ago`; a dash for None."""
    if seconds is None or math.isnan(seconds):
        return _NO_VALUE
    return "just now" if seconds < 1 else f"{lasting_text(seconds)} ago"


def lasting_text(seconds: float) -> str:
    """`3 s`, `5 min`, `2 days`."""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            plural = "s" if unit == "day" and count > 1 else ""
            return f"{count} {unit}{plural}"
    return f"{int(seconds)} s"
