"""What consumers say of themselves when they join: which topics they want.

    int16 version | int32 number of topics | each: int16 length, UTF-8 | what later versions add

Assignors read the rest; the coordinator only has to know which offsets are still of use.
"""

import struct
from collections.abc import Iterable
from typing import Final

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Read the topics of all members; None where a member says something else."""
    topics: set[str] = set()
    try:
        for each in metadata:
            topics.update(_topics(each))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    (count,) = _INT.unpack_from(metadata, 2)
    if count < 0 or count * 2 > len(metadata):
        raise ValueError("more topics than bytes")
    position, topics = 6, []
    for _ in range(count):
        (length,) = _SHORT.unpack_from(metadata, position)
        position += 2
        if not 0 <= length <= len(metadata) - position:
            raise ValueError("a topic that isn't there")
        topics.append(metadata[position : position + length].decode())
        position += length
    return topics
