"""Log lines that a peer can cause: few per period, short, and without control characters.

Whatever a client can make a server log goes through a `LimitedLog`. Each kind of line has an
allowance, and the next one that is let through says how many were suppressed; every value in a
line is shortened and escaped, so that a name can neither fill the log nor forge a line.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from hermes.quoting import printable
from hermes.rate_limit import RateLimit

__all__ = ["LimitedLog"]

#: How many characters of one value are shown: a reason that quotes a name fits.
_VALUE_LENGTH: Final = 200

_NOTE: Final = " ({suppressed} more such lines suppressed)"


class LimitedLog:
    """A logger for lines that a peer can cause.

    Args:
        seconds: a monotonic clock, for instance the reactor's.
        value_length: how many characters of one value are shown.
    """

    def __init__(
        self, logger: Logger, seconds: Callable[[], float], value_length: int = _VALUE_LENGTH
    ) -> None:
        self._logger = logger
        self._value_length = value_length
        self._rate = RateLimit(seconds)

    def info(self, kind: str, template: str, **values: object) -> None:
        """Log ordinary work that peers can cause at will; see `warn`."""
        self._emit(LogLevel.info, kind, template, values)

    def warn(self, kind: str, template: str, **values: object) -> None:
        """Log what a peer did wrong, unless the allowance of its kind is used up.

        Args:
            kind: what shares an allowance; one of a few fixed words.
            template: the line, as Twisted's `Logger` takes it.
            values: the template's fields; strings are shortened and escaped.
        """
        self._emit(LogLevel.warn, kind, template, values)

    def error(self, kind: str, template: str, **values: object) -> None:
        """Log what went wrong on our side while serving a peer; see `warn`."""
        self._emit(LogLevel.error, kind, template, values)

    def failure(self, kind: str, template: str, failure: Failure, **values: object) -> None:
        """Log a fault of Hermes with its traceback; see `warn`."""
        self._emit(LogLevel.critical, kind, template, {**values, "log_failure": failure})

    def _emit(self, level: Any, kind: str, template: str, values: dict[str, Any]) -> None:
        suppressed = self._rate.allow(kind)
        if suppressed is None:
            return
        if suppressed:
            template += _NOTE
            values["suppressed"] = suppressed
        self._logger.emit(
            level, template, **{name: self._shown(value) for name, value in values.items()}
        )

    def _shown(self, value: Any) -> Any:
        """A value as it may appear in a line; numbers stay numbers, for `log_format: json`."""
        if isinstance(value, int | float | Failure | None):
            return value
        return printable(str(value), self._value_length)
