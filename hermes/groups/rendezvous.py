"""Which broker coordinates a group: rendezvous hashing of its name, so that all say the same.

When a broker comes or goes only the groups move that it gets or had.
"""

from collections.abc import Iterable
from hashlib import blake2b


def coordinator_for(group: str, brokers: Iterable[int]) -> int | None:
    """Choose the coordinator of a group.

    Args:
        group: its name.
        brokers: the ids of those that live, in any order.

    Returns:
        One of them; None where there is none.
    """
    name = group.encode(errors="surrogatepass")
    return max(brokers, key=lambda broker: (_weight(name, broker), broker), default=None)


def _weight(name: bytes, broker: int) -> bytes:
    return blake2b(name, digest_size=8, salt=broker.to_bytes(8, "big")).digest()
