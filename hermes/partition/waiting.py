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
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.logs import ModuleLogger
from hermes.partition.deadlines import Deadlines
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler, cooperatively
from hermes.server.outcomes import DeferredResponse, then
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


class Place(Protocol):
    """What is waited for of a partition: from where on, and how much at most."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def max_size(self) -> int: ...


class Listener(Protocol):
    """Who is told of changes of a partition.

    `is_waiting`: whether it still wants to be, where many are told in turns.
    """

    @property
    def is_waiting(self) -> bool: ...

    def changed(self, key: int, topic: str, partition: int) -> None:
        """A partition has changed."""


class Waiter(DeferredResponse):
    """One fetch that waits, and its response: it is woken when there is enough to respond with.

    Attributes:
        keys: its partitions, by their keys.
        size_bytes: about what it holds in memory.
        is_waiting: whether it waits, in `waiting`.
        is_cancelled: whether nobody wants to hear of it.
        deadline, among: see `Deadlines`.
    """

    __slots__ = (
        "among",
        "deadline",
        "is_cancelled",
        "is_waiting",
        "keys",
        "size_bytes",
        "waiting",
    )

    among: dict[Any, None]
    deadline: float
    is_cancelled: bool
    is_waiting: bool
    keys: Sequence[int]
    size_bytes: int
    waiting: "WaitingFetches"

    def changed(self, key: int, topic: str, partition: int) -> None:
        raise NotImplementedError

    def ready(self) -> None:
        """It waits no longer: respond."""
        raise NotImplementedError

    def late(self) -> None:
        self.waiting.drop(self)
        self.ready()

    def cancel(self) -> None:
        if self._waits_for is not None:
            super().cancel()
            return
        self.is_cancelled = True
        self.waiting.drop(self)
        self.fail(Failure(CancelledError()))  # type: ignore[no-untyped-call]


class CountingWaiter(Waiter):
    """One that counts what there is of each of its partitions, which may be very many.

    Attributes:
        keys: in order.
        offsets, max_sizes: from where on of each, and how much at most.
        available: how many bytes there are of each.
        lacking_bytes: how many more are to come.
    """

    __slots__ = ("available", "lacking_bytes", "max_sizes", "offsets")

    keys: "array[int]"

    def __init__(self, min_bytes: int = 0, count: int = 1, held_bytes: int = 0) -> None:
        super().__init__(cancellable=True)
        self.is_waiting = False
        self.keys, self.offsets = array("q"), array("q")
        self.max_sizes, self.available = array("i"), array("q")
        self.lacking_bytes = min_bytes
        self.size_bytes = _WAITER_BYTES + held_bytes + _PARTITION_BYTES * count

    def count(self, topic: str, partition: int, offset: int, max_size: int) -> int | None:
        """How many bytes there are of a partition now; None when its response is an error."""
        raise NotImplementedError

    def add(self, key: int, offset: int, max_size: int, available: int) -> None:
        """Expect something of a partition, behind those with smaller keys."""
        self.keys.append(key)
        self.offsets.append(offset)
        self.max_sizes.append(max_size)
        self.available.append(available)
        self.lacking_bytes -= available

    def changed(self, key: int, topic: str, partition: int) -> None:
        keys = self.keys
        n = bisect_left(keys, key)
        found: int | None = 0
        while found is not None and n < len(keys) and keys[n] == key:
            found = self.count(topic, partition, self.offsets[n], self.max_sizes[n])
            if found is not None:
                self.lacking_bytes -= found - self.available[n]
                self.available[n] = found
            n += 1
        if found is None or self.lacking_bytes <= 0:
            self.waiting.wake(self)


def key_of(topic: str, partition: int) -> int:
    """A number for a partition, as good as unique: the hash is keyed by a secret of the process."""
    return hash((topic, partition))


class WaitingFetches:
    """All fetches that wait at one broker; lives in the reactor's thread.

    Attributes:
        limit_bytes: what they may hold together; beyond it the oldest are answered early.
        used_bytes: what they do hold, about.
    """

    _log = ModuleLogger()

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
        self._deadlines = Deadlines(clock, scheduler)
        # By the key of a partition: who listens to it, nearly always fetches that wait.
        self._by_key: dict[int, Listener | set[Listener]] = {}
        self._narrow: dict[Waiter, None] = {}  # oldest first
        self._wide: dict[Waiter, None] = {}
        self._recounting: dict[tuple[str, int], bool] = {}  # True: it has changed meanwhile
        self._early: list[Waiter] = []  # no longer wait, and are answered in the next round
        self.is_stopping = False

    def hold(
        self,
        waiter: CountingWaiter,
        places: Sequence[Place],
        available: Sequence[int],
        max_wait_ms: int,
        *,
        is_old: bool = False,
    ) -> None:
        """Tell a waiter when to respond, perhaps at once; not while the broker stops.

        Args:
            places: what it waits for; of more than `QUANTUM_ENTRIES` it is yet to be counted.
            available: how many bytes of each there are.
            is_old: whether there may be more by now: then it is counted, too.
        """
        if len(places) > QUANTUM_ENTRIES:
            self._hold(waiter, len(places), max_wait_ms)
            self._look_in_turns(waiter, places)
            return
        keyed = []
        for n, each in enumerate(places):
            keyed.append((key_of(each.topic, each.partition), n))
        keyed.sort()
        for key, n in keyed:
            waiter.add(key, places[n].offset, places[n].max_size, available[n])
            self.listen(waiter, key)
        self._hold(waiter, len(places), max_wait_ms)
        for key, n in keyed if is_old else ():
            if waiter.is_waiting:
                waiter.changed(key, places[n].topic, places[n].partition)

    def hold_one(self, waiter: Waiter, key: int, max_wait_ms: int) -> None:
        """The same of one that waits for a single partition, by its key, and counts nothing."""
        waiter.keys, waiter.size_bytes = (key,), _WAITER_BYTES + _PARTITION_BYTES
        if self._by_key.setdefault(key, waiter) is not waiter:
            self.listen(waiter, key)
        self._hold(waiter, 1, max_wait_ms)

    def hold_deaf(self, waiter: Waiter, max_wait_ms: int) -> None:
        """The same of one that whoever made it wakes."""
        waiter.keys, waiter.size_bytes = (), _WAITER_BYTES
        self._hold(waiter, 0, max_wait_ms)

    def _look_in_turns(self, waiter: CountingWaiter, places: Sequence[Place]) -> None:
        """Count what there is of so many partitions that all that is done for each takes turns.

        It hears of each one before that is looked at, so that it misses nothing in between.
        """
        # Keys are hashes, so these are about as large as each other; in order, all of them are.
        buckets: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]

        def put(n: int) -> None:
            key = key_of(places[n].topic, places[n].partition)
            buckets[(key >> _BUCKET_SHIFT) + _BUCKETS // 2].append((key, n))

        in_order: list[Place] = []

        def add(bucket: list[tuple[int, int]]) -> None:
            for key, n in sorted(bucket):
                place = places[n]
                in_order.append(place)
                waiter.add(key, place.offset, place.max_size, 0)

        def look(n: int) -> None:
            if not waiter.is_waiting:
                return
            self.listen(waiter, waiter.keys[n])
            each = in_order[n]
            found = waiter.count(each.topic, each.partition, each.offset, each.max_size)
            if found is not None:
                waiter.lacking_bytes -= found - waiter.available[n]
                waiter.available[n] = found
            if found is None or waiter.lacking_bytes <= 0:
                self.wake(waiter)

        numbers, take_turns = range(len(places)), partial(cooperatively, self._scheduler)
        added = then(take_turns(numbers, put), lambda _: take_turns(buckets, add))
        then(added, lambda _: take_turns(numbers, look))

    def __len__(self) -> int:
        return len(self._narrow) + len(self._wide)

    def committed(self, log: Log) -> None:
        if self._by_key:
            self.changed(log.topic, log.partition)

    def changed(self, topic: str, partition: int) -> None:
        """A partition was committed, created or deleted: wake those that it satisfies."""
        key = hash((topic, partition))  # `key_of`, written out: this runs for every flush
        found = self._by_key.get(key)
        if found is None:
            return
        if (topic, partition) in self._recounting:
            self._recounting[topic, partition] = True
            return
        if not isinstance(found, set):
            self._tell(found, key, topic, partition)
            return

        def tell(listener: Listener) -> None:
            if listener.is_waiting:
                self._tell(listener, key, topic, partition)

        recounted = cooperatively(self._scheduler, list(found), tell)
        if isinstance(recounted, Deferred):
            self._recounting[topic, partition] = False
            recounted.addCallback(lambda _: self._recounted(topic, partition))

    def _tell(self, listener: Listener, key: int, topic: str, partition: int) -> None:
        """Tell one, whose fault keeps neither the others waiting nor whoever has changed it."""
        try:
            listener.changed(key, topic, partition)
        except Exception:
            self._log.failure("telling who waits failed")

    def wake_all(self) -> None:
        self.is_stopping = True
        for waiter in [*self._narrow, *self._wide]:
            self.wake(waiter)
        self._deadlines.stop()

    def _recounted(self, topic: str, partition: int) -> None:
        if self._recounting.pop((topic, partition)):
            self.changed(topic, partition)

    def wake(self, waiter: Waiter) -> None:
        self.drop(waiter)
        waiter.ready()

    def drop(self, waiter: Waiter) -> None:
        """Have a waiter wait no longer; again is harmless."""
        if not waiter.is_waiting:
            return
        waiter.is_waiting = False
        waiters = self._wide if waiter in self._wide else self._narrow
        del waiters[waiter]
        waiter.among.pop(waiter, None)
        self.used_bytes -= waiter.size_bytes
        keys = waiter.keys
        if len(keys) == 1 and self._by_key.get(keys[0]) is waiter:  # nearly always
            del self._by_key[keys[0]]
        elif len(keys) <= QUANTUM_ENTRIES:
            for key in set(keys):
                self.forget(waiter, key)
        else:
            cooperatively(self._scheduler, keys, lambda key: self.forget(waiter, key))

    def _hold(self, waiter: Waiter, count: int, max_wait_ms: int) -> None:
        waiter.is_waiting, waiter.is_cancelled, waiter.waiting = True, False, self
        (self._wide if count > WIDE_FETCHES else self._narrow)[waiter] = None
        self._deadlines.add(waiter, max_wait_ms / 1000)
        self.used_bytes += waiter.size_bytes
        while self.used_bytes > self.limit_bytes:
            early = next(chain(self._wide, self._narrow))
            self.drop(early)
            # Not at once: its connection may have a next one, which makes room for itself.
            if not self._early:
                self._clock.callLater(0, self._answer_early)
            self._early.append(early)

    def _answer_early(self) -> None:
        waiters, self._early = self._early, []
        cooperatively(self._scheduler, waiters, _answer)

    def listen(self, listener: Listener, key: int) -> None:
        """Tell of each change of a partition, until `forget`."""
        others = self._by_key.setdefault(key, listener)
        if isinstance(others, set):
            others.add(listener)
        elif others is not listener:
            self._by_key[key] = {others, listener}

    def forget(self, listener: Listener, key: int) -> None:
        others = self._by_key.get(key)
        if isinstance(others, set):
            others.discard(listener)
            if len(others) == 1:
                self._by_key[key] = others.pop()
        elif others is listener:
            del self._by_key[key]


def _answer(waiter: Waiter) -> None:
    if not waiter.is_cancelled:
        waiter.ready()
