"""The default partitioner: it puts a key where the JVM's clients put it.

Source: Kafka 0.7's `math.abs(key.hashCode) % partitions`, with the 32-bit `hashCode` of Java. It
can be negative for one hash out of 2^32, see `JavaHashPartitioner`.
"""

import math
import random
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from zope.interface import implementer

from hermes.errors import LocalProtocolError
from hermes.interfaces import IPartitioner

# After how many units the number is cut to 32 bits again: until then it stays quick to multiply.
_UNMASKED: Final = 32


def java_hash(key: Any) -> int:
    """Compute Java's `hashCode` of the same key.

        >>> java_hash("user-7")
        -836031819

    Args:
        key: a str, as String; a bool, as Boolean; an int of 32 bits, as Integer, of 64 bits, as
            Long; a float, as Double; bytes, as `Arrays.hashCode(byte[])`, since a Java array's
            own hash differs between processes.

    Returns:
        A signed 32-bit number.

    Raises:
        LocalProtocolError: a key of another type or an int beyond 64 bits; send it as a str.
    """
    if isinstance(key, str):
        return _string_hash(key)
    if isinstance(key, bytes):
        return _bytes_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, float):
        return _fold(_double_bits(key))
    if isinstance(key, int):
        if -(2**31) <= key < 2**31:
            return int(key)
        if -(2**63) <= key < 2**63:
            return _fold(key)
        raise LocalProtocolError(f"the key {key} has more than 64 bits; send it as a str")
    raise LocalProtocolError(
        f"a key of type {type(key).__name__} has no Java hash; use str, bytes, int, float or bool"
    )


@implementer(IPartitioner)
class JavaHashPartitioner:
    """`abs(hash) % count` as the JVM computes it, and a random partition without a key.

    Java's `abs` leaves -2^31 negative, so that for this one hash the JVM's remainder isn't a valid
    partition unless it is 0. Here `abs` is the mathematical one: the same partition for every key
    for which the JVM finds a valid one.

    Attributes:
        keys_by_java_hash: lets a producer partition many keys at once, in the compiled core.
    """

    keys_by_java_hash = True

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        if key is None:
            return random.randrange(partition_count)
        return abs(java_hash(key)) % partition_count


@lru_cache(maxsize=16_384)
def _string_hash(text: str) -> int:
    # Java counts UTF-16 code units; lone surrogates are legal there and in a str.
    units: Sequence[int]
    try:
        units = text.encode("latin-1")  # where they are bytes, which takes half as long
    except UnicodeEncodeError:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    result = 0
    for start in range(0, len(units), _UNMASKED):
        for unit in units[start : start + _UNMASKED]:
            result = 31 * result + unit
        result &= 0xFFFFFFFF
    return _signed(result)


def _bytes_hash(data: bytes) -> int:
    result = 1
    for byte in data:
        result = (31 * result + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return _signed(result)


def _fold(value: int) -> int:
    bits = value & 0xFFFFFFFFFFFFFFFF
    return _signed((bits ^ (bits >> 32)) & 0xFFFFFFFF)


def _double_bits(value: float) -> int:
    # To Double.hashCode all NaNs are equal.
    canonical = math.nan if math.isnan(value) else value
    bits: int = struct.unpack(">q", struct.pack(">d", canonical))[0]
    return bits


def _signed(bits: int) -> int:
    return bits - 0x100000000 if bits & 0x80000000 else bits
