"""The stamp: what a producer that is audited puts before each payload, and how it is taken off.

0.7's messages have no room for headers, so the stamp is part of the payload. A stamped payload:

    position  length  type    what
    0         4       bytes   F5 48 41 55: "HAU" after a byte that no UTF-8 text and no JSON has
    4         1       uint8   the stamp's version: 1
    5         1       uint8   n, the length of the host's name
    6         8       int64   when it was stamped: ms since 1970, 0 to 2^48 - 1
    14        8       uint64  the process that stamped it: a random number, never 0
    22        4       uint32  the message's number in that process: modulo 2^32, from 0
    26        n       bytes   the host's name, UTF-8
    26 + n            bytes   the payload

Everything is big-endian. What begins otherwise, or ends within the stamp, has none: all of it is
the payload. A payload that begins like this by chance has the same 40 bits, and 16 bits of the time
that are 0; audited producers stamp it again, and so get it back whole. Records of Kafka's format
may have their stamp in a header instead, alone.

docs/audit.md says what the stamps are for; `loops.tally` counts by them. Knows no clock.
"""

import struct
from typing import Final, NamedTuple

from hermes.errors import LocalProtocolError

#: The first five bytes: magic and version.
STAMP_START: Final = b"\xf5HAU\x01"

#: The header of a record that has a stamp, where its value doesn't begin with one.
STAMP_HEADER: Final = b"hermes-audit"

#: What is before the host's name. Times at and above the limit are none that a producer writes.
STAMP: Final = struct.Struct(">5sBqQI")
TIME_LIMIT_MS: Final = 1 << 48

_MAX_HOST_BYTES: Final = 255
_PROCESS_LIMIT: Final = 1 << 64
_NUMBER_LIMIT: Final = 1 << 32
_MASK: Final = (1 << 64) - 1


class Stamp(NamedTuple):
    """What a stamp says.

    Attributes:
        time_ms: when it was made, in ms since 1970, by the producer's clock.
        process: the process that made it; 1 to 2^64 - 1.
        number: the message's number in that process, modulo 2^32.
        host: the name of the producer's host; bytes that are not UTF-8 are replaced.
    """

    time_ms: int
    process: int
    number: int
    host: str


class Stamper:
    """Makes the stamps of one process. Not for several threads at a time.

    Args:
        process: its random number, 1 to 2^64 - 1; others raise LocalProtocolError.
        host: its host's name; shortened to 255 bytes.
    """

    def __init__(self, process: int, host: str) -> None:
        if not 0 < process < _PROCESS_LIMIT:
            raise LocalProtocolError(f"a process's number is 1 to 2^64 - 1, not {process}")
        self._process = process
        self._host = host.encode("utf-8", "replace")[:_MAX_HOST_BYTES]
        self._next = 0

    @property
    def size_bytes(self) -> int:
        return STAMP.size + len(self._host)

    def stamped(self, payloads: list[bytes], time_ms: int) -> list[bytes]:
        """Put a stamp before each payload, numbered in their order.

        `time_ms` is now, in ms since 1970; it is kept within what a stamp can say.
        """
        time_ms = min(max(time_ms, 0), TIME_LIMIT_MS - 1)
        number, host = self._next, self._host
        self._next = (number + len(payloads)) % _NUMBER_LIMIT
        head = STAMP.pack(STAMP_START, len(host), time_ms, self._process, 0)[:-4]
        return [
            b"%b%b%b%b" % (head, ((number + place) % _NUMBER_LIMIT).to_bytes(4), host, payload)
            for place, payload in enumerate(payloads)
        ]


def read_stamp(payload: bytes) -> tuple[Stamp | None, bytes]:
    if payload[:5] != STAMP_START or len(payload) < STAMP.size:
        return None, payload
    _, host_bytes, time_ms, process, number = STAMP.unpack_from(payload)
    end = STAMP.size + host_bytes
    if end > len(payload) or not 0 <= time_ms < TIME_LIMIT_MS or not process:
        return None, payload
    host = payload[STAMP.size : end].decode("utf-8", "replace")
    return Stamp(time_ms, process, number, host), payload[end:]


def without_stamp(payload: bytes) -> bytes:
    return payload if payload[:5] != STAMP_START else read_stamp(payload)[1]


def mixed(number: int, crc: int) -> int:
    """What one message adds to the sum of its window: 64 bits of its number and its payload's CRC.

    It is a bijection (the last step of splitmix64, whose author is Sebastiano Vigna), so two
    messages of a process add the same only if equal: one missing and one there twice never cancel.
    """
    value = (number << 32 | crc) + 0x9E3779B97F4A7C15 & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
