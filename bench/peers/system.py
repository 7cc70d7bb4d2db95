"""What the figures need of a system, and the meter that turns its work into a curve."""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from bench.support.load import MESSAGE_BYTES

__all__ = ["Meter", "NotInstalled", "Point", "System", "free_port"]

_MEGABYTE = 1e6
_WINDOWS = 20


class NotInstalled(Exception):  # noqa: N818 - it is an answer, not a fault
    """A peer can't be measured here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve.

    Attributes:
        megabytes: payload sent or consumed so far.
        messages_per_second: the throughput since the point before.
    """

    megabytes: float
    messages_per_second: float


class Meter:
    """Notes the time whenever another twentieth of the messages is through.

    Attributes:
        messages: how many there will be.
        points: the curve so far.
    """

    def __init__(self, messages: int) -> None:
        """Args: messages: how many there will be; the clock starts now."""
        self.messages = messages
        self.points: list[Point] = []
        self._window = max(1, messages // _WINDOWS)
        self._done = self._noted = 0
        self._started = self._last = time.perf_counter()

    @property
    def average(self) -> float:
        """Messages per second, over all that were noted."""
        return self._noted / (self._last - self._started)

    def advance(self, count: int) -> None:
        """Count messages that are through."""
        self._done += count
        if self._done - self._noted >= self._window and self._done < self.messages:
            self._note()

    def finish(self) -> None:
        """Everything is through, as far as the broker has said."""
        self._note()

    def _note(self) -> None:
        now = time.perf_counter()
        rate = (self._done - self._noted) / (now - self._last)
        self.points.append(Point(self._done * MESSAGE_BYTES / _MEGABYTE, rate))
        self._noted, self._last = self._done, now


class System(Protocol):
    """A running broker with a client of its own."""

    def publish(self, meter: Meter, batch: int) -> None:
        """Publish `meter.messages` messages, unacknowledged, and see that they arrived.

        Args:
            meter: is told of every batch sent, and finished when all have arrived.
            batch: messages per request, where the system has such a thing.
        """

    def consume(self, meter: Meter) -> None:
        """Consume `meter.messages` messages that were published before."""


def free_port() -> int:
    """Find a port that is free now, for servers that can't choose one and tell."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
