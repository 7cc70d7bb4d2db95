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
