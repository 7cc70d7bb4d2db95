"""A mirror process: whatever it is doing when a signal comes, it obeys."""

import signal
import sys
from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

from hermes.errors import ConfigError
from hermes.mirror import process


class Run:
    """In place of a mirror. Once it has started, a signal comes before the line of that number."""

    line = stopped = 0

    def __init__(self, config: Any) -> None:
        self.config = config

    def start(self) -> None:
        sys.settrace(self._trace)
        for frame in _frames(sys._getframe(1)):
            frame.f_trace = self._trace

    def stop(self) -> None:
        sys.settrace(None)
        Run.stopped += 1

    def _trace(self, _frame: FrameType, event: str, _: Any) -> Any:
        Run.line -= event == "line"
        if Run.line == 0:
            _signal()
        return self._trace


class Orders(SimpleQueue[Any]):
    def get(self, *arguments: Any) -> Any:
        if Run.line > 0:  # else nothing would come any more
            _signal()
        return super().get(*arguments)


def _signal() -> None:
    sys.settrace(None)
    signal.raise_signal(signal.SIGTERM)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code.co_filename == process.__file__:
        yield frame
        frame = frame.f_back


def test_a_signal_ends_it_at_whatever_line_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MirrorRun", Run)
    monkeypatch.setattr(process, "SimpleQueue", Orders)
    before = signal.getsignal(signal.SIGTERM)
    for number in count(1):
        Run.line = number
        process.run_mirror("settings")  # type: ignore[arg-type]
        assert Run.stopped == number
        if Run.line > 0:
            break
    assert number > 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_is_to_end_while_it_takes_other_settings_begins_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reloaded:
        started = 0

        def __init__(self, config: Any) -> None:
            self.config = config

        def start(self) -> None:
            Reloaded.started += 1
            signal.raise_signal(signal.SIGHUP)

        def stop(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(process, "MirrorRun", Reloaded)
    process.run_mirror("one", reload=lambda: "another")  # type: ignore[arg-type, return-value]
    assert Reloaded.started == 1


def test_settings_that_no_mirror_can_have_leave_it_with_its_former_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reloaded:
        started = 0

        def __init__(self, config: Any) -> None:
            if config == "another":
                raise ConfigError("topics", "no topic can have such a name")
            self.config = config

        def start(self) -> None:
            Reloaded.started += 1
            is_first = Reloaded.started == 1
            signal.raise_signal(signal.SIGHUP if is_first else signal.SIGTERM)

        def stop(self) -> None: ...

    monkeypatch.setattr(process, "MirrorRun", Reloaded)
    process.run_mirror("one", reload=lambda: "another")  # type: ignore[arg-type, return-value]
    assert Reloaded.started == 2
