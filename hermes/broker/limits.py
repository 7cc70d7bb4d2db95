"""What keeps one client, or a thousand, from costing more than was configured.

`RequestMemory` is the one budget for requests that are being received or checked. Below it
everybody reads freely. Above it ("tight") a connection that holds a part of a request may read on
only as one of these:

- *small*: what its request still lacks fits into a reserve of a quarter of the budget, shared by
  all small ones. So ordinary requests go on while large ones wait;
- *elder*: among those that have waited longest. There are `ELDERS` of them, one when the budget is
  overrun, and none while what overruns it is being checked, since that ends by itself. So there
  is always progress.

What the others send waits in the kernel's buffers, not in ours. `look` runs regularly and gives up
on whom it finds wanting: an elder or a small one that hardly moves although it may read, and a
waiting one that has nothing in the kernel either. So clients that claim requests and don't send
them can't hold up those that do.
"""

from itertools import islice
from typing import Protocol

__all__ = [
    "ELDERS",
    "LEAST_PROGRESS_BYTES",
    "READ_BYTES",
    "SMALL_BYTES",
    "TIGHT_READ_BYTES",
    "Reader",
    "RequestMemory",
]

#: What one read of a socket asks for: fewer, larger chunks make fewer, larger appends.
READ_BYTES = 128 * 1024

#: The same while the budget is used up.
TIGHT_READ_BYTES = 4 * 1024

#: A request that lacks no more than this counts as small.
SMALL_BYTES = 64 * 1024

#: How many large requests are received at a time while the budget is used up.
ELDERS = 32

#: What an elder must at least receive between two looks.
LEAST_PROGRESS_BYTES = 256 * 1024

#: Reading goes on for everybody when the total has fallen to this share of the limit.
_RELIEF = 0.75

#: Above this share of the limit only one elder reads.
_OVERRUN = 1.25


class Reader(Protocol):
    """A connection, as the budget sees it."""

    def set_read_size(self, size_bytes: int) -> None:
        """Ask for this many bytes with each read from now on."""

    def hold_reading(self, held: bool) -> None:
        """Stop or allow reading on behalf of the budget."""

    def has_input(self) -> bool:
        """Whether bytes that it sent are waiting to be read."""

    def give_up(self, reason: str) -> None:
        """Close the connection, which forgets its part of a request."""


class _Part:
    """What one connection holds."""

    __slots__ = (
        "allowed",
        "checking_bytes",
        "held_bytes",
        "mark",
        "missing_bytes",
        "silent",
        "small",
    )

    def __init__(self, allowed: bool) -> None:
        self.held_bytes = 0
        self.missing_bytes = 0
        self.checking_bytes = 0
        self.allowed = allowed
        self.small = False
        self.mark: int | None = None  # what it held at the last look, if it was allowed then
        self.silent = False  # whether it had nothing to read at the last look


