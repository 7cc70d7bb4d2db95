"""twistd, with a reactor that measures the CPU time of everything that it calls.

    HERMES_TURNS=FILE python measured_twistd.py -n hermes --config broker.yaml

The reactor can't do anything else while a function that it has called runs. Each such call that is
longer than all before it since FILE was last emptied is a line there: milliseconds of the thread's
CPU time, and what it was.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import base, posixbase

__all__ = ["forget_turns", "longest_turn", "measured_program"]

_VARIABLE = "HERMES_TURNS"


def measured_program() -> list[str]:
    """What to run in twistd's place; HERMES_TURNS must be set in its environment."""
    return [sys.executable, __file__]


def longest_turn(path: Path) -> tuple[float, str]:
    """The longest call so far, in ms, and what it was."""
    turns = [line.partition(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    return max(((float(ms), what) for ms, _, what in turns), default=(0.0, ""))


def forget_turns(path: Path) -> None:
    """Begin again."""
    path.write_text("", encoding="utf-8")


class _Turns:
    """Keeps the longest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._longest = 0.0
        forget_turns(path)

    def measured(self, function: Callable[..., Any], what: Callable[[], str]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self._note((time.thread_time() - began) * 1000, what)

        return call

    def _note(self, took_ms: float, what: Callable[[], str]) -> None:
        if took_ms < 5:
            return
        if self._path.stat().st_size == 0:
            self._longest = 0.0
        if took_ms > self._longest:
            self._longest = took_ms
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(f"{took_ms:.1f} {what()}\n")

    def install(self) -> None:
        """Measure whatever a reactor of this process calls."""
        io: Any = posixbase._PollLikeMixin
        core: Any = base.ReactorBase
        do_read_or_write, call_later = io._doReadOrWrite, core.callLater
        call_from_thread = core.callFromThread

        def measured_io(reactor: Any, selectable: Any, *arguments: Any) -> Any:
            def what() -> str:
                return type(getattr(selectable, "protocol", selectable)).__qualname__

            return self.measured(do_read_or_write, what)(reactor, selectable, *arguments)

        def measured_later(reactor: Any, delay: float, function: Any, *a: Any, **k: Any) -> Any:
            return call_later(reactor, delay, self._named(function), *a, **k)

        def measured_from_thread(reactor: Any, function: Any, *a: Any, **k: Any) -> Any:
            return call_from_thread(reactor, self._named(function), *a, **k)

        io._doReadOrWrite = measured_io
        core.callLater = measured_later
        core.callFromThread = measured_from_thread

    def _named(self, function: Any) -> Callable[..., Any]:
        return self.measured(function, lambda: getattr(function, "__qualname__", repr(function)))


def _main() -> None:
    from twisted.scripts.twistd import run

    _Turns(Path(os.environ[_VARIABLE])).install()
    run()


if __name__ == "__main__":
    _main()
