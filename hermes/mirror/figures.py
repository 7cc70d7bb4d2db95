"""What a mirror counts, and what is wrong with it, each logged once."""

import logging
import threading
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PartitionFigures:
    """One partition of a source. The totals are this process's, and only grow.

    Attributes:
        partition: `<broker>-<number>`.
        position: up to where the target has acknowledged it on disk.
        end: the source's end when it was last seen; None before.
        messages: how many the target has acknowledged; compressed ones count once.
        duplicates: of these, messages that the target had already.
        damaged: stretches of damaged messages that were skipped.
        lost_bytes: what the source's retention took before it was read.
        error: why it doesn't go on at the moment; empty when it does.
        is_held: whether this process has the partition now.
    """

    source: str
    topic: str
    partition: str
    target_topic: str
    position: int = 0
    end: int | None = None
    messages: int = 0
    bytes: int = 0
    duplicates: int = 0
    damaged: int = 0
    lost_bytes: int = 0
    error: str = ""
    is_held: bool = False


class Problems:
    """What is wrong, by what it is about; logged when it begins and ends. Threads may share it."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._now: dict[str, str] = {}

    def begin(self, what: str, text: str) -> None:
        """Say what is wrong; logged unless it was the last to be said of this."""
        with self._lock:
            is_new = self._now.get(what) != text
            self._now[what] = text
        if is_new:
            self._log.warning("%s: %s; retrying", what, text)

    def end(self, what: str) -> None:
        if what not in self._now:
            return
        with self._lock:
            was_wrong = self._now.pop(what, "")
        if was_wrong:
            self._log.warning("%s: works again", what)

    def forget(self, what: str) -> None:
        with self._lock:
            self._now.pop(what, None)

    def note(self, text: str) -> None:
        self._log.warning("%s", text)

    def now(self) -> dict[str, str]:
        with self._lock:
            return dict(self._now)