class RequestMemory:
    """The budget for requests that have arrived in part, or are being checked.

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
        self._parts: dict[Reader, _Part] = {}  # insertion order is the order of waiting
        self._checking_bytes = 0  # held by requests that worker threads look at
        self._reserved_bytes = 0  # what small ones may still receive

    def add(self, reader: Reader) -> None:
        """A connection was made."""
        self._readers.add(reader)
        reader.set_read_size(TIGHT_READ_BYTES if self.tight else READ_BYTES)

    def remove(self, reader: Reader) -> None:
        """A connection is gone, with whatever it held."""
        self._readers.discard(reader)
        self.update(reader, 0, 0)

    def update(
        self, reader: Reader, held_bytes: int, missing_bytes: int, checking_bytes: int = 0
    ) -> None:
        """Note what a connection holds.

        Args:
            reader: the connection.
            held_bytes: how many bytes it holds of requests that weren't carried out.
            missing_bytes: how many its incomplete request lacks; 0 when it lacks nothing.
            checking_bytes: how many of the held ones a worker thread looks at now.
        """
        part = self._parts.get(reader)
        if part is None:
            if not held_bytes:
                return
            part = self._parts[reader] = _Part(allowed=not self.tight)
        elif (held_bytes, missing_bytes, checking_bytes) == (
            part.held_bytes,
            part.missing_bytes,
            part.checking_bytes,
        ):
            return
        has_finished_one = held_bytes < part.held_bytes
        self._settle(part, -1)
        part.held_bytes, part.missing_bytes = held_bytes, missing_bytes
        part.checking_bytes = checking_bytes
        self._settle(part, 1)
        if not held_bytes:
            del self._parts[reader]
        if self.tight:
            self._while_tight(reader, part, has_finished_one)
        elif self.used_bytes > self.limit_bytes:
            self._become_tight()

    def look(self) -> None:
        """Give up on who doesn't use the room that it takes; call it every few seconds."""
        if not self.tight:
            return
        for reader, part in list(self._parts.items()):
            if reader not in self._parts or not part.missing_bytes:
                continue
            if part.allowed:
                self._look_at_allowed(reader, part)
            else:
                silent = not reader.has_input()
                if silent and part.silent:
                    self._give_up(reader)
                part.silent = silent
        if self.tight:
            self._choose_elders()

    def _look_at_allowed(self, reader: Reader, part: _Part) -> None:
        least = 1 if part.small else LEAST_PROGRESS_BYTES
        if part.mark is not None and part.held_bytes - part.mark < least:
            self._give_up(reader)
        part.mark = part.held_bytes

    def _give_up(self, reader: Reader) -> None:
        reader.give_up(
            f"its request made no progress while request_memory={self.limit_bytes} bytes was used "
            "up and others waited"
        )

    def _settle(self, part: _Part, sign: int) -> None:
        """Add a part to the sums, or take it out."""
        self.used_bytes += sign * part.held_bytes
        self._checking_bytes += sign * part.checking_bytes
        if part.small:
            self._reserved_bytes += sign * part.missing_bytes

    def _become_tight(self) -> None:
        self.tight = True
        for reader in list(self._readers):
            reader.set_read_size(TIGHT_READ_BYTES)
        for reader, part in list(self._parts.items()):
            self._dismiss(part)
            self._admit_small(part)
            self._hold(reader, part)
        self._choose_elders()

    def _while_tight(self, reader: Reader, part: _Part, has_finished_one: bool) -> None:
        if self.used_bytes <= self.limit_bytes * _RELIEF:
            self._relieve()
            return
        if has_finished_one or not part.missing_bytes:
            self._dismiss(part)
            if part.held_bytes:  # behind all who wait
                self._parts[reader] = self._parts.pop(reader)
            self._choose_elders()
        if part.missing_bytes and not part.allowed:
            self._admit_small(part)
        self._hold(reader, part)

    def _dismiss(self, part: _Part) -> None:
        """Take back the permission to read on."""
        if part.small:
            self._reserved_bytes -= part.missing_bytes
        part.allowed, part.small, part.mark, part.silent = False, False, None, False

    def _relieve(self) -> None:
        self.tight = False
        for part in self._parts.values():
            part.allowed, part.small = True, False
        self._reserved_bytes = 0
        for reader in list(self._readers):
            reader.set_read_size(READ_BYTES)
            reader.hold_reading(False)

    def _admit_small(self, part: _Part) -> None:
        """Let a request go on that lacks little, as long as the reserve lasts."""
        missing = part.missing_bytes
        fits = self._reserved_bytes + missing <= self.limit_bytes / 4
        if 0 < missing <= SMALL_BYTES and fits:
            part.allowed = part.small = True
            self._reserved_bytes += missing

    def _choose_elders(self) -> None:
        """Let those read that have waited longest."""
        overrun = self.used_bytes > self.limit_bytes * _OVERRUN
        places = ELDERS
        if overrun:
            places = 0 if self._checking_bytes else 1
        large = ((r, p) for r, p in self._parts.items() if p.missing_bytes and not p.small)
        for reader, part in list(islice(large, ELDERS)):
            allowed, places = places > 0, places - 1
            if allowed is not part.allowed:
                part.allowed, part.mark = allowed, None
                self._hold(reader, part)

    def _hold(self, reader: Reader, part: _Part) -> None:
        """Hold who may not read; one that lacks nothing is none of the budget's concern."""
        held = bool(part.missing_bytes) and not part.allowed
        if not held:
            reader.set_read_size(READ_BYTES if part.allowed else TIGHT_READ_BYTES)
        reader.hold_reading(held)
