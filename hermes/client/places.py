"""Places in a partition as people write them: names, times, offsets, counts."""

from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from hermes.protocol import EARLIEST, LATEST

_MAX_INT64: Final = 2**63 - 1


class PartitionPlace(NamedTuple):
    """A place in a partition.

    `value` is of a `time` ms since 1970, or EARLIEST or LATEST as in requests; of an `offset` a
    byte position, where a message must start; of `last` how many of the newest messages, 0 or more;
    of a `shift` by how many bytes to move from the offset that is stored.
    """

    kind: Literal["time", "offset", "last", "shift"]
    value: int


BEGINNING: Final = PartitionPlace("time", EARLIEST)
END: Final = PartitionPlace("time", LATEST)


def parse_time_ms(text: str) -> int:
    """Read a point in time as ms since 1970, 0 or more; raises ValueError.

    It is ISO 8601, in UTC unless a zone is given (`2025-05-17`, `2025-05-17T10:05:03+02:00`), or a
    whole number of ms since 1970. Digits alone are always milliseconds.
    """
    expected = "expected ISO 8601 such as 2025-05-17T10:05:03Z, or milliseconds since 1970"
    if text.isascii() and text.isdigit():
        if int(text) > _MAX_INT64:
            raise ValueError(f"{text!r} is later than any time that can be asked for: {expected}")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a point in time: {expected}") from None
    if moment.tzinfo is None:
        # The machine's own zone would make the same script read different messages elsewhere.
        moment = moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if time_ms < 0:
        raise ValueError(f"{text!r} is before 1970: {expected}")
    return time_ms


def parse_start(text: str) -> PartitionPlace:
    """Read where to start: `beginning`, `end`, `OFFSET`, `-N` (messages) or `@TIME`, as in kcat.

    Raises ValueError, which says what is expected.
    """
    named = {"beginning": BEGINNING, "end": END}.get(text)
    if named is not None:
        return named
    if text.startswith("@"):
        return PartitionPlace("time", parse_time_ms(text[1:]))
    number = _parse_number(text, signs="-")
    if number is None:
        raise ValueError(
            f"{text!r} is not a start: expected beginning, end, an offset, -N for the last N "
            "messages of every partition, or @TIME"
        )
    return (
        PartitionPlace("last", -number)
        if text.startswith("-")
        else PartitionPlace("offset", number)
    )


def parse_reset_position(text: str) -> PartitionPlace:
    """Read where a group is to continue: `earliest`, `latest`, `@TIME`, `OFFSET`, `+N` or `-N`.

    Raises ValueError, which says what is expected.
    """
    named = {"earliest": BEGINNING, "latest": END}.get(text)
    if named is not None:
        return named
    if text.startswith("@"):
        return PartitionPlace("time", parse_time_ms(text[1:]))
    number = _parse_number(text, signs="+-")
    if number is None:
        raise ValueError(f"expected earliest, latest, @TIME, an offset, +N or -N; got {text!r}")
    return PartitionPlace("shift" if text[0] in "+-" else "offset", number)


def _parse_number(text: str, signs: str) -> int | None:
    digits = text[1:] if text[:1] and text[0] in signs else text
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _MAX_INT64:
        return None
    return int(text)
