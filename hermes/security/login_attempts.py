"""Limits password attempts, by address and by user, without locking anybody out.

Failures are counted in three ways, each decaying:

    a user from an address   five at once, then each waits longer; from twenty on they are refused
                             unchecked, but for one in ten seconds
    an address               the same for all users together, from twenty and sixty on, but for one
                             in two seconds: as many as a few programs make that go on trying with
                             an old password, and much less than guessing takes
    a user                   from anywhere: after ten each waits, two seconds at the most. It is
                             never refused: else anybody could lock somebody out

Where a user has logged in before, only the first of them counts: neither strangers nor neighbours
behind the same address slow the user down there.

Nothing here tells whether a user exists: unknown names are counted like others.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from hermes.security.principals import is_user_name

_MOST_REMEMBERED: Final = 10_000


class _Rule(NamedTuple):
    """How failures of one kind count.

    Attributes:
        free: so many cost nothing.
        step_seconds: how much longer each further one waits.
        most_seconds: the longest wait: less than clients wait for a connection.
        refused: from so many on they are refused; None for never.
        forgotten_seconds: how long until one is forgotten.
    """

    free: int
    step_seconds: float
    most_seconds: float
    refused: int | None
    forgotten_seconds: float


_PAIR: Final = _Rule(5, 0.5, 3.0, 20, 10.0)
_ADDRESS: Final = _Rule(20, 0.25, 3.0, 60, 2.0)
_USER: Final = _Rule(10, 0.1, 2.0, None, 10.0)

#: Of what is never refused: so that it ends some time after an attack has.
_MOST_COUNTED: Final = 40


class LoginAttempts:
    """Counts failures, and makes the next attempt wait. Thread-safe. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._by_pair = _Failures(clock, _PAIR)
        self._by_address = _Failures(clock, _ADDRESS)
        self._by_user = _Failures(clock, _USER)
        # Users with the addresses that they have come from, the last at the end.
        self._known: OrderedDict[str, None] = OrderedDict()

    def begin(self, address: str, user: str) -> float | None:
        """Begin an attempt, which counts as failed until it has succeeded.

        Args:
            address: an IP address, or anything else.

        Returns:
            How many seconds to wait before the password is checked; None to refuse it unchecked,
            because there were far too many.
        """
        client = client_of(address)
        with self._lock:
            counted = self._counted(client, user)
            waits = [failures.wait(key) for failures, key in counted]
            if None in waits:
                return None  # which isn't counted: it was no guess
            for failures, key in counted:
                failures.add(key)
            return max(wait for wait in waits if wait is not None)

    def succeeded(self, address: str, user: str) -> None:
        """An attempt has succeeded: it doesn't count, and the user is known from there."""
        client = client_of(address)
        with self._lock:
            for failures, key in self._counted(client, user):
                failures.remove(key)
            pair = _pair(client, user)  # of a user that there is
            self._known[pair] = None
            self._known.move_to_end(pair)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)

    def _counted(self, client: str, user: str) -> "list[tuple[_Failures, str]]":
        """Where an attempt counts; all names that no user can have count as one."""
        user = user if is_user_name(user) else ""
        pair = _pair(client, user)
        of_pair = (self._by_pair, pair)
        if pair in self._known:
            return [of_pair]
        return [of_pair, (self._by_address, client), (self._by_user, user)]


class _Failures:
    """Failures by key; the keys that have failed least recently go first."""

    def __init__(self, clock: Callable[[], float], rule: _Rule) -> None:
        self._clock = clock
        self._rule = rule
        self._most = _MOST_COUNTED if rule.refused is None else rule.refused + 1
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def wait(self, key: str) -> float | None:
        """How long the next one waits; None if it is refused."""
        count, rule = self._count(key), self._rule
        if rule.refused is not None and count >= rule.refused:
            return None
        if count < rule.free:
            return 0.0
        return min((count - rule.free + 1) * rule.step_seconds, rule.most_seconds)

    def add(self, key: str) -> None:
        self._counts[key] = min(self._count(key) + 1, self._most), self._clock()
        self._counts.move_to_end(key)
        if len(self._counts) > _MOST_REMEMBERED:
            self._counts.popitem(last=False)

    def remove(self, key: str) -> None:
        left = self._count(key) - 1
        if left > 0:
            self._counts[key] = left, self._clock()
        else:
            self._counts.pop(key, None)

    def _count(self, key: str) -> float:
        count, at = self._counts.get(key, (0.0, 0.0))
        return max(0.0, count - (self._clock() - at) / self._rule.forgotten_seconds)


def client_of(address: str) -> str:
    """Who has an address. Any host can use all IPv6 addresses with its 64-bit prefix."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or found.packed[:8].hex())


def _pair(client: str, user: str) -> str:
    return f"{client} {user}"  # no address and no name holds a space
