"""The lines of the broker's log: their names, what their values may hold, their levels and formats.

Lines are Twisted's events. Where they go is decided at the start (`hermes.tap`). Knows no setting.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, Self

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    textFileLogObserver,
)

from hermes.quoting import printable

__all__ = ["ModuleLogger", "log_observer"]


class ModuleLogger(Logger):
    """A class's logger whose lines name the module that defines the class, and hold no controls.

    Twisted's own names the class that uses it instead, whatever namespace it was given; for a
    subclass in the composition root that is the wrong module.

    Names of topics and files, and the errors that quote them, come from anybody: every string and
    every error among a line's values is escaped here, once, and no caller has to.
    """

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """Itself, for every class and instance."""
        return self

    def emit(self, level: Any, format: str | None = None, **values: Any) -> None:
        """Log a line; as Twisted's, but strings and errors among the values are made printable."""
        shown = {
            name: printable(str(value)) if isinstance(value, str | Exception) else value
            for name, value in values.items()
        }
        super().emit(level, format, **shown)


# What Twisted adds to an event; everything else is what the message was made from.
_TWISTED_FIELDS: Final = frozenset(
    (
        *("log_failure", "log_flattened", "log_format", "log_legacy", "log_level", "log_logger"),
        *("log_namespace", "log_source", "log_system", "log_text", "log_time", "log_trace"),
        *("format", "isError", "message", "system", "time"),
    )
)


def log_observer(file: Any, level: str, *, as_json: bool) -> ILogObserver:
    """Make the observer that writes events to a file.

    Args:
        file: accepts text; stays the caller's.
        level: the lowest level that is written: debug, info, warn, error or critical.
        as_json: whether a line is one JSON object. Each has `time` (ISO 8601, UTC), `level`,
            `logger`, `message` (as the text format would show it), `traceback` where there is one,
            and the fields that the message was made from.
    """
    observer = FileLogObserver(file, _json_line) if as_json else textFileLogObserver(file)
    least = LogLevel.levelWithName(level)
    return FilteringLogObserver(observer, [LogLevelFilterPredicate(defaultLogLevel=least)])


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
