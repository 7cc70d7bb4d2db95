"""What keeps one client, or a thousand, from costing more than was configured.

`RequestMemory` is the one budget for all requests that are being received. Below it everybody
reads freely. Above it ("tight") a connection that holds part of a request stops reading, save
the one that has waited longest (the elder), which may finish: so there is always progress, and
what the others send waits in the kernel's buffers, not in ours. Small requests that arrive whole
go on meanwhile, in small reads. An elder that sends nothing is given up by `evict_stalled`, or
clients that only claim large requests would hold up those that send theirs.
"""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["READ_BYTES", "TIGHT_READ_BYTES", "RateLimit", "Reader", "RequestMemory"]

#: What one read of a socket asks for: fewer, larger chunks make fewer, larger appends.
READ_BYTES = 128 * 1024

#: The same while the budget is used up.
TIGHT_READ_BYTES = 4 * 1024

#: Reading goes on for everybody when the total has fallen to this share of the limit.
_RELIEF = 0.75


class Reader(Protocol):
    """A connection, as the budget sees it."""

    def set_read_size(self, size_bytes: int) -> None:
        """Ask for this many bytes with each read from now on."""

    def hold_reading(self, held: bool) -> None:
        """Stop or allow reading on behalf of the budget."""

    def give_up(self, reason: str) -> None:
        """Close the connection, which forgets its part of a request."""


class RequestMemory:
    """The budget for the memory of requests that have arrived in part.

    Attributes:
        limit_bytes: the budget.
        used_bytes: what is held now, over all connections.
        tight: whether the budget is used up.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.tight = False
        self._readers: set[Reader] = set()
        self._held: dict[Reader, int] = {}  # insertion order is the order of waiting
        self._elder_mark: tuple[Reader, int] | None = None

    def add(self, reader: Reader) -> None:
        """A connection was made."""
        self._readers.add(reader)
        reader.set_read_size(TIGHT_READ_BYTES if self.tight else READ_BYTES)

    def remove(self, reader: Reader) -> None:
        """A connection is gone, with whatever it held."""
        self._readers.discard(reader)
        self.update(reader, 0)

    def update(self, reader: Reader, partial_bytes: int) -> None:
        """Note what a connection holds of a request that hasn't arrived whole.

        Args:
            reader: the connection.
            partial_bytes: how much it holds; 0 when nothing is missing.
        """
        before = self._held.get(reader, 0)
        if partial_bytes == before:
            return
        if partial_bytes:
            self._held[reader] = partial_bytes
        else:
            del self._held[reader]
        self.used_bytes += partial_bytes - before
        if self.tight:
            self._while_tight(reader)
        elif self.used_bytes > self.limit_bytes:
            self._become_tight()

    def evict_stalled(self) -> None:
        """Close the elder when nothing of it has arrived since the last call; call it regularly."""
        if not self.tight or not self._held:
            self._elder_mark = None
            return
        elder = next(iter(self._held))
        mark = (elder, self._held[elder])
        if self._elder_mark == mark:
            self._elder_mark = None
            elder.give_up(
                f"its request made no progress while request_memory={self.limit_bytes} bytes was "
                "used up and others waited"
            )
        else:
            self._elder_mark = mark

    def _become_tight(self) -> None:
        self.tight = True
        for reader in self._readers:
            reader.set_read_size(TIGHT_READ_BYTES)
        elder = next(iter(self._held))
        for reader in self._held:
            reader.hold_reading(reader is not elder)

    def _while_tight(self, reader: Reader) -> None:
        if self.used_bytes <= self.limit_bytes * _RELIEF:
            self.tight = False
            self._elder_mark = None
            for other in list(self._readers):
                other.set_read_size(READ_BYTES)
                other.hold_reading(False)
            return
        elder = next(iter(self._held))
        elder.set_read_size(READ_BYTES)
        elder.hold_reading(False)
        if reader is not elder:
            reader.hold_reading(reader in self._held)


class RateLimit:
    """Lets through a few events per period and counts the rest; for log lines that a peer causes.

    Each kind of event has an allowance of its own, so that a noisy kind can't hide another.
    """

    def __init__(
        self, seconds: Callable[[], float], allowed: int = 5, period: float = 10.0
    ) -> None:
        """Args: seconds: a monotonic clock; allowed: events of a kind per `period` seconds."""
        self._seconds = seconds
        self._allowed = allowed
        self._period = period
        self._kinds: dict[Any, list[float]] = {}  # kind -> [period start, let through, suppressed]

    def allow(self, kind: str) -> int | None:
        """Say whether an event may be logged.

        Returns:
            None when it may not; else how many of its kind were suppressed since the last one.
        """
        now = self._seconds()
        state = self._kinds.setdefault(kind, [now, 0, 0])
        if now - state[0] >= self._period:
            state[0], state[1] = now, 0
        if state[1] >= self._allowed:
            state[2] += 1
            return None
        state[1] += 1
        suppressed, state[2] = int(state[2]), 0
        return suppressed
