"""What keeps one client, or a thousand, from costing more than was configured.

`RequestMemory` is the one budget for requests that are being received or checked. Below it
everybody reads freely, the rest of a large request in large pieces. Above it a connection that
holds part of a request may continue to read only as one of these:

- *small*: what its request still lacks fits into a reserve of a quarter of the budget, shared by
  all small ones. So ordinary requests proceed while large ones wait;
- *longest waiter*: one of `LONGEST_WAITERS`, of one when the budget is overrun, and of none while
  what overruns it is being checked, since that ends by itself. So there is always progress.

What the others send waits in the kernel's buffers, not in ours. `sweep` runs periodically and cuts
off those that may read and hardly receive anything, and waiting ones that have nothing in the
kernel either. So clients that announce requests and don't send them can't hold up those that do.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Protocol

#: What one read of a socket asks for: fewer, larger chunks make fewer, larger appends.
READ_BYTES = 128 * 1024

#: The most that one asks for while a request lacks more than that: Kafka's producers send up to a
#: megabyte in each, and a round of the reactor costs as much as moving 100 KB.
LARGE_READ_BYTES = 1024 * 1024

#: The same while the budget is used up.
OVER_BUDGET_READ_BYTES = 4 * 1024

#: A request that lacks no more than this counts as small.
SMALL_BYTES = 64 * 1024

#: How many large requests are received at a time while the budget is used up.
LONGEST_WAITERS = 32

#: What a longest waiter must at least receive between two sweeps.
LEAST_PROGRESS_BYTES = 256 * 1024

#: Everybody reads again when the total has fallen to this share of the limit.
_RELIEF = 0.75

#: Above this share of the limit only one of them reads.
_OVERRUN = 1.25


class BudgetedConnection(Protocol):
    def set_read_size(self, size_bytes: int) -> None: ...

    def hold_reading(self, held: bool) -> None:
        """Stop or allow reading on behalf of the budget."""

    def has_input(self) -> bool:
        """Whether bytes that it sent are waiting to be read."""

    def give_up(self, reason: str) -> None:
        """Close the connection, which forgets its part of a request."""


@dataclass(slots=True, eq=False)
class _MemoryUsage:
    allowed: bool
    held_bytes: int = 0
    missing_bytes: int = 0
    checking_bytes: int = 0
    small: bool = False
    reads_large: bool = False  # whether it was told to read more than `READ_BYTES` at a time
    mark: int | None = None  # what it held at the last sweep, if it was allowed then
    silent: bool = False  # whether it had nothing to read at the last sweep


class RequestMemory:
    """The budget for requests that have arrived in part, or are being checked."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.over_budget = False
        self._connections: set[BudgetedConnection] = set()
        self._usages: dict[
            BudgetedConnection, _MemoryUsage
        ] = {}  # insertion order is the order of waiting
        self._checking_bytes = 0  # held by requests that worker threads look at
        self._reserved_bytes = 0  # what small ones may still receive

    def add(self, connection: BudgetedConnection) -> None:
        self._connections.add(connection)
        self.measure(connection)

    def measure(self, connection: BudgetedConnection) -> None:
        connection.set_read_size(OVER_BUDGET_READ_BYTES if self.over_budget else READ_BYTES)

    def remove(self, connection: BudgetedConnection) -> None:
        self._connections.discard(connection)
        self.update(connection, 0, 0)

    def update(
        self,
        connection: BudgetedConnection,
        held_bytes: int,
        missing_bytes: int,
        checking_bytes: int = 0,
    ) -> None:
        """Note what a connection holds.

        Args:
            held_bytes: how many bytes it holds of requests that weren't carried out.
            missing_bytes: how many its incomplete request lacks; 0 when it lacks nothing.
            checking_bytes: how many of the held ones a worker thread checks now.
        """
        usage = self._usages.get(connection)
        if usage is None:
            if not held_bytes:
                return
            usage = self._usages[connection] = _MemoryUsage(allowed=not self.over_budget)
        elif (held_bytes, missing_bytes, checking_bytes) == (
            usage.held_bytes,
            usage.missing_bytes,
            usage.checking_bytes,
        ):
            return
        is_another = held_bytes < usage.held_bytes or not usage.missing_bytes
        self._count(usage, -1)
        usage.held_bytes, usage.missing_bytes = held_bytes, missing_bytes
        usage.checking_bytes = checking_bytes
        self._count(usage, 1)
        if not held_bytes:
            del self._usages[connection]
        if self.over_budget:
            self._while_over_budget(connection, usage, is_another)
        elif self.used_bytes > self.limit_bytes:
            self._go_over_budget()
        elif missing_bytes > READ_BYTES:
            usage.reads_large = True
            room = max(READ_BYTES, self.limit_bytes - self.used_bytes)
            connection.set_read_size(min(missing_bytes, LARGE_READ_BYTES, room))
        elif usage.reads_large:
            usage.reads_large = False
            connection.set_read_size(READ_BYTES)

    def sweep(self) -> None:
        """Cut off connections that don't use the room they take; call it every second or so."""
        if not self.over_budget:
            return
        for connection, usage in list(self._usages.items()):
            if connection not in self._usages or not usage.missing_bytes:
                continue
            if usage.allowed:
                self._sweep_allowed(connection, usage)
            else:
                silent = not connection.has_input()
                if silent and usage.silent:
                    self._give_up(connection)
                usage.silent = silent
        if self.over_budget:
            self._choose_longest_waiters()

    def _sweep_allowed(self, connection: BudgetedConnection, usage: _MemoryUsage) -> None:
        least = 1 if usage.small else LEAST_PROGRESS_BYTES
        if usage.mark is not None and usage.held_bytes - usage.mark < least:
            self._give_up(connection)
        usage.mark = usage.held_bytes

    def _give_up(self, connection: BudgetedConnection) -> None:
        connection.give_up(
            f"its request made no progress while request_memory={self.limit_bytes} bytes was used "
            "up and others waited"
        )

    def _count(self, usage: _MemoryUsage, sign: int) -> None:
        self.used_bytes += sign * usage.held_bytes
        self._checking_bytes += sign * usage.checking_bytes
        if usage.small:
            self._reserved_bytes += sign * usage.missing_bytes

    def _go_over_budget(self) -> None:
        self.over_budget = True
        for connection in list(self._connections):
            connection.set_read_size(OVER_BUDGET_READ_BYTES)
        for connection, usage in list(self._usages.items()):
            self._revoke(usage)
            self._admit_small(usage)
            self._hold(connection, usage)
        self._choose_longest_waiters()

    def _while_over_budget(
        self, connection: BudgetedConnection, usage: _MemoryUsage, is_another: bool
    ) -> None:
        """`is_another`: whether this is about another request than the call before."""
        if self.used_bytes <= self.limit_bytes * _RELIEF:
            self._return_within_budget()
            return
        is_another |= not usage.missing_bytes
        if is_another:
            self._revoke(usage)
            if usage.held_bytes:  # after all that wait
                self._usages[connection] = self._usages.pop(connection)
        if usage.missing_bytes and not usage.allowed:
            self._admit_small(usage)
        if is_another:
            self._choose_longest_waiters()
        self._hold(connection, usage)

    def _revoke(self, usage: _MemoryUsage) -> None:
        if usage.small:
            self._reserved_bytes -= usage.missing_bytes
        usage.allowed, usage.small, usage.mark, usage.silent = False, False, None, False

    def _return_within_budget(self) -> None:
        self.over_budget = False
        for usage in self._usages.values():
            usage.allowed, usage.small = True, False
        self._reserved_bytes = 0
        for connection in list(self._connections):
            connection.set_read_size(READ_BYTES)
            connection.hold_reading(False)

    def _admit_small(self, usage: _MemoryUsage) -> None:
        """Let a request that lacks little proceed, as long as the reserve lasts."""
        missing = usage.missing_bytes
        fits = self._reserved_bytes + missing <= self.limit_bytes / 4
        if 0 < missing <= SMALL_BYTES and fits:
            usage.allowed = usage.small = True
            self._reserved_bytes += missing

    def _choose_longest_waiters(self) -> None:
        overrun = self.used_bytes > self.limit_bytes * _OVERRUN
        places = LONGEST_WAITERS
        if overrun:
            places = 0 if self._checking_bytes else 1
        large = ((c, u) for c, u in self._usages.items() if u.missing_bytes and not u.small)
        for connection, usage in list(islice(large, LONGEST_WAITERS)):
            allowed, places = places > 0, places - 1
            if allowed is not usage.allowed:
                usage.allowed, usage.mark = allowed, None
                self._hold(connection, usage)

    def _hold(self, connection: BudgetedConnection, usage: _MemoryUsage) -> None:
        """Pause a connection that may not read; one that lacks nothing is left alone."""
        held = bool(usage.missing_bytes) and not usage.allowed
        if not held:
            connection.set_read_size(READ_BYTES if usage.allowed else OVER_BUDGET_READ_BYTES)
        connection.hold_reading(held)
