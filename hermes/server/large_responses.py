"""Large responses: made one at a time, counted until their peer has read them.

A few bytes can ask for megabytes: everything about every topic, or the responses to 32,767 fetches.
So requests whose response may be large are served one after the other; while more than a limit is
on its way to readers, none is made; and `sweep`, which runs periodically, then cuts off peers that
don't read. Ordinary requests and their responses know nothing of this.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from hermes.server.turns import Turns

#: A response that holds less memory than this is not counted.
COUNTED_BYTES = 16 * 1024

#: What a peer must at least read of its response between two sweeps, while others wait for room.
LEAST_READ_BYTES = 64 * 1024


class ResponseReader(Protocol):
    def response_progress(self) -> int:
        """How many bytes of the response under way have left."""

    def give_up(self, reason: str) -> None:
        """Close the connection, which drops its response."""


@dataclass(slots=True)
class _Held:
    size_bytes: int
    mark: int | None = None  # how much had left at the last sweep


class LargeResponses:
    """The large responses of one broker; lives in the reactor's thread.

    None is made while those under way hold more than `limit_bytes`.

    Attributes:
        compute: calls what calls a function in a worker thread, for what `make` makes. Who leaves
            meanwhile stops no thread, and has `make` go on: so the next call waits here.
    """

    def __init__(self, limit_bytes: int, clock: IReactorTime) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._clock = clock
        self._held: dict[ResponseReader, _Held] = {}
        self._queue: deque[Deferred[None]] = deque()
        self._making = False
        self.compute = Turns(1).run

    def make(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function that makes a response, when no other is made and there is room.

        Returns a cancellable Deferred of its result; the next one is made after that.
        """
        allowed: Deferred[None] = Deferred(self._queue.remove)
        self._queue.append(allowed)
        made = allowed.addCallback(lambda _: maybeDeferred(function, *args).addBoth(self._made))
        self._next()
        return made

    def hold(self, reader: ResponseReader, size_bytes: int) -> None:
        """Count a response that could not leave at once, if it is large."""
        if size_bytes >= COUNTED_BYTES:
            self.release(reader)
            self._held[reader] = _Held(size_bytes)
            self.used_bytes += size_bytes

    def release(self, reader: ResponseReader) -> None:
        held = self._held.pop(reader, None)
        if held is not None:
            self.used_bytes -= held.size_bytes
            self._next()

    def sweep(self) -> None:
        """Cut off peers that don't read while others wait; call it every second or so."""
        if not self._queue or self.used_bytes <= self.limit_bytes:
            for held in self._held.values():
                held.mark = None
            return
        for reader, held in list(self._held.items()):
            progress = reader.response_progress()
            if held.mark is not None and progress - held.mark < LEAST_READ_BYTES:
                reader.give_up(
                    f"it did not read its response of {held.size_bytes} bytes while others waited"
                )
            held.mark = progress

    def _next(self) -> None:
        if self._queue and not self._making and self.used_bytes <= self.limit_bytes:
            self._making = True
            self._queue.popleft().callback(None)

    def _made(self, result: Any) -> Any:
        # Not at once: the response has yet to reach its connection, which counts it.
        self._clock.callLater(0, self._made_and_counted)
        return result

    def _made_and_counted(self) -> None:
        self._making = False
        self._next()
