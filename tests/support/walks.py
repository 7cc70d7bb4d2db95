"""The files that one must open to follow a life: as ARCHITECTURE.md lists them, and as code runs.

A list ends its section, begins with `Files, at most N:` and names paths below `hermes/` in the
order in which they are reached.
"""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HERMES = ROOT / "hermes"


class Walk(NamedTuple):
    life: str
    most: int
    files: list[str]


def walks() -> list[Walk]:
    """The lists of ARCHITECTURE.md, each with the heading of its section."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    found = []
    for section in text.split("\n## ")[1:]:
        life = section.partition("\n")[0]
        for most, listed in re.findall(
            r"^Files, at most (\d+): (.+?)(?:\n\n|\Z)", section, re.M | re.S
        ):
            found.append(Walk(life, int(most), re.findall(r"`([^`]+)`", listed)))
    return found


class TourFile(NamedTuple):
    """One row of the tour: a file below `hermes/`, and how many lines it has."""

    file: str
    lines: int


def tour() -> tuple[int, list[TourFile]]:
    """How many lines the tour of ARCHITECTURE.md has at most, and its files."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## A tour in an afternoon\n")[2].partition("\n## ")[0]
    (most,) = re.findall(r"at most ([\d,]+) lines", section)
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \|", section, re.M)
    return int(most.replace(",", "")), [TourFile(file, int(lines)) for file, lines in rows]


class Call(NamedTuple):
    """A function of Hermes that was called: in which thread, its file, and its qualified name."""

    thread: int
    file: str
    function: str


def way(calls: list[Call], first: str, last: str) -> list[str]:
    """The files in which a thread was from the last `first` before `last` on, each once."""
    end = max(place for place, call in enumerate(calls) if call.function == last)
    thread = calls[end].thread
    own = [call for call in calls[: end + 1] if call.thread == thread]
    start = max(place for place, call in enumerate(own) if call.function == first)
    return list(dict.fromkeys(call.file for call in own[start:]))


@contextmanager
def called() -> Iterator[list[Call]]:
    """The functions below `hermes/` that threads call which start here."""
    calls: list[Call] = []
    is_over = threading.Event()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        is_function = not code.co_name.startswith("<")
        if event == "call" and is_function and not is_over.is_set():
            path = Path(code.co_filename)
            if path.is_relative_to(HERMES):
                file = path.relative_to(HERMES).as_posix()
                calls.append(Call(threading.get_ident(), file, code.co_qualname))

    threading.setprofile(profile)
    try:
        yield calls
    finally:
        is_over.set()
        threading.setprofile(None)  # type: ignore[arg-type]


@contextmanager
def visited() -> Iterator[set[str]]:
    """The files below `hermes/` in which functions are called, by threads that start here too."""
    files: set[str] = set()
    is_over = threading.Event()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        is_function = not frame.f_code.co_name.startswith("<")
        if event == "call" and is_function and not is_over.is_set() and path.is_relative_to(HERMES):
            files.add(path.relative_to(HERMES).as_posix())

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield files
    finally:
        is_over.set()
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
