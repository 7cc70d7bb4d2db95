"""Fetches that wait until there is enough to respond with.

A waiting fetch is answered when its partitions together hold `min_bytes` after the offsets it
asks for, when one of its fetches is an error, or after `max_wait_ms` with whatever there is. It
costs nothing while it waits: a commit looks at its partition alone.

There may be twenty thousand of them with a thousand partitions each. So each is kept as bytes and
arrays of numbers, all share a budget, beyond which the oldest are answered early, those that wait
for many partitions first, and whatever is done for very many of them takes turns.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.protocol import FetchRequest, decode_request
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler, cooperatively
from hermes.server.outcomes import then
from hermes.storage import Log

#: A fetch waits no longer than this: a peer that has gone may only be noticed afterwards.
MAX_WAIT_MS = 5 * 60 * 1000

#: A fetch that waits for more partitions than this is answered early before others are.
WIDE_FETCHES = 64

#: About what a waiting fetch holds in memory, and each of its partitions in addition to its bytes.
_WAITER_BYTES = 2048
_PARTITION_BYTES = 160

# Keys of very many partitions are put in order bucket by bucket, by their first bits.
_BUCKETS = 1024
_BUCKET_SHIFT = sys.hash_info.width - 10

#: What an encoded request begins with, and decoding does without.
_SIZE_BYTES = 4


#: How many bytes there are for a fetch now; None when its response is an error.
Count: TypeAlias = Callable[[FetchRequest], int | None]

#: Gives back what was kept of a request encoded.
Decode: TypeAlias = Callable[[bytes], Any]


class Waitable(Protocol):
    """What a fetch waits for: a `WaitingFetchRequest`, or another protocol's like it.

    Attributes:
        fetches: of each partition from where on, and how much at most.
        min_bytes: how much is enough.
    """

    @property
    def fetches(self) -> Sequence[FetchRequest]: ...

    @property
    def min_bytes(self) -> int: ...

    @property
    def max_wait_ms(self) -> int: ...

    def encode(self) -> bytes:
        """What is kept of it, after a size."""


class _Waiter:
    """The arrays are in the order of the keys."""

    __slots__ = (
        "answered",
        "available",
        "count",
        "decode",
        "keys",
        "lacking_bytes",
        "max_sizes",
        "offsets",
        "request",
        "size_bytes",
        "timer",
    )

    def __init__(self, request: Waitable, count: Count, decode: Decode) -> None:
        self.request = request.encode()[_SIZE_BYTES:]
        self.count, self.decode = count, decode
        self.keys, self.offsets = array("q"), array("q")
        self.max_sizes, self.available = array("i"), array("q")
        self.lacking_bytes = request.min_bytes
        self.size_bytes = (
            _WAITER_BYTES + len(self.request) + _PARTITION_BYTES * len(request.fetches)
        )
        self.answered: Deferred[Any] = Deferred()
        self.timer: Any = None

    def add(self, key: int, fetch: FetchRequest, available: int) -> None:
        self.keys.append(key)
        self.offsets.append(fetch.offset)
        self.max_sizes.append(fetch.max_size)
        self.available.append(available)
        self.lacking_bytes -= available


class WaitingFetches:
    """All fetches that wait at one broker; lives in the reactor's thread.

    Attributes:
        limit_bytes: what they may hold together; beyond it the oldest are answered early.
        used_bytes: what they do hold, about.
    """

    def __init__(
        self,
        clock: IReactorTime,
        scheduler: FairScheduler,
        limit_bytes: int = 0,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._clock = clock
        self._scheduler = scheduler
        # By the hash of a partition: the fetch or fetches that wait for it.
        self._by_key: dict[int, _Waiter | set[_Waiter]] = {}
        self._narrow: dict[_Waiter, None] = {}  # oldest first
        self._wide: dict[_Waiter, None] = {}
        self._recounting: dict[tuple[str, int], bool] = {}  # True: it has changed meanwhile
        self._early: list[_Waiter] = []  # no longer wait, and are answered in the next round
        self._stopping = False

    def wait(
        self, request: Waitable, count: Count, decode: Decode = decode_request
    ) -> "Deferred[Any] | None":
        """Wait until a request can be answered, or its time is up.

        Args:
            count: how many bytes there are for a fetch now; None when its response is an error.
            decode: gives back what was kept encoded.

        Returns:
            None when it is to be answered now; else a Deferred that fires with the request when it
            is time to respond. Cancel it when the connection is lost.
        """
        if request.max_wait_ms <= 0 or self._stopping:
            return None
        if len(request.fetches) > QUANTUM_ENTRIES:
            return self._wait_for_many(_Waiter(request, count, decode), request)
        available = []
        for fetch in request.fetches:
            found = count(fetch)
            if found is None:
                return None
            available.append(found)
        if sum(available) >= request.min_bytes:
            return None
        waiter = _Waiter(request, count, decode)
        keys = [_key(fetch.topic, fetch.partition) for fetch in request.fetches]
        for place in sorted(range(len(keys)), key=keys.__getitem__):
            waiter.add(keys[place], request.fetches[place], available[place])
            self._listen(waiter, keys[place])
        self._hold(waiter, request)
        return waiter.answered

    def _wait_for_many(self, waiter: _Waiter, request: Waitable) -> "Deferred[Any] | None":
        """Wait for so many partitions that everything that is done for each of them takes turns.

        It hears of each one before that is looked at, so that it misses nothing in between.
        """
        if request.min_bytes <= 0:
            return None
        self._hold(waiter, request)
        # Keys are hashes, so these are about as large as each other; in order, all of them are.
        buckets: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]

        def put(place: int) -> None:
            fetch = request.fetches[place]
            key = _key(fetch.topic, fetch.partition)
            buckets[(key >> _BUCKET_SHIFT) + _BUCKETS // 2].append((key, place))

        in_order: list[FetchRequest] = []

        def add(bucket: list[tuple[int, int]]) -> None:
            for key, place in sorted(bucket):
                in_order.append(request.fetches[place])
                waiter.add(key, in_order[-1], 0)

        def look(place: int) -> None:
            if not self._waits(waiter):
                return
            self._listen(waiter, waiter.keys[place])
            found = waiter.count(in_order[place])
            if found is not None:
                waiter.lacking_bytes -= found - waiter.available[place]
                waiter.available[place] = found
            if found is None or waiter.lacking_bytes <= 0:
                self._wake(waiter)

        places, take_turns = range(len(request.fetches)), partial(cooperatively, self._scheduler)
        added = then(take_turns(places, put), lambda _: take_turns(buckets, add))
        then(added, lambda _: take_turns(places, look))
        return waiter.answered

    def __len__(self) -> int:
        return len(self._narrow) + len(self._wide)

    def committed(self, log: Log) -> None:
        if self._by_key:
            self.changed(log.topic, log.partition)

    def changed(self, topic: str, partition: int) -> None:
        """A partition was committed, created or deleted: wake those that it satisfies."""
        key = _key(topic, partition)
        found = self._by_key.get(key)
        if found is None:
            return
        if (topic, partition) in self._recounting:
            self._recounting[topic, partition] = True
            return
        waiters = list(found) if isinstance(found, set) else [found]
        recounted = cooperatively(
            self._scheduler, waiters, lambda waiter: self._recount(waiter, key, topic, partition)
        )
        if isinstance(recounted, Deferred):
            self._recounting[topic, partition] = False
            recounted.addCallback(lambda _: self._recounted(topic, partition))

    def wake_all(self) -> None:
        self._stopping = True
        for waiter in [*self._narrow, *self._wide]:
            self._wake(waiter)

    def _recount(self, waiter: _Waiter, key: int, topic: str, partition: int) -> None:
        """Count again what a waiter has from one partition; wake it when that is enough."""
        keys = waiter.keys
        n = bisect_left(keys, key)
        while n < len(keys) and keys[n] == key:
            fetch = FetchRequest(topic, partition, waiter.offsets[n], waiter.max_sizes[n])
            found = waiter.count(fetch)
            if found is None:
                self._wake(waiter)
                return
            waiter.lacking_bytes -= found - waiter.available[n]
            waiter.available[n] = found
            n += 1
        if waiter.lacking_bytes <= 0:
            self._wake(waiter)

    def _recounted(self, topic: str, partition: int) -> None:
        if self._recounting.pop((topic, partition)):
            self.changed(topic, partition)

    def _make_room(self) -> None:
        while self.used_bytes > self.limit_bytes:
            waiter = next(chain(self._wide, self._narrow))
            self._drop(waiter)
            # Not at once: its connection may have a next one, which makes room for itself.
            if not self._early:
                self._clock.callLater(0, self._answer_early)
            self._early.append(waiter)

    def _answer_early(self) -> None:
        waiters, self._early = self._early, []
        cooperatively(self._scheduler, waiters, self._wake)

    def _wake(self, waiter: _Waiter) -> None:
        self._drop(waiter)
        if not waiter.answered.called:
            waiter.answered.callback(waiter.decode(waiter.request))

    def _hold(self, waiter: _Waiter, request: Waitable) -> None:
        waiter.answered = Deferred(lambda _: self._drop(waiter))
        wide = len(request.fetches) > WIDE_FETCHES
        (self._wide if wide else self._narrow)[waiter] = None
        self.used_bytes += waiter.size_bytes
        waiter.timer = self._clock.callLater(request.max_wait_ms / 1000, self._wake, waiter)
        self._make_room()

    def _waits(self, waiter: _Waiter) -> bool:
        return waiter in self._wide or waiter in self._narrow

    def _listen(self, waiter: _Waiter, key: int) -> None:
        others = self._by_key.setdefault(key, waiter)
        if isinstance(others, set):
            others.add(waiter)
        elif others is not waiter:
            self._by_key[key] = {others, waiter}

    def _forget(self, waiter: _Waiter, key: int) -> None:
        others = self._by_key.get(key)
        if isinstance(others, set):
            others.discard(waiter)
            if len(others) == 1:
                self._by_key[key] = others.pop()
        elif others is waiter:
            del self._by_key[key]

    def _drop(self, waiter: _Waiter) -> None:
        """Have a waiter wait no longer; again is harmless."""
        waiters = self._wide if waiter in self._wide else self._narrow
        if waiters.pop(waiter, self) is self:
            return
        if waiter.timer is not None and waiter.timer.active():
            waiter.timer.cancel()
        self.used_bytes -= waiter.size_bytes
        if len(waiter.keys) <= QUANTUM_ENTRIES:
            for key in set(waiter.keys):
                self._forget(waiter, key)
        else:
            cooperatively(self._scheduler, waiter.keys, lambda key: self._forget(waiter, key))


def _key(topic: str, partition: int) -> int:
    """A partition by its hash, which is keyed by a secret of the process: as good as unique."""
    return hash((topic, partition))
