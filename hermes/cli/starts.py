"""Where a reader starts: the values of `consume -o`, as kcat writes them."""

from dataclasses import dataclass

from hermes.cli.times import parse_time_ms

__all__ = ["AtOffset", "AtTime", "Beginning", "End", "Last", "Start", "parse_start"]

_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Beginning:
    """The oldest message that a partition still holds."""


@dataclass(frozen=True, slots=True)
class End:
    """Behind the newest message: only what comes from now on."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """A byte position, where a message must start.

    Attributes:
        offset: 0 or more.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The newest messages of every partition.

    Attributes:
        count: how many; 0 is the same as the end.
    """

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message appended after a time, as well as the broker knows it.

    Attributes:
        time_ms: milliseconds since 1970.
    """

    time_ms: int


Start = Beginning | End | AtOffset | Last | AtTime


def parse_start(text: str) -> Start:
    """Read `beginning`, `end`, `OFFSET`, `-N` or `@TIME`.

    Args:
        text: as given on the command line.

    Raises:
        ValueError: it is none of these; the text says what is expected.
    """
    if text == "beginning":
        return Beginning()
    if text == "end":
        return End()
    if text.startswith("@"):
        return AtTime(parse_time_ms(text[1:]))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and int(digits) <= _MAX_OFFSET:
        return Last(int(digits)) if text.startswith("-") else AtOffset(int(digits))
    raise ValueError(
        f"{text!r} is no start: expected beginning, end, an offset, -N for the last N messages "
        "of every partition, or @TIME"
    )
