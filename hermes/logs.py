"""The lines of the broker's log: how they are named, which are written, in which format.

Lines are Twisted's events. What is said here is independent of where they go, which is decided at
the start (`hermes.tap`). Knows no setting.
"""

import json
from datetime import UTC, datetime
from typing import Any, Self

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

__all__ = ["ModuleLogger", "log_observer"]


class ModuleLogger(Logger):
    """A class's logger whose lines name the module that the class stands in.

    Twisted's own takes the class of whoever uses it instead, whatever namespace it was given; for
    a subclass in the composition root that names the wrong module.
    """

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """Itself, for every class and instance."""
        return self


def log_observer(file: Any, level: str, *, as_json: bool) -> ILogObserver:
    """Make what writes events into a file.

    Args:
        file: takes text; stays the caller's.
        level: the least that is written: debug, info, warn, error or critical.
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
    legacy = ("system", "message", "time", "isError")
    for name, value in event.items():
        if not name.startswith("log_") and name not in legacy:
            line[name] = value
    return json.dumps(line, default=str) + "\n"
