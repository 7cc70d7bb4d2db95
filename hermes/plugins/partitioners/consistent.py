"""Consistent hashing: when a topic gets more partitions, as few keys as possible move.

Source: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014), which needs
no ring in memory and moves 1/n of the keys to the n-th partition. It can remove the last partition
only, which is all that is needed: partitions are numbered without holes.
"""

import hashlib
import random
from typing import Any

from zope.interface import implementer

from hermes.errors import LocalProtocolError
from hermes.interfaces import IPartitioner

_MASK = 0xFFFFFFFFFFFFFFFF


@implementer(IPartitioner)
class ConsistentPartitioner:
    """Consistent hashing of keys (str, bytes, int), stable everywhere; random without a key."""

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        if key is None:
            return random.randrange(partition_count)
        digest = hashlib.blake2b(_key_bytes(key), digest_size=8).digest()
        return _jump(int.from_bytes(digest, "big"), partition_count)


def _key_bytes(key: Any) -> bytes:
    # The first byte distinguishes 7, "7" and b"7".
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, int):
        return b"i%d" % key
    raise LocalProtocolError(f"a key of type {type(key).__name__}; use str, bytes or int")


def _jump(state: int, count: int) -> int:
    chosen, following = -1, 0
    while following < count:
        chosen = following
        state = (state * 2862933555777941757 + 1) & _MASK
        following = int((chosen + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return chosen
