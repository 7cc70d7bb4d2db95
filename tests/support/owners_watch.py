"""Watches, in ZooKeeper itself, who owns the partitions of a topic in a group, all the time."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

__all__ = ["OwnersWatch"]

_LOOK_SECONDS = 0.02
_OFFSETS_EVERY = 10


class OwnersWatch(threading.Thread):
    """Looks at owners and offsets until `end`.

    Args:
        connect: ZooKeeper.
        group: the group.
        topic: the topic.
        places: its partitions, as `<broker>-<partition>`; all have an owner when it starts.

    Attributes:
        orphaned: partition -> for how many ms it had no owner that is alive, at most, and when
            that ended. It counts from the latest `count_out`: the one that would have been its
            next owner may be gone as well.
        registered: consumer id -> the partitions that it was seen to own, and since when, in ns of
            the monotonic clock.
        rewound: offsets that went back.
        looks: how many times it looked.
    """

    def __init__(self, connect: str, group: str, topic: str, places: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._alive: set[str] = set()
        self._counted_out = 0.0
        self.orphaned = dict.fromkeys(places, (0, 0))
        self.registered: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.rewound: list[str] = []
        self.looks = 0
        self._owners_path = f"/consumers/{group}/owners/{topic}"
        self._offsets_path = f"/consumers/{group}/offsets/{topic}"
        self._owners: dict[str, str] = {}
        self._version = -1
        self._offsets: dict[str, int] = {}
        self._client = KazooClient(connect, timeout=30)
        self._client.start(30)
        self._ended = threading.Event()
        self._failure: Exception | None = None

    def count_in(self, consumer_id: str) -> None:
        """From now on, this one is an owner to rely on."""
        self._alive = self._alive | {consumer_id}

    def count_out(self, consumer_id: str) -> None:
        """It is about to be killed or stopped: what it owns counts as orphaned."""
        self._alive = self._alive - {consumer_id}
        self._counted_out = time.monotonic()

    def run(self) -> None:
        seen = dict.fromkeys(self.orphaned, time.monotonic())
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                self._look(seen)
        except KazooException as error:
            self._failure = error

    def end(self) -> None:
        """Look no more.

        Raises:
            RuntimeError: it could not look all the time, and so knows nothing.
        """
        self._ended.set()
        self.join()
        self._client.stop()
        self._client.close()
        if self._failure is not None or not self.looks:
            raise RuntimeError(f"the owners were not watched: {self._failure!r}")

    def _look(self, seen: dict[str, float]) -> None:
        began = time.monotonic()
        self._read_owners()
        if self.looks % _OFFSETS_EVERY == 0:
            self._read_offsets()
        self.looks += 1
        alive = self._alive
        for place in self.orphaned:
            if self._owners.get(place, "").rpartition("-")[0] in alive:
                seen[place] = began
            else:
                gone_ms = round((began - max(seen[place], self._counted_out)) * 1000)
                self.orphaned[place] = max(self.orphaned[place], (gone_ms, round(began * 1e9)))

    def _read_owners(self) -> None:
        names, stat = self._client.get_children(self._owners_path, include_data=True)
        if stat.cversion != self._version:
            owners = {k: v.decode() for k, v in self._values(self._owners_path, names)}
            now = time.monotonic_ns()
            for place, stream in owners.items() - self._owners.items():
                self.registered[stream.rpartition("-")[0]].append((place, now))
            self._owners, self._version = owners, stat.cversion

    def _read_offsets(self) -> None:
        names = self._client.get_children(self._offsets_path)
        for place, value in self._values(self._offsets_path, names):
            before, now = self._offsets.get(place, 0), int(value)
            if now < before:
                self.rewound.append(f"{place}: from {before} to {now}")
            self._offsets[place] = now

    def _values(self, parent: str, names: Iterable[str]) -> list[tuple[str, bytes]]:
        asked = [(name, self._client.get_async(f"{parent}/{name}")) for name in names]
        found = []
        for name, answer in asked:
            with contextlib.suppress(NoNodeError):  # it has just gone; the version will tell
                found.append((name, answer.get()[0]))
        return found
