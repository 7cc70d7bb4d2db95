"""Points in time as people write them on a command line."""

from datetime import UTC, datetime

__all__ = ["format_time_ms", "parse_time_ms"]

_MAX_TIME_MS = 2**63 - 1


def parse_time_ms(text: str) -> int:
    """Read a point in time.

    Args:
        text: ISO 8601, in UTC unless a zone is given (`2025-05-17`, `2025-05-17T10:05:03+02:00`),
            or a whole number of milliseconds since 1970. Digits alone are always milliseconds.

    Returns:
        Milliseconds since 1970, 0 or more.

    Raises:
        ValueError: it is neither, or before 1970; the text says what is expected.
    """
    expected = "expected ISO 8601 such as 2025-05-17T10:05:03Z, or milliseconds since 1970"
    if text.isascii() and text.isdigit():
        if int(text) > _MAX_TIME_MS:
            raise ValueError(f"{text!r} is later than any time that can be asked for: {expected}")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no point in time: {expected}") from None
    if moment.tzinfo is None:
        # The machine's own zone would make the same script read different messages elsewhere.
        moment = moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if time_ms < 0:
        raise ValueError(f"{text!r} is before 1970: {expected}")
    return time_ms


def format_time_ms(time_ms: int) -> str:
    """A point in time as ISO 8601 in UTC, to the millisecond.

    Args:
        time_ms: milliseconds since 1970; 0 or more.

    Returns:
        For instance `2025-05-17T10:05:03.000Z`; the bare number when no calendar reaches it.
    """
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
