"""A callback handler that logs what an asynchronous producer could not send."""

import logging
from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import ICallbackHandler


@implementer(ICallbackHandler)
class LogFailures:
    """Logs one line per failure: how many sends for which topics, and why. Changes nothing.

    Args:
        level: the level to log at, a name that `logging` knows.
        logger: the logger's name.
    """

    def __init__(self, level: str = "ERROR", logger: str = "hermes.producer") -> None:
        number = logging.getLevelNamesMapping().get(level)
        if number is None:
            raise ConfigError("callback_handler_options.level", f"{level!r} is not a logging level")
        self._level = number
        self._log = logging.getLogger(logger)

    def before_enqueue(self, item: Any) -> Any:
        return item

    def after_enqueue(self, item: Any, accepted: bool) -> None:
        if not accepted:
            self._log.log(self._level, "not accepted for topic %r: the queue is full", item.topic)

    def after_dequeue(self, batch: Any) -> Any:
        return batch

    def before_send(self, batch: Any) -> None:
        pass

    def after_send(self, batch: Any, results: Any) -> None:
        pass

    def on_failure(self, batch: Sequence[Any], error: Exception) -> None:
        topics = ", ".join(sorted({repr(item.topic) for item in batch}))
        self._log.log(
            self._level,
            "%d sends for %s failed: %s: %s",
            len(batch),
            topics,
            type(error).__name__,
            error,
        )

    def on_close(self) -> None:
        pass
