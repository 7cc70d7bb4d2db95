"""Requests of ZooKeeper's protocol that are almost right, as `hostile_frames` for the broker's."""

import random
import struct

from jute_frames import OPEN_ACL, connect_request, text

__all__ = ["JuteFrames"]

_NUMBERS = [-1, 0, 1, 2**31 - 1, -(2**31), 255, 65536, -2]
_PATHS = [
    *(b"", b"/", b"//", b"/a/", b"a", b"/..", b"/\0", b"/\xff", b"/a", b"/a/b", b"/x" * 200),
    *(b"/zookeeper/config", b"/\x1b]0;x\x07", b"/" + b"y" * 70_000),
]
_CREATE, _DELETE, _EXISTS, _GET, _SET, _GET_ACL, _SET_ACL, _CHILDREN = range(1, 9)
_SYNC, _PING, _CHILDREN2, _CHECK, _MULTI, _CREATE2, _AUTH, _WATCHES = (
    9,
    11,
    12,
    13,
    14,
    15,
    100,
    101,
)
_OPERATIONS = [*range(1, 10), _PING, _CHILDREN2, _CHECK, _MULTI, _CREATE2, _AUTH, _WATCHES]
_OTHERS = [0, 10, 16, 17, 19, 20, 21, 22, 102, 103, 105, 106, 9999, -1, -10]
_CLOSE = -11


class JuteFrames:
    """Makes frames without end.

    Args:
        chance: decides everything.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def opening(self) -> bytes:
        """What a connection starts with: mostly a session."""
        kind = self._chance.random()
        if kind < 0.04:
            return self._chance.randbytes(self._chance.randrange(60))
        if kind < 0.08:
            return self._chance.choice([b"ruok", b"stat", b"mntr", b"dump", b"kill", b"RUOK"])
        return connect_request(
            timeout_ms=self._number(4000),
            session=self._chance.choice([0, 0, 0, 0, 1, -1, 2**62]),
            password=self._chance.choice([bytes(16), b"", bytes(16), self._chance.randbytes(16)]),
            seen_zxid=self._chance.choice([0, 0, 0, 0, 0, 1, -1, 2**62]),
        )

    def frame(self) -> bytes:
        """One frame with its size, right or not."""
        operation = self._chance.choice(_OPERATIONS)
        if self._likely(0.03):
            operation = self._chance.choice(_OTHERS)
        elif self._likely(0.02):
            operation = _CLOSE
        data = bytearray(struct.pack(">ii", self._chance.randrange(-5, 100), operation))
        data += self._body(operation)
        if self._likely(0.04):
            del data[self._chance.randrange(len(data)) :]
        if data and self._likely(0.03):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        size = self._chance.choice(_NUMBERS) if self._likely(0.01) else len(data)
        return struct.pack(">i", size) + bytes(data)

    def _body(self, operation: int) -> bytes:
        match operation:
            case 1 | 15:
                flags = self._int(self._chance.randrange(8))
                return self._text(self._path()) + self._data() + self._acl() + flags
            case 2 | 13:
                return self._text(self._path()) + self._version()
            case 3 | 4 | 8 | 12:
                return self._text(self._path()) + bytes([self._chance.randrange(3)])
            case 5:
                return self._text(self._path()) + self._data() + self._version()
            case 7:
                return self._text(self._path()) + self._acl() + self._version()
            case 14:
                return self._multi()
            case 100:
                name = b"u%d:p" % self._chance.randrange(10)
                return self._int(0) + self._text(b"digest") + self._text(name)
            case 101:
                zxid = struct.pack(">q", self._chance.choice([0, 2**62, -1]))
                lists = [
                    self._int(2) + self._text(self._path()) + self._text(self._path())
                    for _ in range(3)
                ]
                return zxid + b"".join(lists)
            case _:
                return self._text(self._path()) + self._chance.randbytes(4)

    def _multi(self) -> bytes:
        parts = []
        for operation in self._chance.choices([1, 2, 5, 13, 15, 3], k=self._chance.randrange(6)):
            done = bytes([self._likely(0.05)])
            parts.append(self._int(operation) + done + self._int(-1) + self._body(operation))
        return b"".join(parts) + self._int(-1) + b"\1" + self._int(-1)

    def _likely(self, share: float) -> bool:
        return self._chance.random() < share

    def _number(self, right: int) -> int:
        return self._chance.choice(_NUMBERS) if self._likely(0.06) else right

    def _int(self, right: int) -> bytes:
        return struct.pack(">i", self._number(right))

    def _version(self) -> bytes:
        return struct.pack(">i", self._chance.choice([-1, -1, 0, 1, 2**31 - 1]))

    def _text(self, value: bytes) -> bytes:
        return self._int(len(value)) + value

    def _data(self) -> bytes:
        if self._likely(0.1):
            return struct.pack(">i", -1)
        return self._text(self._chance.randbytes(self._chance.choice([0, 2, 30, 3000])))

    def _path(self) -> bytes:
        if self._likely(0.2):
            return self._chance.choice(_PATHS)
        return b"/s%d" % self._chance.randrange(50) + b"/n" * self._chance.randrange(3)

    def _acl(self) -> bytes:
        if self._likely(0.8):
            return OPEN_ACL
        schemes = [b"world", b"auth", b"digest", b"ip", b"x509", b""]
        identities = [b"anyone", b"", b"u:p", b"10.0.0.0/8", b"10.0.0.0/99", b"127.0.0.1"]
        count = self._chance.randrange(4)
        entries = [
            self._int(self._chance.randrange(32))
            + text(self._chance.choice(schemes))
            + text(self._chance.choice(identities))
            for _ in range(count)
        ]
        return self._int(count) + b"".join(entries)
