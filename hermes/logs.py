"""The broker's log: loggers' names, escaping, levels and formats.

Lines are Twisted's events. Where they go is decided at the start (`hermes.tap`); the last ones are
kept in memory as well, for remote viewers. Knows no setting.
"""

import json
import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from twisted.logger import (
    FileLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    formatEvent,
    textFileLogObserver,
)
from zope.interface import implementer

from hermes.quoting import printable

__all__ = ["LogLevels", "LogOutput", "ModuleLogger", "RecentLine", "RecentLines"]

#: How much of a line is kept in memory, in characters.
_RECENT_LENGTH: Final = 500


class ModuleLogger(Logger):
    """A class's logger, named after the module that defines the class; escapes its lines' values.

    Twisted's own is named after the class that uses it, whatever namespace it was given; for a
    subclass in the composition root that is the wrong module.

    Names of topics and files, and the errors that quote them, come from anybody: every string and
    every error among a line's values is escaped here, once, and no caller has to.
    """

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self

    def emit(self, level: Any, format: str | None = None, **values: Any) -> None:
        shown = {
            name: printable(str(value)) if isinstance(value, str | Exception) else value
            for name, value in values.items()
        }
        super().emit(level, format, **shown)


class LogLevels:
    """Which lines are written, by level and module. May be changed at any time, by any thread.

    Args:
        level: the lowest level: debug, info, warn, error or critical.
        by_module: likewise for modules and all below them, by dotted names.
    """

    def __init__(self, level: str, by_module: Mapping[str, str]) -> None:
        self.use(level, by_module)

    def use(self, level: str, by_module: Mapping[str, str]) -> None:
        """Replace the levels; as in the constructor."""
        predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
        for module, own in by_module.items():
            predicate.setLogLevelForNamespace(module, LogLevel.levelWithName(own))
        names = {level, *by_module.values()}
        #: The lowest level that any module has.
        self.lowest = next(each.name for each in LogLevel.iterconstants() if each.name in names)
        self._predicate = predicate

    def allows(self, event: LogEvent) -> bool:
        return self._predicate(event) is not PredicateResult.no


@implementer(ILogObserver)
class LogOutput:
    """Writes lines to a file.

    Args:
        file: accepts text; stays the caller's.
        as_json: whether a line is one JSON object. Each has `time` (ISO 8601, UTC), `level`,
            `logger`, `message` (as the text format would show it), `traceback` where there is one,
            and the fields that the message was made from. May be changed at any time.
    """

    def __init__(self, file: Any, levels: LogLevels, *, as_json: bool) -> None:
        self.file = file
        self.as_json = as_json
        self._levels = levels
        self._text = textFileLogObserver(file)
        self._json = FileLogObserver(file, _json_line)

    def __call__(self, event: LogEvent) -> None:
        if self._levels.allows(event):
            (self._json if self.as_json else self._text)(event)


class RecentLine(NamedTuple):
    """A line that was logged: see `hermes.protocol.LogLine`."""

    time_ms: int
    level: str
    logger: str
    message: str


@implementer(ILogObserver)
class RecentLines:
    """Keeps the last lines in memory. Thread-safe."""

    def __init__(self, levels: LogLevels, max_lines: int = 1000) -> None:
        self._levels = levels
        # A garbage collection may log in the midst of what the lock is held for.
        self._lock = threading.RLock()
        self._lines: deque[RecentLine] = deque(maxlen=max_lines)
        self._count = 0  # of all that were ever logged

    def __call__(self, event: LogEvent) -> None:
        if not self._levels.allows(event):
            return
        message = formatEvent(event)
        if "log_failure" in event:
            message += f": {event['log_failure'].getErrorMessage()}"
        line = RecentLine(
            int(event["log_time"] * 1000),
            event["log_level"].name,
            event["log_namespace"],
            printable(message, _RECENT_LENGTH),
        )
        with self._lock:
            self._lines.append(line)
            self._count += 1

    def lines(self, first: int, max_lines: int) -> tuple[int, list[RecentLine]]:
        """Find lines.

        Args:
            first: the number of the first line wanted, counted from 0 since the start; below 0 for
                the last ones.

        Returns:
            (the number of the first one found, those lines). It is above the one wanted when that
            one isn't kept any more.
        """
        with self._lock:
            kept, count = list(self._lines), self._count
        earliest, most = count - len(kept), max(max_lines, 0)
        begin = count - most if first < 0 else first
        begin = min(max(begin, earliest), count)
        place = begin - earliest
        return begin, kept[place : place + most]


# What Twisted adds to an event; everything else is what the message was made from.
_TWISTED_FIELDS: Final = frozenset(
    (
        *("log_failure", "log_flattened", "log_format", "log_legacy", "log_level", "log_logger"),
        *("log_namespace", "log_source", "log_system", "log_text", "log_time", "log_trace"),
        *("format", "isError", "message", "system", "time"),
    )
)


def _json_line(event: LogEvent) -> str:
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds"),
        "level": event["log_level"].name,
        "logger": event["log_namespace"],
        "message": formatEvent(event),
    }
    if "log_failure" in event:
        line["traceback"] = event["log_failure"].getTraceback()
    line.update((name, value) for name, value in event.items() if name not in _TWISTED_FIELDS)
    return json.dumps(line, default=str) + "\n"
