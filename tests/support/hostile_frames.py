"""Requests of the broker's protocol that are almost right: structure first, then damage.

A frame is built as a client would build it, but each count, length, number and name may be one that
hurts, message sets may be torn, nested or lie about their codec, and afterwards bits may flip.
"""

import gzip
import random
import struct
import zlib
from collections.abc import Callable

from cramjam import snappy

__all__ = ["BrokerFrames"]

_NUMBERS = [-1, 0, 1, 2, 3, -2, 127, 255, 256, 32767, -32768, 65535, 2**31 - 1, -(2**31), 100_001]
_LONG_NUMBERS = [*_NUMBERS, 2**63 - 1, -(2**63), 2**53, 2**32]
_NAMES = [
    *(b"", b".", b"..", b"../x", b"a\0b", b"/etc", b"a b", b"%s{topic}\n", b"\xff\xfe"),
    *(b"x" * 255, b"x" * 256, b"x" * 32767, b"\x1b]0;x\x07", "ü".encode(), b".hermes_lock"),
]
_TYPES = [0, 1, 2, 3, 4, *range(64, 82)]
_UNKNOWN_TYPES = [5, 63, 70, 100, -1, 32767, -32768]
_XERIAL = bytes.fromhex("82534e4150505900")


class BrokerFrames:
    """Makes frames without end.

    Args:
        chance: decides everything.
        topics: how many topics the well-formed names are of.
    """

    def __init__(self, chance: random.Random, topics: int = 20) -> None:
        self._chance = chance
        self._topics = topics

    def opening(self) -> bytes:
        """What a connection starts with: nothing."""
        return b""

    def frame(self) -> bytes:
        """One frame with its size, right or not."""
        request_type = self._chance.choice(_TYPES)
        body = self._body(request_type)
        if self._likely(0.03):
            request_type = self._chance.choice(_UNKNOWN_TYPES)
        data = bytearray(struct.pack(">h", request_type) + body)
        if self._likely(0.03):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        size = self._number(len(data), 0.02)
        if self._likely(0.02):
            data += self._chance.randbytes(self._chance.randrange(50))
        return _int32(size) + bytes(data)

    def _body(self, request_type: int) -> bytes:
        version = _int16(self._number(0, 0.03))
        match request_type:
            case 0:
                return self._produce()
            case 1:
                return self._fetch()
            case 2:
                return self._many(self._fetch)
            case 3:
                return self._many(self._produce)
            case 4:
                return self._place() + self._time() + _int32(self._number(10, 0.4))
            case 64:
                acks = _int16(self._number(self._chance.choice([1, 2]), 0.1))
                timeout = _int32(self._chance.choice([0, 1, 100, 5000, -1]))
                return version + acks + timeout + self._many(self._produce)
            case 65:
                wait = _int32(self._chance.choice([0, 1, 20, -1]))
                return version + wait + _int32(self._number(1, 0.3)) + self._many(self._fetch)
            case 66:
                some = self._many(self._name) if self._likely(0.6) else _int16(-1)
                return version + some
            case 67:
                return version + self._place() + self._time()
            case 68:
                return version + self._name()
            case 80:
                message = self._chance.choice([b"n,,n=a,r=b", b"", b"c=biws,r=b,p=", b"\xff" * 9])
                return version + self._name() + _int32(self._number(len(message), 0.2)) + message
            case _:
                times = b"".join(self._time() for _ in range(3))
                return version + self._place() + times

    def _likely(self, share: float) -> bool:
        return self._chance.random() < share

    def _number(self, right: int, share: float) -> int:
        return self._chance.choice(_NUMBERS) if self._likely(share) else right

    def _time(self) -> bytes:
        right = self._chance.choice([-1, -2, 0, 100])
        return _int64(self._chance.choice(_LONG_NUMBERS) if self._likely(0.4) else right)

    def _name(self) -> bytes:
        name = b"t%d" % self._chance.randrange(self._topics)
        if self._likely(0.2):
            name = self._chance.choice(_NAMES)
        return _int16(self._number(len(name), 0.05)) + name

    def _place(self) -> bytes:
        return self._name() + _int32(self._number(0, 0.15))

    def _fetch(self) -> bytes:
        return self._place() + self._time() + _int32(self._number(1000, 0.3))

    def _produce(self) -> bytes:
        message_set = self._message_set()
        return self._place() + _int32(self._number(len(message_set), 0.05)) + message_set

    def _many(self, make: Callable[[], bytes]) -> bytes:
        count = self._chance.choice([0, 1, 2, 3, 10])
        parts = [make() for _ in range(count)]
        return _int16(self._number(count, 0.08)) + b"".join(parts)

    def _message_set(self, depth: int = 0) -> bytes:
        parts = [self._message(depth) for _ in range(self._chance.choice([0, 1, 1, 1, 2, 5]))]
        data = b"".join(parts)
        return data[: self._chance.randrange(len(data) + 1)] if self._likely(0.08) else data

    def _message(self, depth: int) -> bytes:
        kind, attributes = self._chance.random(), 0
        payload = self._chance.randbytes(self._chance.choice([0, 1, 20, 60, 1000]))
        if kind < 0.12 and depth < 5:
            attributes, payload = 1, gzip.compress(self._message_set(depth + 1), 1)
        elif kind < 0.24 and depth < 5:
            attributes, payload = 2, self._snappy(depth + 1)
        elif kind < 0.28:
            attributes = self._chance.choice([3, 4, 5, 127, 128, 129, 255])
        if attributes and self._likely(0.2):
            payload = payload[: self._chance.randrange(len(payload) + 1)]
        crc = self._chance.getrandbits(32) if self._likely(0.06) else zlib.crc32(payload)
        magic = self._chance.choice([0, 2, 127, 255]) if self._likely(0.08) else 1
        head = bytes([magic]) + (bytes([attributes]) if magic else b"") + struct.pack(">I", crc)
        body = head + payload
        return _int32(self._number(len(body), 0.05)) + body

    def _snappy(self, depth: int) -> bytes:
        block = bytes(snappy.compress_raw(self._message_set(depth)))
        if self._likely(0.5):
            return block
        sizes = _int32(self._number(1, 0.2)) * 2 + _int32(self._number(len(block), 0.2))
        return _XERIAL + sizes + block


def _int16(value: int) -> bytes:
    return struct.pack(">H", value % 2**16)


def _int32(value: int) -> bytes:
    return struct.pack(">I", value % 2**32)


def _int64(value: int) -> bytes:
    return struct.pack(">Q", value % 2**64)
