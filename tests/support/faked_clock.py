"""A wall clock that a test sets while a process runs, by libfaketime; other clocks stay true."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["FakedClock"]


class FakedClock:
    """The wall clock of a process that was started with `environment`.

    Args:
        file: where libfaketime reads what the clock says.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.turn(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the process must be started with."""
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Its name differs between releases.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def turn(self, seconds: int) -> None:
        """Let the clock be `seconds` ahead of the true one, or behind it if negative."""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(f"{seconds:+d}\n", encoding="ascii")
        os.replace(new, self._file)
