"""Writes down what became of every send, so that nothing is lost without a trace."""

import threading
from pathlib import Path
from typing import Any

from zope.interface import implementer

from hermes.interfaces import ICallbackHandler


@implementer(ICallbackHandler)
class Journal:
    """A line for each send: where it went, or why it did not.

    Args:
        path: the file to append to.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - closed in on_close
        # Refused items are written in the application's threads, all else in the sender's.
        self._lock = threading.Lock()

    def before_enqueue(self, item: Any) -> Any:
        """See `ICallbackHandler`."""
        return item

    def after_enqueue(self, item: Any, accepted: bool) -> None:
        """See `ICallbackHandler`."""
        if not accepted:
            self._write(f"refused {item.topic} {item.messages!r}")

    def after_dequeue(self, batch: Any) -> Any:
        """See `ICallbackHandler`."""
        return batch

    def before_send(self, batch: Any) -> None:
        """See `ICallbackHandler`."""

    def after_send(self, batch: Any, results: Any) -> None:
        """See `ICallbackHandler`."""
        for item, result in zip(batch, results, strict=True):
            self._write(f"sent {result.topic}-{result.partition} {result.offset} {item.messages!r}")

    def on_failure(self, batch: Any, error: Any) -> None:
        """See `ICallbackHandler`."""
        for item in batch:
            self._write(f"failed {item.topic} {item.messages!r}: {error}")

    def on_close(self) -> None:
        """See `ICallbackHandler`."""
        self._file.close()

    def _write(self, line: str) -> None:
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
