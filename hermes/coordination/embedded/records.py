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


class Permission(IntFlag):
    """What an ACL can allow."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class EventType(IntEnum):
    """What happened to a node that is watched."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Identity(NamedTuple):
    """Who a client is, or who an ACL means.

    Attributes:
        scheme: `world`, `auth`, `digest` or `ip`.
        name: `anyone`, nothing, `user:hash`, or an address.
    """

    scheme: str
    name: str


class Acl(NamedTuple):
    """One entry of a node's access control list.

    Attributes:
        permissions: bits of `Permission`.
        identity: to whom they are granted.
    """

    permissions: int
    identity: Identity

    def encode(self) -> bytes:
        """Encode for the wire."""
        scheme, name = self.identity
        return _INT.pack(self.permissions) + encode_string(scheme) + encode_string(name)

    @classmethod
    def read(cls, reader: JuteReader) -> "Acl":
        """Read one.

        Raises:
            RemoteProtocolError: it does not fit.
        """
        return cls(reader.int32(), Identity(reader.string(), reader.string()))


_ANYONE: Final = Identity("world", "anyone")
OPEN_ACL: Final = (Acl(Permission.ALL, _ANYONE),)
READ_ACL: Final = (Acl(Permission.READ, _ANYONE),)


class Stat(NamedTuple):
    """What a client is given about a node besides its data; named as ZooKeeper names it.

    Attributes:
        czxid: the transaction that created the node.
        mzxid: the one that last set its data.
        ctime: when it was created, in ms since 1970.
        mtime: when its data was last set, in ms since 1970.
        version: how often its data was set.
        cversion: how often a child came or went.
        aversion: how often its ACL was set.
        ephemeral_owner: the session that it lives with; 0 when it is persistent.
        data_length: in bytes.
        num_children: how many there are.
        pzxid: the transaction by which a child last came or went.
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
        """Encode for the wire."""
        return _STAT.pack(*self)
