"""How fast passwords may be tried: by address and by user, without locking anybody out.

Each address may fail five times at once, and then once every ten seconds; before that it waits, and
beyond twenty it is refused without a look. A user that many addresses try is slower for all of
them, by two seconds at the most, but never refused: else anybody could lock somebody out. And an
address from which a user has come before counts as itself for that user, so that neither a stranger
nor a neighbour behind the same address keeps it out.

Nothing here tells whether a user exists: names that nobody has are counted like others.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

_FORGOTTEN_AFTER_SECONDS: Final = 10.0
_MOST_REMEMBERED: Final = 10_000

_FREE_TO_ADDRESSES: Final = 5
_MOST_OF_ADDRESSES: Final = 20
_SECONDS_OF_ADDRESSES: Final = 0.5
_MOST_SECONDS_OF_ADDRESSES: Final = 5.0

_FREE_TO_USERS: Final = 10
_MOST_OF_USERS: Final = 40
_SECONDS_OF_USERS: Final = 0.1
_MOST_SECONDS_OF_USERS: Final = 2.0


class Tries:
    """Counts failures, and says how long the next try has to wait. Threads may share it.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._by_address = _Failures(clock, _MOST_OF_ADDRESSES + 1)
        self._by_user = _Failures(clock, _MOST_OF_USERS)
        # Addresses from which users have come, the last at the end.
        self._known: OrderedDict[str, None] = OrderedDict()

    def begin(self, address: str, user: str) -> float | None:
        """Begin a try, which counts as failed until it has succeeded.

        Args:
            address: where it comes from: an IP address, or anything else.
            user: whom it is about.

        Returns:
            How many seconds to wait before the password is looked at; None to refuse it without a
            look, because there were far too many.
        """
        client = client_of(address)
        pair = _pair(client, user)
        with self._lock:
            is_known = pair in self._known
            failed = self._by_address.count(pair if is_known else client)
            if failed >= _MOST_OF_ADDRESSES:
                return None
            wait = _wait(
                failed - _FREE_TO_ADDRESSES, _SECONDS_OF_ADDRESSES, _MOST_SECONDS_OF_ADDRESSES
            )
            self._by_address.add(pair if is_known else client)
            if not is_known:
                of_user = self._by_user.count(user) - _FREE_TO_USERS
                wait = max(wait, _wait(of_user, _SECONDS_OF_USERS, _MOST_SECONDS_OF_USERS))
                self._by_user.add(user)
            return wait

    def succeeded(self, address: str, user: str) -> None:
        """A try that was begun has succeeded: it doesn't count, and they are known from there."""
        client = client_of(address)
        pair = _pair(client, user)
        with self._lock:
            if pair in self._known:
                self._by_address.take_back(pair)
            else:
                self._by_address.take_back(client)
                self._by_user.take_back(user)
            self._known[pair] = None
            self._known.move_to_end(pair)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)


class _Failures:
    """Failures by key, forgotten bit by bit; the keys that have failed least recently first."""

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self._clock = clock
        self._most = most
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, key: str) -> float:
        """How many count now."""
        count, at = self._counts.get(key, (0.0, 0.0))
        return max(0.0, count - (self._clock() - at) / _FORGOTTEN_AFTER_SECONDS)

    def add(self, key: str) -> None:
        """One more."""
        self._counts[key] = min(self.count(key) + 1, self._most), self._clock()
        self._counts.move_to_end(key)
        if len(self._counts) > _MOST_REMEMBERED:
            self._counts.popitem(last=False)

    def take_back(self, key: str) -> None:
        """One less."""
        left = self.count(key) - 1
        if left > 0:
            self._counts[key] = left, self._clock()
        else:
            self._counts.pop(key, None)


def client_of(address: str) -> str:
    """Who has an address: of IPv6 any host may take billions that begin with the same 64 bits."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or found.packed[:8].hex())


def _pair(client: str, user: str) -> str:
    return f"{client} {user}"  # no address and no name holds a space


def _wait(excess: float, seconds: float, most: float) -> float:
    return min(max(0.0, excess + 1) * seconds, most) if excess >= 0 else 0.0
