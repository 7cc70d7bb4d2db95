"""The records that ZooKeeper's requests and responses are made of, and their layout.

    Id    string scheme | string id
    ACL   int permissions | Id
    Stat  long czxid, mzxid, ctime, mtime | int version, cversion, aversion |
          long ephemeralOwner | int dataLength, numChildren | long pzxid

Source: `zookeeper.jute`.
"""

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from hermes.coordination.embedded.jute import JuteReader, encode_string

_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")


class AclPermission(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class EventType(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class AclIdentity(NamedTuple):
    """`scheme`: `world`, `auth`, `digest` or `ip`.

    `name`: `anyone`, nothing, `user:hash`, or an address.
    """

    scheme: str
    name: str


class Acl(NamedTuple):
    """An entry of a node's access control list: bits of `AclPermission`, and who has them."""

    permissions: int
    identity: AclIdentity

    def encode(self) -> bytes:
        scheme, name = self.identity
        return _INT.pack(self.permissions) + encode_string(scheme) + encode_string(name)

    @classmethod
    def read(cls, reader: JuteReader) -> "Acl":
        return cls(reader.int32(), AclIdentity(reader.string(), reader.string()))


_ANYONE: Final = AclIdentity("world", "anyone")
OPEN_ACL: Final = (Acl(AclPermission.ALL, _ANYONE),)
READ_ACL: Final = (Acl(AclPermission.READ, _ANYONE),)


class Stat(NamedTuple):
    """What a client is given about a node besides its data; named as ZooKeeper names it.

    Attributes:
        czxid, mzxid, pzxid: the transactions that created the node, last set its data, and by
            which a child last came or went.
        ctime, mtime: when it was created, and its data last set, in ms since 1970.
        version, cversion, aversion: how often its data, its children, its ACL have changed.
        ephemeral_owner: the session that it lives with; 0 when it is persistent.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int

    def encode(self) -> bytes:
        return _STAT.pack(*self)
