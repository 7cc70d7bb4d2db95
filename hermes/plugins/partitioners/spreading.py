"""Partitioners that spread messages regardless of their contents: evenly, or in long runs."""

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import IPartitioner
from hermes.plugins.partitioners.java_hash import JavaHashPartitioner


@implementer(IPartitioner)
class RandomPartitioner:
    """A random partition each time; keys are ignored."""

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        return random.randrange(partition_count)


@implementer(IPartitioner)
class RoundRobinPartitioner:
    """One partition after another, for each topic separately; keys are ignored."""

    def __init__(self) -> None:
        # `next` on a count is atomic, so threads need no lock.
        self._counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        return next(self._counts[topic]) % partition_count


@implementer(IPartitioner)
class StickyPartitioner:
    """Messages without a key stay with one random partition for a while; keys use Java's hash.

    Random partitions cut each batch of an asynchronous producer into many small sets. With one
    partition sets stay large, which compresses better and costs the broker less.

    Args:
        calls: how many times in a row a topic's partition is chosen, 1 or more; a producer's
            `batch_size` is a good value.
    """

    keys_by_java_hash = True

    def __init__(self, calls: int = 200) -> None:
        if calls < 1:
            raise ConfigError("partitioner_options.calls", f"expected 1 or more, got {calls}")
        self._calls = calls
        self._by_key = JavaHashPartitioner()
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, int]] = {}

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        if key is not None:
            return self._by_key.partition(topic, key, partition_count)
        with self._lock:
            chosen, left = self._held.get(topic, (0, 0))
            if left == 0 or chosen >= partition_count:
                chosen, left = random.randrange(partition_count), self._calls
            self._held[topic] = (chosen, left - 1)
            return chosen
