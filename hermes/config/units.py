"""Sizes and durations as people write them, `1GiB`, `100 MB`, `7d`, `1h30m`, and as they read them.

Everything inside Hermes counts in whole bytes and whole milliseconds.
"""

import re
from datetime import UTC, datetime
from fractions import Fraction

from hermes.quoting import quoted

_BYTES_PER_UNIT = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_READ_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SIZE_UNITS = {name.lower(): factor for name, factor in _BYTES_PER_UNIT.items()}

# The largest first: a compound such as 1h30m is written, and shown, in this order.
_MS_PER_UNIT = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SHOWN_DURATION_UNITS = ("d", "h", "m", "s", "ms")

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_DURATION_PART = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)\s*")

_EXPECTED_SIZE = "expected a size such as 1GiB, 100MB or 65536"
_EXPECTED_DURATION = "expected a duration such as 500ms, 30s, 10m, 1h30m or 7d"


def parse_size(value: object) -> int:
    """Parse a size, an int >= 0 or a number with a unit, into bytes.

    Decimal units count in thousands (kB, MB, GB, TB), binary ones in 1024s (KiB, MiB, GiB, TiB);
    upper and lower case are the same. A plain number is bytes. `64k` is refused, because half of
    its readers would take it for 64000 and the other half for 65536.

    Raises:
        ValueError: the value is not a size; the text says what was expected.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{_EXPECTED_SIZE}, got {quoted(value)}")
    number, unit = match.groups()
    if unit and unit.lower() not in _SIZE_UNITS:
        raise ValueError(f"{_EXPECTED_SIZE}, got {quoted(value)}{_size_unit_hint(number, unit)}")
    size_bytes = Fraction(number) * _SIZE_UNITS[unit.lower() or "b"]
    if size_bytes.denominator != 1:
        raise ValueError(
            f"{_EXPECTED_SIZE}, got {quoted(value)}, which is not a whole number of bytes"
        )
    return int(size_bytes)


def _size_unit_hint(number: str, unit: str) -> str:
    for name in _BYTES_PER_UNIT:
        if name.endswith("iB") and name[0].lower() == unit.lower():
            decimal = name.replace("i", "").replace("K", "k")
            return f" (write {number}{name} or {number}{decimal})"
    return f" (units: {', '.join(_BYTES_PER_UNIT)})"


def parse_duration(value: object) -> int:
    """Parse a duration, 0 or numbers with units, into milliseconds.

    Units are ms, s, m, h, d and w, in lower case; several are written from the largest to the
    smallest, each once. A bare number is refused, because its unit is not evident, except for 0.

    Raises:
        ValueError: the value is not a duration; the text says what was expected.
    """
    if value == 0 and not isinstance(value, bool):
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(_bare_number(value))
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{_EXPECTED_DURATION}, got {quoted(value)}")
    parts = _duration_parts(value.strip())
    units = [unit for _, unit in parts]
    if [unit for unit in _MS_PER_UNIT if unit in units] != units:
        raise ValueError(
            f"{_EXPECTED_DURATION}, got {quoted(value)} (each unit once, the largest first)"
        )
    duration_ms = sum(number * _MS_PER_UNIT[unit] for number, unit in parts)
    if duration_ms != int(duration_ms):
        raise ValueError(f"{_EXPECTED_DURATION}, got {quoted(value)}, which is finer than 1ms")
    return int(duration_ms)


def _duration_parts(text: str) -> list[tuple[Fraction, str]]:
    """Split `1h30m` into its numbers and units; the string is stripped and not empty."""
    if text == "0":
        return [(Fraction(0), "ms")]
    parts: list[tuple[Fraction, str]] = []
    position = 0
    while position < len(text):
        match = _DURATION_PART.match(text, position)
        if match is None:
            raise ValueError(f"{_EXPECTED_DURATION}, got {quoted(text)}")
        number, unit = match.groups()
        if number == text:
            raise ValueError(_bare_number(text))
        if unit not in _MS_PER_UNIT:
            raise ValueError(
                f"{_EXPECTED_DURATION}, got {quoted(text)} "
                f"(units: {', '.join(reversed(_MS_PER_UNIT))})"
            )
        parts.append((Fraction(number), unit))
        position = match.end()
    return parts


def _bare_number(value: object) -> str:
    return f"{_EXPECTED_DURATION}, got {value} without a unit (write {value}s or {value}ms)"


def format_size(size_bytes: int) -> str:
    """The shortest exact form with one unit, binary before decimal: `1GiB`, `1MB`, `102401`."""
    for prefer in ("iB", ""):
        for unit, factor in reversed(_BYTES_PER_UNIT.items()):
            if unit.endswith(prefer or "B") and factor > 1 and size_bytes:
                count, rest = divmod(size_bytes, factor)
                if not rest:
                    return f"{count}{unit}"
    return str(size_bytes)


def format_bytes(count: float) -> str:
    """For reading only, rounded: `512 B`, `1.4 MiB`."""
    size, unit = float(count), 0
    # From 1023.95 on, one decimal would show 1024.0 instead of 1.0 of the next unit.
    while abs(size) >= 1023.95 and unit < len(_READ_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.{min(unit, 1)}f} {_READ_UNITS[unit]}"


def format_duration(duration_ms: int) -> str:
    """The exact form, for instance `7d`, `1h30m`, `500ms`, or `0`."""
    text = ""
    for unit in _SHOWN_DURATION_UNITS:
        count, duration_ms = divmod(duration_ms, _MS_PER_UNIT[unit])
        if count:
            text += f"{count}{unit}"
    return text or "0"


def moment_of(time_ms: int) -> datetime | None:
    """The second of a time in ms since 1970, in UTC; None beyond what a calendar reaches."""
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
